// stores/postgres/functions/move-many.ts: the part of a commit that moves many jobs in one statement, as `move-one.ts`
// moves one.
import { ERRORS_KEPT } from '../../../job/job.js'
import { lockReleasable, releaseMany } from './edges.js'
import { noteEvents } from './notes.js'
import { manyEvents, UNIT } from './fast-parts.js'

/** Whether a verb ends the chain of its job; a run of completions has no verbs. */
const endsChain = "coalesce(y.verb, 'c') in ('c', 'f', 'x', 'C', 'F', 'X', 'G')"

/** The jobs among `end_ids` that end a chain with dependents. */
const withDependents = `unnest(end_ids, verbs) y(id, verb) cross join lateral (select 1 from edge e where e.chain = y.id and e.state <> 'ended' limit 1) z
            where ${endsChain}`

/** Decodes a run of moves or notes in `s`: ids, fences and the optional fields, each as one text. */
export const decodeRun = `
      loose := '{}';
      end_ids := string_to_array(s->>'id', ${UNIT});
      fences := case when jsonb_typeof(s->'f') = 'number' then '{}' else string_to_array(s->>'f', ',') end;
      results := coalesce(string_to_array(s->>'r', ${UNIT}, ''), '{}');
      verbs := string_to_array(s->>'v', null);
      faults := string_to_array(s->>'e', ${UNIT}, '');
`

/** The new values of a completed job, if nothing else changes. */
const completedValues = `state = 'completed', fence = j.fence + 1, lease_until = null, due_at = null, ahead = false, claim = null,
            finished_at = t, touched = true`

/** Whether a job is leased, is a chain by itself, and is no schedule. */
const held = "j.lease_until > t and j.chain is null and j.kind = 'job'"

const unlocked = 'cardinality(locked) = 0 or y.id <> all (locked)'

/** Each job with its fence and its result. */
const withResults = `select y.id, coalesce(y.fence, s->>'f')::bigint as fence, y.result from unnest(end_ids, fences, results) y(id, fence, result)
          where ${unlocked}`

/** Each job also with the note that its lease holder wrote just before. */
const withNotes = `select y.id, coalesce(y.fence, s->>'f')::bigint as fence, y.result, y.more
          from rows from (unnest(end_ids), unnest(fences), unnest(results), jsonb_array_elements(s->'w')) y(id, fence, result, more) where ${unlocked}`

/** Each job with all fields. */
const withAllFields = `select y.id, coalesce(y.fence, s->>'f')::bigint as fence, coalesce(y.verb, 'c') as verb, ${endsChain} as ends,
            case lower(y.verb) when 'f' then 'failed' when 'x' then 'cancelled' when 'd' then 'delayed' when 'r' then 'delayed'
              when 'w' then 'waiting' when 'n' then 'waiting' else 'completed' end as goal,
            y.result, y.error, y.attempt::int as attempt, t + y.run_in::bigint as run_at, t + y.stale_in::bigint as stale_at, t + y.delete_in::bigint as delete_at, y.turn, y.more
          from rows from (unnest(end_ids), unnest(fences), unnest(verbs), unnest(results), unnest(faults), unnest(string_to_array(s->>'at', ',', '')),
            unnest(string_to_array(s->>'ri', ',', '')), unnest(string_to_array(s->>'si', ',', '')), unnest(string_to_array(s->>'di', ',', '')), unnest(turns_in), jsonb_array_elements(s->'w'))
            y(id, fence, verb, result, error, attempt, run_in, stale_in, delete_in, turn, more)
          where ${unlocked}`

/**
 * The new values of a moved job, as `moveRecord` in job/apply.ts sets them; `ord` is its order. The job was not finished
 * before.
 */
function movedValues(ord: string): string {
  return `state = x.goal, fence = j.fence + 1, ord = ${ord}, attempt = coalesce(x.attempt, j.attempt), worker = case when x.ends then j.worker end,
            run_at = case when x.goal <> 'waiting' then coalesce(x.run_at, j.run_at) end, due_at = coalesce(x.run_at, least(x.stale_at, x.delete_at)),
            stale_at = x.stale_at, delete_at = x.delete_at, lease_until = null, ahead = false, claim = null, touched = true, result = x.result,
            error = coalesce(x.error, j.error), errors = case when x.error is null then j.errors
              else coalesce(j.errors[greatest(1, cardinality(j.errors) - ${ERRORS_KEPT - 2}):], '{}')
                || format('{"fence":%s,"attempt":%s,"at":%s,%s', j.fence, j.attempt, t, substr(x.error, 2)) end,
            finished_at = case when x.ends then t end, memo = coalesce(x.more->>'m', j.memo), progress = coalesce(x.more->>'p', j.progress)`
}

