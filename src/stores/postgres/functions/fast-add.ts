// stores/postgres/functions/fast-add.ts: the fast paths for batches that only add similar plain jobs.
import { TURN_STEP } from '../../../job/limits.js'
import type { PauseCell } from '../../../job/limits.js'
import { lastTurn, turnOf } from './groups.js'
import {
  declarations,
  hasWatchers,
  isRefused,
  keepReceipt,
  manyEvents,
  searchPath,
  UNIT,
  writeSettings,
} from './fast-parts.js'

/** How the cell of a queue begins in which nothing is paused: at most it has holds, which adds do not heed. */
const NOT_PAUSED = JSON.stringify({ all: false, names: [] } satisfies PauseCell).slice(0, -1)

/** Whether a queue has a limit or a pause that an add has to check, or the lane that the process caches no longer exists. */
const bounded = `not exists (select 1 from {S}.lane z where z.id = of_lane and z.queue = of_queue)
      or exists (select 1 from {S}.cell c where c.key = 'limit:' || queue_name)
      or exists (select 1 from {S}.cell c where c.key = 'pause:' || queue_name and not starts_with(c.value, '${NOT_PAUSED}'))`

/**
 * Adds one job in one statement: anything else that PL/pgSQL evaluates would cost as much as the insert. Returns null if the
 * general path has to do it, or if the batch was applied before. A taken id is an error, which rolls it back.
 */
const addOne = `
create or replace function {S}.add_one_{V}(by text, number bigint, origin text, of_queue int, of_lane int, queue_name text, first bigint, newest boolean,
  tries bigint, job_settings text, job_id text, body text, clock bigint) returns text language plpgsql volatile ${searchPath} set plan_cache_mode = force_generic_plan as $millrace$
#variable_conflict use_variable
declare
  answer text;
  held text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;
begin
  with n as materialized (
    select c.t, case when newest then -1 - c.new_ord else c.new_ord end as ord, c.new_ord,
           (select f.last_value from {S}.fence f) as fence,
           exists (select 1 from {S}.peer y where y.until > c.t and y.id <> origin) as listened
    from (select coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as t, nextval('{S}.job_order') as new_ord) c
    where not exists (select 1 from {S}.peer y where y.events_until > c.t)
      and not (${bounded})
      and current_setting('transaction_isolation') = 'read committed'
  ), receipt_kept as materialized (
    insert into {S}.writer as w
      select by, number, n.t, format('{"again":true,"now":%s,"groups":[["I",1,[%s],%s,%s]],"renewals":[],"claim":null}', n.t, n.new_ord, newest::int, n.fence),
        jsonb_build_object(of_lane || ' waiting', 1, of_queue || ' +added', 1) from n
      on conflict (id) do update set seq = excluded.seq, at = excluded.at, receipt = excluded.receipt,
        counts = w.counts || jsonb_build_object(of_lane || ' waiting', coalesce((w.counts->>(of_lane || ' waiting'))::bigint, 0) + 1,
          of_queue || ' +added', coalesce((w.counts->>(of_queue || ' +added'))::bigint, 0) + 1)
        where w.seq < excluded.seq
      returning 1
  ), put as (
    insert into {S}.job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data)
      select job_id, n.new_ord, of_queue, of_lane, 'waiting', first, n.ord, n.fence, tries, n.t, job_settings, body from n, receipt_kept
      returning 1
  )
  select format('{"now":%s,"groups":[["I",1,[%s],%s,%s]],"renewals":[],"asks":[],"events":0,"work":[%s],"due":[],"revoked":[],"orders":[[%s,%s,%s]]}', n.t,
      n.new_ord, newest::int, n.fence, to_json(queue_name), of_lane, first, n.ord)
    || case when n.listened then pg_notify('{C}', format('{"from":%s,"events":0,"work":[%s],"due":[],"revoked":[],"orders":[[%s,%s,%s]]}',
      to_json(origin), to_json(queue_name), of_lane, first, n.ord))::text else '' end
    into answer from n, put;
  return answer;
end $millrace$;
`

/** Writes the events, if a process watches. */
const waitingEvents = `if recording then
    insert into event (events, body) values (added, ${manyEvents('waiting', { at: 't', ids: 'job_ids', lanes: 'array[of_lane]', lane: 'of_lane' })});
  end if;`

