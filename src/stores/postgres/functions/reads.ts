// stores/postgres/functions/reads.ts: the functions that read jobs, settings, counts and events, and that register watchers.
import { REVOKED_LISTED } from '../../../store/store.js'
import { FILE, searchPath } from './fast-parts.js'
import { RECORD } from './job-columns.js'

/** The settings of every function that is called from outside, so that its plans do not depend on statistics. */
export const readSettings = `${searchPath} set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
  set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off`

/** The record of a row `j` as text, with its lane `l`: in place of `record`, which is another query for each row. */
export const record = `json_build_array(${RECORD})::text`

/** The lane of a row, as `record` reads it. */
export const ofLane = (row: string): string =>
  `cross join lateral (select q.name as queue, l.name, l.version from lane l join queue q on q.id = l.queue where l.id = ${row}.lane offset 0) l`

/** The store's time, unless the caller passes one. */
export const clock = `coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)`

/** Functions that read. */
export const reads = `
create or replace function {S}.get_one_{V}(ids jsonb) returns text language plpgsql stable ${readSettings} as $$
begin
  return (select coalesce('[' || string_agg(coalesce(j.record, 'null'), ',' order by i.ordinality) || ']', '[]')
    from jsonb_array_elements_text(ids) with ordinality i
    left join lateral (select ${record} as record from job j ${ofLane('j')} where j.id = i.value) j on true);
end $$;

-- Jobs that one commit claimed and that are still leased: the answer to a replayed batch.
create or replace function {S}.claimed_{V}(number bigint) returns text language plpgsql stable ${readSettings} as $$
begin
  return (select coalesce('[' || string_agg(json_build_array(j.worker, record_{V}(j))::text, ',' order by j.ahead, j.priority, j.ord, j.seq) || ']', '[]')
    from queue q cross join lateral (select * from job o where o.queue = q.id and o.state = 'active' and o.claim = number) j);
end $$;

-- Leases of these workers that count against limits although another caller has moved their jobs.
create or replace function {S}.revoked_{V}(workers jsonb) returns text language plpgsql stable ${readSettings} as $$
begin
  return (select coalesce(json_agg(json_build_object('id', y.id, 'fence', y.fence)), '[]')::text
    from (select o.id, o.fence from orphan o where workers ? o.worker limit ${REVOKED_LISTED}) y);
end $$;

create or replace function {S}.tally_{V}(asked jsonb) returns text language plpgsql stable ${readSettings} as $$
begin
  return (with counts as materialized (select * from counts_{V}())
  select coalesce(json_agg(json_build_object('queue', q.name,
    'names', (select coalesce(json_agg(json_build_array(y.name, y.what, y.n)), '[]') from (
      select l.name, z.what, sum(z.n) as n from counts z join lane l on l.id = z.of where z.what not like '+%' and l.queue = q.id group by 1, 2) y),
    'orphans', (select coalesce(json_agg(json_build_array(y.name, y.n)), '[]') from (
      select l.name, count(*) as n from lane l join orphan o on o.lane = l.id where l.queue = q.id group by 1) y),
    'life', (select coalesce(json_object_agg(y.what, y.n), '{}') from (
      select substr(z.what, 2) as what, sum(z.n) as n from counts z where z.of = q.id and z.what like '+%' group by 1) y)
  ) order by q.id), '[]')::text
  from queue q where asked is null or asked ? q.name);
end $$;

-- The ids of lanes, in a transaction of their own; creates missing lanes. Does not wait for a lane that another open
-- transaction is creating (only add_job does, with \`held\`), and returns null for it.
create or replace function {S}.lane_ids_{V}(asked jsonb, held boolean) returns text language plpgsql volatile ${readSettings} as $$
declare
  answer text := '';
  e record;
  q int;
  l int;
  what text;
begin
  for e in select value->>0 as queue, value->>1 as name, (value->>2)::bigint as version, coalesce((value->>3)::boolean, false) as shared
           from jsonb_array_elements(asked) loop
    select id into q from queue where name = e.queue;
    select id into l from lane where queue = q and name = e.name and version = e.version and shared = e.shared;
    if l is null then
      if held is null then
        answer := answer || ',null'; -- only existing lanes are wanted
        continue;
      end if;
      -- A transaction that creates a queue, or a lane in one, holds this lock until the row is visible to others.
      foreach what in array array[case when q is null then 'queue:' || e.queue end, 'lane:' || json_build_array(e.queue, e.name, e.version, e.shared)] loop
        continue when what is null;
        if held then perform pg_advisory_xact_lock(hashtextextended('{S}:' || what, 0));
        elsif not pg_try_advisory_xact_lock(hashtextextended('{S}:' || what, 0)) then what := null; exit;
        end if;
      end loop;
      if what is null then
        answer := answer || ',null';
        continue;
      end if;
      insert into queue (name) select e.queue where q is null on conflict do nothing;
      select id into q from queue where name = e.queue;
      -- A random id: the id of a lane that a failover has lost, and that other processes cache, must not be given to
      -- another lane.
      for tries in 1..3 loop
        insert into lane (id, queue, name, version, shared) overriding system value
          values (1 + floor(random() * 2147483646)::int, q, e.name, e.version, e.shared) on conflict do nothing;
        select id into l from lane where queue = q and name = e.name and version = e.version and shared = e.shared;
        exit when l is not null;
      end loop;
    end if;
    answer := answer || ',[' || l || ',' || q || ']';
  end loop;
  return '[' || substr(answer, 2) || ']';
end $$;

create or replace function {S}.lane_names_{V}(ids jsonb) returns text language plpgsql stable ${readSettings} as $$
begin
  return (select coalesce(json_agg(json_build_array(l.id, q.name, l.name, l.version, l.queue, l.shared)), '[]')::text
    from lane l join queue q on q.id = l.queue where ids ? l.id::text);
end $$;
`

