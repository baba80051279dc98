// stores/postgres/functions/claim.ts: the part of a commit that claims jobs, by merging the heads of the lanes that a
// worker handles.
import { READ_BYTES } from '../../../store/read-pages.js'
import { CLAIM_RETRY, countFitting, LARGE, MANY, manyEvents, rowBytes, unexpired, UNIT } from './fast-parts.js'

/**
 * The number of jobs of exhausted groups that a claim reads before it reads group by group; and how many more jobs than
 * wanted it reads at a time.
 */
const PASSED = 100
const SLACK = 50

/**
 * Records how far lanes have been read: other transactions are claiming the jobs that still wait before that. This does
 * not hold for lanes in which groups are skipped.
 */
const recordPositions = `for i in 1 .. lanes loop
          if not a_gated[i] then seen_at := seen_at || jsonb_build_object(a_lane[i]::text, jsonb_build_array(a_p[i], a_o[i])); end if;
        end loop;`

/**
 * One claim, in `k`: the worker, the queues, its handlers (`[name, versions, lease]`, in order), how many jobs it wants
 * and how many ahead; and `cursors`, the claim cursors: orders in lanes below which this process knows of no waiting job.
 *
 * Collects the lanes to claim from, with their leases and limits, and skips paused lanes and those at their limit without
 * reading their jobs. Then merges their heads and locks the jobs that no other transaction is claiming. One statement
 * leases all of them.
 */
