// stores/postgres/functions/changes.ts: the part of a commit that applies one group, change by change, in order.
import { backlogStates } from '../../../job/limits.js'
import { LOGS_KEPT } from '../../../job/job.js'
import { READ_BYTES } from '../../../store/read-pages.js'
import { lockDependents, release, wantedEdges, writeEdges } from './edges.js'
import { lockJob } from './lock.js'
import { move } from './move-one.js'
import { conflictingJob, movedJob } from './refusals.js'

const insert = `
        -- An insert is refused for the first of: its id, its dedup key, a missing dependency, a full queue.
        if not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || (x->>'id'), 0)) then
          why := 'busy'; over := x->>'id'; exit;
        end if;
${conflictingJob("x->>'id'")}
        if stands is not null then why := 'duplicate'; over := x->>'id'; exit; end if;
        if x ? 'key' then
          if not pg_try_advisory_xact_lock(hashtextextended('{S}:key:' || (x->>'key'), 0)) then
            why := 'busy'; over := x->>'id'; exit;
          end if;
          select y.job into over from key y where y.key = x->>'key' and (y.until is null or y.until > t);
          if found then
            why := 'duplicate';${conflictingJob('over')}
            exit;
          end if;
        end if;
        a := null;
        a.pending := 0;
        edges := '';
        if x ? 'edges' then
          ${wantedEdges}
          select string_agg(left(y.state, 1), '' order by y.n) into edges from unnest(ew.states) with ordinality y(state, n);
        end if;
        if x->>'kind' = 'job' then
          bound := setting_{V}('limit:' || (x->>'qn'));
          if jsonb_typeof(bound->'backlog') = 'number' then
            -- Not the queue's row: claims wait for that lock, and must not wait for a user transaction.
            if not pg_try_advisory_xact_lock(hashtextextended('{S}:backlog:' || (x->>'q'), 0)) then why := 'busy'; over := x->>'id'; exit; end if;
            if backlog_{V}((x->>'q')::int, c_of, c_what, c_n) >= (bound->>'backlog')::numeric then
              why := 'full'; over := x->>'id'; exit;
            end if;
          end if;
          if x ? 'g' then
            f := group_limit_{V}(bound, x->>'g')->'backlog';
            if jsonb_typeof(f) = 'number' then
              if not pg_try_advisory_xact_lock(hashtextextended('{S}:backlog:' || (x->>'q') || ' ' || (x->>'g'), 0)) then why := 'busy'; over := x->>'id'; exit; end if;
              whose_backlog := (x->>'q') || ' ' || (x->>'g');
              if not backlogs ? whose_backlog then
                -- Counted while no other transaction can add to it: the cost is one index entry per job in it.
                select backlogs || jsonb_build_object(whose_backlog, count(*)) into backlogs
                  from unnest('{${backlogStates.join(',')}}'::text[]) y(state) cross join lateral (
                    select 1 from job j where j.queue = (x->>'q')::int and j.grp = x->>'g' and j.state = y.state and (j.state || '') <> 'active' and j.kind = 'job') z;
              end if;
              if (backlogs->whose_backlog)::numeric >= f::numeric then
                why := 'full'; over := x->>'id';
                select case when sent >= ${READ_BYTES} then to_json(o.id)::text else record_{V}(o)::text end, o.id into stands, oldest
                  from unnest('{${backlogStates.join(',')}}'::text[]) y(state) cross join lateral (
                    select * from job n where n.queue = (x->>'q')::int and n.grp = x->>'g' and n.state = y.state and (n.state || '') <> 'active' and n.kind = 'job'
                    order by n.seq limit 1) z join job o on o.id = z.id order by z.seq limit 1;
                sent := sent + coalesce(octet_length(stands), 0);
                exit;
              end if;
              backlogs := jsonb_set(backlogs, array[whose_backlog], to_jsonb((backlogs->whose_backlog)::numeric + 1));
            end if;
          end if;
        end if;
        new_ord := nextval('{S}.job_order');
        a.id := x->>'id'; a.seq := new_ord; a.queue := (x->>'q')::int; a.lane := (x->>'l')::int; a.kind := x->>'kind';
        a.run_at := coalesce((x->>'ra')::bigint, t + (x->>'ri')::bigint);
        a.state := case when a.pending > 0 then 'waiting-children'
          when x ? 'edges' or x->>'state' = 'waiting-children' then case when a.run_at > t then 'delayed' else 'waiting' end
          else x->>'state' end;
        if a.state = 'waiting' then a.run_at := null; end if;
        a.priority := (x->>'p')::bigint;
        a.grp := x->>'g';
        a.ord := case when x ? 'g' then case when a.state = 'waiting' then (next_turns_{V}(a.queue, a.grp, a.priority))[1] else 0 end
          when (x->>'lifo')::boolean then -1 - new_ord else new_ord end;
        a.fence := greatest(fence_now, fence_top);
        a.attempt := 0; a.attempts := (x->>'at')::bigint; a.stale := false;
        a.chain := x->>'chain'; a.chain_index := (x->>'ci')::int; a.parent := x->>'parent';
        a.stalls := 0; a.ahead := false;
        a.touched := a.chain is not null or a.chain_index <> 0 or a.pending > 0;
        a.data := x->>'d'; a.settings := x->>'s'; a.dedup := x->>'dedup'; a.created_at := t;
        a.due_at := due_at_{V}(a);
        insert into job (id, seq, queue, lane, kind, run_at, state, priority, grp, ord, fence, attempt, attempts, stale,
            chain, chain_index, parent, stalls, ahead, touched, data, settings, dedup, created_at, due_at, pending, broken_at)
          values (a.id, a.seq, a.queue, a.lane, a.kind, a.run_at, a.state, a.priority, a.grp, a.ord, a.fence, a.attempt, a.attempts, a.stale,
            a.chain, a.chain_index, a.parent, a.stalls, a.ahead, a.touched, a.data, a.settings, a.dedup, a.created_at, a.due_at, a.pending, a.broken_at);
        if x ? 'edges' then
          ${writeEdges}        end if;
        if x ? 'key' then
          insert into key values (x->>'key', a.id, t + (x->>'win')::bigint)
            on conflict (key) do update set job = excluded.job, until = excluded.until;
        end if;
        if a.kind = 'job' then
          c_of := c_of || a.lane || a.queue; c_what := c_what || a.state || '+added'::text; c_n := c_n || 1 || 1;
        else
          c_of := c_of || a.lane; c_what := c_what || 'schedule'::text; c_n := c_n || 1;
        end if;
        if a.due_at is not null then d_queue := d_queue || a.queue; d_at := d_at || a.due_at; end if;
        if a.state = 'waiting' and a.kind = 'job' then w_lane := w_lane || a.lane; w_p := w_p || a.priority; w_o := w_o || a.ord; end if;
        if recording then ev := ev || state_event_{V}(a, t); end if;
        born := born || format('[%s,%s,"%s"]', a.ord, a.fence, edges);
        born_ids := born_ids || a.id;
`

