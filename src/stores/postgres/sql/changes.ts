// stores/postgres/sql/changes.ts: the part of a commit that applies one group, change by change, in order.
import { move } from './move.js'

/** What a group has to lock besides its own jobs: the dependents of chains that it ends. */
const lockDependents = `
      -- Laterally, so that edges are looked up by their chain however many there are.
      if exists (select 1 from jsonb_array_elements(s->'x') e
                 cross join lateral (select 1 from edge d where d.chain = e.value->>'chain' and d.state = 'open' limit 1) d
                 where e.value->>'k' = 'r') then
        select count(*) into found_n from jsonb_array_elements(s->'x') e
          cross join lateral (select d.dependent from edge d where d.chain = e.value->>'chain' and d.state = 'open' offset 0) d
          cross join lateral (select 1 from job o where o.id = d.dependent offset 0) j
          where e.value->>'k' = 'r';
        begin -- all or none: two transactions that hold some each would keep each other waiting until they end
        select count(*) into got from jsonb_array_elements(s->'x') e
          cross join lateral (select d.dependent from edge d where d.chain = e.value->>'chain' and d.state = 'open' offset 0) d
          cross join lateral (select 1 from job o where o.id = d.dependent for update skip locked) j
          where e.value->>'k' = 'r';
        if got < found_n then
          why := 'busy'; over := s->'x'->0->>'id'; raise exception using errcode = 'MR001';
        end if;
        exception when sqlstate 'MR001' then null;
        end;
      end if;
`

const insert = `
        -- An insert is refused for the first of: its id, its dedup key, a missing dependency, a full queue.
        if not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || (x->>'id'), 0)) then
          why := 'busy'; over := x->>'id'; exit;
        end if;
        select v1_record(j)::text into stands from job j where j.id = x->>'id';
        if found then why := 'duplicate'; over := x->>'id'; exit; end if;
        if x ? 'key' then
          if not pg_try_advisory_xact_lock(hashtextextended('{S}:key:' || (x->>'key'), 0)) then
            why := 'busy'; over := x->>'id'; exit;
          end if;
          select y.job into over from key y where y.key = x->>'key' and (y.until is null or y.until > t);
          if found then
            why := 'duplicate';
            select v1_record(j)::text into stands from job j where j.id = over;
            exit;
          end if;
        end if;
        a := null;
        a.pending := 0;
        edges := '';
        if x ? 'edges' then
          chains := '{}'; policies := '{}'; edge_states := '{}';
          for e in select value->>0 as on_id, value->>1 as policy from jsonb_array_elements(x->'edges') loop
            select coalesce(j.chain, j.id) into chain_id from job j where j.id = e.on_id;
            if not found then why := 'missing'; over := e.on_id; exit; end if;
            continue when chain_id = any (chains);
            chains := chains || chain_id;
            -- Whoever ends the chain locks its last job, and either sees this edge or is told to try again.
            select count(*), count(*) filter (where j.state in ('waiting', 'delayed', 'waiting-children', 'active')) into found_n, got
              from (select c.id from job c where c.chain = chain_id union all select chain_id) y(id)
              cross join lateral (select o.state from job o where o.id = y.id offset 0) j;
            if got > 0 then
              select count(*) into got_ahead from (
                select 1 from (select c.id from job c where c.chain = chain_id union all select chain_id) y(id)
                  cross join lateral (select 1 from job o where o.id = y.id
                    and o.state in ('waiting', 'delayed', 'waiting-children', 'active') for share skip locked) j) y;
              if got_ahead < got then why := 'busy'; over := x->>'id'; exit; end if;
              edge_state := 'open';
            else
              select case j.state when 'completed' then 'ended' else 'broken' end into edge_state
                from (select c.id from job c where c.chain = chain_id union all select chain_id) y(id)
                cross join lateral (select o.state, o.chain_index, o.seq from job o where o.id = y.id offset 0) j
                order by j.chain_index desc, j.seq desc limit 1;
            end if;
            if edge_state <> 'ended' then a.pending := a.pending + 1; end if;
            if edge_state = 'broken' then a.broken_at := t; end if;
            edges := edges || left(edge_state, 1);
            policies := policies || e.policy; edge_states := edge_states || edge_state;
          end loop;
          exit when why is not null;
        end if;
        if x->>'kind' = 'job' then
          bound := v1_cell('limit:' || (x->>'qn'));
          if bound->>'backlog' is not null then
            -- Not the queue's row: claims wait for that, and they must not wait for somebody's transaction.
            if not pg_try_advisory_xact_lock(hashtextextended('{S}:backlog:' || (x->>'q'), 0)) then why := 'busy'; over := x->>'id'; exit; end if;
            if v1_backlog((x->>'q')::int, c_of, c_what, c_n) >= (bound->>'backlog')::numeric then
              why := 'full'; over := x->>'id'; exit;
            end if;
          end if;
        end if;
        place := nextval('{S}.place');
        a.id := x->>'id'; a.seq := place; a.queue := (x->>'q')::int; a.lane := (x->>'l')::int; a.kind := x->>'kind';
        a.run_at := coalesce((x->>'ra')::bigint, t + (x->>'ri')::bigint);
        a.state := case when a.pending > 0 then 'waiting-children'
          when x ? 'edges' or x->>'state' = 'waiting-children' then case when a.run_at > t then 'delayed' else 'waiting' end
          else x->>'state' end;
        if a.state = 'waiting' then a.run_at := null; end if;
        a.priority := (x->>'p')::bigint;
        a.ord := case when (x->>'lifo')::boolean then -1 - place else place end;
        a.fence := greatest(fence_now, fence_top);
        a.attempt := 0; a.attempts := (x->>'at')::bigint; a.stale := false;
        a.chain := x->>'chain'; a.chain_index := (x->>'ci')::int; a.parent := x->>'parent';
        a.stalls := 0; a.ahead := false;
        a.touched := a.chain is not null or a.chain_index <> 0 or a.parent is not null or a.pending > 0;
        a.data := x->>'d'; a.settings := x->>'s'; a.dedup := x->>'dedup'; a.created_at := t;
        a.due_at := v1_due(a);
        insert into job values (a.*);
        if x ? 'edges' then
          insert into edge select a.id, y.place, y.chain, y.policy, y.state
            from unnest(chains, policies, edge_states) with ordinality y(chain, policy, state, place);
        end if;
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
        if recording then ev := ev || v1_entered(a, t); end if;
        born := born || format('[%s,%s,"%s"]', a.ord, a.fence, edges);
        born_ids := born_ids || a.id;
`

