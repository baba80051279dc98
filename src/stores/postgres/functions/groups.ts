// stores/postgres/functions/groups.ts: what commits and claims need for groups and rates: limits, turns and tokens.
import { BUCKETS, LONGEST_INTERVAL, LONGEST_STEP, TURN_STEP } from '../../../job/limits.js'
import { unexpired } from './fast-parts.js'

/**
 * Selects waiting jobs by the index by group: worded differently than for the index by turn, so that the planner never
 * uses that one.
 */
const ofGroups = "j.grp is not null and j.state = 'waiting' and j.kind <> 'schedule'"

/**
 * The last turn of a group (`grp` of `of`) in a priority, in the shared lanes `lanes` of its queue; null if none of its
 * jobs wait.
 */
export function lastTurn(lanes: string, of: string, priority: string): string {
  return `(select max(m.ord) from unnest(${lanes}) l(lane) cross join lateral (
              select j.ord from {S}.job j where j.lane = l.lane and j.grp = ${of}.grp and j.priority = ${priority} and ${ofGroups}
              order by j.ord desc limit 1) m)`
}

/** The turn that a queue has reached in a priority; if `tidy` has deleted it, the lowest turn of the waiting jobs. */
export function turnOf(queue: string, priority: string): string {
  return `coalesce((select y.reached from {S}.turn y where y.queue = ${queue} and y.priority = ${priority}),
    (select min(m.ord) from {S}.lane l cross join lateral (
      select j.ord from {S}.job j where j.lane = l.id and j.priority = ${priority} and j.grp is not null and j.state = 'waiting' and j.kind = 'job'
      order by j.ord limit 1) m where l.queue = ${queue} and l.shared), 0)`
}

/** Functions that read limits from settings; a value that is not a number or not a rate limits nothing. */
const bounds = `
-- A number in a setting.
create or replace function {S}.number_{V}(value jsonb) returns numeric language sql immutable as $$
  select case when jsonb_typeof(value) = 'number' then value::numeric end
$$;

-- The ends of the holds in a cell of pauses that are not over, by what they are for.
create or replace function {S}.holds_{V}(pause jsonb, t bigint) returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(e.key, e.value->'until'), '{}')
    from jsonb_each(case when jsonb_typeof(pause->'holds') = 'object' then pause->'holds' else '{}' end) e
    where jsonb_typeof(e.value->'until') = 'number' and (e.value->'until')::numeric > t
$$;

-- The rate of a limit: how many claims, and in how many milliseconds.
create or replace function {S}.rate_of_{V}(bound jsonb) returns numeric[] language sql immutable as $$
  select case when jsonb_typeof(bound->'rate'->'max') = 'number' and jsonb_typeof(bound->'rate'->'per') = 'number' and bound->'rate'->'per' > '0'
    then array[(bound->'rate'->'max')::numeric, least((bound->'rate'->'per')::numeric, ${LONGEST_INTERVAL})] end
$$;

-- Whether a limit bounds claims.
create or replace function {S}.limits_claims_{V}(bound jsonb) returns boolean language sql immutable as $$
  select coalesce(jsonb_typeof(bound->'concurrency') = 'number', false) or {S}.rate_of_{V}(bound) is not null
$$;

-- Whether a limit bounds the claims of any group.
create or replace function {S}.limits_groups_{V}(bound jsonb) returns boolean language sql immutable as $$
  select {S}.limits_claims_{V}(bound->'group')
    or exists (select 1 from jsonb_each(case when jsonb_typeof(bound->'groups') = 'object' then bound->'groups' else '{}' end) e where {S}.limits_claims_{V}(e.value))
$$;

-- Whether a limit bounds claims of the queue, of a name or of a group.
create or replace function {S}.is_limited_{V}(bound jsonb) returns boolean language sql immutable as $$
  select {S}.limits_claims_{V}(bound) or {S}.limits_groups_{V}(bound)
    or exists (select 1 from jsonb_each(case when jsonb_typeof(bound->'names') = 'object' then bound->'names' else '{}' end) e where {S}.limits_claims_{V}(e.value))
$$;

-- The limit of one group: its own values override those for every group.
create or replace function {S}.group_limit_{V}(bound jsonb, g text) returns jsonb language sql immutable as $$
  select case when jsonb_typeof(bound->'group') = 'object' then bound->'group' else '{}' end
    || case when jsonb_typeof(bound->'groups'->g) = 'object' then bound->'groups'->g else '{}' end
$$;

-- Whether adds to this queue, with a group or without, have to be counted.
create or replace function {S}.limits_backlog_{V}(bound jsonb, grouped boolean) returns boolean language sql immutable as $$
  select coalesce(jsonb_typeof(bound->'backlog') = 'number', false) or (grouped and (coalesce(jsonb_typeof(bound->'group'->'backlog') = 'number', false)
    or exists (select 1 from jsonb_each(case when jsonb_typeof(bound->'groups') = 'object' then bound->'groups' else '{}' end) e
               where jsonb_typeof(e.value->'backlog') = 'number')))
$$;
`

