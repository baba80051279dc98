// stores/postgres/functions/adds/add-shared.ts: the fast path of a batch that adds similar jobs with groups.
import { NOT_PAUSED, UNIT, writeSettings } from '../fast-parts.js'
import { TURN_STEP } from '../../../../job/limits.js'

/**
 * The same as `add_many` for jobs with groups, one or many: the first job of a group gets a turn, and the next ones of the
 * group follow it.
 */
export const addShared = `
create or replace function {S}.add_shared_{V}(by text, number bigint, origin text, of_queue int, of_lane int, queue_name text, first bigint,
  tries bigint, job_settings text, job_ids text, bodies text, groups_in text, clock bigint) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_variable
declare
  t bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000));
  locks text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;
  refused boolean; recording boolean; listened boolean; added int; fence_from bigint; ids text[]; blocks bigint[]; groups text; hints text; lanes int[]; reached bigint; turns bigint[];
  c_of int[]; c_what text[]; c_n int[];
begin
  select (select w.seq from writer w where w.id = by) >= number or current_setting('transaction_isolation') <> 'read committed'
      or not exists (select 1 from lane z where z.id = of_lane and z.queue = of_queue)
      or exists (select 1 from cell c where c.key = 'limit:' || queue_name)
      or exists (select 1 from cell c where c.key = 'pause:' || queue_name and not starts_with(c.value, '${NOT_PAUSED}')),
    exists (select 1 from peer y where y.events_until > t),
         exists (select 1 from peer y where y.until > t and y.id <> origin), (select f.last_value from fence f), string_to_array(job_ids, ${UNIT}),
         array(select l.id from lane l where l.queue = of_queue and l.shared), reached_turn_{V}(of_queue, first)
    into refused, recording, listened, fence_from, ids, lanes, reached;
  if refused then return null; end if;
  added := cardinality(ids);
  blocks := array(select nextval('{S}.job_order') from generate_series(1, added, 1024));
  with put as (
    insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data, grp)
      select x.id, blocks[(x.n - 1) / 1024 + 1] + (x.n - 1) % 1024, of_queue, of_lane, 'waiting', first, x.base + (x.k - 1) * ${TURN_STEP}, fence_from, tries, t, job_settings, nullif(x.body, ''), x.grp
      from (select z.*, first_value(case when z.k = 1 then greatest(reached, (select max(m.ord) from unnest(lanes) l(lane) cross join lateral (
                select j.ord from job j where j.lane = l.lane and j.grp = z.grp and j.priority = first and j.grp is not null and j.state = 'waiting' and j.kind <> 'schedule'
                order by j.ord desc limit 1) m) + ${TURN_STEP}) end) over (partition by z.grp order by z.n) as base
            from (select y.*, row_number() over (partition by y.grp order by y.n) as k
                  from unnest(ids, string_to_array(bodies, ${UNIT}), string_to_array(groups_in, ${UNIT})) with ordinality y(id, body, grp, n)) z) x
      order by x.n
      returning ord)
  select array_agg(put.ord) into turns from put;
  groups := format('["S",[%s],%s]', array_to_string(turns, ','), fence_from);
  c_of := array[of_lane, of_queue]; c_what := array['waiting', '+added']; c_n := array[added, added];
  perform keep_receipt_{V}(by, number, t, format('{"again":true,"now":%s,"groups":[%s],"renewals":[],"claim":null}', t, groups), c_of, c_what, c_n);
  if recording then
    insert into event (events, body) values (added, many_events_{V}('waiting', t, null, job_ids, array[of_lane], of_lane::text, null, null, null));
  end if;
  hints := format('"events":%s,"work":[%s],"due":[],"revoked":[],"orders":[[%s,%s,%s]]', recording::int, to_json(queue_name), of_lane, first, (select min(y.ord) from unnest(turns) y(ord)));
  if listened then perform pg_notify('{C}', '{"from":' || to_json(origin) || ',' || hints || '}'); end if;
  return format('{"now":%s,"groups":[%s],"renewals":[],"asks":[],%s}', t, groups, hints);
end $millrace$;
`
