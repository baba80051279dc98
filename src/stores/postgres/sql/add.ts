// stores/postgres/sql/add.ts: the shortest way in, for batches that do nothing but add plain jobs alike.
import { newJobs } from './runs.js'

/**
 * One job that is added by itself, in one statement: whatever PL/pgSQL evaluates besides would cost as much as the insert.
 * Answers nothing where it is not for it, or the batch was applied before. An id that is taken is an error, which undoes it.
 */
const one = `
create or replace function {S}.add_one_v1(by text, number bigint, origin text, of_queue int, of_lane int, queue_name text, first bigint, newest boolean,
  tries bigint, said text, job_id text, body text, clock bigint) returns text language plpgsql volatile set plan_cache_mode = force_generic_plan as $millrace$
#variable_conflict use_variable
declare
  answer text;
  held text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;
begin
  with n as materialized (
    select c.t, case when newest then -1 - c.place else c.place end as ord, c.place,
           (select f.last_value from {S}.fence f) as fence,
           exists (select 1 from {S}.peer y where y.until > c.t and y.id <> origin) as listened
    from (select coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) as t, nextval('{S}.place') as place) c
    where not exists (select 1 from {S}.peer y where y.events_until > c.t)
      and not exists (select 1 from {S}.cell c where c.key = 'limit:' || queue_name)
      and not exists (select 1 from {S}.cell c where c.key = 'pause:' || queue_name)
      and current_setting('transaction_isolation') = 'read committed'
  ), told as materialized (
    insert into {S}.writer as w
      select by, number, n.t, format('{"again":true,"now":%s,"groups":[["i",[0],[%s],%s]],"renewals":[],"claim":null}', n.t, n.ord, n.fence),
        jsonb_build_object(of_lane || ' waiting', 1, of_queue || ' +added', 1) from n
      on conflict (id) do update set seq = excluded.seq, at = excluded.at, receipt = excluded.receipt,
        counts = w.counts || jsonb_build_object(of_lane || ' waiting', coalesce((w.counts->>(of_lane || ' waiting'))::bigint, 0) + 1,
          of_queue || ' +added', coalesce((w.counts->>(of_queue || ' +added'))::bigint, 0) + 1)
        where w.seq < excluded.seq
      returning 1
  ), put as (
    insert into {S}.job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data)
      select job_id, n.place, of_queue, of_lane, 'waiting', first, n.ord, n.fence, tries, n.t, said, body from n, told
      returning 1
  )
  select format('{"now":%s,"groups":[["i",[0],[%s],%s]],"renewals":[],"asks":[],"events":0,"work":[%s],"due":[],"revoked":[],"places":[[%s,%s,%s]]}', n.t,
      n.ord, n.fence, to_json(queue_name), of_lane, first, n.ord)
    || case when n.listened then pg_notify('{C}', format('{"from":%s,"events":0,"work":[%s],"due":[],"revoked":[],"places":[[%s,%s,%s]]}',
      to_json(origin), to_json(queue_name), of_lane, first, n.ord))::text else '' end
    into answer from n, put;
  return answer;
end $millrace$;
`

/**
 * As `commit_v1`, for one run of new jobs and nothing else, while nobody watches events and the backlog has no bound: a
 * handful of statements. Answers nothing where it is not for it, and then has done nothing.
 */
export const add = `
${one}
create or replace function {S}.add_v1(b jsonb) returns text language plpgsql volatile set plan_cache_mode = force_generic_plan as $millrace$
#variable_conflict use_column
declare
  t bigint := coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000));
  held text; recording boolean; listened boolean; bounded boolean; last_seq bigint; fence_from bigint;
  s jsonb := b->'s'->0;
  c_of int[] := '{}'; c_what text[] := '{}'; c_n int[] := '{}';
  ev text[] := '{}'; d_queue int[] := '{}'; d_at bigint[] := '{}'; w_lane int[] := '{}'; w_p bigint[] := '{}'; w_o bigint[] := '{}';
  g_out text[] := '{}'; g_short text[] := '{}';
  r record; why text; stands text; found_n int; got int; told text[]; locked text[]; ords bigint[]; ids_in text[]; first_at bigint; v_q int; v_l int; v_p bigint; v_lifo boolean; v_at bigint; v_s text; last_o bigint;
  hints text; receipt text := '{"again":true,"now":%s,"groups":[%s],"renewals":[],"claim":null}';
begin
  held := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text;
  perform pg_advisory_xact_lock(hashtextextended('{S}:writer:' || (b->>'w'), 0));
  select (select w.seq from {S}.writer w where w.id = b->>'w'),
         exists (select 1 from {S}.peer y where y.events_until > t),
         exists (select 1 from {S}.peer y where y.until > t and y.id <> b->>'o'),
         exists (select 1 from {S}.cell c where c.key = 'limit:' || (s->>'qn')) or exists (select 1 from {S}.cell c where c.key = 'pause:' || (s->>'qn'))
    into last_seq, recording, listened, bounded;
  if recording or bounded or last_seq >= (b->>'q')::bigint or current_setting('transaction_isolation') <> 'read committed' then return null; end if;
  fence_from := pg_sequence_last_value('{S}.fence'::regclass);
  ${newJobs.replaceAll(/\b(into|from|join) job\b/g, '$1 {S}.job').replaceAll('v1_', '{S}.v1_')}
    insert into {S}.writer as w values (b->>'w', (b->>'q')::bigint, t, format(receipt, t, array_to_string(g_short, ',')), {S}.v1_counted('{}', c_of, c_what, c_n))
      on conflict (id) do update set seq = excluded.seq, at = excluded.at, receipt = excluded.receipt,
        counts = {S}.v1_counted(w.counts, c_of, c_what, c_n);
  hints := format('"events":0,"work":[%s],"due":[%s],"revoked":[],"places":[%s]', case when cardinality(w_lane) > 0 then to_json(s->>'qn')::text else '' end,
    case when cardinality(d_at) > 0 then json_build_object('queue', s->>'qn', 'at', d_at[1])::text else '' end,
    case when cardinality(w_lane) > 0 then format('[%s,%s,%s]', w_lane[1], w_p[1], w_o[1]) else '' end);
  if listened and got > 0 then
    perform pg_notify('{C}', '{"from":' || to_json(b->>'o') || ',' || hints || '}');
  end if;
  return format('{"now":%s,"groups":[%s],"renewals":[],"asks":[],%s}', t, array_to_string(g_out, ','), hints);
end $millrace$;
`