/** Turns, as \`turn\` in job/limits.ts computes them. */
const turns = `
-- The turn of a job that begins to wait, and the step to the next one of its group; \`bound\` is the limit of its queue.
-- Locks nothing: two concurrent adds may get the same turn.
create or replace function {S}.next_turns_{V}(of int, g text, p bigint, bound jsonb default null) returns bigint[] language plpgsql stable as $$
declare
  reached bigint;
  last bigint;
  step bigint;
  weight numeric;
begin
  if bound is null then select {S}.setting_{V}('limit:' || q.name) into bound from {S}.queue q where q.id = of; end if;
  weight := {S}.number_{V}(bound->'groups'->g->'weight');
  step := case when weight > 0 then greatest(1, least(round(${TURN_STEP} / weight), ${LONGEST_STEP})) else ${TURN_STEP} end;
  reached := ${turnOf('of', 'p')};
  select max(m.ord) into last from {S}.lane l cross join lateral (
      select j.ord from {S}.job j where j.lane = l.id and j.grp = g and j.priority = p and ${ofGroups}
      order by j.ord desc limit 1) m
    where l.queue = of and l.shared;
  return array[case when last is null then reached else greatest(reached, least(last + step, ${Number.MAX_SAFE_INTEGER})) end, step];
end $$;

-- Records that jobs up to this turn were claimed. A claim that finds another one writing the turn leaves it to that one.
create or replace function {S}.advance_turn_{V}(of int, p bigint, turn bigint) returns void language plpgsql volatile as $$
begin
  update {S}.turn y set reached = turn where y.ctid = (
    select z.ctid from {S}.turn z where z.queue = of and z.priority = p and z.reached < turn for update skip locked);
  if not found and not exists (select 1 from {S}.turn y where y.queue = of and y.priority = p)
    and pg_try_advisory_xact_lock(hashtextextended('{S}:turn:' || of || ' ' || p, 0))
  then
    insert into {S}.turn values (of, p, turn) on conflict do nothing;
  end if;
end $$;
`

/** Tokens of rates, as job/limits.ts counts them. */
const tokens = `
-- How many more claims a rate allows now, and when the first token that was taken returns. A token that was taken more
-- than one interval in the future counts as returned: the clock was set back since.
create or replace function {S}.tokens_left_{V}(of int, key text, rate numeric[], t bigint, out remain numeric, out back bigint) language sql stable as $$
  select greatest(0, rate[1] - coalesce(sum(y.n), 0)),
    case when rate[1] > 0 then ceil(coalesce(min(y.at), ceil(t / p.part) * p.part) + rate[2])::bigint end
  from (select greatest(1, floor(rate[2] / ${BUCKETS})) as part) p
  left join lateral (select u.at, u.n from {S}.rate r cross join lateral unnest(r.at, r.n) u(at, n)
                     where r.queue = of and r.scope = key and u.at + rate[2] > t and u.at <= ceil(t / p.part) * p.part + rate[2]) y on true
  group by p.part
$$;

-- Takes tokens.
create or replace function {S}.take_tokens_{V}(of int, key text, rate numeric[], count int, t bigint) returns void language plpgsql volatile as $$
declare
  part numeric := greatest(1, floor(rate[2] / ${BUCKETS}));
  now_at bigint := ceil(t / part) * part;
  ats bigint[];
  ns bigint[];
  many int;
begin
  select array_agg(u.at order by u.i), array_agg(u.n order by u.i) into ats, ns
    from {S}.rate r cross join lateral unnest(r.at, r.n) with ordinality u(at, n, i) where r.queue = of and r.scope = key and u.at + rate[2] > t and u.at <= now_at + rate[2];
  many := cardinality(ats);
  if many > 0 and ats[many] >= now_at then ns[many] := ns[many] + count;
  else ats := ats || now_at; ns := ns || count::bigint; end if;
  insert into {S}.rate as r values (of, key, ats, ns, ats[cardinality(ats)] + rate[2])
    on conflict (queue, scope) do update set at = excluded.at, n = excluded.n, until = excluded.until;
end $$;
`

/** The function that returns the heads of the lanes that a claim merges. */
const heads = `
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
           and ${unexpired('j', 't')} and (j.priority, j.ord) > (ps[g.at], os[g.at])
         order by j.priority, j.ord limit most)
        union all
        (select g.at, j.ctid, j.priority, j.ord, j.seq, j.stalls, j.attempts, j.grp from {S}.job j
         where shared[g.at] and not apart[g.at] and j.lane = lanes[g.at] and j.state = 'waiting' and j.kind = 'job' and j.grp is not null
           and ${unexpired('j', 't')} and (j.priority, j.ord, j.seq) > (ps[g.at], os[g.at], ss[g.at])
         order by j.priority, j.ord, j.seq limit most)
      ) x where not (stopped @> array[g.at])
    ) y where y.k <= most;
  if true = any (apart) then
    return query
      with recursive w as (
        select g.at, lanes[g.at] as lane, (select j.grp from {S}.job j where j.lane = lanes[g.at] and ${ofGroups}
          order by j.grp limit 1) as grp
        from generate_subscripts(lanes, 1) g(at) where apart[g.at] and not (stopped @> array[g.at])
        union all
        select w.at, w.lane, (select j.grp from {S}.job j where j.lane = w.lane and j.grp > w.grp and ${ofGroups}
          order by j.grp limit 1)
        from w where w.grp is not null
      ), h as materialized (
        select x.*, queues[x.at] as line, row_number() over (partition by x.at, x.grp order by x.priority, x.ord, x.seq) = each as ends
        from w cross join lateral (
          select w.at, j.ctid as tid, j.priority, j.ord, j.seq, j.stalls, j.attempts, j.grp from {S}.job j
          where j.lane = w.lane and j.grp = w.grp and ${ofGroups} and ${unexpired('j', 't')}
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

/** Created before the functions that commit and claim. */
export const groups = `${bounds}${turns}${tokens}${heads}`
