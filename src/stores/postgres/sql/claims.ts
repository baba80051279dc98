// stores/postgres/sql/claims.ts: the shortest way to jobs, for one ask and nothing else, from queues without pauses and limits.
import { declared, kept, recorded, refused, ROW, steady, UNIT } from './quick.js'

/** What is read of a job that is claimed. */
const read =
  'j.ctid, j.id, j.lane, j.priority, j.ord, j.fence, j.attempt, j.attempts, j.stalls, j.touched, j.created_at, j.data, j.settings, j.dedup'

const waits = "j.state = 'waiting' and j.kind = 'job'"

/** From one lane: locked as it is read, whatever others hold passed over. */
const fromOne = `
      select ${read} from job j
      where j.lane = lanes[1] and ${waits} and (j.priority, j.ord) > (last_p[1], last_o[1])
      order by j.priority, j.ord limit want + more for update skip locked`

/** From several: their heads are merged, then locked in that order. */
const fromMany = `
      select j.* from unnest(tids) y(tid) cross join lateral (
        select ${read} from job j where j.ctid = y.tid and ${waits} for update skip locked) j`

/**
 * Takes what was locked, in order: a row of text for each, the first \`want\` of them to start at once. The first that may
 * not be leased ahead ends it, if it comes from the only lane; from several, that is left to the long way.
 */
function take(source: string): string {
  return `
      select array_agg(x.ctid), array_agg(x.lane), count(*),
             array_agg(x.lane::text || ${UNIT} || x.id || ${UNIT} || x.priority::text || ${UNIT} || x.ord::text || ${UNIT} || (x.fence + 1)::text
               || ${UNIT} || (x.attempt + 1)::text || ${UNIT} || coalesce(x.attempts::text, '') || ${UNIT} || x.created_at::text || ${UNIT}
               || coalesce(x.data, '') || ${UNIT} || coalesce(x.settings, '') || ${UNIT} || coalesce(x.dedup, '')),
             array_agg(case when x.touched then x.id end), min(x.n) filter (where x.n > want and (x.stalls > 0 or x.attempts <= 1)),
             (array_agg(x.priority))[count(*)], (array_agg(x.ord))[count(*)]
        into tids, lanes_in, got, said, whole, unfit, p, o
        from (select z.*, row_number() over () as n from (${source}) z) x;`
}

