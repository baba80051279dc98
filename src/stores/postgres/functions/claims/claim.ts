// stores/postgres/functions/claims/claim.ts: the function that makes one claim of a commit, as engine/claim.ts does.
import { READ_BYTES } from '../../../../store/read-pages.js'
import { CLAIM_RETRY, LARGE, MANY } from '../fast-parts.js'

/** The number of jobs of exhausted groups that a claim reads before it reads group by group. */
const PASSED = 100

/** How many more jobs than wanted a claim from limited groups reads at a time. */
const SLACK = 50

export const claim = `
-- One claim \`k\`: the worker, the queues, its handlers ([name, versions, lease], in order), how many jobs it wants and how
-- many ahead; and \`cursors\`, the claim cursors: orders in lanes below which this process knows of no waiting job.
--
-- Candidates of all lanes are merged. Jobs without a group form one sequence, and those with a group form one for each
-- queue. Of the heads of all sequences, the one with the lowest priority goes first, then the one that was inserted first.
-- Jobs behind a head wait for it: so a job's position in the merge is the highest \`seq\` so far in its sequence. Limits,
-- and whether a job may be leased ahead, are checked job by job. A lane (or a group in a lane, if groups are limited) that
-- yields no more jobs is left out; if there are several sequences, they have to be merged again then.
--
-- Returns the claimed rows, the time from which they are leased, when to claim again, the lanes in which groups are limited,
-- how far lanes were read, the queues of the claimed jobs and those of which some did not fit, what is to be counted, and
-- the events of so many jobs.
create or replace function {S}.claim_{V}(k jsonb, claim_no bigint, recording boolean, start bigint, clock bigint,
  out rows text, out began bigint, out later bigint, out gated int[], out positions jsonb, out queues int[], out cut int[],
  out of int[], out what text[], out n int[], out leased int, out events text) language plpgsql volatile
as $millrace$
#variable_conflict use_column
declare
  want int := greatest(0, (k->>'want')::int);
  more int := greatest(0, (k->>'ahead')::int);
  from_cursors boolean := k ? 'cursors';
  o record; c record; f jsonb; i int; g int;
  -- The lanes: their leases, limits and positions.
  lanes int := 0; sequences int := 1; plain boolean;
  a_lane int[] := '{}'; a_queue int[] := '{}'; a_lease bigint[] := '{}'; a_shared boolean[] := '{}'; a_gated boolean[] := '{}'; a_apart boolean[] := '{}';
  a_queue_limit int[] := '{}'; a_name_limit int[] := '{}'; a_p bigint[] := '{}'; a_o bigint[] := '{}'; a_s bigint[] := '{}'; read_p bigint[]; read_o bigint[];
  -- The limits: how many claims each allows, and the tokens of its rate.
  b_key text[] := '{}'; b_left numeric[] := '{}'; b_tokens numeric[] := '{}'; b_back bigint[] := '{}'; b_rate numeric[] := '{}'; b_took int[] := '{}';
  bounds jsonb := '{}'; actives jsonb := '{}';
  -- The groups that cannot be claimed from, and those that are held, with the ends of their holds.
  passed text[] := '{}'; held jsonb := '{}'; passed_n int := 0; each_n int := 4; stopped int[] := '{}';
  why text; back bigint; limit_key text;
  -- The jobs that are locked.
  tids tid[] := '{}'; aheads boolean[] := '{}'; leases bigint[] := '{}'; new_tids tid[]; new_aheads boolean[]; got int; got_ahead int; all_ok boolean; last_p bigint; last_o bigint;
  exhausted boolean; skipped boolean := false; filled boolean := false; spent bigint := 0; now_spent bigint;
begin
  -- Not when the groups were decided: a lease must not lose that time.
  began := greatest(start, coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000)));
  if want + more > 0 then
    for o in select * from open_lanes_{V}(k, began, clock) loop
      began := o.began;
      later := least(later, o.later);
      continue when o.lane is null;
      lanes := lanes + 1;
      a_lane := a_lane || o.lane; a_queue := a_queue || o.queue; a_lease := a_lease || o.lease;
      a_shared := a_shared || o.shared; a_gated := a_gated || o.gated; a_apart := a_apart || false;
      a_queue_limit := a_queue_limit || 0; a_name_limit := a_name_limit || 0;
      if o.limits <> '[]' then
        for c in select e.value->>0 as key, e.value->1 as bound, (e.value->>2)::numeric as active from jsonb_array_elements(o.limits) e loop
          i := array_position(b_key, c.key);
          if i is null then
            select b_key || c.key, b_left || y.remaining, b_tokens || y.tokens, b_back || y.back, b_rate || y.rate, b_took || 0
              into b_key, b_left, b_tokens, b_back, b_rate, b_took from limit_left_{V}(c.key, c.bound, c.active, began) y;
            i := cardinality(b_key);
          end if;
          if c.key like '% ' then a_queue_limit[lanes] := i; else a_name_limit[lanes] := i; end if;
        end loop;
      end if;
      if o.gated then
        gated := gated || o.lane;
        if o.bound is not null then
          bounds := bounds || jsonb_build_object(o.queue, o.bound);
          actives := actives || jsonb_build_object(o.queue, o.actives);
        end if;
        if o.holds <> '{}' then
          select passed || coalesce(array_agg(lanes || ' ' || substr(y.key, 2)), '{}'), held || coalesce(jsonb_object_agg(lanes || ' ' || substr(y.key, 2), y.value), '{}')
            into passed, held from jsonb_each(o.holds) y where y.key like 'g%';
        end if;
      end if;
      -- If groups are skipped, jobs below the last claimed one may be left.
      f := case when not o.gated then k->'cursors'->(o.lane::text) end;
      a_p := a_p || coalesce((f->>0)::bigint, -9223372036854775808);
      a_o := a_o || coalesce((f->>1)::bigint, -9223372036854775808);
      a_s := a_s || -9223372036854775808;
    end loop;
  end if;
  plain := lanes = 1 and a_queue_limit[1] = 0 and a_name_limit[1] = 0 and not a_gated[1];
  if lanes > 1 then
    sequences := (select count(distinct case when y.shared then y.queue else 0 end) from unnest(a_queue, a_shared) y(queue, shared));
  end if;

  while lanes > 0 and want + more > 0 loop
    exhausted := true;
    if plain then
      -- The most frequent case by far: one lane without limits, locked as it is read, in the order of its index.
      -- A job that must not be leased ahead ends its lane: those behind it stay waiting.
      if a_shared[1] then
        select array_agg(x.ctid) filter (where x.ok), array_agg(x.n > want) filter (where x.ok),
               count(*) filter (where x.ok and x.n <= want), count(*) filter (where x.ok and x.n > want), bool_and(x.ok),
               (array_agg(x.priority))[count(*) filter (where x.ok)], (array_agg(x.ord))[count(*) filter (where x.ok)]
          into new_tids, new_aheads, got, got_ahead, all_ok, last_p, last_o
        from (
          select y.*, bool_and(y.n <= want or y.fit) over (rows unbounded preceding) as ok from (
            select z.*, row_number() over () as n from (
              select j.ctid, j.priority, j.ord, j.stalls = 0 and coalesce(j.attempts, 2) > 1 as fit from job j
              where j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and j.grp is not null and is_unexpired_{V}(j, began) and (j.priority, j.ord, j.seq) > (a_p[1], a_o[1], a_s[1])
              order by j.priority, j.ord, j.seq limit want + more for update skip locked
            ) z
          ) y
        ) x;
      else
        select array_agg(x.ctid) filter (where x.ok), array_agg(x.n > want) filter (where x.ok),
               count(*) filter (where x.ok and x.n <= want), count(*) filter (where x.ok and x.n > want), bool_and(x.ok),
               (array_agg(x.priority))[count(*) filter (where x.ok)], (array_agg(x.ord))[count(*) filter (where x.ok)]
          into new_tids, new_aheads, got, got_ahead, all_ok, last_p, last_o
        from (
          select y.*, bool_and(y.n <= want or y.fit) over (rows unbounded preceding) as ok from (
            select z.*, row_number() over () as n from (
              select j.ctid, j.priority, j.ord, j.stalls = 0 and coalesce(j.attempts, 2) > 1 as fit from job j
              where j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and j.grp is null and is_unexpired_{V}(j, began) and (j.priority, j.ord) > (a_p[1], a_o[1])
              order by j.priority, j.ord limit want + more for update skip locked
            ) z
          ) y
        ) x;
      end if;
      if new_tids is not null then
        tids := tids || new_tids; aheads := aheads || new_aheads;
        leases := leases || array_fill(a_lease[1], array[got + got_ahead]);
        a_p[1] := coalesce(last_p, a_p[1]); a_o[1] := coalesce(last_o, a_o[1]);
        want := want - got;
      end if;
      if all_ok is not null then more := case when all_ok then more - got_ahead else 0 end; end if;
    else
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
          later := least(later, (held->>c.who)::bigint);
          a_p[c.at] := c.priority; a_o[c.at] := c.ord; a_s[c.at] := c.seq;
          passed_n := passed_n + 1;
          if passed_n > ${PASSED} and not a_apart[c.at] then
            for i in 1 .. lanes loop
              if a_gated[i] and a_queue[i] = a_queue[c.at] then a_apart[i] := true; end if;
            end loop;
            exit;
          end if;
          exit when c.cut and sequences > 1;
          continue;
        end if;
        if k ? 'cursors' and not from_cursors and c.tid = any (tids) then -- claimed above the claim cursor
          a_p[c.at] := c.priority; a_o[c.at] := c.ord; a_s[c.at] := c.seq;
          exit when c.cut and sequences > 1;
          continue;
        end if;
        g := 0;
        if a_gated[c.at] then
          limit_key := a_queue[c.at] || ' g' || c.grp;
          g := array_position(b_key, limit_key);
          if g is null then
            select b_key || limit_key, b_left || y.remaining, b_tokens || y.tokens, b_back || y.back, b_rate || y.rate, b_took || 0
              into b_key, b_left, b_tokens, b_back, b_rate, b_took
              from limit_left_{V}(limit_key, group_limit_{V}(bounds->(a_queue[c.at]::text), c.grp),
                coalesce((actives->(a_queue[c.at]::text)->>('g' || c.grp))::numeric, 0), began) y;
            g := cardinality(b_key);
          end if;
        end if;
        why := null; -- why it cannot be claimed
        back := null;
        if a_queue_limit[c.at] + a_name_limit[c.at] > 0 or b_left[g] is not null or b_tokens[g] is not null then
          foreach i in array array[a_queue_limit[c.at], a_name_limit[c.at], g] loop
            continue when i = 0;
            if b_left[i] <= 0 then why := 'limit';
            elsif b_tokens[i] <= b_took[i] then why := coalesce(why, 'rate'); back := least(back, b_back[i]); end if;
          end loop;
          if want = 0 then why := 'ahead'; end if;
        end if;
        if why = 'rate' then later := least(later, back); end if;
        if why is not null or want = 0 and (c.stalls > 0 or coalesce(c.attempts, 2) <= 1) then
          if a_shared[c.at] and (b_left[a_queue_limit[c.at]] <= 0 or b_tokens[a_queue_limit[c.at]] <= b_took[a_queue_limit[c.at]]) then -- nor can any other job of its sequence
            for i in 1 .. lanes loop
              if a_shared[i] and a_queue[i] = a_queue[c.at] then stopped := stopped || i; end if;
            end loop;
          elsif a_gated[c.at] then passed := passed || c.who;
          else stopped := stopped || c.at;
          end if;
          exit when sequences > 1;
          continue;
        end if;
        a_p[c.at] := c.priority; a_o[c.at] := c.ord; a_s[c.at] := c.seq;
        select spent + row_bytes_{V}(j) into now_spent from job j where j.ctid = c.tid and j.state = 'waiting' for update skip locked;
        if found then
          spent := now_spent;
          tids := tids || c.tid; aheads := aheads || (want = 0); leases := leases || a_lease[c.at];
          if want > 0 then want := want - 1; else more := more - 1; end if;
          foreach i in array array[a_queue_limit[c.at], a_name_limit[c.at], g] loop
            continue when i = 0;
            b_left[i] := b_left[i] - 1; b_took[i] := b_took[i] + 1;
          end loop;
          -- The answer is full: the rest is neither locked nor counted against a limit.
          if spent >= ${READ_BYTES} and want + more > 0 then filled := true; want := 0; more := 0; end if;
        else skipped := true;
        end if;
        exit when c.cut and sequences > 1; -- jobs behind it in its sequence come before those of others
      end loop;
      -- When reading group by group, read more each time.
      if true = any (a_apart) then each_n := least(2 * each_n, 1024); end if;
    end if;
    if exhausted then
      exit when not from_cursors;
      from_cursors := false; -- jobs below the claim cursors may be new
      read_p := a_p; read_o := a_o;
      a_p := array_fill(-9223372036854775808, array[lanes]); a_o := a_p; a_s := a_p;
      stopped := '{}';
    end if;
  end loop;

  -- One lane without limits: what does not fit into the answer was locked, and stays waiting.
  if plain and (cardinality(tids) > ${MANY} or exists (select 1 from unnest(tids) y(tid) cross join lateral (
      select 1 from job j where j.ctid = y.tid and (j.touched or octet_length(j.data) > ${LARGE}) offset 0) x)) then
    i := (fitting_{V}(tids, 0)).n;
    if i < cardinality(tids) then
      tids := tids[:i]; aheads := aheads[:i]; leases := leases[:i];
      filled := true;
      cut := array[a_queue[1]];
    end if;
  end if;
  if filled then later := least(later, start); end if;
  if tids <> '{}' then
    o := lease_jobs_{V}(tids, aheads, leases, k->>'worker', claim_no, began, recording);
    rows := o.rows; of := o.of; what := o.what; n := o.n; queues := o.queues; leased := o.leased; events := o.events;
    if read_p is null then read_p := a_p; read_o := a_o; end if;
  end if;
  -- How far lanes were read: other transactions are claiming the jobs that still wait before that. This does not hold for
  -- lanes in which groups are skipped.
  if read_p is not null then
    for i in 1 .. lanes loop
      if not a_gated[i] then positions := coalesce(positions, '{}') || jsonb_build_object(a_lane[i], jsonb_build_array(read_p[i], read_o[i])); end if;
    end loop;
  end if;
  -- Jobs that still wait in a lane without limits are locked by a transaction that may release them without a notice.
  if want > 0 and plain then
    f := k->'cursors'->(a_lane[1]::text);
    skipped := skipped or exists (
      (select 1 from job j where j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and is_unexpired_{V}(j, began) and j.grp is null
         and (j.priority, j.ord) > (coalesce((f->>0)::bigint, -9223372036854775808), coalesce((f->>1)::bigint, -9223372036854775808)) limit 1)
      union all
      (select 1 from job j where a_shared[1] and j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and is_unexpired_{V}(j, began) and j.grp is not null limit 1));
  end if;
  if want > 0 and skipped then later := least(later, began + ${CLAIM_RETRY}); end if;
  for i in 1 .. cardinality(b_key) loop
    if b_took[i] > 0 and b_tokens[i] is not null then
      perform take_tokens_{V}(split_part(b_key[i], ' ', 1)::int, substr(b_key[i], strpos(b_key[i], ' ') + 1), b_rate[2 * i - 1:2 * i], b_took[i], began);
    end if;
  end loop;
end $millrace$;
`