export const claim = `
  for k in select value from jsonb_array_elements(b->'a') loop
    -- Not when the groups were decided: a lease must not lose that time.
    began := greatest(t, coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000)));
    skipped := false; filled := false; spent := 0;
    want := greatest(0, (k->>'want')::int);
    more := greatest(0, (k->>'ahead')::int);
    tids := '{}'; aheads := '{}'; leases := '{}'; stopped := '{}'; passed := '{}'; held_of := '{}'; passed_n := 0; each_n := 4; from_cursors := false;
    a_lane := '{}'; a_queue := '{}'; a_lease := '{}'; a_p := '{}'; a_o := '{}'; a_s := '{}'; a_max := '{}'; a_free := '{}';
    a_shared := '{}'; a_gated := '{}'; a_apart := '{}';
    b_key := '{}'; b_of := '{}'; b_left := '{}'; b_tokens := '{}'; b_back := '{}'; b_took := '{}'; b_rate := '{}'; limits_of := '{}'; active_of := '{}';
    ${collectLanes()}
    lanes := cardinality(a_lane);
    lines := 1;
    if lanes > 1 then
      lines := (select count(distinct case when y.shared then y.queue else 0 end) from unnest(a_queue, a_shared) y(queue, shared));
    end if;
    while lanes > 0 and want + more > 0 loop
      exhausted := true;
      if lanes = 1 and a_max[1] = 0 and a_free[1] = 0 and not a_gated[1] then
        if a_shared[1] then
          ${oneLane('j.grp is not null and (j.priority, j.ord, j.seq) > (a_p[1], a_o[1], a_s[1])', 'j.priority, j.ord, j.seq')}
        else
          ${oneLane('j.grp is null and (j.priority, j.ord) > (a_p[1], a_o[1])', 'j.priority, j.ord')}
        end if;
      else
        ${manyLanes()}
      end if;
      if exhausted then
        exit when not from_cursors;
        from_cursors := false; -- jobs below the claim cursors may be new
        ${recordPositions}
        a_p := array_fill(-9223372036854775808, array[lanes]); a_o := a_p; a_s := a_p;
        stopped := '{}';
      end if;
    end loop;

    claims := null;
    if spent = 0 and (cardinality(tids) > ${MANY} or exists (select 1 from unnest(tids) u(tid) cross join lateral (
        select 1 from job o where o.ctid = u.tid and (o.touched or octet_length(o.data) > ${LARGE}) offset 0) x)) then
      ${countFitting}
      if fit_n < cardinality(tids) then
        -- One lane without limits: the rest was locked, and stays waiting.
        tids := tids[1:fit_n]; aheads := aheads[1:fit_n]; leases := leases[1:fit_n];
        filled := true;
        cut := cut || a_queue[1];
      end if;
    end if;
    if filled then later := least(later, t); end if;
    if cardinality(tids) > 0 then
      with up as (
        update job j set state = 'active', fence = j.fence + 1, attempt = j.attempt + 1, worker = k->>'worker', claim = claim_no,
          lease_until = began + x.lease, due_at = began + x.lease, started_at = began, ahead = x.ahead
        from unnest(tids, aheads, leases) with ordinality as x(ctid, ahead, lease, n)
        where j.ctid = x.ctid
        returning claimed_record_{V}(j) as claimed_row, j.id, j.chain, j.attempt, j.lane, j.ahead, j.priority, j.ord, x.n
      )
      select array_agg(up.claimed_row order by up.ahead, up.n), array_agg(up.lane), array_agg(up.priority), array_agg(up.ord),
             string_agg(up.id, ${UNIT}) filter (where recording), string_agg(up.attempt::text, ',') filter (where recording),
             case when bool_or(up.chain is not null) then string_agg(coalesce(up.chain, ''), ${UNIT}) end
        into claims, lanes_in, ords, turns_in, stands, over, why from up;
      if true = any (a_shared) then
        perform advance_turn_{V}(y.queue, y.p, y.o) from (
          select l.queue, z.p, max(z.o) as o from unnest(lanes_in, ords, turns_in) z(lane, p, o) join lane l on l.id = z.lane where l.shared group by 1, 2) y;
      end if;
      for r in select y.lane, l.queue, y.n from (select z.lane, count(*)::int as n from unnest(lanes_in) z(lane) group by 1) y join lane l on l.id = y.lane loop
        c_of := c_of || r.lane || r.lane; c_what := c_what || 'waiting'::text || 'active'::text; c_n := c_n || -r.n || r.n;
        claimed := claimed || r.queue;
      end loop;
      if recording then
        ev := ev || ${manyEvents('active', { at: 'began', worker: "k->>'worker'", ids: 'stands', lanes: 'lanes_in', lane: "array_to_string(lanes_in, ',')", attempts: 'over', chains: 'why' })};
        many_n := many_n + cardinality(lanes_in) - 1;
      end if;
      if k ? 'cursors' then below := below || (k->'cursors'); end if;
      if from_cursors or not k ? 'cursors' then
        ${recordPositions}
      end if;
    end if;
    -- Jobs that still wait in a lane without limits are locked by a transaction that may release them without a notice.
    if want > 0 and lanes = 1 and a_max[1] = 0 and a_free[1] = 0 and not a_gated[1] then
      f := k->'cursors'->(a_lane[1]::text);
      skipped := skipped or exists (
        (select 1 from job j where j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and ${unexpired('j', 'began')} and j.grp is null
           and (j.priority, j.ord) > (coalesce((f->>0)::bigint, -9223372036854775808), coalesce((f->>1)::bigint, -9223372036854775808)) limit 1)
        union all
        (select 1 from job j where a_shared[1] and j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and ${unexpired('j', 'began')} and j.grp is not null limit 1));
    end if;
    if want > 0 and skipped then later := least(later, began + ${CLAIM_RETRY}); end if;
    for i in 1 .. cardinality(b_key) loop
      if b_took[i] > 0 and b_tokens[i] is not null then
        perform take_tokens_{V}(b_of[i], substr(b_key[i], strpos(b_key[i], ' ') + 1), array[b_rate[2 * i - 1], b_rate[2 * i]], b_took[i], began);
      end if;
    end loop;
    begun := begun || began;
    a_out := a_out || ('[' || coalesce(array_to_string(claims, ','), '') || ']');
  end loop;
`

/** Adds a limit: its key, its queue, how many claims it allows and, for a rate, its tokens. Its index is in `i`. */
function addLimit(queue: string, what: string, bound: string, active: string): string {
  return `
          b_key := b_key || (${queue} || ' ' || ${what}); b_of := b_of || ${queue};
          b_left := b_left || (number_{V}(${bound}->'concurrency') - ${active});
          rate := rate_of_{V}(${bound});
          tokens := null; back := null;
          if rate is not null then select y.remain, y.back into tokens, back from tokens_left_{V}(${queue}, ${what}, rate, began) y; end if;
          b_tokens := b_tokens || tokens; b_back := b_back || back; b_took := b_took || 0; b_rate := b_rate || coalesce(rate, '{0,0}');
          i := cardinality(b_key);
  `
}