const note = `${lockJob}
        if x ? 'held' and not (j.state = 'active' and j.lease_until > t) then
          why := 'fence'; over := j.id; stands := ${movedJob}; exit;
        end if;
        -- If a lease holder disappears silently, its transaction would keep the job locked: the transaction must not
        -- outlast the lease.
        if within and x ? 'held' and (current_setting('idle_in_transaction_session_timeout') = '0'
            or current_setting('idle_in_transaction_session_timeout')::interval > (j.lease_until - t) * interval '1 ms') then
          perform set_config('idle_in_transaction_session_timeout', least(greatest(j.lease_until - t, 100), 2147483647)::text, true);
        end if;
        if x ?| '{d,progress,memo}' then
          update job set data = case when x ? 'd' then x->>'d' else data end, touched = true,
            progress = coalesce(x->>'progress', progress), memo = coalesce(x->>'memo', memo) where id = j.id;
        end if;
        if x ? 'progress' and recording then
          j.progress := x->>'progress';
          ev := ev || note_event_{V}('progress', j, t, x->>'about');
        end if;
        if x ? 'steps' then
          insert into step (job, name, n, result)
            select j.id, o.value->>0, coalesce((select max(n) from step where job = j.id), 0) + o.ordinality, o.value->>1
            from jsonb_array_elements(x->'steps') with ordinality o
            on conflict (job, name) do update set result = excluded.result;
        end if;
        if x ? 'events' and recording then
          ev := ev || array(select note_event_{V}(o.value->>0, j, t, o.value->>1) from jsonb_array_elements(x->'events') with ordinality o order by o.ordinality);
        end if;
        if x ? 'logs' then
          insert into log (job, n, at, attempt, line)
            select j.id, coalesce((select max(n) from log where job = j.id), 0) + o.ordinality, t, j.attempt, o.value
            from jsonb_array_elements_text(x->'logs') with ordinality o;
          delete from log where job = j.id and n <= (select max(o.n) from log o where o.job = j.id) - ${LOGS_KEPT};
        end if;
`

