// stores/postgres/functions/claims/lane-heads.ts: the function that returns the heads of the lanes that a claim merges.

export const laneHeads = `
-- Whether a waiting job may be claimed at a time: \`hasExpired\` in job/lifecycle.ts. An expression without subqueries, so
-- that PostgreSQL inlines it.
create or replace function {S}.is_unexpired_{V}(j {S}.job, t bigint) returns boolean language sql immutable as $$
  select j.expires_at is null or j.expires_at > t or j.attempt > 0
$$;

-- Waiting jobs of lanes, from an order in each lane on: the first \`most\` of each sequence. All lanes without groups
-- form one sequence, and the shared lanes of one queue form one. Lanes in \`stopped\` are left out. A lane in \`apart\`
-- is read group by group, \`each\` jobs of each group, without the groups in \`passed\`, so that no job of a group that
-- cannot be claimed is read. Jobs that have expired by \`t\` are left out. \`cut\` marks the last known job of its sequence; there may be more after it.
create or replace function {S}.lane_heads_{V}(lanes int[], queues int[], shared boolean[], apart boolean[], ps bigint[], os bigint[], ss bigint[],
  stopped int[], passed text[], most int, each int, t bigint)
  returns table (at int, tid tid, priority bigint, ord bigint, seq bigint, stalls int, attempts bigint, grp text, cut boolean) language plpgsql volatile
  set enable_sort = off -- use an index that has the order, however few rows the planner expects
as $$
#variable_conflict use_column
begin
  return query
    select y.at, y.tid, y.priority, y.ord, y.seq, y.stalls, y.attempts, y.grp, y.k = most from (
      select x.*, row_number() over (partition by case when shared[x.at] then queues[x.at] end order by x.priority, x.ord, x.seq) as k
      from generate_subscripts(lanes, 1) g(at) cross join lateral (
        (select g.at, j.ctid as tid, j.priority, j.ord, j.seq, j.stalls, j.attempts, null::text as grp from {S}.job j
         where not shared[g.at] and j.lane = lanes[g.at] and j.state = 'waiting' and j.kind = 'job' and j.grp is null
           and {S}.is_unexpired_{V}(j, t) and (j.priority, j.ord) > (ps[g.at], os[g.at])
         order by j.priority, j.ord limit most)
        union all
        (select g.at, j.ctid, j.priority, j.ord, j.seq, j.stalls, j.attempts, j.grp from {S}.job j
         where shared[g.at] and not apart[g.at] and j.lane = lanes[g.at] and j.state = 'waiting' and j.kind = 'job' and j.grp is not null
           and {S}.is_unexpired_{V}(j, t) and (j.priority, j.ord, j.seq) > (ps[g.at], os[g.at], ss[g.at])
         order by j.priority, j.ord, j.seq limit most)
      ) x where not (stopped @> array[g.at])
    ) y where y.k <= most;
  if true = any (apart) then
    return query
      with recursive w as (
        select g.at, lanes[g.at] as lane, (select j.grp from {S}.job j where j.lane = lanes[g.at] and j.grp is not null and j.state = 'waiting' and j.kind <> 'schedule'
          order by j.grp limit 1) as grp
        from generate_subscripts(lanes, 1) g(at) where apart[g.at] and not (stopped @> array[g.at])
        union all
        select w.at, w.lane, (select j.grp from {S}.job j where j.lane = w.lane and j.grp > w.grp and j.grp is not null and j.state = 'waiting' and j.kind <> 'schedule'
          order by j.grp limit 1)
        from w where w.grp is not null
      ), h as materialized (
        select x.*, queues[x.at] as line, row_number() over (partition by x.at, x.grp order by x.priority, x.ord, x.seq) = each as ends
        from w cross join lateral (
          select w.at, j.ctid as tid, j.priority, j.ord, j.seq, j.stalls, j.attempts, j.grp from {S}.job j
          where j.lane = w.lane and j.grp = w.grp and j.grp is not null and j.state = 'waiting' and j.kind <> 'schedule' and {S}.is_unexpired_{V}(j, t)
            and (j.priority, j.ord, j.seq) > (ps[w.at], os[w.at], ss[w.at])
          order by j.priority, j.ord, j.seq limit each
        ) x where w.grp is not null and not (w.at || ' ' || w.grp = any (passed))
      ), c as (
        select distinct on (h.line) h.line, h.priority, h.ord, h.seq from h where h.ends order by h.line, h.priority, h.ord, h.seq
      )
      select h.at, h.tid, h.priority, h.ord, h.seq, h.stalls, h.attempts, h.grp, (h.priority, h.ord, h.seq) = (c.priority, c.ord, c.seq)
      from h left join c on c.line = h.line
      where c.line is null or (h.priority, h.ord, h.seq) <= (c.priority, c.ord, c.seq);
  end if;
end $$;
`