/** As \`commit_v1\`, for one ask. Answers nothing where it is not for it, and then has done nothing. */
export const claims = `
create or replace function {S}.claim_v2(by text, number bigint, worker_id text, queue_names text, handled text, leases text, other bigint, want int, more int,
  floors jsonb, clock bigint) returns text language plpgsql volatile
  ${steady}
as $millrace$
#variable_conflict use_variable
declare
  ${declared}
  refused boolean; claim_no bigint; lanes int[]; until bigint[]; low_p bigint[]; low_o bigint[]; last_p bigint[]; last_o bigint[];
  tids tid[]; lanes_in int[]; said text[]; whole text[]; got int; found_n int; unfit int; p bigint; o bigint; taken int := 0; first_n int := want; floored boolean := floors is not null;
  rows_out text[] := '{}'; whole_ids text[] := '{}'; records text; c_of int[] := '{}'; c_what text[] := '{}'; c_n int[] := '{}';
begin
  select ${refused} or ${recorded} or coalesce(bool_or(
           not pg_try_advisory_xact_lock_shared(hashtextextended('{S}:bounds:' || y.name, 0))
           or exists (select 1 from cell c where c.key = 'pause:' || y.name) or exists (select 1 from cell c where c.key = 'limit:' || y.name)), false)
    into refused from unnest(string_to_array(queue_names, ${UNIT})) y(name);
  if refused then return null; end if;
  claim_no := nextval('{S}.claim');
  select array_agg(l.id), array_agg(t + coalesce(h.lease::bigint, other)),
         array_agg(coalesce((floors->(l.id::text)->>0)::bigint, '-9223372036854775808')), array_agg(coalesce((floors->(l.id::text)->>1)::bigint, '-9223372036854775808'))
    into lanes, until, low_p, low_o
    from queue q
    cross join lateral (select m.id, m.name from lane m where m.queue = q.id) l
    left join lateral (select g.lease from unnest(string_to_array(handled, ${UNIT}), string_to_array(leases, ',')) g(name, lease) where g.name = l.name limit 1) h on true
    where q.name = any (string_to_array(queue_names, ${UNIT})) and coalesce(h.lease::bigint, other) is not null;
  last_p := low_p; last_o := low_o;
  while want + more > 0 and lanes is not null loop
    if cardinality(lanes) = 1 then
      ${take(fromOne)}
      found_n := got;
      if unfit is not null then
        tids := tids[1:unfit - 1]; said := said[1:unfit - 1]; got := unfit - 1; more := 0;
      end if;
    else
      select array_agg(z.ctid), count(*), (array_agg(z.priority))[count(*)], (array_agg(z.ord))[count(*)] into tids, found_n, p, o from (
        select x.* from unnest(lanes, last_p, last_o) g(lane, p, o) cross join lateral (
          select j.ctid, j.priority, j.ord from job j where j.lane = g.lane and ${waits} and (j.priority, j.ord) > (g.p, g.o)
          order by j.priority, j.ord limit want + more) x
        order by x.priority, x.ord limit want + more) z;
      last_p := array_fill(p, array[cardinality(lanes)]); last_o := array_fill(o, array[cardinality(lanes)]);
      ${take(fromMany)}
      if unfit is not null then raise exception using errcode = 'MR006'; end if;
    end if;
    if got > 0 then
      update job j set state = 'active', fence = j.fence + 1, attempt = j.attempt + 1, worker = worker_id, claim = claim_no,
          lease_until = until[array_position(lanes, j.lane)], due_at = until[array_position(lanes, j.lane)], started_at = t, ahead = false
        where j.ctid = any (tids[1:want]);
      if got > want then
        update job j set state = 'active', fence = j.fence + 1, attempt = j.attempt + 1, worker = worker_id, claim = claim_no,
            lease_until = until[array_position(lanes, j.lane)], due_at = until[array_position(lanes, j.lane)], started_at = t, ahead = true
          where j.ctid = any (tids[want + 1:]);
      end if;
      more := more - greatest(0, got - want);
      want := greatest(0, want - got);
      taken := taken + got;
      rows_out := rows_out || said;
      whole_ids := whole_ids || array_remove(whole[1:got], null);
      for p, o in select y.lane, count(*) from unnest(lanes_in[1:got]) y(lane) group by 1 loop
        c_of := c_of || p::int || p::int; c_what := c_what || array['waiting', 'active']; c_n := c_n || -o::int || o::int;
      end loop;
    end if;
    exit when want + more = 0;
    continue when found_n > got and unfit is null; -- others hold some of what was read: what lies behind is read, too
    exit when not floored;
    floored := false; -- what lies below may be new
    last_p := array_fill(-9223372036854775808, array[cardinality(lanes)]); last_o := last_p;
  end loop;
  if cardinality(whole_ids) > 0 then
    select string_agg(v1_record(j)::text, ',') into records from unnest(whole_ids) y(id) cross join lateral (select j from job j where j.id = y.id offset 0) z(j);
  end if;
  ${kept("''", 'claim_no')}
  return format('{"now":%s,"groups":[],"renewals":[],"asks":[{"first":%s,"until":%s,"rows":%s,"whole":[%s]}],"events":0,"work":[],"due":[],"revoked":[],"places":[]}',
    t, first_n, coalesce((select json_object_agg(y.lane, y.until) from unnest(lanes, until) y(lane, until)), '{}'), to_json(array_to_string(rows_out, ${ROW})), records);
end $millrace$;
`
