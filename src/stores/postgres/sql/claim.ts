// stores/postgres/sql/claim.ts: the part of a commit that answers asks, by merging the heads of the lanes that a worker handles.
import { fitting, LARGE } from './quick.js'

/**
 * One ask, in `k`: the worker, the queues, what it handles (`[name, versions, lease]`, in order), how many jobs it wants
 * and how many ahead; and floors, places in lanes below which this process knows of nothing.
 *
 * The lanes that can give are gathered with their leases; what is paused or at its limit is passed over, its jobs unread.
 * Then their heads are merged, and whatever nobody else is claiming is locked. All that was taken is written at once.
 */
export const claim = `
  for k in select value from jsonb_array_elements(b->'a') loop
    want := greatest(0, (k->>'want')::int);
    more := greatest(0, (k->>'ahead')::int);
    tids := '{}'; aheads := '{}'; leases := '{}'; stopped := '{}'; floored := false;
    a_lane := '{}'; a_queue := '{}'; a_lease := '{}'; a_p := '{}'; a_o := '{}'; a_max := '{}'; a_free := '{}'; a_name := '{}';
    ${gather()}
    lanes := cardinality(a_lane);
    while lanes > 0 and want + more > 0 loop
      exhausted := true;
      if lanes = 1 and a_max[1] is null and a_free[1] is null then
        ${oneLane()}
      else
        ${manyLanes()}
      end if;
      if exhausted then
        exit when not floored;
        floored := false; -- what lies below may be new
        a_p := array_fill(-9223372036854775808, array[lanes]); a_o := a_p;
        stopped := '{}';
      end if;
    end loop;

    claims := null;
    if exists (select 1 from unnest(tids) u(tid) cross join lateral (select 1 from job o where o.ctid = u.tid and octet_length(o.data) > ${LARGE} offset 0) x) then
      ${fitting}
      if fit_n < cardinality(tids) then
        -- The rest is for another ask, and whoever asked is told so.
        tids := tids[1:fit_n]; aheads := aheads[1:fit_n]; leases := leases[1:fit_n];
        cut := cut || array(select jsonb_array_elements_text(k->'queues'));
      end if;
    end if;
    if cardinality(tids) > 0 then
      with up as (
        update job j set state = 'active', fence = j.fence + 1, attempt = j.attempt + 1, worker = k->>'worker', claim = claim_no,
          lease_until = t + x.lease, due_at = t + x.lease, started_at = t, ahead = x.ahead
        from unnest(tids, aheads, leases) as x(ctid, ahead, lease)
        where j.ctid = x.ctid
        returning v1_claimed(j) as said, j.lane, j.ahead, j.priority, j.ord, case when recording then v1_entered(j, t) end as entered
      )
      select array_agg(up.said order by up.ahead, up.priority, up.ord), array_agg(up.lane),
             array_agg(up.entered) filter (where recording)
        into claims, lanes_in, told from up;
      for r in select y.lane, l.queue, y.n from (select z.lane, count(*)::int as n from unnest(lanes_in) z(lane) group by 1) y join lane l on l.id = y.lane loop
        c_of := c_of || r.lane || r.lane; c_what := c_what || 'waiting'::text || 'active'::text; c_n := c_n || -r.n || r.n;
        claimed := claimed || r.queue;
      end loop;
      ev := ev || coalesce(told, '{}');
      for i in 1 .. lanes loop
        if not k ? 'floors' then seen_at := seen_at || jsonb_build_object(a_lane[i]::text, jsonb_build_array(a_p[i], a_o[i])); end if;
      end loop;
    end if;
    a_out := a_out || ('[' || coalesce(array_to_string(claims, ','), '') || ']');
  end loop;
`