/** Collects the lanes to claim from, each with the index of the limit of its queue and of its name, or 0. */
function collectLanes(): string {
  return `
    if want + more > 0 then
      for r in select q.id, q.name from queue q where q.name in (select jsonb_array_elements_text(k->'queues')) order by q.id loop
        -- A commit that writes a pause or a limit of this queue waits for open claims; claims do not wait for it.
        continue when not pg_try_advisory_xact_lock_shared(hashtextextended('{S}:bounds:' || r.name, 0));
        bound := setting_{V}('pause:' || r.name);
        continue when bound->'all' = 'true';
        halts := case when jsonb_typeof(bound->'names') = 'array' then bound->'names' else '[]' end;
        -- What is held is claimed again when its hold is over, if it waits.
        holds := case when bound ? 'holds' then holds_{V}(bound, began) else '{}' end;
        if holds ? '' then
          if has_waiting_{V}(r.id, '{}') then later := least(later, (holds->>'')::bigint); end if;
          continue;
        end if;
        bound := setting_{V}('limit:' || r.name);
        by_name := null;
        got := 0;
        gated := false;
        if is_limited_{V}(bound) then
          perform 1 from queue where id = r.id for update;
          -- The lock may have been waited for: the claims that held it used a later time than the start of this commit,
          -- and rates depend on time.
          began := greatest(began, coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000)));
          gated := limits_groups_{V}(bound);
          -- Counted after locking, in a snapshot of its own: no other transaction claims from this queue meanwhile.
          select coalesce(jsonb_object_agg(y.what, y.n) filter (where y.what like 'n%'), '{}'), coalesce(sum(y.n) filter (where y.what like 'n%'), 0),
                 coalesce(jsonb_object_agg(y.what, y.n) filter (where y.what like 'g%'), '{}')
            into by_name, queue_left, halted from (
            select z.what, sum(x.n) as n from (
              select j.lane, case when gated then j.grp end as grp, count(*) as n from job j where j.queue = r.id and j.state = 'active' and j.kind = 'job' group by 1, 2
              union all
              select o.lane, case when gated then o.grp end, count(*) from orphan o join lane m on m.id = o.lane where m.queue = r.id group by 1, 2
            ) x join lane l on l.id = x.lane cross join lateral (values ('n' || l.name), ('g' || x.grp)) z(what) where z.what is not null group by 1
          ) y;
          continue when number_{V}(bound->'concurrency') <= queue_left;
          if gated then
            limits_of := limits_of || jsonb_build_object(r.id::text, bound);
            active_of := active_of || jsonb_build_object(r.id::text, halted);
          end if;
          if limits_claims_{V}(bound) then
            ${addLimit('r.id', "''", 'bound', 'queue_left')}
            got := i;
          end if;
        end if;
        if exists (select 1 from jsonb_object_keys(holds) y(key) where y.key like 'g%') then gated := true; end if;
        for l in
          select l.id, l.name, l.shared, h.lease from lane l
          cross join lateral (
            select (e.value->>2)::bigint as lease
            from jsonb_array_elements(k->'handles') with ordinality e
            where (e.value->>0 = l.name or (e.value->>0 is null
                    and not exists (select 1 from jsonb_array_elements(k->'handles') o where o.value->>0 = l.name)))
              and (e.value->>1 is null or e.value->1 @> to_jsonb(l.version))
            order by e.ordinality limit 1
          ) h
          where l.queue = r.id and not halts ? l.name
        loop
          if holds ? ('n' || l.name) then
            if exists (
              (select 1 from job j where not l.shared and j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is null limit 1)
              union all
              (select 1 from job j where l.shared and j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is not null limit 1)) then
              later := least(later, (holds->>('n' || l.name))::bigint);
            end if;
            continue;
          end if;
          i := 0;
          if by_name is not null and limits_claims_{V}(bound->'names'->l.name) then
            i := array_position(b_key, r.id || ' n' || l.name);
            if i is null then
              ${addLimit('r.id', "('n' || l.name)", "(bound->'names'->l.name)", "coalesce((by_name->>('n' || l.name))::numeric, 0)")}
            end if;
            continue when b_left[i] <= 0;
          end if;
          if l.shared and gated then gated_in := gated_in || l.id; end if;
          a_lane := a_lane || l.id; a_queue := a_queue || r.id; a_lease := a_lease || l.lease;
          a_shared := a_shared || l.shared; a_gated := a_gated || (l.shared and gated); a_apart := a_apart || false;
          -- If groups are skipped, jobs below the last claimed one may be left.
          f := case when not (l.shared and gated) then k->'cursors'->(l.id::text) end;
          a_p := a_p || coalesce((f->>0)::bigint, -9223372036854775808);
          a_o := a_o || coalesce((f->>1)::bigint, -9223372036854775808);
          a_s := a_s || -9223372036854775808;
          a_max := a_max || got; a_free := a_free || i;
          if l.shared and gated and holds <> '{}' then
            i := cardinality(a_lane);
            select passed || coalesce(array_agg(i || ' ' || substr(y.key, 2)), '{}'), held_of || coalesce(jsonb_object_agg(i || ' ' || substr(y.key, 2), y.value), '{}')
              into passed, held_of from jsonb_each(holds) y where y.key like 'g%';
          end if;
        end loop;
      end loop;
      from_cursors := k ? 'cursors';
    end if;
  `
}