const note = `
        select * into j from job where id = x->>'id' for update skip locked;
        if not found then
          over := x->>'id';
          why := case when exists (select 1 from job where id = over) then 'busy' else 'missing' end;
          exit;
        end if;
        if j.fence <> (x->>'f')::bigint or (x ? 'held' and not (j.state = 'active' and j.lease_until > t)) then
          why := 'fence'; over := j.id; stands := v1_record(j); exit;
        end if;
        -- A holder that is gone without a sign would keep the job locked: its transaction does not outlast its lease.
        if within and x ? 'held' and (current_setting('idle_in_transaction_session_timeout') = '0'
            or current_setting('idle_in_transaction_session_timeout')::interval > (j.lease_until - t) * interval '1 ms') then
          perform set_config('idle_in_transaction_session_timeout', least(greatest(j.lease_until - t, 100), 2147483647)::text, true);
        end if;
        if x ? 'd' or x ? 'progress' then
          update job set data = case when x ? 'd' then x->>'d' else data end, touched = true,
            progress = coalesce(x->>'progress', progress) where id = j.id;
        end if;
        if x ? 'progress' and recording then
          j.progress := x->>'progress';
          ev := ev || v1_told('progress', j, t, null);
        end if;
        if x ? 'logs' then
          insert into log (job, n, at, attempt, line)
            select j.id, coalesce((select max(n) from log where job = j.id), 0) + o.ordinality, t, j.attempt, o.value
            from jsonb_array_elements_text(x->'logs') with ordinality o;
        end if;
`

