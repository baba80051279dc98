// stores/postgres/functions/claims/fast-claim.ts: the fast path of a batch that is one claim, from queues without limits.
import { CLAIM_RETRY, GROUP, LARGE, MANY, ROW, UNIT, writeSettings } from '../fast-parts.js'

/**
 * As `commit`, for one claim. Returns null, and has done nothing, if the general path has to run. A claim that finds
 * nothing leaves no trace: a replay of it may find jobs.
 */
export const fastClaim = `
-- A job as its claim returns it in one row of text, with data of at most so many bytes. An expression without subqueries, so
-- that PostgreSQL inlines it.
create or replace function {S}.claimed_text_{V}(j {S}.job, most int) returns text language sql stable as $$
  select concat_ws(${UNIT}, j.lane, j.id, j.priority, j.ord, j.fence + 1, j.attempt + 1, coalesce(j.attempts::text, ''), j.created_at,
    case when octet_length(j.data) <= most then j.data else '' end, coalesce(j.settings, ''), coalesce(j.dedup, ''),
    case when j.parent is null then j.grp else coalesce(j.grp, '') end, j.parent)
$$;

create or replace function {S}.fast_claim_{V}(by text, number bigint, origin text, worker_id text, queue_names text[], limits text[], handled text[], known text[], leases bigint[],
  other bigint, want int, more int, cursors jsonb, clock bigint) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_variable
declare
  t bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000));
  locks text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;
  refused boolean; recording boolean; shared boolean; many boolean; lanes int[]; untils bigint[]; from_cursors boolean := cursors is not null; claim_no bigint;
  last_p bigint; last_o bigint; last_s bigint; tids tid[]; found_n int; got int; fit_n int; unfit boolean; large boolean; cut boolean := false;
  first_n int := want; new_rows text; whole text[]; rows_out text; whole_ids text[]; records text;
  c_of int[]; c_what text[]; c_n int[]; event_texts text[]; event_count int := 0; later bigint;
begin
  -- A commit that writes a pause or a limit of a queue waits for open claims; claims do not wait for it.
  for i in 1 .. cardinality(queue_names) loop
    if not pg_try_advisory_xact_lock_shared(hashtextextended('{S}:bounds:' || queue_names[i], 0)) then return null; end if;
  end loop;
  select array_agg(l.id), array_agg(t + coalesce(leases[l.at], other)), bool_or(l.shared),
         (select w.seq from writer w where w.id = by) >= number or current_setting('transaction_isolation') <> 'read committed'
           or exists (select 1 from cell c where c.key = any (limits) and is_limited_{V}(setting_{V}(c.key)))
           or coalesce(bool_or(case when pause.setting ? 'holds' then holds_{V}(pause.setting, t) <> '{}' end), false),
         exists (select 1 from peer y where y.events_until > t)
    into lanes, untils, shared, refused, recording
    from queue q
    cross join lateral (select case when exists (select 1 from cell c where c.key = 'pause:' || q.name) then setting_{V}('pause:' || q.name) end as setting offset 0) pause
    cross join lateral (select m.id, m.name, m.version, m.shared, array_position(handled, m.name) as at from lane m where m.queue = q.id offset 0) l
    where q.name = any (queue_names) and coalesce(leases[l.at], other) is not null and (l.at is null or known[l.at] = '' or l.version = any (known[l.at]::bigint[]))
      and (pause.setting is null or (pause.setting->'all' is distinct from 'true'
        and not (jsonb_typeof(pause.setting->'names') is not distinct from 'array' and pause.setting->'names' ? l.name)));
  if refused then return null; end if;
  many := cardinality(lanes) > 1;
  if shared and many then
    -- Only the general path merges jobs with groups of several queues, or jobs with and without groups. But mostly only
    -- one of them has jobs.
    select array_agg(y.lane), array_agg(y.until), bool_or(l.shared), count(distinct case when l.shared then l.queue else 0 end) > 1
      into lanes, untils, shared, refused
      from unnest(lanes, untils) y(lane, until) join lane l on l.id = y.lane cross join lateral (
        select coalesce((cursors->(l.id::text)->>0)::bigint, '-9223372036854775808') as p, coalesce((cursors->(l.id::text)->>1)::bigint, '-9223372036854775808') as o) f
      where case when l.shared then exists (select 1 from job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is not null
            and is_unexpired_{V}(j, t) and (j.priority, j.ord) >= (f.p, f.o))
        else exists (select 1 from job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is null
            and is_unexpired_{V}(j, t) and (j.priority, j.ord) > (f.p, f.o)) end;
    if refused or (lanes is null and from_cursors) then return null; end if;
    many := cardinality(lanes) > 1;
  end if;

  loop
    exit when want + more = 0 or lanes is null;
    -- Locks jobs in claim order, and skips those that others have locked. The heads of several lanes are merged first: above
    -- the claim cursor of each lane, and after a first pass, above the last job that was read.
    if many then
      if shared then
        select array_agg(z.ctid), count(*), (array_agg(z.priority))[count(*)], (array_agg(z.ord))[count(*)], (array_agg(z.seq))[count(*)]
          into tids, found_n, last_p, last_o, last_s from (
          select x.* from unnest(lanes) g(lane) cross join lateral (
            select j.ctid, j.priority, j.ord, j.seq from job j where j.lane = g.lane and j.state = 'waiting' and j.kind = 'job' and j.grp is not null and is_unexpired_{V}(j, t)
              and (j.priority, j.ord, j.seq) > (coalesce(last_p, case when from_cursors then (cursors->(g.lane::text)->>0)::bigint end, '-9223372036854775808'),
                                                coalesce(last_o, case when from_cursors then (cursors->(g.lane::text)->>1)::bigint end, '-9223372036854775808'),
                                                coalesce(last_s, '-9223372036854775808'))
            order by j.priority, j.ord, j.seq limit want + more) x
          order by x.priority, x.ord, x.seq limit want + more) z;
      else
        select array_agg(z.ctid), count(*), (array_agg(z.priority))[count(*)], (array_agg(z.ord))[count(*)] into tids, found_n, last_p, last_o from (
          select x.* from unnest(lanes) g(lane) cross join lateral (
            select j.ctid, j.priority, j.ord from job j where j.lane = g.lane and j.state = 'waiting' and j.kind = 'job' and j.grp is null and is_unexpired_{V}(j, t)
              and (j.priority, j.ord) > (coalesce(last_p, case when from_cursors then (cursors->(g.lane::text)->>0)::bigint end, '-9223372036854775808'),
                                         coalesce(last_o, case when from_cursors then (cursors->(g.lane::text)->>1)::bigint end, '-9223372036854775808'))
            order by j.priority, j.ord limit want + more) x
          order by x.priority, x.ord limit want + more) z;
      end if;
      select array_agg(x.ctid), count(*), string_agg(x.text, ${ROW}), array_agg(x.id) filter (where x.touched), bool_or(x.unfit), bool_or(x.large)
          into tids, got, new_rows, whole, unfit, large from (
        select j.* from unnest(tids) y(tid) cross join lateral (
          select o.ctid, o.id, claimed_text_{V}(o, ${LARGE}) as text, o.touched, o.stalls > 0 or o.attempts <= 1 as unfit, octet_length(o.data) > ${LARGE} as large from job o
          where o.ctid = y.tid and o.state = 'waiting' and o.kind = 'job' for update skip locked) j) x;
    else
      last_p := coalesce(case when from_cursors then (cursors->(lanes[1]::text)->>0)::bigint end, '-9223372036854775808');
      last_o := coalesce(case when from_cursors then (cursors->(lanes[1]::text)->>1)::bigint end, '-9223372036854775808');
      if shared then -- turns may be equal
        select array_agg(x.ctid), count(*), string_agg(x.text, ${ROW}), array_agg(x.id) filter (where x.touched), bool_or(x.unfit), bool_or(x.large)
          into tids, got, new_rows, whole, unfit, large from (
          select j.ctid, j.id, claimed_text_{V}(j, ${LARGE}) as text, j.touched, j.stalls > 0 or j.attempts <= 1 as unfit, octet_length(j.data) > ${LARGE} as large from job j
          where j.lane = lanes[1] and j.state = 'waiting' and j.kind = 'job' and j.grp is not null and is_unexpired_{V}(j, t) and (j.priority, j.ord) >= (last_p, last_o)
          order by j.priority, j.ord, j.seq limit want + more for update skip locked) x;
      else
        select array_agg(x.ctid), count(*), string_agg(x.text, ${ROW}), array_agg(x.id) filter (where x.touched), bool_or(x.unfit), bool_or(x.large)
          into tids, got, new_rows, whole, unfit, large from (
          select j.ctid, j.id, claimed_text_{V}(j, ${LARGE}) as text, j.touched, j.stalls > 0 or j.attempts <= 1 as unfit, octet_length(j.data) > ${LARGE} as large from job j
          where j.lane = lanes[1] and j.state = 'waiting' and j.kind = 'job' and j.grp is null and is_unexpired_{V}(j, t) and (j.priority, j.ord) > (last_p, last_o)
          order by j.priority, j.ord limit want + more for update skip locked) x;
      end if;
      found_n := got;
    end if;
    if unfit and more > 0 then raise exception using errcode = 'MR006'; end if; -- a job must not be leased ahead
    if got > 0 then
      -- Keeps the jobs that fit into the answer; a later claim takes the others.
      if large or whole is not null or got > ${MANY} then
        fit_n := (fitting_{V}(tids, 0)).n;
        if large or fit_n < got then
          cut := cut or fit_n < got; tids := tids[:fit_n]; got := fit_n;
          select string_agg(x.text, ${ROW}), array_agg(x.id) filter (where x.touched) into new_rows, whole
            from unnest(tids) y(tid) cross join lateral (
              select claimed_text_{V}(j, 2147483647) as text, j.id, j.touched from job j where j.ctid = y.tid offset 0) x;
        end if;
      end if;
      if claim_no is null then claim_no := nextval('{S}.claim'); end if;
      if want > 0 then
        update job j set state = 'active', fence = j.fence + 1, attempt = j.attempt + 1, worker = worker_id, claim = claim_no,
            lease_until = untils[array_position(lanes, j.lane)], due_at = untils[array_position(lanes, j.lane)], started_at = t, ahead = false
          where j.ctid = any (tids[:want]);
      end if;
      if got > want then
        update job j set state = 'active', fence = j.fence + 1, attempt = j.attempt + 1, worker = worker_id, claim = claim_no,
            lease_until = untils[array_position(lanes, j.lane)], due_at = untils[array_position(lanes, j.lane)], started_at = t, ahead = true
          where j.ctid = any (tids[want + 1:]);
      end if;
      if many then
        select c_of || array_agg(z.lane) || array_agg(z.lane), c_what || array_agg('waiting'::text) || array_agg('active'::text),
               c_n || array_agg(-z.n) || array_agg(z.n)
          into c_of, c_what, c_n
          from (select split_part(y.row, ${UNIT}, 1)::int as lane, count(*)::int as n from unnest(string_to_array(new_rows, ${ROW})) y(row) group by 1) z;
      else
        c_of := c_of || array[lanes[1], lanes[1]]; c_what := c_what || array['waiting', 'active']; c_n := c_n || array[-got, got];
      end if;
      if shared then
        perform advance_turn_{V}(y.queue, y.p, y.o) from (
          select l.queue, split_part(z.row, ${UNIT}, 3)::bigint as p, max(split_part(z.row, ${UNIT}, 4)::bigint) as o
          from unnest(string_to_array(new_rows, ${ROW})) z(row) cross join (select m.queue from lane m where m.id = lanes[1]) l group by 1, 2) y;
      end if;
      more := more - greatest(0, got - want);
      want := greatest(0, want - got);
      rows_out := concat_ws(${ROW}, rows_out, new_rows);
      if whole is not null then whole_ids := whole_ids || whole; end if;
    end if;
    exit when want + more = 0 or cut;
    continue when found_n > got; -- others have locked some of the jobs: read those behind them, too
    exit when not from_cursors;
    from_cursors := false; -- jobs below the claim cursors may be new
    last_p := null; last_o := null; last_s := null;
  end loop;

  -- Jobs above the claim cursors that still wait are locked by a transaction that may release them without a notice.
  if want > 0 and not cut and exists (
    select 1 from unnest(lanes) g(lane)
    cross join lateral (select coalesce((cursors->(g.lane::text)->>0)::bigint, '-9223372036854775808') as p, coalesce((cursors->(g.lane::text)->>1)::bigint, '-9223372036854775808') as o) f
    cross join lateral (
      (select 1 from job j where j.lane = g.lane and j.state = 'waiting' and j.kind = 'job' and j.grp is null
         and is_unexpired_{V}(j, t) and (j.priority, j.ord) > (f.p, f.o) limit 1)
      union all
      (select 1 from job j where j.lane = g.lane and j.state = 'waiting' and j.kind = 'job' and j.grp is not null
         and is_unexpired_{V}(j, t) and (j.priority, j.ord) >= (f.p, f.o) limit 1)) z
  ) then
    later := t + ${CLAIM_RETRY};
  end if;
  if cut then later := t; end if;
  if whole_ids is not null then
    select string_agg(record_{V}(z.j)::text, ',') into records
      from unnest(whole_ids) y(id) cross join lateral (select j from job j where j.id = y.id offset 0) z(j);
  end if;
  if claim_no is not null then
    perform keep_receipt_{V}(by, number, t, format('{"again":true,"now":%s,"groups":[],"renewals":[],"claim":%s}', t, claim_no || coalesce(',"later":' || later, '')), c_of, c_what, c_n);
    if recording then
      -- The events of the claimed jobs, from the rows of the answer, and \`drained\` for each queue without further waiting
      -- jobs: none after the last claimed one and, if there are claim cursors, none below them.
      select many_events_{V}('active', t, worker_id, z.ids, z.of, array_to_string(z.of, ','), z.attempts, null,
            case when whole_ids is not null then (select string_agg(coalesce(j.chain, ''), ${UNIT})
              from unnest(string_to_array(z.ids, ${UNIT})) y(id) cross join lateral (select o.chain from job o where o.id = y.id offset 0) j) end)
          || array(
            select json_build_object('type', 'drained', 'id', '', 'queue', q.name, 'name', '', 'at', t)::text from queue q
            cross join (select jsonb_object_agg(y.lane, to_jsonb(z.far)) as orders from unnest(lanes) y(lane)) p
            where q.id in (select l.queue from lane l where l.id = any (z.of))
              -- After the last claimed job there is almost always another; below the claim cursors are all that were
              -- claimed before.
              and case when has_waiting_{V}(q.id, p.orders) or (cursors is not null and has_waiting_below_{V}(q.id, cursors)) then is_drained_{V}(q.id, p.orders, cursors) else true end
              and not has_expired_{V}(q.id, t)
            order by q.id), cardinality(z.of) - 1
        into event_texts, event_count
        from (select array_agg(y.part[1]::int) as of, string_agg(y.part[2], ${UNIT}) as ids, string_agg(y.part[6], ',') as attempts,
                max(array[y.part[3]::bigint, y.part[4]::bigint]) as far
              from (select string_to_array(x.row, ${UNIT}) as part from unnest(string_to_array(rows_out, ${ROW})) x(row) offset 0) y) z;
      event_count := event_count + cardinality(event_texts);
      insert into event (events, body) values (event_count, array_to_string(event_texts, ${ROW}));
      if exists (select 1 from peer y where y.until > t and y.id <> origin) then
        perform pg_notify('{C}', format('{"from":%s,"events":%s,"work":[],"due":[],"revoked":[],"orders":[]}', to_json(origin), event_count));
      end if;
    end if;
  end if;
  return format('{"now":%s,"groups":[],"renewals":[],"asks":[{"first":%s,"lanes":[%s],"until":[%s],"whole":[%s]}],"events":%s,"work":[],"due":[],"revoked":[],"orders":[]%s}',
    t, first_n, array_to_string(lanes, ','), array_to_string(untils, ','), records, event_count, ',"later":' || later) || ${GROUP} || coalesce(rows_out, '');
end $millrace$;
`