/** Collects the lanes that can give, and what bounds them. */
function gather(): string {
  return `
    if want + more > 0 then
      for r in select q.id, q.name from queue q where q.name in (select jsonb_array_elements_text(k->'queues')) order by q.id loop
        -- Whoever writes a pause or a limit of this queue waits for the claims under way; claims do not wait for them.
        continue when not pg_try_advisory_xact_lock_shared(hashtextextended('{S}:bounds:' || r.name, 0));
        bound := v1_cell('pause:' || r.name);
        continue when bound->'all' = 'true';
        halts := case when jsonb_typeof(bound->'names') = 'array' then bound->'names' else '[]' end;
        bound := v1_cell('limit:' || r.name);
        queue_left := null;
        by_name := null;
        if v1_limited(bound) then
          perform 1 from queue where id = r.id for update;
          -- Counted once the lock was had, in a snapshot of its own: nobody else claims here meanwhile.
          select coalesce(jsonb_object_agg(y.name, y.n), '{}'), coalesce(sum(y.n), 0) into by_name, queue_left from (
            select l.name, sum(x.n) as n from (
              select j.lane, count(*) as n from job j where j.queue = r.id and j.state = 'active' and j.kind = 'job' group by j.lane
              union all
              select o.lane, count(*) from orphan o join lane m on m.id = o.lane where m.queue = r.id group by o.lane
            ) x join lane l on l.id = x.lane group by l.name
          ) y;
          queue_left := (bound->>'concurrency')::numeric - queue_left;
          continue when queue_left <= 0;
        end if;
        for l in
          select l.id, l.name, h.lease from lane l
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
          name_left := null;
          if by_name is not null then
            name_left := (bound->'names'->l.name->>'concurrency')::numeric - coalesce((by_name->>l.name)::numeric, 0);
            continue when name_left <= 0;
          end if;
          a_lane := a_lane || l.id; a_queue := a_queue || r.id; a_lease := a_lease || l.lease; a_name := a_name || l.name::text;
          a_p := a_p || coalesce((k->'floors'->(l.id::text)->>0)::bigint, -9223372036854775808);
          a_o := a_o || coalesce((k->'floors'->(l.id::text)->>1)::bigint, -9223372036854775808);
          a_max := a_max || queue_left::bigint; a_free := a_free || name_left::bigint;
        end loop;
      end loop;
      floored := k ? 'floors';
    end if;
  `
}

/** By far the most frequent: one lane without limits, locked as it is read. */
function oneLane(): string {
  return `
        -- Read in order, and kept so: nothing here has to be sorted.
        select array_agg(x.ctid) filter (where x.ok), array_agg(x.n > want) filter (where x.ok),
               count(*) filter (where x.ok and x.n <= want), count(*) filter (where x.ok and x.n > want), count(*), bool_and(x.ok),
               (array_agg(x.priority))[count(*)], (array_agg(x.ord))[count(*)]
          into new_tids, new_aheads, got, got_ahead, found_n, all_ok, last_p, last_o
        from (
          select z.*, bool_and(z.n <= want or z.fit) over (rows unbounded preceding) as ok from (
            select y.ctid, y.priority, y.ord, row_number() over () as n, y.stalls = 0 and coalesce(y.attempts, 2) > 1 as fit
            from (
              select j.ctid, j.priority, j.ord, j.stalls, j.attempts from job j
              where j.lane = a_lane[1] and j.state = 'waiting' and j.kind = 'job' and (j.priority, j.ord) > (a_p[1], a_o[1])
              order by j.priority, j.ord limit want + more for update skip locked
            ) y
          ) z
        ) x;
        if found_n > 0 then
          tids := tids || new_tids; aheads := aheads || new_aheads;
          leases := leases || array_fill(a_lease[1], array[got + got_ahead]);
          a_p[1] := last_p; a_o[1] := last_o;
          want := want - got;
          more := case when all_ok then more - got_ahead else 0 end; -- what may not be leased ahead ends its lane
        end if;
  `
}

/** Candidates of every lane, merged; limits, and what may be leased ahead, decide one by one. */
function manyLanes(): string {
  return `
        for c in
          select x.* from generate_subscripts(a_lane, 1) g(at)
          cross join lateral (
            select g.at, j.ctid, j.priority, j.ord, j.stalls, j.attempts from job j
            where j.lane = a_lane[g.at] and j.state = 'waiting' and j.kind = 'job' and (j.priority, j.ord) > (a_p[g.at], a_o[g.at])
            order by j.priority, j.ord limit want + more
          ) x order by x.priority, x.ord
        loop
          exit when want + more = 0;
          continue when stopped @> array[c.at] or (k ? 'floors' and not floored and c.ctid = any (tids)); -- taken above the floor
          exhausted := false;
          if a_max[c.at] <= 0 or a_free[c.at] <= 0
            or want = 0 and (a_max[c.at] is not null or a_free[c.at] is not null or c.stalls > 0 or coalesce(c.attempts, 2) <= 1)
          then
            stopped := stopped || c.at;
            continue;
          end if;
          a_p[c.at] := c.priority; a_o[c.at] := c.ord;
          perform 1 from job j where j.ctid = c.ctid and j.state = 'waiting' for update skip locked;
          continue when not found;
          tids := tids || c.ctid; aheads := aheads || (want = 0); leases := leases || a_lease[c.at];
          if want > 0 then want := want - 1; else more := more - 1; end if;
          if a_max[c.at] is not null or a_free[c.at] is not null then
            for i in 1 .. lanes loop
              if a_queue[i] = a_queue[c.at] then
                a_max[i] := a_max[i] - 1;
                if a_name[i] = a_name[c.at] then a_free[i] := a_free[i] - 1; end if;
              end if;
            end loop;
          end if;
        end loop;
  `
}