/** Writes completions; returns their number, ids, lanes, dedup keys and events. `eventsBefore` come before those events. */
function writeCompletions(update: string, eventsBefore = 'null'): string {
  return `
          with up as (
            ${update}
            returning j.id, j.lane, j.dedup, j.attempt, j.result, case when recording then ${eventsBefore} end as note_events
          )
          select count(*), array_agg(up.id), array_agg(up.lane), array_agg(up.dedup), string_agg(up.attempt::text, ',') filter (where recording),
            string_agg(coalesce(up.result, ''), ${UNIT}) filter (where recording), string_agg(up.note_events, ${UNIT})
            into got, ids_in, lanes_in, keyed, over, why, stands from up;
          if recording and got > 0 then
            many := ${manyEvents('completed', { at: 't', ids: `array_to_string(ids_in, ${UNIT})`, lanes: 'lanes_in', lane: "array_to_string(lanes_in, ',')", attempts: 'over', results: 'why' })};
          end if;
  `
}

/**
 * Writes moves; also returns the old and new state of each, which ones to remove, when they are due, and where they wait.
 */
function writeMoves(write: string, was: string, events: string): string {
  return `
          up as (
            ${write}
            returning j.*, ${was} || ' ' || x.verb as how, x.verb, x.ends, case when recording then ${events} end as event_texts
          )
          select count(*), array_agg(up.id), array_agg(up.lane), array_agg(case when up.ends or up.verb = 'g' then up.dedup end), string_agg(up.event_texts, ${UNIT}),
            array_agg(up.how), array_agg(up.id) filter (where up.verb <> lower(up.verb) or up.verb = 'g'), max(up.fence) filter (where up.verb <> lower(up.verb) or up.verb = 'g'),
            array_agg(up.queue) filter (where up.due_at is not null and lower(up.verb) <> 'g'), array_agg(up.due_at) filter (where up.due_at is not null and lower(up.verb) <> 'g'),
            array_agg(up.lane) filter (where up.verb in ('w', 'n')), array_agg(up.priority) filter (where up.verb in ('w', 'n')), array_agg(up.ord) filter (where up.verb in ('w', 'n'))
            into got, ids_in, lanes_in, keyed, stands, some_text, gone, last_o, queues, ords, a_lane, a_p, a_o from up;
  `
}

/** The events of the note that the lease holder wrote just before the move. */
const priorNoteEvents = noteEvents("x.more ? 'p'")

const moveEvents = `concat_ws(${UNIT}, ${priorNoteEvents},
              case when x.verb = 'r' then job_event_{V}('retrying', j, t, null) end, state_event_{V}(j, t),
              case when x.verb <> lower(x.verb) then job_event_{V}('removed', j, t, null) end)`

/** Deletes the dedup keys of finished jobs, except keys with a window. */
const freeKeys = `
          if array_remove(keyed, null) <> '{}' then
            delete from key y using (select u.id, u.dedup::json->>'key' as key from unnest(ids_in, keyed) u(id, dedup) where u.dedup is not null) d
              where y.key = d.key and y.job = d.id and y.until is null;
          end if;
`

/**
 * Turns for jobs with a group that begin to wait behind others: the first job of each group gets a turn, the next ones
 * follow it.
 */
const computeTurns = `
            select array_agg(z.turn order by z.n) into turns_in from (
              select w.n, w.first[1] + (w.k - 1) * w.first[2] as turn from (
                select v.*, first_value(case when v.k = 1 then next_turns_{V}(v.queue, v.grp, v.priority) end) over (partition by v.queue, v.grp, v.priority order by v.n) as first from (
                  select y.n, o.queue, o.grp, o.priority, case when o.grp is not null then row_number() over (partition by o.queue, o.grp, o.priority order by y.n) end as k
                  from unnest(end_ids, fences, verbs) with ordinality y(id, fence, verb, n)
                  left join lateral (select j.queue, j.grp, j.priority from job j where j.id = y.id and y.verb = 'n' and j.grp is not null and (${unlocked})
                    and j.fence = coalesce(y.fence, s->>'f')::bigint and j.state = 'delayed' offset 0) o on true) v) w) z;
`

/**
 * Applies the moves of `s`, without those in `locked`: jobs that another transaction holds or has moved, and jobs with
 * dependents, except completions whose dependents can all be updated at once.
 */