/** The most frequent case by far: one lane without limits, locked as it is read. */
function oneLane(from: string, order: string): string {
  return `
        -- Read in index order, and kept so: nothing has to be sorted.
        select array_agg(x.ctid) filter (where x.ok), array_agg(x.n > want) filter (where x.ok),
               count(*) filter (where x.ok and x.n <= want), count(*) filter (where x.ok and x.n > want), count(*), bool_and(x.ok),
               (array_agg(x.priority))[count(*) filter (where x.ok)], (array_agg(x.ord))[count(*) filter (where x.ok)]
          into new_tids, new_aheads, got, got_ahead, found_n, all_ok, last_p, last_o
        from (
          select z.*, bool_and(z.n <= want or z.fit) over (rows unbounded preceding) as ok from (
            select y.ctid, y.priority, y.ord, row_number() over () as n, y.stalls = 0 and coalesce(y.attempts, 2) > 1 as fit
            from (
              select j.ctid, j.priority, j.ord, j.stalls, j.attempts from job j
              where j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and ${unexpired('j', 'began')} and ${from}
              order by ${order} limit want + more for update skip locked
            ) y
          ) z
        ) x;
        if found_n > 0 then
          tids := tids || new_tids; aheads := aheads || new_aheads;
          leases := leases || array_fill(a_lease[1], array[got + got_ahead]);
          a_p[1] := coalesce(last_p, a_p[1]); a_o[1] := coalesce(last_o, a_o[1]);
          want := want - got;
          more := case when all_ok then more - got_ahead else 0 end; -- a job that must not be leased ahead ends its lane
        end if;
  `
}

/**
 * Candidates of every lane, merged as engine/claim.ts does. Jobs without a group form one sequence, and those with
 * a group form one for each queue. Of the heads of all sequences, the one with the lowest priority goes first, then the
 * one that was inserted first. Jobs behind a head wait for it: so a job's position in the merge is the highest `seq` so
 * far in its sequence. Limits, and whether a job may be leased ahead, are checked job by job. A lane (or a group in a
 * lane, if groups are limited) that yields no more jobs is left out; if there are several sequences, they have to be
 * merged again then.
 */
