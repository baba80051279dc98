// stores/postgres/functions/find.ts: pages of jobs: from the narrowest index that holds all matches, in order.
import { endStates, FAILURES_COUNTED, FAILURES_EACH, ROWS_LOOKED } from '../../../store/read-pages.js'
import { rowBytes } from './fast-parts.js'
import { ofLane, readSettings, record } from './reads.js'

/** Jobs that begin with a text are read by their ids if they are no more than this. */
const FEW_IDS = 1_000

/** More jobs of a tag than this are not counted to find the rarest. */
const MANY_TAGGED = 1_000

/** The most jobs that are found by their values in an index: they are sorted for each page. */
const MOST_FOUND = 10_000

/** Values of jobs of more bytes than this are in no index of values. */
const MOST_INDEXED = 131_072

/** The most lists in which the first job added from a time on is looked up. */
const MOST_SEARCHED = 3

const ENDED = `('${endStates.join("', '")}')`

/** The number of the last row of a list that was cut is `most`. */
const row = (seq: string, direction: string): string =>
  `j.ctid as tid, ${seq} as seq, row_number() over (order by ${seq} ${direction}) as n`

/** The function that reads the lists of a query in one direction. */
const listed = (name: 'oldest' | 'newest', direction: 'asc' | 'desc'): string => `
create or replace function {S}.${name}_{V}(source text, asked jsonb, queues int[], lanes int[], rare text, low bigint, high bigint, most int)
  returns table (tid tid, at bigint, seq bigint, n bigint) language plpgsql stable as $$
#variable_conflict use_column
declare
  -- Active jobs are in no list of their state: they are few, and found by their leases.
  resting text[] := array(select s.state from unnest(array['waiting', 'delayed', 'waiting-children', 'completed', 'failed', 'cancelled']) s(state)
    where not asked ? 'states' or asked->'states' ? s.state);
  active boolean := not asked ? 'states' or asked->'states' ? 'active';
begin
  case source
    when 'chain' then
      return query select y.tid, 0::bigint, y.seq, y.n from (
        select ${row('j.seq', direction)} from job j where j.chain = asked->>'chain' and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
      return query select j.ctid, 0::bigint, j.seq, 1::bigint from job j where j.id = asked->>'chain' and j.chain is null and j.seq > low and j.seq < high;
    when 'parent' then
      return query select y.tid, 0::bigint, y.seq, y.n from (
        select ${row('j.seq', direction)} from job j where j.parent = asked->>'parent' and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
    when 'schedule' then
      return query select y.tid, 0::bigint, y.seq, y.n from unnest(queues) p(id) cross join lateral (
        select ${row('j.seq', direction)} from job j where j.queue = p.id and j.kind = 'schedule' and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
    when 'ids' then
      return query select j.ctid, 0::bigint, j.seq, 0::bigint from job j
        where j.id >= asked->>'idPrefix' and j.id < asked->>'idEnd' and j.seq > low and j.seq < high limit ${FEW_IDS};
    when 'fingerprint' then
      return query select y.tid, 0::bigint, y.seq, y.n from unnest(queues) p(id) cross join lateral (
        select ${row('j.seq', direction)} from job j where j.error is not null and j.state <> 'completed' and j.queue = p.id
          and (j.error::json->>'fingerprint') collate "C" = asked->>'fingerprint' and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
    when 'errorCode' then
      return query select y.tid, 0::bigint, y.seq, y.n from unnest(queues) p(id) cross join lateral (
        select ${row('j.seq', direction)} from job j where j.error is not null and j.state <> 'completed' and j.queue = p.id
          and (j.error::json->>'code') = asked->>'errorCode' and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
    when 'tags', 'anyTag' then
      return query select y.tid, 0::bigint, y.seq, y.n from unnest(queues) p(id)
        cross join (select rare as tag where rare is not null union all select value from jsonb_array_elements_text(asked->'anyTag') where rare is null) g
        cross join lateral (
          select ${row('t.seq', direction)} from (
            select o.seq, o.job from tag o where o.queue = p.id and o.tag = g.tag and o.seq > low and o.seq < high order by o.seq ${direction} limit most) t
          cross join lateral (select o.ctid from job o where o.id = t.job offset 0) j) y;
    when 'group' then
      return query select y.tid, 0::bigint, y.seq, y.n from unnest(queues) p(id) cross join unnest(resting) s(state) cross join lateral (
        select ${row('j.seq', direction)} from job j where j.queue = p.id and j.grp = asked->>'group' and j.state = s.state and (j.state || '') <> 'active'
          and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
      if active then
        return query select y.tid, 0::bigint, y.seq, y.n from unnest(queues) p(id) cross join lateral (
          select ${row('j.seq', direction)} from job j where j.queue = p.id and j.state = 'active' and j.grp = asked->>'group'
            and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
      end if;
    else
      return query select y.tid, 0::bigint, y.seq, y.n from unnest(lanes) p(id) cross join unnest(resting) s(state) cross join lateral (
        select ${row('j.seq', direction)} from job j where j.lane = p.id and j.state = s.state and j.state <> 'active'
          and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
      if active then
        return query select y.tid, 0::bigint, y.seq, y.n from unnest(queues) p(id) cross join lateral (
          select ${row('j.seq', direction)} from job j where j.queue = p.id and j.state = 'active' and j.lane = any (lanes)
            and j.seq > low and j.seq < high order by j.seq ${direction} limit most) y;
      end if;
  end case;
end $$;
`