const moveUnlocked = `
        releasing := '{}'; many := null;
        select coalesce(array_agg(y.id) filter (where z.mine is null), '{}'), bool_or(z.grp is not null) into locked, gated from unnest(end_ids, fences) y(id, fence)
          left join lateral (select true as mine, o.grp from job o
            where o.id = y.id and o.fence = coalesce(y.fence, s->>'f')::bigint for update skip locked) z on true;
        if exists (select 1 from edge) then
          if s->>'k' = 'c' then
            ${lockReleasable}
            locked := locked || kept_back;
          else
            locked := locked || array(select y.id from ${withDependents});
          end if;
        end if;
        locked := locked || array(select y.id from unnest(end_ids) y(id)
          cross join lateral (select o.dedup::json->>'key' as key from job o where o.id = y.id and o.dedup is not null offset 0) d
          cross join lateral (select 1 from key o where o.key = d.key and o.job = y.id and o.until is null offset 0) k
          left join lateral (select true as mine from key o where o.key = d.key for update skip locked) z on true
          where z.mine is null);
        if s ? 'gone' then
          with x as (${withAllFields}),
          ${writeMoves(
            `delete from job j using x where j.id = x.id and j.fence = x.fence and j.kind = 'job' and (j.chain is null or x.verb = 'g')
              and j.state not in ('active', 'waiting-children')`,
            'j.state',
            "job_event_{V}('removed', j, t, null)",
          )}
        else
          if gated then
            ${computeTurns}
          end if;
          with mine as materialized (
            select j.ctid, x.*, j.state as was, case when x.verb = 'n' then coalesce(x.turn, nextval('{S}.job_order')) end as new_ord from (${withAllFields}) x cross join lateral (
              select o.ctid, o.state, o.lease_until, o.chain, o.kind from job o where o.id = x.id and o.fence = x.fence for update skip locked) j
            where j.kind = 'job' and (j.chain is null or not x.ends)
              -- A group before this one may have changed a job that waits for dependencies.
              and case when s ? 'hand' then j.state in ('waiting', 'delayed') and j.state <> x.goal else j.lease_until > t end
          ),
          ${writeMoves(
            `update job j set ${movedValues('case when x.new_ord is null then j.ord when j.ord < 0 then -1 - x.new_ord else x.new_ord end')} from mine x where j.ctid = x.ctid`,
            'x.was',
            moveEvents,
          )}
        end if;
        ${freeKeys}
        -- The rows of the completed jobs were locked before their dependents were read: no dependent was added since.
        if got > 0 and releasing <> '{}' then
          ${releaseMany}
        end if;
`

/**
 * Moves of jobs, in `s`: a group each. Returns in `loose` the indexes of those that have to be applied one by one:
 * refused, with dependents, of a longer chain, or with a dedup key that another open transaction holds.
 */
export const moveMany = `
      releasing := '{}'; freeing := '{}'; locked := '{}'; some_text := '{}'; gone := null; queues := null; ords := null; a_lane := null; a_p := null; a_o := null; turns_in := null; stands := null; many := null;
      got := -1;
      if not s ?| '{hand,gone}' then
        if exists (select 1 from edge) then
          -- Releases the dependents of completions all at once, if that only counts them down and no other transaction
          -- holds them.
          if s->>'k' = 'c' then
            ${lockReleasable}
            locked := kept_back;
          else
            locked := array(select y.id from ${withDependents});
          end if;
        end if;
        begin
          -- In almost all cases no other transaction holds these rows: update them directly, and do not wait for a lock.
          perform set_config('lock_timeout', '1ms', true);
          if s->>'k' = 'm' then
            with ${writeMoves(
              `update job j set ${movedValues('j.ord')} from (${withAllFields}) x where j.id = x.id and j.fence = x.fence and j.lease_until > t and j.kind = 'job'
              and (j.chain is null or not x.ends)`,
              "'active'",
              moveEvents,
            )}
          elsif s ? 'w' then
            ${writeCompletions(
              `update job j set ${completedValues}, result = x.result, memo = coalesce(x.more->>'m', j.memo), progress = coalesce(x.more->>'p', j.progress)
              from (${withNotes}) x where j.id = x.id and j.fence = x.fence and ${held}`,
              priorNoteEvents,
            )}
          elsif fences = '{}' and results = '{}' and locked = '{}' then
            ${writeCompletions(`update job j set ${completedValues} where j.id = any (end_ids) and j.fence = (s->>'f')::bigint and ${held}`)}
          else
            ${writeCompletions(`update job j set ${completedValues}, result = x.result from (${withResults}) x where j.id = x.id and j.fence = x.fence and ${held}`)}
          end if;
          ${freeKeys}
          -- Adding a dependent locks the jobs it waits for: by now it is either committed, and visible here, or refused
          -- as busy.
          if got > 0 and exists (select 1 from edge) then
            if s->>'k' = 'c' then
              ${releaseMany}
            elsif exists (select 1 from ${withDependents} and (${unlocked})) then
              raise exception using errcode = 'MR006';
            end if;
          end if;
          perform set_config('lock_timeout', '5s', true);
        exception when lock_not_available or deadlock_detected or sqlstate 'MR006' then
          got := -1;
        end;
      end if;
      if got < 0 then
        ${moveUnlocked}
      end if;
      if got > 0 then
        ev := ev || string_to_array(stands, ${UNIT});
        if many is not null then ev := ev || many; many_n := many_n + got - 1; end if;
        d_queue := d_queue || queues; d_at := d_at || ords; w_lane := w_lane || a_lane; w_p := w_p || a_p; w_o := w_o || a_o;
        for r in select y.lane, l.queue, y.n, split_part(y.how, ' ', 1) as was, right(y.how, 1) as verb,
                   case lower(right(y.how, 1)) when 'c' then 'completed' when 'f' then 'failed' when 'x' then 'cancelled' end as goal,
                   case right(y.how, 1) when 'd' then 'delayed' when 'r' then 'delayed' when 'w' then 'waiting' when 'n' then 'waiting' end as state
                 from (select z.lane, coalesce(z.how, 'active c') as how, count(*)::int as n from unnest(lanes_in, some_text) z(lane, how) group by 1, 2) y
                 join lane l on l.id = y.lane loop
          c_of := c_of || r.lane; c_what := c_what || r.was; c_n := c_n || -r.n;
          if r.was = 'active' then credited := credited || r.queue; end if;
          if r.goal is not null then
            c_of := c_of || r.queue; c_what := c_what || ('+' || r.goal); c_n := c_n || r.n;
          end if;
          if r.verb in ('c', 'f', 'x') or r.state is not null then
            c_of := c_of || r.lane; c_what := c_what || coalesce(r.goal, r.state); c_n := c_n || r.n;
          end if;
          if r.verb = 'r' then c_of := c_of || r.queue; c_what := c_what || '+retried'::text; c_n := c_n || r.n; end if;
        end loop;
        if gone is not null then
          fence_top := greatest(fence_top, last_o);
          delete from job where id = any (gone);
          delete from log where job = any (gone);
          delete from step where job = any (gone);
          delete from edge where dependent = any (gone);
        end if;
      end if;
      if got < cardinality(end_ids) then
        select coalesce(array_agg(o.n::int - 1), '{}') into loose from unnest(end_ids) with ordinality o(id, n) where got = 0 or o.id <> all (ids_in);
      end if;
`

