// stores/postgres/functions/commits/load.ts: reads the working set of a batch: the rows that the engine may need to apply it.
import { backlogStates } from '../../../../job/limits.js'
import { unfinishedStates } from '../../../../job/job.js'
import { READ_BYTES } from '../../../../store/read-pages.js'
import { WORKING_RECORD } from '../job-columns.js'

const UNFINISHED = `'{${unfinishedStates.join(',')}}'`
const BACKLOG = `'{${backlogStates.join(',')}}'`

/** The number of family locks: a batch with many families must not need more locks than a server has. */
const FAMILIES = 256

/** The working set, and the functions that read parts of it. `working-set.ts` makes the request and reads the answer. */
export const load = `
-- A row of the working set, in the order of \`rows.ts\`: with the id of its queue, without names and payload, and with the
-- number of its broken edges. An expression without subqueries, so that PostgreSQL inlines it.
create or replace function {S}.working_row_{V}(j {S}.job, recording boolean, broken_edges bigint) returns json language sql stable as $$
  select json_build_array(${WORKING_RECORD}, broken_edges)
$$;

-- Waits for the batches that end other dependencies of the same dependents: locks all families of these dependents at
-- once and in one order, so that concurrent batches of one large family run one after the other. They neither refuse
-- each other as \`busy\` nor deadlock.
create or replace function {S}.lock_families_{V}(dependents text[]) returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(y.k) from (
    select distinct hashtextextended('{S}:family:' || abs(hashtext(d.id) % ${FAMILIES}), 0) as k from unnest(dependents) d(id)
    order by 1 offset 0) y;
end $$;

-- Locks rows, except those that another transaction holds, and returns the ids of those that it has locked.
create or replace function {S}.lock_rows_{V}(ids text[]) returns text[] language sql volatile as $$
  select coalesce(array_agg(j.id), '{}') from unnest(ids) i(id)
    cross join lateral (select o.id from {S}.job o where o.id = i.id for update skip locked) j
$$;

-- The same for a user transaction: all of them or none, because two transactions that hold some each would refuse each
-- other until they end.
create or replace function {S}.lock_all_or_none_{V}(ids text[]) returns text[] language plpgsql volatile as $$
declare
  locked text[];
begin
  locked := {S}.lock_rows_{V}(ids);
  if cardinality(locked) < cardinality(ids) then raise exception using errcode = 'MR001'; end if;
  return locked;
exception when sqlstate 'MR001' then
  return '{}';
end $$;

-- The jobs of chains that decide their states: the unfinished ones, and the last \`most\` of each. With the result and the
-- error of those that have finished.
create or replace function {S}.chain_ends_{V}(chains text[], most int) returns json language sql volatile as $$
  select coalesce(json_agg(json_build_array(y.chain, y.id, y.chain_index, y.seq, y.state,
      case when y.state = 'completed' then y.result end, case when y.state = 'failed' then y.error end) order by y.chain, y.chain_index, y.seq), '[]')
  from (
    select c.chain, j.*, row_number() over (partition by c.chain order by j.chain_index desc, j.seq desc) as n
    from unnest(chains) c(chain) cross join lateral (
      select o.id, o.chain_index, o.seq, o.state, o.result, o.error from {S}.job o where o.id = c.chain and o.chain is null
      union all
      select o.id, o.chain_index, o.seq, o.state, o.result, o.error from {S}.job o where o.chain = c.chain) j
  ) y where y.n <= most or y.state = any (${UNFINISHED})
$$;

-- Reads the working set of a batch. Locks what the batch may change, and marks as busy what another transaction holds: it
-- waits for no row. \`fixed\` is what the decisions of the engine depend on, \`rows\` are the rows of \`job\` among it.
-- \`extra\` may change without making a decision wrong: order numbers, turns, and what hints depend on.
create or replace function {S}.load_{V}(asked jsonb, recording boolean, t bigint, out fixed text, out rows text, out extra text) language plpgsql volatile
as $millrace$
#variable_conflict use_column
declare
  within boolean := asked ? 'tx';
  releases text[] := array(select jsonb_array_elements_text(asked->'releases'));
  dependents text[] := '{}';
  locked text[];
  busy text[] := '{}';
  queue_ids int[] := array(select (e.value->>0)::int from jsonb_array_elements(asked->'queues') e);
  chains text[] := '{}';
  holders text[] := '{}';
  leased json := '[]'; changed json := '[]'; depend json := '[]'; keyed text[]; matching text[]; grouped boolean := asked ? 'groups'; some_grouped boolean;
  edges json := '[]'; edges_of json := '[]'; ends json := '[]'; reachable json := '[]'; taken json := '[]';
  keys json := '[]'; cells json := '[]'; bounds json := '[]'; backlogs json := '[]'; group_backlogs json := '[]'; orphans json := '[]'; records text[] := '{}'; record_text text;
  turns json := '[]'; shared json := '[]'; waiting json := '[]'; limited text[];
  bytes bigint := 0;
  item record;
begin
  -- Before all rows: a batch that waits for a family must not hold rows that others need.
  if not within and releases <> '{}' and exists (select 1 from edge) then
    dependents := array(select distinct d.dependent from unnest(releases) c(chain)
      cross join lateral (select e.dependent from edge e where e.chain = c.chain and e.state <> 'ended' offset 0) d);
    perform lock_families_{V}(dependents);
  end if;

  -- The jobs that this process leases. What is not leased, or held by another transaction, is read as any other row.
  if asked ? 'leases' then
    select coalesce(json_agg(json_build_array(j.id, j.fence)), '[]'), coalesce(array_agg(j.id), '{}') into leased, locked from jsonb_array_elements(asked->'leases') e
      cross join lateral (select o.id, o.fence from job o where o.id = e.value->>0 and o.fence = (e.value->>1)::bigint and o.lease_until > t for update skip locked) j;
    queue_ids := queue_ids || array(select distinct (e.value->>2)::int from jsonb_array_elements(asked->'leases') e);
    if cardinality(locked) < jsonb_array_length(asked->'leases') then
      asked := asked || jsonb_build_object('rows', coalesce(asked->'rows', '[]') || (
        select jsonb_agg(jsonb_build_array(e.value->0, jsonb_build_array(e.value->1), null, 0)) from jsonb_array_elements(asked->'leases') e
        where not e.value->>0 = any (locked)));
    end if;
  end if;
  -- The jobs that the batch moves, notes or renews. A stale change does not lock its row, so that a concurrent claim does
  -- not skip the job.
  if asked ? 'rows' then
    select coalesce(array_agg(j.id), '{}') into locked from jsonb_array_elements(asked->'rows') e
      cross join lateral (select o.id from job o where o.id = e.value->>0 and e.value->1 @> to_jsonb(o.fence) for update skip locked) j;
    select coalesce(json_agg(working_row_{V}(o.j, recording, o.broken_edges)), '[]'),
        queue_ids || coalesce(array_agg(distinct (o.j).queue), '{}'), array_agg((o.j).id) filter (where (o.j).dedup is not null),
        coalesce(array_agg((o.j).id) filter (where e.value->1 @> to_jsonb((o.j).fence)), '{}'), bool_or((o.j).grp is not null)
      into changed, queue_ids, keyed, matching, some_grouped
      from jsonb_array_elements(asked->'rows') e cross join lateral (
        select j, case when j.broken_at is null then 0 else (select count(*) from edge d where d.dependent = j.id and d.state = 'broken') end as broken_edges
        from job j where j.id = e.value->>0 offset 0) o;
    grouped := grouped or coalesce(some_grouped, false);
    -- Of the rows as they were just read, whatever has become of them since: what is neither locked nor busy would be changed
    -- although somebody else has just changed it.
    if cardinality(locked) < cardinality(matching) then
      busy := busy || array(select 'row ' || m.id from unnest(matching) m(id) where m.id <> all (locked));
    end if;
  end if;
  -- The dependents of the rows just locked: one that was added before that is visible by now, or was refused as busy.
  -- Their edges are read once they are locked: one that starts over may have opened its edges before.
  if releases <> '{}' and exists (select 1 from edge) then
    dependents := array(select distinct d.dependent from unnest(releases) c(chain)
      cross join lateral (select e.dependent from edge e where e.chain = c.chain and e.state <> 'ended' offset 0) d);
    if dependents <> '{}' then
      locked := case when within then lock_all_or_none_{V}(dependents) else lock_rows_{V}(dependents) end;
      if cardinality(locked) < cardinality(dependents) then
        busy := busy || array(select 'row ' || d.id from unnest(dependents) d(id) where d.id <> all (locked));
      end if;
      select coalesce(json_agg(json_build_array(d.chain, d.dependent, d.position, d.state)), '[]'), coalesce(array_agg(distinct d.chain), '{}')
        into edges, chains
        from unnest(releases) c(chain)
        cross join lateral (select e.chain, e.dependent, e.position, e.state from edge e where e.chain = c.chain and e.state <> 'ended' offset 0) d;
      select coalesce(json_agg(working_row_{V}(o.j, recording, o.broken_edges)), '[]'),
          queue_ids || coalesce(array_agg(distinct (o.j).queue), '{}'), bool_or((o.j).grp is not null)
        into depend, queue_ids, some_grouped
        from unnest(dependents) d(id) cross join lateral (
          select j, case when j.broken_at is null then 0 else (select count(*) from edge d where d.dependent = j.id and d.state = 'broken') end as broken_edges
          from job j where j.id = d.id offset 0) o;
      grouped := grouped or coalesce(some_grouped, false);
    end if;
  end if;

  -- What jobs of the batch are to wait for. A transaction that ends a chain locks its last job, and either sees the new
  -- edges or makes this one try again.
  if asked ? 'dependencies' then
    select coalesce(json_agg(json_build_array(j.id, j.chain, j.lane)), '[]'), chains || coalesce(array_agg(distinct j.chain), '{}') into reachable, chains
      from jsonb_array_elements_text(asked->'dependencies') e(id)
      cross join lateral (select o.id, coalesce(o.chain, o.id) as chain, o.lane from job o where o.id = e.id offset 0) j;
    for item in select c.chain, j.id, j.state, j.kind, j.lane, j.priority, j.ord from json_array_elements(reachable) e cross join lateral (select e.value->>1 as chain) c
        cross join lateral (
          select o.* from job o where o.id = c.chain and o.chain is null and o.state = any (${UNFINISHED})
          union all select o.* from job o where o.chain = c.chain and o.state = any (${UNFINISHED})) j loop
      perform 1 from job o where o.id = item.id and o.state = any (${UNFINISHED}) for share skip locked;
      if not found then busy := busy || ('chain ' || item.chain); end if;
    end loop;
    -- A concurrent claim skips the jobs that are locked here: its worker is notified that there is work.
    select coalesce(json_agg(json_build_array(j.lane, j.priority, j.ord)), '[]') into shared
      from json_array_elements(reachable) e cross join lateral (select e.value->>1 as chain) c cross join lateral (
        select o.lane, o.priority, o.ord from job o where o.id = c.chain and o.chain is null and o.state = 'waiting' and o.kind = 'job'
        union all select o.lane, o.priority, o.ord from job o where o.chain = c.chain and o.state = 'waiting' and o.kind = 'job') j;
  end if;
  if asked ? 'waits' or asked ? 'reopens' then
    select coalesce(json_agg(json_build_array(d.dependent, d.position, d.chain, d.name, d.policy, d.state) order by d.dependent, d.position), '[]'),
           chains || coalesce(array_agg(distinct d.chain) filter (where d.state in ('broken', 'closed')), '{}') into edges_of, chains
      from (
        select o.* from jsonb_array_elements_text(asked->'waits') e(id) cross join lateral (select * from edge o where o.dependent = e.id offset 0) o
        union
        select o.* from jsonb_array_elements_text(asked->'reopens') e(id)
          cross join lateral (select * from edge o where o.dependent = e.id and (o.state in ('broken', 'closed') or o.chain = any (releases)) offset 0) o) d;
  end if;
  if chains <> '{}' then
    ends := chain_ends_{V}(array(select distinct c.chain from unnest(chains) c(chain)), 2 + (asked->>'removals')::int);
  end if;

  -- Ids and dedup keys of new jobs, and the keys of the rows above. An insert would wait for an id that another open
  -- transaction is adding.
  if asked ? 'ids' then
    busy := busy || array(select 'id ' || e.id from jsonb_array_elements_text(asked->'ids') e(id)
      where not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || e.id, 0)));
  end if;
  if asked ? 'keys' then
    busy := busy || array(select 'key ' || e.key from jsonb_array_elements_text(asked->'keys') e(key)
      where not pg_try_advisory_xact_lock(hashtextextended('{S}:key:' || e.key, 0)));
  end if;
  if keyed is not null or asked ? 'keys' then
    if keyed is not null then
      -- A finished job that starts over takes its key again.
      busy := busy || array(
        select 'key ' || o.key from jsonb_array_elements(asked->'rows') e
        cross join lateral (select j.dedup::json->>'key' as key from job j where j.id = e.value->>0 and j.id = any (keyed) and j.state <> all (${UNFINISHED}) offset 0) o
        where e.value->>3 = '1' and not pg_try_advisory_xact_lock(hashtextextended('{S}:key:' || o.key, 0)));
      busy := busy || array(
        select 'key ' || o.key from jsonb_array_elements(asked->'rows') e
        cross join lateral (select j.dedup::json->>'key' as key from job j where j.id = e.value->>0 and j.id = any (keyed) offset 0) o
        cross join lateral (select 1 from key y where y.key = o.key and y.job = e.value->>0 and y.until is null offset 0) k
        left join lateral (select true as mine from key y where y.key = o.key for update skip locked) z on true
        where z.mine is null);
    end if;
    select coalesce(json_agg(json_build_array(k.key, k.job, k.until) order by k.key), '[]'),
           coalesce(array_agg(k.job) filter (where asked->'keys' ? k.key or k.stale), '{}') into keys, holders
      from (
        select y.key, y.job, y.until, bool_or(w.stale) as stale from (
          select e.key, false as stale from jsonb_array_elements_text(asked->'keys') e(key)
          union all
          select o.key, e.value->>3 = '1' from jsonb_array_elements(asked->'rows') e
            cross join lateral (select j.dedup::json->>'key' as key from job j where j.id = e.value->>0 and j.id = any (keyed) offset 0) o
        ) w cross join lateral (select y.key, y.job, y.until from key y where y.key = w.key offset 0) y group by 1, 2, 3
      ) k;
  end if;
  -- The records of the jobs that have these ids and keys, for refusals; once they fill an answer, only whether they exist.
  if asked ? 'ids' or holders <> '{}' then
    for item in select e.id, o.j from (
          select y.id from jsonb_array_elements_text(asked->'ids') y(id) union select h.id from unnest(holders) h(id) order by 1) e
        cross join lateral (select j from job j where j.id = e.id offset 0) o(j) loop
      record_text := case when bytes < ${READ_BYTES} then record_{V}(item.j)::text else 'null' end;
      records := records || ('[' || to_json(item.id)::text || ',' || record_text || ']');
      bytes := bytes + octet_length(record_text);
    end loop;
    taken := '[' || array_to_string(records, ',') || ']';
  end if;

  if asked ? 'cells' then
    if not within then
      -- Open claims use the old value of a pause or a limit, later ones use the new one.
      perform pg_advisory_xact_lock(y.k) from (
        select distinct hashtextextended('{S}:bounds:' || substr(e.key, 7), 0) as k from jsonb_array_elements_text(asked->'cells') e(key)
        where e.key like 'pause:%' or e.key like 'limit:%' order by 1 offset 0) y;
    end if;
    busy := busy || array(select 'cell ' || e.key from jsonb_array_elements_text(asked->'cells') e(key)
      where not pg_try_advisory_xact_lock(hashtextextended('{S}:cell:' || e.key, 0)));
    busy := busy || array(select 'cell ' || c.key from jsonb_array_elements_text(asked->'cells') e(key)
      cross join lateral (select o.key from cell o where o.key = e.key offset 0) c
      left join lateral (select true as mine from cell o where o.key = e.key for update skip locked) z on true where z.mine is null);
    select coalesce(json_agg(json_build_array(c.key, c.value, c.version, c.at) order by c.key), '[]') into cells
      from jsonb_array_elements_text(asked->'cells') e(key) cross join lateral (select * from cell o where o.key = e.key offset 0) c;
    queue_ids := queue_ids || array(select q.id from jsonb_array_elements_text(asked->'cells') e(key)
      cross join lateral (select o.id from queue o where o.name = substr(e.key, 7) offset 0) q where e.key like 'pause:%' or e.key like 'limit:%');
  end if;
  select coalesce(json_agg(json_build_array(y.name, y.pause, y.bound) order by y.name), '[]'), array_agg(y.name) filter (where y.bound is not null) into bounds, limited
    from (select distinct q.name, (select c.value from cell c where c.key = 'pause:' || q.name) as pause, (select c.value from cell c where c.key = 'limit:' || q.name) as bound
          from unnest(queue_ids) i(id) cross join lateral (select o.name from queue o where o.id = i.id offset 0) q) y
    where y.pause is not null or y.bound is not null;

  -- Counted only where a limit mentions backlogs, while no other transaction can add to them. Not by the lock on the
  -- queue's row: claims wait for that one, and must not wait for a user transaction.
  if asked ? 'queues' and limited is not null then
    for item in select q.id, q.name from jsonb_array_elements(asked->'queues') e cross join lateral (select o.id, o.name from queue o where o.id = (e.value->>0)::int offset 0) q
        where q.name = any (limited) and exists (select 1 from cell c where c.key = 'limit:' || q.name and c.value like '%backlog%') order by q.id loop
      if not pg_try_advisory_xact_lock(hashtextextended('{S}:backlog:' || item.id, 0)) then busy := busy || ('backlog ' || item.name); end if;
      backlogs := (backlogs::jsonb || jsonb_build_array(jsonb_build_array(item.name, (
        select coalesce(sum(y.n), 0) from counts_{V}() y join lane l on l.id = y.of where l.queue = item.id and y.what = any (${BACKLOG})))))::json;
    end loop;
    for item in select distinct q.id, q.name, e.value->>1 as grp from jsonb_array_elements(asked->'groups') e cross join lateral (select o.id, o.name from queue o where o.id = (e.value->>0)::int offset 0) q
        where q.name = any (limited) and exists (select 1 from cell c where c.key = 'limit:' || q.name and c.value like '%backlog%') order by 1, 3 loop
      if not pg_try_advisory_xact_lock(hashtextextended('{S}:backlog:' || item.id || ' ' || item.grp, 0)) then
        busy := busy || ('backlog ' || item.name || chr(31) || item.grp);
      end if;
      group_backlogs := (group_backlogs::jsonb || jsonb_build_array(jsonb_build_array(item.name, item.grp, (
        select count(*) from unnest(${BACKLOG}::text[]) s(state) cross join lateral (
          select 1 from job j where j.queue = item.id and j.grp = item.grp and j.state = s.state and (j.state || '') <> 'active' and j.kind = 'job') z),
        (select coalesce(json_agg(y.id order by y.seq), '[]') from (
          select z.id, z.seq from unnest(${BACKLOG}::text[]) s(state) cross join lateral (
            select j.id, j.seq from job j where j.queue = item.id and j.grp = item.grp and j.state = s.state and (j.state || '') <> 'active' and j.kind = 'job'
            order by j.seq limit 1 + (asked->>'changes')::int) z order by z.seq limit 1 + (asked->>'changes')::int) y))))::json;
    end loop;
  end if;

  if asked ? 'orphans' then
    select coalesce(json_agg(json_build_array(o.id, o.fence, o.lane) order by o.id, o.fence), '[]') into orphans
      from jsonb_array_elements(asked->'orphans') e
      cross join lateral (select y.id, y.fence, y.lane from orphan y where y.id = e.value->>0 and y.fence = (e.value->>1)::bigint and y.until > t offset 0) o;
  end if;

  fixed := json_build_object('edges', edges, 'edgesOf', edges_of, 'ends', ends, 'reachable', reachable, 'taken', taken, 'keys', keys, 'cells', cells,
    'bounds', bounds, 'backlogs', backlogs, 'groupBacklogs', group_backlogs, 'orphans', orphans, 'busy', busy, 'recording', recording)::text;
  rows := json_build_object('rows', changed, 'leased', leased, 'dependents', depend)::text;
  -- Turns of groups: where the queue is, and the last turns of the group in each priority.
  if grouped then
    select coalesce(json_agg(json_build_array(q.name, g.grp, g.priority, reached_turn_{V}(g.queue, g.priority), (
        select coalesce(json_agg(json_build_array(y.id, y.ord)), '[]') from (
          select m.id, m.ord from lane l cross join lateral (
            select j.id, j.ord from job j where j.lane = l.id and j.grp = g.grp and j.priority = g.priority and j.grp is not null and j.state = 'waiting' and j.kind <> 'schedule'
            order by j.ord desc limit 1 + (asked->>'changes')::int) m
          where l.queue = g.queue and l.shared order by m.ord desc limit 1 + (asked->>'changes')::int) y))), '[]') into turns
      from (
        select (e.value->>0)::int as queue, e.value->>1 as grp, (e.value->>2)::bigint as priority from jsonb_array_elements(asked->'groups') e
        union
        select o.queue, o.grp, p.priority from jsonb_array_elements(asked->'rows') e
          cross join lateral (select j.queue, j.grp, j.priority from job j where j.id = e.value->>0 and j.grp is not null offset 0) o
          cross join lateral (values (o.priority), ((e.value->>2)::bigint)) p(priority) where p.priority is not null
        union
        select o.queue, o.grp, o.priority from unnest(dependents) d(id)
          cross join lateral (select j.queue, j.grp, j.priority from job j where j.id = d.id and j.grp is not null offset 0) o
      ) g cross join lateral (select o.name from queue o where o.id = g.queue offset 0) q;
  end if;
  if limited is not null or asked ? 'cells' then
    select coalesce(json_agg(q.name), '[]') into waiting from (select distinct i.id from unnest(queue_ids) i(id)) i
      cross join lateral (select o.name from queue o where o.id = i.id offset 0) q where has_waiting_{V}(i.id, '{}');
  end if;
  extra := json_build_object(
    'fence', (select last_value from fence),
    'orders', array(select nextval('{S}.job_order') from generate_series(1, (asked->>'orders')::int + cardinality(dependents), 1024)),
    'turns', turns, 'shared', shared, 'waiting', waiting)::text;
end $millrace$;
`
