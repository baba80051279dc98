// stores/postgres/sql/add.ts: the shortest way in, for batches that do nothing but add plain jobs alike.
import { newJobs } from './runs.js'

/**
 * As `commit_v1`, for one run of new jobs and nothing else, while nobody watches events and the backlog has no bound: a
 * handful of statements. Answers nothing where it is not for it, and then has done nothing.
 */
export const add = `
create function {S}.add_v1(b jsonb) returns text language plpgsql volatile as $millrace$
#variable_conflict use_column
declare
  t bigint := coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000));
  recording boolean; listened boolean; bounded boolean; last_seq bigint; fence_from bigint;
  s jsonb := b->'s'->0;
  c_of int[] := '{}'; c_what text[] := '{}'; c_n int[] := '{}';
  ev text[] := '{}'; d_queue int[] := '{}'; d_at bigint[] := '{}'; w_lane int[] := '{}'; w_p bigint[] := '{}'; w_o bigint[] := '{}';
  g_out text[] := '{}'; g_short text[] := '{}';
  r record; why text; stands text; found_n int; got int; told text[]; locked text[]; ords bigint[]; ids_in text[]; first_at bigint; v_q int; v_l int; v_p bigint; v_lifo boolean; v_at bigint; v_s text; last_o bigint;
  hints text;
begin
  perform pg_advisory_xact_lock(hashtextextended('{S}:writer:' || (b->>'w'), 0));
  select (select w.seq from {S}.writer w where w.id = b->>'w'), f.last_value, p.events, p.others,
         exists (select 1 from {S}.cell c where c.key in ('limit:' || (s->>'qn'), 'pause:' || (s->>'qn')))
    into last_seq, fence_from, recording, listened, bounded
    from {S}.fence f, (select coalesce(bool_or(y.events_until > t), false) as events, coalesce(bool_or(y.until > t and y.id <> b->>'o'), false) as others from {S}.peer y) p;
  if recording or bounded or last_seq >= (b->>'q')::bigint or current_setting('transaction_isolation') <> 'read committed' then return null; end if;
  ${newJobs.replaceAll(/\b(into|from|join) job\b/g, '$1 {S}.job').replaceAll('v1_', '{S}.v1_')}
  with kept as (
    insert into {S}.tally as y (writer, of, what, n)
      select b->>'w', z.of, z.what, z.n from unnest(c_of, c_what, c_n) z(of, what, n) order by z.of
      on conflict (writer, of, what) do update set n = y.n + excluded.n
  )
  insert into {S}.writer values (b->>'w', (b->>'q')::bigint, t, format('{"again":true,"now":%s,"groups":[%s],"renewals":[],"claim":null}', t, array_to_string(g_short, ',')))
    on conflict (id) do update set seq = excluded.seq, at = excluded.at, receipt = excluded.receipt;
  hints := format('"events":0,"work":[%s],"due":[%s],"revoked":[],"places":[%s]', case when cardinality(w_lane) > 0 then to_json(s->>'qn')::text else '' end,
    case when cardinality(d_at) > 0 then json_build_object('queue', s->>'qn', 'at', d_at[1])::text else '' end,
    case when cardinality(w_lane) > 0 then format('[%s,%s,%s]', w_lane[1], w_p[1], w_o[1]) else '' end);
  if listened and got > 0 then
    perform pg_notify('{C}', '{"from":' || to_json(b->>'o') || ',' || hints || '}');
  end if;
  return format('{"now":%s,"groups":[%s],"renewals":[],"asks":[],%s}', t, array_to_string(g_out, ','), hints);
end $millrace$;
`