/** Functions that turn one entry of a run into a group of its own, as `changes.ts` applies it. */
export const singleGroups = `
-- One move of a run, as a group by itself.
create or replace function {S}.move_in_run_{V}(s jsonb, i int, id text, fence bigint, verb text, result text, error text) returns jsonb language sql immutable as $$
  select jsonb_build_object('k', 'g', 'n', {S}.group_in_run_{V}(s, i), 'x', case when jsonb_typeof(s->'w'->i) = 'object' then jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('k', 'n', 'id', id, 'f', fence, 'held', true,
      'progress', s->'w'->i->'p', 'memo', s->'w'->i->'m', 'about', s->'w'->i->'a', 'events', s->'w'->i->'t'))) else '[]' end
    || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('k', 'm', 'id', id, 'f', fence, 'to', y.goal,
      'held', case when not s ?| '{hand,gone}' then true end, 'new', case when verb = 'n' then true end, 'why', case when verb = 'r' then 'retrying' end,
      'set', jsonb_build_object('result', result, 'error', error, 'attempt', nullif(split_part(s->>'at', ',', i + 1), ''),
        'ri', nullif(split_part(s->>'ri', ',', i + 1), ''), 'si', nullif(split_part(s->>'si', ',', i + 1), ''), 'di', nullif(split_part(s->>'di', ',', i + 1), '')))))
    || case when verb not in ('d', 'r', 'w', 'n', 'g')
       then jsonb_build_array(jsonb_build_object('k', 'r', 'chain', id, 'outcome', case verb when 'G' then 'cancelled' else y.goal end)) else '[]' end
    || case when verb in ('C', 'F', 'X') then jsonb_build_array(jsonb_build_object('k', 'm', 'id', id, 'f', fence + 1, 'to', 'removed', 'set', '{}'::jsonb)) else '[]' end)
  from (select case lower(verb) when 'c' then 'completed' when 'f' then 'failed' when 'x' then 'cancelled' when 'd' then 'delayed' when 'r' then 'delayed'
    when 'g' then 'removed' else 'waiting' end as goal) y
$$;

-- One note of a run, as a group by itself.
create or replace function {S}.note_in_run_{V}(s jsonb, i int, id text, fence bigint, progress text) returns jsonb language sql immutable as $$
  select jsonb_build_object('k', 'g', 'n', {S}.group_in_run_{V}(s, i), 'x', jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('k', 'n', 'id', id, 'f', fence, 'held', true,
    'progress', progress, 'logs', case when s->'l'->i <> '[]' then s->'l'->i end,
    'memo', s->'w'->i->'m', 'about', s->'w'->i->'a', 'events', s->'w'->i->'t'))))
$$;
`