/** Adds many similar plain jobs: their ids and data in two texts, their orders in blocks of 1024. */
const addMany = `
create or replace function {S}.add_many_{V}(by text, number bigint, origin text, of_queue int, of_lane int, queue_name text, first bigint, newest boolean,
  tries bigint, job_settings text, job_ids text, bodies text, clock bigint) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_variable
declare
  ${declarations}
  refused boolean; recording boolean; listened boolean; added int; fence_from bigint; ids text[]; blocks bigint[]; groups text; hints text;
  c_of int[]; c_what text[]; c_n int[];
begin
  select ${isRefused} or ${bounded}, ${hasWatchers},
         exists (select 1 from peer y where y.until > t and y.id <> origin), (select f.last_value from fence f), string_to_array(job_ids, ${UNIT})
    into refused, recording, listened, fence_from, ids;
  if refused then return null; end if;
  added := cardinality(ids);
  blocks := array(select nextval('{S}.job_order') from generate_series(1, added, 1024));
  insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data)
    select x.id, x.new_ord, of_queue, of_lane, 'waiting', first, case when newest then -1 - x.new_ord else x.new_ord end, fence_from, tries, t, job_settings, nullif(x.body, '')
    from (select y.id, y.body, blocks[(y.n - 1) / 1024 + 1] + (y.n - 1) % 1024 as new_ord
          from unnest(ids, string_to_array(bodies, ${UNIT})) with ordinality y(id, body, n) offset 0) x;
  groups := format('["I",%s,[%s],%s,%s]', added, array_to_string(blocks, ','), newest::int, fence_from);
  c_of := array[of_lane, of_queue]; c_what := array['waiting', '+added']; c_n := array[added, added];
  ${keepReceipt('by', 'number', 'groups', "''", "'null'")}
  ${waitingEvents}
  hints := format('"events":%s,"work":[%s],"due":[],"revoked":[],"orders":[[%s,%s,%s]]', recording::int, to_json(queue_name), of_lane, first,
    case when newest then -1024 - blocks[cardinality(blocks)] else blocks[1] end);
  if listened then perform pg_notify('{C}', '{"from":' || to_json(origin) || ',' || hints || '}'); end if;
  return format('{"now":%s,"groups":[%s],"renewals":[],"asks":[],%s}', t, groups, hints);
end $millrace$;
`

/**
 * The same for jobs with groups, one or many: the first job of a group gets a turn, and the next ones of the group follow
 * it.
 */
const addShared = `
create or replace function {S}.add_shared_{V}(by text, number bigint, origin text, of_queue int, of_lane int, queue_name text, first bigint,
  tries bigint, job_settings text, job_ids text, bodies text, groups_in text, clock bigint) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_variable
declare
  ${declarations}
  refused boolean; recording boolean; listened boolean; added int; fence_from bigint; ids text[]; blocks bigint[]; groups text; hints text; lanes int[]; reached bigint; turns bigint[];
  c_of int[]; c_what text[]; c_n int[];
begin
  select ${isRefused} or ${bounded}, ${hasWatchers},
         exists (select 1 from peer y where y.until > t and y.id <> origin), (select f.last_value from fence f), string_to_array(job_ids, ${UNIT}),
         array(select l.id from lane l where l.queue = of_queue and l.shared), ${turnOf('of_queue', 'first')}
    into refused, recording, listened, fence_from, ids, lanes, reached;
  if refused then return null; end if;
  added := cardinality(ids);
  blocks := array(select nextval('{S}.job_order') from generate_series(1, added, 1024));
  with put as (
    insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data, grp)
      select x.id, blocks[(x.n - 1) / 1024 + 1] + (x.n - 1) % 1024, of_queue, of_lane, 'waiting', first, x.base + (x.k - 1) * ${TURN_STEP}, fence_from, tries, t, job_settings, nullif(x.body, ''), x.grp
      from (select z.*, first_value(case when z.k = 1 then greatest(reached, ${lastTurn('lanes', 'z', 'first')} + ${TURN_STEP}) end) over (partition by z.grp order by z.n) as base
            from (select y.*, row_number() over (partition by y.grp order by y.n) as k
                  from unnest(ids, string_to_array(bodies, ${UNIT}), string_to_array(groups_in, ${UNIT})) with ordinality y(id, body, grp, n)) z) x
      order by x.n
      returning ord)
  select array_agg(put.ord) into turns from put;
  groups := format('["S",[%s],%s]', array_to_string(turns, ','), fence_from);
  c_of := array[of_lane, of_queue]; c_what := array['waiting', '+added']; c_n := array[added, added];
  ${keepReceipt('by', 'number', 'groups', "''", "'null'")}
  ${waitingEvents}
  hints := format('"events":%s,"work":[%s],"due":[],"revoked":[],"orders":[[%s,%s,%s]]', recording::int, to_json(queue_name), of_lane, first, (select min(y.ord) from unnest(turns) y(ord)));
  if listened then perform pg_notify('{C}', '{"from":' || to_json(origin) || ',' || hints || '}'); end if;
  return format('{"now":%s,"groups":[%s],"renewals":[],"asks":[],%s}', t, groups, hints);
end $millrace$;
`

export const fastAdd = `${addOne}${addMany}${addShared}`