const release = `
        -- An older snapshot does not show who has come to wait since: the row that those locked was not changed.
        if within and current_setting('transaction_isolation') <> 'read committed' then
          raise exception 'isolation %', current_setting('transaction_isolation') using errcode = 'MR003';
        end if;
        -- Its dependents were locked before anything was written.
        if exists (select 1 from edge where chain = x->>'chain' and state = 'open') and not exists (
          select 1 from job o where o.chain = x->>'chain' and o.state in ('waiting', 'delayed', 'waiting-children', 'active')
          union all
          select 1 from job o where o.id = x->>'chain' and o.state in ('waiting', 'delayed', 'waiting-children', 'active'))
        then
          for e in select d.dependent, d.place from edge d cross join lateral (select o.seq from job o where o.id = d.dependent offset 0) o
                   where d.chain = x->>'chain' and d.state = 'open' order by o.seq loop
            update edge set state = case x->>'outcome' when 'completed' then 'ended' else 'broken' end
              where dependent = e.dependent and place = e.place;
            select * into j from job where id = e.dependent for update;
            a := j;
            if x->>'outcome' <> 'completed' then
              a.broken_at := t; -- kept in whatever state it is: a later retry looks at it
              if j.state = 'waiting-children' then a.fence := a.fence + 1; end if;
            else
              a.pending := a.pending - 1;
              if j.state = 'waiting-children' and a.pending = 0 then
                a.fence := a.fence + 1;
                a.state := case when a.run_at > t then 'delayed' else 'waiting' end;
                if a.state = 'waiting' then
                  a.run_at := null;
                  place := nextval('{S}.place');
                  a.ord := case when j.ord < 0 then -1 - place else place end;
                end if;
              end if;
            end if;
            a.due_at := v1_due(a);
            update job set (state, ord, fence, run_at, broken_at, due_at, pending, touched) =
              (a.state, a.ord, a.fence, a.run_at, a.broken_at, a.due_at, a.pending, true) where id = a.id;
            if a.state <> j.state then
              if a.kind = 'job' then
                c_of := c_of || a.lane || a.lane; c_what := c_what || j.state || a.state; c_n := c_n || -1 || 1;
              end if;
              if recording then ev := ev || v1_entered(a, t); end if;
              if a.state = 'waiting' and a.kind = 'job' then
                w_lane := w_lane || a.lane; w_p := w_p || a.priority; w_o := w_o || a.ord;
              end if;
            end if;
            if a.due_at is not null and a.state <> 'active' and (a.state <> j.state or a.due_at is distinct from j.due_at) then
              d_queue := d_queue || a.queue; d_at := d_at || a.due_at;
            end if;
          end loop;
        end if;
`

const put = `
        over := x->>'key';
        if not within and (over like 'pause:%' or over like 'limit:%') then
          -- Claims under way go by what stood before; those to come, by this.
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
          case x->>'k'
          when 'i' then
            ${insert}
          when 'm' then
            ${move}
          when 'n' then
            ${note}
          when 'r' then
            ${release}
          else
            ${put}
          end case;
        end loop;
`

/**
 * One group, in `s`. Its changes are applied in order; \`why\` says why it was refused, over what, and what stands there.
 * A group that may be refused after some of it was written is undone to where it began.
 */
export const changes = `
      why := null; over := null; stands := null;
      born := '{}'; born_ids := '{}';
      k_ev := cardinality(ev); k_rv := cardinality(rv); k_c := cardinality(c_of); k_d := cardinality(d_at);
      k_w := cardinality(w_lane); k_cr := cardinality(credited); k_b := cardinality(bounded);
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
        credited := credited[1:k_cr]; bounded := bounded[1:k_b];
        g_out := g_out || format('["x",%s,"%s",%s,%s]', s->>'n', why, to_json(over), coalesce(stands, 'null'));
        g_short := g_short || format('["x",%s,"%s",%s,%s]', s->>'n', why, to_json(over),
          case when why = 'version' then coalesce(stands, 'null') when stands is null then 'null' else '1' end);
      elsif cardinality(born) > 0 then
        if s ? 'w' then
          -- Something else in the group may have touched what it inserted: they are answered as they stand after it.
          select array_agg(v1_record(o)::text order by y.n) into some_text
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
