// stores/postgres/functions/turns.ts: the functions that compute turns, as `turn` in job/limits.ts does.
import { LONGEST_STEP, TURN_STEP } from '../../../job/limits.js'

const LAST_TURN = Number.MAX_SAFE_INTEGER

/**
 * Statements that read jobs by the index by group say `kind <> 'schedule'`, those that read them by turn say `kind = 'job'`,
 * so that the planner never takes the one index for the other.
 */
export const turns = `
-- The turn that a queue has reached in a priority; if \`tidy\` has deleted it, the lowest turn of the waiting jobs.
create or replace function {S}.reached_turn_{V}(of int, p bigint) returns bigint language plpgsql stable as $$
begin
  return coalesce(
    (select y.reached from {S}.turn y where y.queue = of and y.priority = p),
    (select min(m.ord) from {S}.lane l cross join lateral (
       select j.ord from {S}.job j where j.lane = l.id and j.priority = p and j.grp is not null and j.state = 'waiting' and j.kind = 'job'
       order by j.ord limit 1) m where l.queue = of and l.shared),
    0);
end $$;

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
  reached := {S}.reached_turn_{V}(of, p);
  select max(m.ord) into last from {S}.lane l cross join lateral (
      select j.ord from {S}.job j where j.lane = l.id and j.grp = g and j.priority = p and j.grp is not null and j.state = 'waiting' and j.kind <> 'schedule'
      order by j.ord desc limit 1) m
    where l.queue = of and l.shared;
  return array[case when last is null then reached else greatest(reached, least(last + step, ${LAST_TURN})) end, step];
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