function manyLanes(): string {
  return `
        for c in
          select y.*, y.at || ' ' || y.grp as who from (
            select x.*, max(x.seq) filter (where x.grp is null or not (x.at || ' ' || x.grp = any (passed)))
              over (partition by case when a_shared[x.at] then a_queue[x.at] end, x.priority order by x.ord, x.seq) as key
            from lane_heads_{V}(a_lane, a_queue, a_shared, a_apart, a_p, a_o, a_s, stopped, passed, want + more + case when true = any (a_gated) then ${SLACK} else 0 end, each_n, began) x
          ) y order by y.priority, y.key nulls first, y.ord, y.seq
        loop
          exit when want + more = 0;
          continue when stopped @> array[c.at];
          exhausted := false;
          if a_gated[c.at] and c.who = any (passed) then
            later := least(later, (held_of->>c.who)::bigint);
            a_p[c.at] := c.priority; a_o[c.at] := c.ord; a_s[c.at] := c.seq;
            passed_n := passed_n + 1;
            if passed_n > ${PASSED} and not a_apart[c.at] then
              for i in 1 .. lanes loop
                if a_gated[i] and a_queue[i] = a_queue[c.at] then a_apart[i] := true; end if;
              end loop;
              exit;
            end if;
            exit when c.cut and lines > 1;
            continue;
          end if;
          if k ? 'cursors' and not from_cursors and c.tid = any (tids) then -- claimed above the claim cursor
            a_p[c.at] := c.priority; a_o[c.at] := c.ord; a_s[c.at] := c.seq;
            exit when c.cut and lines > 1;
            continue;
          end if;
          v_g := 0;
          if a_gated[c.at] then
            v_g := array_position(b_key, a_queue[c.at] || ' g' || c.grp);
            if v_g is null then
              f := group_limit_{V}(limits_of->(a_queue[c.at]::text), c.grp);
              ${addLimit('a_queue[c.at]', "('g' || c.grp)", 'f', "coalesce((active_of->(a_queue[c.at]::text)->>('g' || c.grp))::numeric, 0)")}
              v_g := i;
            end if;
          end if;
          over := null; -- why it cannot be claimed
          back := null;
          if a_max[c.at] + a_free[c.at] > 0 or b_left[v_g] is not null or b_tokens[v_g] is not null then
            foreach i in array array[a_max[c.at], a_free[c.at], v_g] loop
              continue when i = 0;
              if b_left[i] <= 0 then over := 'limit';
              elsif b_tokens[i] <= b_took[i] then over := coalesce(over, 'rate'); back := least(back, b_back[i]); end if;
            end loop;
            if want = 0 then over := 'ahead'; end if;
          end if;
          if over = 'rate' then later := least(later, back); end if;
          if over is not null or want = 0 and (c.stalls > 0 or coalesce(c.attempts, 2) <= 1) then
            if a_shared[c.at] and (b_left[a_max[c.at]] <= 0 or b_tokens[a_max[c.at]] <= b_took[a_max[c.at]]) then -- nor can any other job of its sequence
              for i in 1 .. lanes loop
                if a_shared[i] and a_queue[i] = a_queue[c.at] then stopped := stopped || i; end if;
              end loop;
            elsif a_gated[c.at] then passed := passed || c.who;
            else stopped := stopped || c.at;
            end if;
            exit when lines > 1;
            continue;
          end if;
          a_p[c.at] := c.priority; a_o[c.at] := c.ord; a_s[c.at] := c.seq;
          select spent + ${rowBytes('j')} into spent_now from job j where j.ctid = c.tid and j.state = 'waiting' for update skip locked;
          if found then
            spent := spent_now;
            tids := tids || c.tid; aheads := aheads || (want = 0); leases := leases || a_lease[c.at];
            if want > 0 then want := want - 1; else more := more - 1; end if;
            foreach i in array array[a_max[c.at], a_free[c.at], v_g] loop
              continue when i = 0;
              b_left[i] := b_left[i] - 1; b_took[i] := b_took[i] + 1;
            end loop;
            -- The answer is full: the rest is neither locked nor counted against a limit.
            if spent >= ${READ_BYTES} and want + more > 0 then filled := true; want := 0; more := 0; end if;
          else skipped := true;
          end if;
          exit when c.cut and lines > 1; -- jobs behind it in its sequence come before those of others
        end loop;
        -- When reading group by group, read more each time.
        if true = any (a_apart) then each_n := least(2 * each_n, 1024); end if;
  `
}