const put = `
        over := x->>'key';
        if not within and (over like 'pause:%' or over like 'limit:%') then
          -- Open claims use the old value, later ones use this one.
          perform pg_advisory_xact_lock(hashtextextended('{S}:bounds:' || substr(over, 7), 0));
        end if;
        if not pg_try_advisory_xact_lock(hashtextextended('{S}:cell:' || over, 0)) then why := 'busy'; exit; end if;
        select * into cell_now from cell where key = over for update skip locked;
        if not found and exists (select 1 from cell where key = over) then why := 'busy'; exit; end if;
        if coalesce(cell_now.version, 0) <> (x->>'v')::bigint then
          why := 'version';
          if cell_now.key is not null then
            stands := json_build_object('key', cell_now.key, 'value', cell_now.value, 'version', cell_now.version, 'at', cell_now.at);
          end if;
          exit;
        end if;
        if x->>'value' is null then delete from cell where key = over;
        else
          insert into cell values (over, x->>'value', (x->>'v')::bigint + 1, t)
            on conflict (key) do update set value = excluded.value, version = excluded.version, at = excluded.at;
        end if;
        if over like 'pause:%' or over like 'limit:%' then bounded := bounded || substr(over, 7); end if;
        if recording then
          for e in select value from jsonb_array_elements(x->'events') loop
            ev := ev || json_strip_nulls(json_build_object('type', e.value->>'type', 'id', '', 'queue', e.value->>'queue',
              'name', coalesce(e.value->>'name', ''), 'at', t, 'worker', e.value->>'worker'))::text;
          end loop;
        end if;
        over := null;
`

/** The changes of a group, until one is refused. */
const each = `
        for x in select value from jsonb_array_elements(s->'x') loop
          at_change := at_change + 1;
          case x->>'k'
          when 'i' then
            ${insert}
          when 'm' then
            backlogs := '{}';
            ${move}
          when 'n' then
            ${note}
          when 'r' then
            backlogs := '{}';
            ${release}
          else
            backlogs := '{}';
            ${put}
          end case;
        end loop;
`

/**
 * One group, in `s`. Its changes are applied in order. If it is refused, `why` holds the reason, `over` the id or key, and
 * `stands` the record or setting that conflicts. A group that may be refused after a write runs in a subtransaction (`t`).
 */
export const changes = `
      why := null; over := null; stands := null; at_change := -1;
      born := '{}'; born_ids := '{}';
      k_ev := cardinality(ev); k_rv := cardinality(rv); k_c := cardinality(c_of); k_d := cardinality(d_at);
      k_w := cardinality(w_lane); k_cr := cardinality(credited); k_b := cardinality(bounded);
      k_full := backlogs; oldest := null;
      ${lockDependents}
      if why is null then
        if s ? 't' then
          begin
            ${each}
            if why is not null then raise exception using errcode = 'MR001'; end if;
          exception when sqlstate 'MR001' then
            null;
          end;
        else
          ${each}
        end if;
      end if;
      if why is not null then
        ev := ev[1:k_ev]; rv := rv[1:k_rv]; d_queue := d_queue[1:k_d]; d_at := d_at[1:k_d];
        c_of := c_of[1:k_c]; c_what := c_what[1:k_c]; c_n := c_n[1:k_c];
        w_lane := w_lane[1:k_w]; w_p := w_p[1:k_w]; w_o := w_o[1:k_w];
        credited := credited[1:k_cr]; bounded := bounded[1:k_b]; backlogs := k_full;
        g_out := g_out || format('["x",%s,"%s",%s,%s,%s]', s->>'n', why, to_json(over), coalesce(stands, 'null'), at_change);
        g_short := g_short || format('["x",%s,"%s",%s,%s,%s]', s->>'n', why, to_json(over),
          case when why = 'version' then coalesce(stands, 'null') when stands is null then 'null' when why = 'full' then to_json(oldest)::text else '1' end, at_change);
      elsif cardinality(born) > 0 then
        if s ? 'w' then
          -- Another change of the group may have changed a job that it inserted: returns the records as they are after
          -- the group.
          select array_agg(record_{V}(o)::text order by y.n) into some_text
            from unnest(born_ids) with ordinality y(id, n) join job o on o.id = y.id;
          if cardinality(some_text) = cardinality(born) then
            g_out := g_out || format('["R",%s,[%s]]', s->>'n', array_to_string(some_text, ','));
            g_short := g_short || format('["R",%s,%s]', s->>'n', to_json(born_ids));
          else
            g_out := g_out || format('["g",%s,[%s]]', s->>'n', array_to_string(born, ','));
            g_short := g_short || format('["g",%s,[%s]]', s->>'n', array_to_string(born, ','));
          end if;
        else
          g_out := g_out || format('["g",%s,[%s]]', s->>'n', array_to_string(born, ','));
          g_short := g_short || format('["g",%s,[%s]]', s->>'n', array_to_string(born, ','));
        end if;
      end if;
`
