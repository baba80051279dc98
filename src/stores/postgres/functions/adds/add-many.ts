// stores/postgres/functions/adds/add-many.ts: the fast path of a batch that adds similar plain jobs.
import { NOT_PAUSED, UNIT, writeSettings } from '../fast-parts.js'

/** Adds many similar plain jobs: their ids and data in two texts, their orders in blocks of 1024. Otherwise as `add_one`. */
export const addMany = `
create or replace function {S}.add_many_{V}(by text, number bigint, origin text, of_queue int, of_lane int, queue_name text, first bigint, newest boolean,
  tries bigint, job_settings text, job_ids text, bodies text, clock bigint) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_variable
declare
  t bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000));
  locks text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;
  refused boolean; recording boolean; listened boolean; added int; fence_from bigint; ids text[]; blocks bigint[]; groups text; hints text;
  c_of int[]; c_what text[]; c_n int[];
begin
  select (select w.seq from writer w where w.id = by) >= number or current_setting('transaction_isolation') <> 'read committed'
      or not exists (select 1 from lane z where z.id = of_lane and z.queue = of_queue)
      or exists (select 1 from cell c where c.key = 'limit:' || queue_name)
      or exists (select 1 from cell c where c.key = 'pause:' || queue_name and not starts_with(c.value, '${NOT_PAUSED}')),
    exists (select 1 from peer y where y.events_until > t),
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
  perform keep_receipt_{V}(by, number, t, format('{"again":true,"now":%s,"groups":[%s],"renewals":[],"claim":null}', t, groups), c_of, c_what, c_n);
  if recording then
    insert into event (events, body) values (added, many_events_{V}('waiting', t, null, job_ids, array[of_lane], of_lane::text, null, null, null));
  end if;
  hints := format('"events":%s,"work":[%s],"due":[],"revoked":[],"orders":[[%s,%s,%s]]', recording::int, to_json(queue_name), of_lane, first,
    case when newest then -1024 - blocks[cardinality(blocks)] else blocks[1] end);
  if listened then perform pg_notify('{C}', '{"from":' || to_json(origin) || ',' || hints || '}'); end if;
  return format('{"now":%s,"groups":[%s],"renewals":[],"asks":[],%s}', t, groups, hints);
end $millrace$;
`
