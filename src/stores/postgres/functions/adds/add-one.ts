// stores/postgres/functions/adds/add-one.ts: the fast path of a batch that adds one plain job.
import { NOT_PAUSED, searchPath } from '../fast-parts.js'

/**
 * Adds one job in one statement: anything else that PL/pgSQL evaluates would cost as much as the insert. Returns null if
 * the general path has to do it, or if the batch was applied before. A taken id is an error, which rolls it back.
 */
export const addOne = `
create or replace function {S}.add_one_{V}(by text, number bigint, origin text, of_queue int, of_lane int, queue_name text, first bigint, newest boolean,
  tries bigint, job_settings text, job_id text, body text, clock bigint) returns text language plpgsql volatile ${searchPath} set plan_cache_mode = force_generic_plan as $millrace$
#variable_conflict use_variable
declare
  answer text;
  locks text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;
begin
  with n as materialized (
    select c.t, case when newest then -1 - c.new_ord else c.new_ord end as ord, c.new_ord,
           (select f.last_value from {S}.fence f) as fence,
           exists (select 1 from {S}.peer y where y.until > c.t and y.id <> origin) as listened
    from (select coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as t, nextval('{S}.job_order') as new_ord) c
    where not exists (select 1 from {S}.peer y where y.events_until > c.t)
      and not (not exists (select 1 from {S}.lane z where z.id = of_lane and z.queue = of_queue)
        or exists (select 1 from {S}.cell c where c.key = 'limit:' || queue_name)
        or exists (select 1 from {S}.cell c where c.key = 'pause:' || queue_name and not starts_with(c.value, '${NOT_PAUSED}')))
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