export const find = `
-- The order number from which on, in one list, jobs were added at a time or later, as far as that list shows: null without
-- such a job. Jobs are added in the order of their numbers.
create or replace function {S}.added_from_{V}(of_lane int, of_state text, t bigint) returns bigint language plpgsql stable as $$
declare
  low bigint := (select j.seq from job j where j.lane = of_lane and j.state = of_state and j.state <> 'active' order by j.seq limit 1);
  high bigint := (select j.seq from job j where j.lane = of_lane and j.state = of_state and j.state <> 'active' order by j.seq desc limit 1) + 1;
  last bigint := high;
  middle bigint;
  found record;
begin
  while low < high loop
    middle := low + (high - low) / 2;
    select j.seq, j.created_at into found from job j where j.lane = of_lane and j.state = of_state and j.state <> 'active' and j.seq >= middle order by j.seq limit 1;
    if found.created_at >= t then high := middle; else low := found.seq + 1; end if;
  end loop;
  return case when low < last then low end;
end $$;

-- The order numbers between which the jobs of a query were added: from the first, to the one before the last.
create or replace function {S}.added_within_{V}(asked jsonb) returns bigint[] language plpgsql stable as $$
declare
  from_seq bigint := -1;
  to_seq bigint := 9223372036854775807;
  e record;
  found bigint;
begin
  if asked->'added' <> '{}' then
    for e in select l.id, s.state from lane l cross join unnest(array['completed', 'waiting', 'failed', 'delayed']) with ordinality s(state, n)
          cross join lateral (select 1 from job j where j.lane = l.id and j.state = s.state and j.state <> 'active' limit 1) y
        where not asked ? 'queue' or l.queue in (select q.id from queue q where q.name = asked->>'queue')
        order by s.n, l.id limit ${MOST_SEARCHED} loop
      if asked->'added' ? 'from' then
        found := added_from_{V}(e.id, e.state, (asked->'added'->>'from')::bigint);
        -- Every job before the first one added from then on was added before, whatever its list.
        if found is null then
          found := (select j.seq + 1 from job j where j.lane = e.id and j.state = e.state and j.state <> 'active' order by j.seq desc limit 1);
        else
          found := coalesce((select j.seq + 1 from job j where j.lane = e.id and j.state = e.state and j.state <> 'active' and j.seq < found order by j.seq desc limit 1), -1);
        end if;
        from_seq := greatest(from_seq, found);
      end if;
      if asked->'added' ? 'to' then
        found := added_from_{V}(e.id, e.state, (asked->'added'->>'to')::bigint);
        if found is not null then
          found := (select j.seq from job j where j.lane = e.id and j.state = e.state and j.state <> 'active' and j.seq >= found order by j.seq limit 1);
        end if;
        to_seq := least(to_seq, found);
      end if;
    end loop;
  end if;
  return array[from_seq, to_seq];
end $$;

-- The rows of the lists that together hold all jobs of a query: those whose order numbers are above \`low\` and below \`high\`,
-- at most so many of each list. \`n\` is the place of a row in its list.
${listed('oldest', 'asc')}${listed('newest', 'desc')}
-- The same in the order of the end: the last that failed or were cancelled before a time, or then and were added before.
create or replace function {S}.ended_{V}(asked jsonb, queues int[], before bigint, high bigint, most int)
  returns table (tid tid, at bigint, seq bigint, n bigint) language plpgsql stable as $$
#variable_conflict use_column
declare
  since bigint := coalesce((asked->'finished'->>'from')::bigint, -1);
  until bigint := coalesce((asked->'finished'->>'to')::bigint, 9223372036854775807);
begin
  return query select y.tid, y.at, y.seq, y.n from unnest(queues) p(id) cross join lateral (
    select j.ctid as tid, j.finished_at as at, j.seq, row_number() over (order by j.finished_at desc, j.seq desc) as n
    from job j where j.queue = p.id and j.state in ${ENDED} and (j.finished_at, j.seq) < (before, high) and j.finished_at >= since and j.finished_at < until
    order by j.finished_at desc, j.seq desc limit most) y;
end $$;

-- The jobs of a queue that contain one document of each list, from the index of values: null without one, or if they are more
-- than ${MOST_FOUND}. Also jobs whose values the index does not hold. The predicate of the index is a constant.
create or replace function {S}.searched_{V}(of int, wanted jsonb) returns tid[] language plpgsql stable
  set enable_bitmapscan = on set enable_indexscan = off set enable_seqscan = off as $$
declare
  fits text := 'true';
  e record;
  found tid[];
begin
  if not exists (select 1 from pg_index i where i.indexrelid = to_regclass(format('{S}.job_search_%s', of)) and i.indisvalid and i.indisready) then
    return null;
  end if;
  for e in select string_agg(format('search_document(j.data, j.result) @> %L::jsonb', d.value), ' or ') as one_of
      from jsonb_array_elements(wanted) w cross join lateral jsonb_array_elements_text(w.value) d group by w.value loop
    fits := fits || ' and (' || e.one_of || ')';
  end loop;
  execute format('select coalesce(array_agg(y.tid), ''{}'') from (select j.ctid as tid from job j where j.queue = %s and (%s or search_document(j.data, j.result) @> ''{"unread": true}'') limit %s) y',
    of, fits, ${MOST_FOUND + 1}) into found;
  return case when cardinality(found) <= ${MOST_FOUND} then found end;
end $$;

-- A page of jobs: the rows of the lists of a query, merged. Of a filtered query, at most ${ROWS_LOOKED} rows are looked at. Of many lists, a
-- page holds few jobs of each: it reads a few of each and, as long as they do not fill the page, more from the last position
-- up to which all jobs are known. Returns after which position to go on, if there may be more.
create or replace function {S}.find_{V}(asked jsonb) returns text language plpgsql stable ${readSettings} as $$
declare
  by_end boolean := coalesce(asked->>'order', 'oldest') = 'finished';
  up boolean := coalesce(asked->>'order', 'oldest') = 'oldest';
  sign int := case when coalesce(asked->>'order', 'oldest') = 'oldest' then 1 else -1 end;
  counts boolean := coalesce((asked->>'count')::boolean, false);
  most int := case when coalesce((asked->>'count')::boolean, false) then ${ROWS_LOOKED} else (asked->>'limit')::int end;
  look int := case when (asked->>'filtered')::boolean then ${ROWS_LOOKED} else 2147483647 end;
  queues int[] := array(select q.id from queue q where not asked ? 'queue' or q.name = asked->>'queue');
  lanes int[] := array(select l.id from lane l where (not asked ? 'queue' or l.queue = any (queues)) and (not asked ? 'names' or asked->'names' ? l.name));
  source text; rare text; many int; per int; most_per int; found tid[];
  -- What each row is compared with; null: any value fits.
  own_queues int[] := case when asked ? 'queue' then queues end;
  own_lanes int[] := case when asked ? 'names' then lanes end;
  states text[] := case when asked ? 'states' then array(select jsonb_array_elements_text(asked->'states')) end;
  own_kind text := asked->>'kind';
  own_chain text := asked->>'chain';
  own_parent text := asked->>'parent';
  own_group text := asked->>'group';
  own_worker text := asked->>'worker';
  id_from text := asked->>'idPrefix';
  id_end text := asked->>'idEnd';
  tags text[] := case when asked ? 'tags' then array(select jsonb_array_elements_text(asked->'tags')) end;
  any_tag text[] := case when asked ? 'anyTag' then array(select jsonb_array_elements_text(asked->'anyTag')) end;
  code text := asked->>'errorCode';
  fingerprint text := asked->>'fingerprint';
  created boolean := asked ? 'created';
  created_from bigint := coalesce((asked->'created'->>'from')::bigint, -9223372036854775808);
  created_to bigint := coalesce((asked->'created'->>'to')::bigint, 9223372036854775807);
  started boolean := asked ? 'started';
  started_from bigint := coalesce((asked->'started'->>'from')::bigint, -9223372036854775808);
  started_to bigint := coalesce((asked->'started'->>'to')::bigint, 9223372036854775807);
  finished boolean := asked ? 'finished';
  finished_from bigint := coalesce((asked->'finished'->>'from')::bigint, -9223372036854775808);
  finished_to bigint := coalesce((asked->'finished'->>'to')::bigint, 9223372036854775807);
  -- Where the page begins, and the numbers of the jobs that may be in it.
  after_at bigint := coalesce((asked->'after'->>0)::bigint, 9223372036854775807);
  after_seq bigint := (asked->'after'->>1)::bigint;
  bounds bigint[] := array[-1, 9223372036854775807];
  looked int := 0; rows_read bigint := 0; fetched int; kept int; total int;
  known bigint[]; last bigint[]; cursor_at bigint[];
  matched tid[]; matched_at bigint[]; matched_seq bigint[];
  page tid[] := '{}'; ats bigint[] := '{}'; seqs bigint[] := '{}';
  row_id tid; size bigint := 0; fit int := 0; rows text;
begin
  if asked ? 'contains' and asked ? 'queue' and cardinality(queues) = 1 then found := searched_{V}(queues[1], asked->'contains'); end if;
  if found is not null then look := 2147483647; end if;
  source := case
    when found is not null then 'values'
    when by_end then 'ended'
    when asked ? 'chain' then 'chain'
    when asked ? 'parent' then 'parent'
    when id_from is not null and (select count(*) from (select 1 from job o where o.id >= id_from and o.id < id_end limit ${FEW_IDS + 1}) y) <= ${FEW_IDS} then 'ids'
    when asked ? 'fingerprint' then 'fingerprint'
    when asked ? 'errorCode' then 'errorCode'
    when asked ? 'tags' then 'tags'
    when asked ? 'anyTag' then 'anyTag'
    when own_kind = 'schedule' then 'schedule'
    when asked ? 'group' then 'group'
    else 'lanes' end;
  -- The list of the rarest tag holds all matches, and that of one cause no others.
  if source = 'tags' then
    select g.tag into rare from unnest(tags) g(tag) order by (
      select count(*) from unnest(queues) p(id) cross join lateral (select 1 from tag o where o.queue = p.id and o.tag = g.tag limit ${MANY_TAGGED}) y) limit 1;
    tags := nullif(array_remove(tags, rare), '{}');
  elsif source = 'anyTag' then any_tag := null;
  elsif source = 'fingerprint' then fingerprint := null;
  elsif source = 'errorCode' then code := null;
  end if;
  if not by_end and asked->'added' <> '{}' then bounds := added_within_{V}(asked); end if;
  if by_end then after_seq := coalesce(after_seq, 9223372036854775807);
  elsif up then after_seq := greatest(coalesce(after_seq, -1), bounds[1] - 1);
  else after_seq := least(coalesce(after_seq, 9223372036854775807), bounds[2]);
  end if;
  many := greatest(1, case source
    when 'lanes' then cardinality(lanes) * coalesce(cardinality(states), 6)
    when 'group' then cardinality(queues) * coalesce(cardinality(states), 6)
    when 'anyTag' then cardinality(queues) * jsonb_array_length(asked->'anyTag')
    else cardinality(queues) end);
  most_per := greatest(8, ${ROWS_LOOKED} / many);
  per := least(most_per, greatest(8, 2 * (most + 1) / many));
  loop
    with y as materialized (
      select o.* from oldest_{V}(source, asked, queues, lanes, rare, after_seq, bounds[2], per) o where up and found is null
      union all select o.* from newest_{V}(source, asked, queues, lanes, rare, bounds[1] - 1, after_seq, per) o where not up and not by_end and found is null
      union all select o.* from ended_{V}(asked, queues, after_at, after_seq, per) o where by_end and found is null
      union all select o.tid, case when by_end then o.finished_at else 0 end, o.seq, 0 from unnest(found) u(tid)
        cross join lateral (select z.ctid as tid, z.seq, z.finished_at from job z where z.ctid = u.tid offset 0) o
        where case when by_end then (o.finished_at, o.seq) < (after_at, after_seq) when up then o.seq > after_seq and o.seq < bounds[2]
          else o.seq < after_seq and o.seq >= bounds[1] end),
    -- All jobs up to here are known: the end of the list that was cut first.
    k as materialized (select y.at, y.seq from y where y.n = per order by y.at * sign, y.seq * sign limit 1),
    -- A job with several of the tags is in several lists.
    m as materialized (select z.*, row_number() over (order by z.at * sign, z.seq * sign) as r from (
      select distinct on (y.at * sign, y.seq * sign) y.tid, y.at, y.seq from y
      where ((y.at * sign, y.seq * sign) <= (select k.at * sign, k.seq * sign from k)) is not false
      order by y.at * sign, y.seq * sign) z),
    f as materialized (select m.*, coalesce(
        (own_queues is null or j.queue = any (own_queues))
        and (own_lanes is null or j.lane = any (own_lanes))
        and (states is null or j.state = any (states))
        and (own_kind is null or j.kind = own_kind)
        and (own_group is null or j.grp = own_group)
        and (own_parent is null or j.parent = own_parent)
        and (own_chain is null or coalesce(j.chain, j.id) = own_chain)
        and (not by_end or j.state in ${ENDED})
        and (id_from is null or (j.id >= id_from and j.id < id_end))
        and (not created or (j.created_at >= created_from and j.created_at < created_to))
        and (not started or (j.started_at >= started_from and j.started_at < started_to))
        and (not finished or (j.finished_at >= finished_from and j.finished_at < finished_to))
        and (own_worker is null or j.worker = own_worker or left(j.worker, -36) = own_worker || ':')
        -- Each tag is looked up by itself: joined, the planner may go through all tags of a queue for a row.
        and (tags is null or (select count(*) from unnest(tags) g(tag)
          cross join lateral (select 1 from tag o where o.queue = j.queue and o.tag = g.tag and o.seq = j.seq offset 0) h) = cardinality(tags))
        and (any_tag is null or exists (select 1 from unnest(any_tag) g(tag)
          cross join lateral (select 1 from tag o where o.queue = j.queue and o.tag = g.tag and o.seq = j.seq offset 0) h))
        and ((code is null and fingerprint is null) or (j.error is not null and j.state <> 'completed'))
        and (code is null or j.error::json->>'code' = code)
        and (fingerprint is null or j.error::json->>'fingerprint' = fingerprint), false) as fits
      from m cross join lateral (select * from job o where o.ctid = m.tid offset 0) j where m.r <= look - looked),
    o as (select z.* from (
        select f.*, coalesce(sum(f.fits::int) over (order by f.r rows between unbounded preceding and 1 preceding), 0) as before from f) z
      where z.before <= most - cardinality(page))
    select array_agg(o.tid order by o.r) filter (where o.fits), array_agg(o.at order by o.r) filter (where o.fits), array_agg(o.seq order by o.r) filter (where o.fits),
        count(*), (select array[x.at, x.seq] from o x order by x.r desc limit 1), (select count(*) from m), (select array[k.at, k.seq] from k), (select count(*) from y)
      into matched, matched_at, matched_seq, kept, last, total, known, fetched from o;
    page := page || matched;
    ats := ats || matched_at;
    seqs := seqs || matched_seq;
    looked := looked + kept;
    rows_read := rows_read + fetched;
    cursor_at := case when kept < total then last else known end;
    exit when cardinality(page) > most or cursor_at is null or rows_read >= look;
    after_at := cursor_at[1];
    after_seq := cursor_at[2];
    per := greatest(8, least(2 * per, most_per, (look - rows_read) / many));
  end loop;
  if counts then
    return '{"rows":[],"after":' || coalesce(to_json(cursor_at)::text, 'null') || ',"count":' || cardinality(page) || '}';
  end if;
  -- Row by row: measuring a job reads its errors.
  foreach row_id in array page[:most] loop
    exit when size >= (asked->>'bytes')::bigint and fit > 0;
    fit := fit + 1;
    select size + ${rowBytes('z')} into size from job z where z.ctid = row_id;
  end loop;
  if fit < cardinality(page) then cursor_at := array[ats[fit], seqs[fit]]; end if;
  select string_agg(${record}, ',' order by u.n) into rows
    from unnest(page[:fit]) with ordinality u(tid, n) cross join lateral (select * from job o where o.ctid = u.tid offset 0) j ${ofLane('j')};
  return '{"rows":[' || coalesce(rows, '') || '],"after":' || coalesce(to_json(cursor_at)::text, 'null') || ',"count":null,"indexed":' || (found is not null)::text || '}';
end $$;

-- What an index of values holds of a job: of data that cannot be read as jsonb, or that is large, only that. Indexes depend on
-- this function: it has no version, and never changes.
create or replace function {S}.search_document(data text, result text) returns jsonb language plpgsql immutable as $$
begin
  if coalesce(octet_length(data), 0) + coalesce(octet_length(result), 0) > ${MOST_INDEXED} then return '{"unread": true}'; end if;
  return jsonb_build_object('data', data::jsonb, 'result', result::jsonb);
exception when others then return '{"unread": true}';
end $$;

-- The id of a queue, which is created if the index is wanted, and how its index of values is: none, building, broken or ready.
create or replace function {S}.search_index_{V}(of_queue text, wanted boolean) returns text language plpgsql volatile ${readSettings} as $$
declare
  q int := (select y.id from queue y where y.name = of_queue);
  found record;
begin
  if q is null and wanted then
    perform pg_advisory_xact_lock(hashtextextended('{S}:queue:' || of_queue, 0));
    insert into queue (name) values (of_queue) on conflict do nothing;
    q := (select y.id from queue y where y.name = of_queue);
  end if;
  select i.indexrelid, i.indisvalid and i.indisready as ready into found from pg_index i where i.indexrelid = to_regclass(format('{S}.job_search_%s', q));
  return json_build_object('queue', q, 'index', case when found is null then 'none' when found.ready then 'ready'
    when exists (select 1 from pg_stat_progress_create_index p where p.index_relid = found.indexrelid) then 'building' else 'broken' end)::text;
end $$;

-- When a job failed last.
create or replace function {S}.failed_at_{V}(j {S}.job) returns bigint language sql stable as $$
  select coalesce((j.errors[cardinality(j.errors)]::json->>'at')::bigint, j.finished_at, j.created_at)
$$;

-- The failing jobs of a queue by fingerprint: each is found from the one before, and counted up to a bound.
create or replace function {S}.failures_{V}(asked jsonb) returns text language plpgsql stable ${readSettings} as $$
declare
  of int := (select q.id from queue q where q.name = asked->>'queue');
  mark text := coalesce(asked->>'after', '');
  budget int := ${FAILURES_COUNTED};
  most int; n int;
  oldest job; newest job;
  answers text[] := '{}';
begin
  while cardinality(answers) < (asked->>'limit')::int loop
    mark := (select (j.error::json->>'fingerprint') from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" > mark collate "C" order by (j.error::json->>'fingerprint') collate "C" limit 1);
    exit when mark is null;
    most := greatest(${FAILURES_EACH}, budget);
    n := (select count(*) from (select 1 from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" = mark limit most + 1) y);
    select * into oldest from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" = mark order by j.seq limit 1;
    select * into newest from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" = mark order by j.seq desc limit 1;
    budget := budget - least(n, most);
    answers := answers || json_build_object('fingerprint', mark, 'count', least(n, most), 'more', n > most, 'first', failed_at_{V}(oldest), 'last', failed_at_{V}(newest),
      'id', newest.id, 'name', (select l.name from lane l where l.id = newest.lane), 'error', newest.error)::text;
  end loop;
  return '[' || array_to_string(answers, ',') || ']';
end $$;
`
