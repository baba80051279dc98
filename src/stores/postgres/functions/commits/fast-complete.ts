// stores/postgres/functions/commits/fast-complete.ts: the fast path of a batch that only completes jobs for their lease holders.
import { UNIT, writeSettings } from '../fast-parts.js'

/**
 * Completes jobs that no job waits for, each with its result or none. Raises MR006, and has done nothing, if the engine
 * has to decide: a lease was lost, a job is part of a longer chain or has dependents, or another transaction holds a row.
 * Returns null if the batch was applied before. PL/pgSQL pays for each variable and expression in every transaction, so
 * the fast paths have few.
 */
export const fastComplete = `
create or replace function {S}.fast_complete_{V}(by text, number bigint, origin text, ids text, fences text, results text, clock bigint) returns text
  language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_variable
declare
  t bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000));
  locks text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;
  refused boolean; recording boolean; listened boolean; ended text[] := string_to_array(ids, ${UNIT}); completed int; done text[]; lanes int[]; keyed text[];
  attempts text; texts text; freed text[]; c_of int[]; c_what text[]; c_n int[]; hints text;
begin
  select (select w.seq from writer w where w.id = by) >= number or current_setting('transaction_isolation') <> 'read committed',
      exists (select 1 from peer y where y.events_until > t), exists (select 1 from peer y where y.until > t and y.id <> origin)
    into refused, recording, listened;
  if refused then return null; end if;
  begin
    -- In almost all cases no other transaction holds these rows: update them directly, and wait for a lock only as long as a busy
    -- server needs for its own.
    perform set_config('lock_timeout', '10ms', true);
    if results is null and fences !~ ',' then
      with up as (
        update job j set state = 'completed', fence = j.fence + 1, lease_until = null, due_at = null, ahead = false, claim = null, finished_at = t, touched = true
          where j.id = any (ended) and j.fence = fences::bigint and j.lease_until > t and j.chain is null and j.kind = 'job'
          returning j.id, j.lane, j.dedup, j.attempt, j.result)
      select count(*), array_agg(up.id), array_agg(up.lane), array_agg(up.dedup), string_agg(up.attempt::text, ',') filter (where recording),
          string_agg(coalesce(up.result, ''), ${UNIT}) filter (where recording)
        into completed, done, lanes, keyed, attempts, texts from up;
    else
      with up as (
        update job j set state = 'completed', fence = j.fence + 1, lease_until = null, due_at = null, ahead = false, claim = null, finished_at = t, touched = true,
            result = x.result
          from (select y.id, coalesce(y.fence, fences)::bigint as fence, y.result
                from unnest(ended, case when fences ~ ',' then string_to_array(fences, ',') end, string_to_array(results, ${UNIT}, '')) y(id, fence, result)) x
          where j.id = x.id and j.fence = x.fence and j.lease_until > t and j.chain is null and j.kind = 'job'
          returning j.id, j.lane, j.dedup, j.attempt, j.result)
      select count(*), array_agg(up.id), array_agg(up.lane), array_agg(up.dedup), string_agg(up.attempt::text, ',') filter (where recording),
          string_agg(coalesce(up.result, ''), ${UNIT}) filter (where recording)
        into completed, done, lanes, keyed, attempts, texts from up;
    end if;
    if array_remove(keyed, null) <> '{}' then
      delete from key y using (select u.id, u.dedup::json->>'key' as key from unnest(done, keyed) u(id, dedup) where u.dedup is not null) d
        where y.key = d.key and y.job = d.id and y.until is null;
    end if;
    perform set_config('lock_timeout', '5s', true);
  exception when lock_not_available or deadlock_detected then
    raise exception using errcode = 'MR006';
  end;
  -- Adding a dependent locks the jobs that it waits for: by now it is either committed, and visible here, or refused as
  -- busy.
  if completed < cardinality(ended)
    or (exists (select 1 from edge) and exists (
      select 1 from unnest(ended) y(id) cross join lateral (select 1 from edge e where e.chain = y.id and e.state <> 'ended' limit 1) e)) then
    raise exception using errcode = 'MR006';
  end if;
  select array_agg(x.of), array_agg(x.what), array_agg(x.n) into c_of, c_what, c_n from (
    select z.lane as of, s.what, s.sign * count(*)::int as n from unnest(lanes) z(lane) cross join (values ('active', -1), ('completed', 1)) s(what, sign) group by 1, 2, s.sign
    union all
    select l.queue, '+completed', count(*)::int from unnest(lanes) z(lane) join lane l on l.id = z.lane group by 1) x;
  -- A lease that has ended may make room under a limit. By \`case\`, because the planner would look for waiting jobs first.
  select array_agg(q.name) into freed from (select distinct l.queue from unnest(lanes) z(lane) join lane l on l.id = z.lane) y join queue q on q.id = y.queue
    where case when exists (select 1 from cell c where c.key = 'limit:' || q.name) then is_limited_{V}(setting_{V}('limit:' || q.name)) and has_waiting_{V}(q.id, '{}') end;
  perform keep_receipt_{V}(by, number, t, format('{"again":true,"now":%s,"groups":[],"renewals":[],"claim":null}', t), c_of, c_what, c_n);
  if recording then
    insert into event (events, body) values (completed,
      many_events_{V}('completed', t, null, array_to_string(done, ${UNIT}), lanes, array_to_string(lanes, ','), attempts, texts, null));
  end if;
  hints := format('"events":%s,"work":%s,"due":[],"revoked":[],"orders":[]', recording::int, coalesce(array_to_json(freed), '[]'));
  if listened and (recording or freed is not null) then perform pg_notify('{C}', '{"from":' || to_json(origin) || ',' || hints || '}'); end if;
  return format('{"now":%s,"groups":[],"renewals":[],"asks":[],%s}', t, hints);
end $millrace$;
`