/**
 * The position of the event stream, and from where to read. One statement reads it with the events, because others number
 * and delete meanwhile.
 */
const streamPosition = `(
      select y.event, y.floor, y.lost, case when y.lost then y.floor else after end as since
      from (select o.event, o.floor, after < o.floor or after > o.event as lost from meta o) y)`

/** Functions that number, read and delete events, register watchers, and tidy up. */
export const watching = `
-- Numbers new committed events, in order. It locks the counter, so that readers see numbers in order and without gaps.
create or replace function {S}.number_events_{V}(ring int, ring_bytes bigint) returns void language plpgsql volatile as $$
declare
  m {S}.meta;
  e record;
  n bigint;
  b bigint;
  low bigint;
begin
  if exists (select 1 from event where last is null) then
    select * into m from meta for update;
    n := m.event;
    b := m.bytes;
    for e in select serial, events, octet_length(body) as size from event where last is null order by serial loop
      n := n + e.events;
      update event set last = n, start = b where serial = e.serial;
      b := b + e.size;
    end loop;
    -- The ring is bounded in events and in bytes; it keeps the events of one commit together, and always those of the
    -- last one.
    low := m.floor;
    for e in select last, start from event where last > low order by last loop
      exit when (e.last > n - ring and b - coalesce(e.start, 0) <= ring_bytes) or e.last = n;
      low := e.last;
    end loop;
    update meta set event = n, bytes = b, floor = low;
    delete from event where last <= low;
  end if;
end $$;

-- A page of the events after a number: a header, then a text for each commit; at least one commit, and about \`most\`
-- events and \`most_bytes\` bytes at most.
create or replace function {S}.events_{V}(after bigint, ring int, ring_bytes bigint, most int, most_bytes bigint) returns text language plpgsql volatile ${readSettings} as $$
declare
  answer text;
begin
  perform number_events_{V}(ring, ring_bytes);
  select concat_ws(${FILE}, json_build_object('last', case when page.more then page.last else m.event end, 'more', coalesce(page.more, false), 'gap', m.lost,
      'since', m.since, 'ends', coalesce(page.ends, '{}'))::text, page.bodies) into answer
    from ${streamPosition} m cross join lateral (
      select array_agg(y.last) filter (where y.fits) as ends, string_agg(y.body, ${FILE}) filter (where y.fits) as bodies, max(y.last) filter (where y.fits) as last,
             bool_or(not y.fits) as more
      from (
        select x.last, x.body, x.n = 1 or (x.last <= m.since + most and x.start + octet_length(x.body) - first_value(x.start) over (order by x.last) <= most_bytes) as fits
        from (select e.last, e.body, coalesce(e.start, 0) as start, row_number() over (order by e.last) as n from event e where e.last > m.since order by e.last limit most + 1) x
      ) y) page;
  return answer;
end $$;

-- Registers a process that watches: until when it is present, and until when events are recorded for it. If no events
-- were recorded so far, a cursor from before cannot be resumed. Open commits have looked for watchers before this is
-- committed: a new watcher (\`fresh\`) waits for them. User transactions always record and notify, so that it does not
-- wait for those.
create or replace function {S}.watch_{V}(who text, present bigint, events bigint, ring int, ring_bytes bigint, clock bigint) returns text language plpgsql volatile ${readSettings} as $$
declare
  t bigint := ${clock};
  m meta;
  mine peer;
  first boolean;
begin
  perform number_events_{V}(ring, ring_bytes);
  select * into m from meta for update;
  select * into mine from peer where id = who;
  first := events > 0 and not exists (select 1 from peer where events_until > t);
  if first then
    update meta set event = m.event + 1, floor = m.event + 1 returning * into m;
    delete from event where last is not null;
  end if;
  delete from peer where until <= t and events_until <= t and id <> who;
  insert into peer values (who, t + present, t + events)
    on conflict (id) do update set until = excluded.until,
      events_until = case when events > 0 then excluded.events_until else least(peer.events_until, t + 600000) end;
  return json_build_object('event', m.event, 'first', first,
    'fresh', (present > 0 and coalesce(mine.until, 0) <= t) or (events > 0 and coalesce(mine.events_until, 0) <= t))::text;
end $$;

-- The open commits, by the lock that each of them holds; or those of a list that are still open. And the number of the
-- last event.
create or replace function {S}.commits_{V}(among jsonb, ring int, ring_bytes bigint) returns text language plpgsql volatile ${readSettings} as $$
declare
  k bigint := hashtextextended('{S}:recording', 0);
  commits json;
begin
  select coalesce(json_agg(l.virtualtransaction), '[]') into commits from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid = ((k >> 32) & 4294967295)::oid and l.objid = (k & 4294967295)::oid and l.objsubid = 1
      and (among is null or among ? l.virtualtransaction);
  perform number_events_{V}(ring, ring_bytes);
  return json_build_object('event', (select m.event from meta m), 'commits', commits)::text;
end $$;

-- Marks that events may be missing before this point: subscribers that read or resume from before it see a gap.
create or replace function {S}.skip_{V}(ring int, ring_bytes bigint) returns void language plpgsql volatile ${readSettings} as $$
begin
  perform number_events_{V}(ring, ring_bytes);
  update meta set event = event + 1, floor = event + 1;
  delete from event where last is not null;
end $$;

-- Adds up the counts of writers that were inactive for 30 seconds, and deletes those inactive for ten minutes, a thousand
-- at a time; deletes expired keys, rates, turns and events. Returns whether there is more.
create or replace function {S}.tidy_{V}(clock bigint, ring int, ring_bytes bigint) returns boolean language plpgsql volatile ${readSettings} as $$
declare
  t bigint := ${clock};
  quiet text[];
begin
  if not pg_try_advisory_xact_lock(hashtextextended('{S}:tidy', 0)) then return false; end if;
  -- A writer is kept long after its counts were added up, in case its last batch is replayed.
  quiet := array(select y.id from writer y where y.id <> '' and (y.at <= t - 600000 or y.id like 'tx %' or (y.at <= t - 30000 and y.counts <> '{}'))
    limit 1000 for update skip locked);
  -- What add_job has counted for the series ('12 *added'), by queue, name and minute: new counts, as store/series-cells.ts
  -- reads them, of each queue whose series was folded within a day. The length of a queue in a key is in UTF-16.
  insert into cell (key, value, version, at)
    select p.prefix || 'n:' || lpad(y.minute::text, 14, '0') || ':' || gen_random_uuid(),
        json_agg(json_build_array(y.name, json_build_array(y.added, 0, 0, 0, 0, y.cancelled)))::text, 1, t
      from (
        select q.name as queue, l.name, w.at / 60000 as minute, coalesce(sum(e.value::bigint) filter (where e.key like '% *added'), 0) as added,
            coalesce(sum(e.value::bigint) filter (where e.key like '% *cancelled'), 0) as cancelled
          from writer w cross join lateral jsonb_each_text(w.counts) e join lane l on l.id = split_part(e.key, ' ', 1)::int join queue q on q.id = l.queue
          where w.id = any (quiet) and e.key like '% *%' group by 1, 2, 3) y
      cross join lateral (
        select format('series:%s:%s:', length(y.queue) + count(*) filter (where octet_length(c.value) > 3), y.queue) as prefix
          from regexp_split_to_table(y.queue, '') c(value)) p
      where exists (select 1 from cell c where c.key = p.prefix || 't' and c.at > t - 86400000)
      group by p.prefix, y.minute;
  insert into writer as w (id, seq, at, receipt, counts)
    select '', 0, 0, '', jsonb_object_agg(x.key, x.n) from (
      select e.key, sum(e.value::bigint) as n from writer y cross join lateral jsonb_each_text(y.counts) e where y.id = any (quiet) and e.key not like '% *%' group by e.key) x
    having count(*) > 0
    on conflict (id) do update set counts = w.counts || (
      select jsonb_object_agg(e.key, e.value::bigint + coalesce((w.counts->>e.key)::bigint, 0)) from jsonb_each_text(excluded.counts) e);
  delete from writer w where w.id = any (quiet) and (w.at <= t - 600000 or w.id like 'tx %');
  update writer w set counts = '{}' where w.id = any (quiet);
  delete from key where key in (select y.key from key y where y.until <= t limit 10000 for update skip locked);
  delete from rate r using (select y.queue, y.scope from rate y where y.until <= t - 600000 limit 10000 for update skip locked) z
    where r.queue = z.queue and r.scope = z.scope;
  -- Turns of priorities without jobs: no job waits in them, and none can be returned to its old order.
  delete from turn y where y.ctid = any (array(
    select z.ctid from turn z
    where not exists (select 1 from lane l join job j on j.lane = l.id and j.priority = z.priority and j.grp is not null and j.state = 'waiting' and j.kind = 'job'
                      where l.queue = z.queue and l.shared)
      and not exists (select 1 from job j where j.queue = z.queue and j.state = 'active' and j.grp is not null and j.priority = z.priority)
    limit 1000 for update skip locked));
  -- Events that user transactions recorded while no process watched.
  if not exists (select 1 from peer where events_until > t) then
    delete from event where serial in (select y.serial from event y order by y.serial limit 10000 for update skip locked);
  else
    perform number_events_{V}(ring, ring_bytes); -- there may be no reader, and only numbering bounds the ring
  end if;
  return cardinality(quiet) = 1000;
end $$;
`
