// stores/postgres/functions/claims/open-lanes.ts: the function that returns the lanes from which a claim may take jobs.

export const openLanes = `
-- The lanes that a claim \`k\` may take jobs from, each with the time from which its leases count, with the limits that
-- bound it ([key, limit, active leases]), and with the holds of its queue. Paused lanes and those at their limit are left
-- out, without reading their jobs; for what is held and waits, there is a row with nothing but the end of the hold (\`later\`).
-- \`gated\`: groups of the lane are limited or held. \`actives\` counts the leases by group.
create or replace function {S}.open_lanes_{V}(k jsonb, start bigint, clock bigint)
  returns table (lane int, queue int, lease bigint, shared boolean, gated boolean, began bigint, limits jsonb, bound jsonb, actives jsonb, holds jsonb, later bigint)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  q record; l record;
  since bigint := start;
  pause jsonb; halts jsonb; held jsonb; limited jsonb; of_queue jsonb; of_name jsonb;
  by_name jsonb; by_group jsonb; total numeric; of_groups boolean; held_groups boolean;
begin
  for q in select o.id, o.name from queue o where o.name in (select jsonb_array_elements_text(k->'queues')) order by o.id loop
    -- A commit that writes a pause or a limit of this queue waits for open claims; claims do not wait for it.
    continue when not pg_try_advisory_xact_lock_shared(hashtextextended('{S}:bounds:' || q.name, 0));
    pause := setting_{V}('pause:' || q.name);
    continue when pause->'all' = 'true';
    halts := case when jsonb_typeof(pause->'names') = 'array' then pause->'names' else '[]' end;
    -- What is held is claimed again when its hold is over, if it waits.
    held := case when pause ? 'holds' then holds_{V}(pause, since) else '{}' end;
    if held ? '' then
      if has_waiting_{V}(q.id, '{}') then
        lane := null; began := since; later := (held->>'')::bigint;
        return next;
      end if;
      continue;
    end if;
    limited := setting_{V}('limit:' || q.name);
    of_queue := '[]';
    by_name := null;
    by_group := null;
    of_groups := false;
    held_groups := false;
    if held <> '{}' then held_groups := exists (select 1 from jsonb_object_keys(held) y(key) where y.key like 'g%'); end if;
    if is_limited_{V}(limited) then
      perform 1 from queue where id = q.id for update;
      -- The lock may have been waited for: the claims that held it used a later time than the start of this commit,
      -- and rates depend on time.
      since := greatest(since, coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000)));
      of_groups := limits_groups_{V}(limited);
      -- Counted after locking, in a snapshot of its own: no other transaction claims from this queue meanwhile.
      select coalesce(jsonb_object_agg(y.what, y.n) filter (where y.what like 'n%'), '{}'), coalesce(sum(y.n) filter (where y.what like 'n%'), 0),
             coalesce(jsonb_object_agg(y.what, y.n) filter (where y.what like 'g%'), '{}')
        into by_name, total, by_group from (
        select z.what, sum(x.n) as n from (
          select j.lane, case when of_groups then j.grp end as grp, count(*) as n from job j where j.queue = q.id and j.state = 'active' and j.kind = 'job' group by 1, 2
          union all
          select o.lane, case when of_groups then o.grp end, count(*) from orphan o join lane m on m.id = o.lane where m.queue = q.id group by 1, 2
        ) x join lane y on y.id = x.lane cross join lateral (values ('n' || y.name), ('g' || x.grp)) z(what) where z.what is not null group by 1
      ) y;
      continue when number_{V}(limited->'concurrency') <= total;
      if limits_claims_{V}(limited) then of_queue := jsonb_build_array(jsonb_build_array(q.id || ' ', limited, total)); end if;
    end if;
    for l in
      select m.id, m.name, m.shared, h.lease from lane m
      cross join lateral (
        select (e.value->>2)::bigint as lease
        from jsonb_array_elements(k->'handles') with ordinality e
        where (e.value->>0 = m.name or (e.value->>0 is null
                and not exists (select 1 from jsonb_array_elements(k->'handles') o where o.value->>0 = m.name)))
          and (e.value->>1 is null or e.value->1 @> to_jsonb(m.version))
        order by e.ordinality limit 1
      ) h
      where m.queue = q.id and not halts ? m.name
    loop
      if held ? ('n' || l.name) then
        if exists (
          (select 1 from job j where not l.shared and j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is null limit 1)
          union all
          (select 1 from job j where l.shared and j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is not null limit 1)) then
          lane := null; began := since; later := (held->>('n' || l.name))::bigint;
          return next;
        end if;
        continue;
      end if;
      of_name := '[]';
      if by_name is not null and limits_claims_{V}(limited->'names'->l.name) then
        of_name := jsonb_build_array(jsonb_build_array(q.id || ' n' || l.name, limited->'names'->l.name, coalesce((by_name->>('n' || l.name))::numeric, 0)));
        continue when number_{V}(limited->'names'->l.name->'concurrency') <= coalesce((by_name->>('n' || l.name))::numeric, 0);
      end if;
      lane := l.id; queue := q.id; lease := l.lease; shared := l.shared; began := since; later := null; holds := held;
      gated := l.shared and (of_groups or held_groups);
      limits := of_queue || of_name;
      bound := case when of_groups then limited end;
      actives := case when of_groups then by_group end;
      return next;
    end loop;
  end loop;
end $$;
`
