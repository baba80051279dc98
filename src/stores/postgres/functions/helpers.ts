// stores/postgres/functions/helpers.ts: small functions that commits and reads share.

/**
 * Functions that encode records and events, read settings, and find waiting jobs. `record` encodes in the order of
 * `rows.ts`.
 */
export const helpers = `
create or replace function {S}.record_{V}(j {S}.job) returns json language sql stable as $$
  select json_build_array(j.id, j.lane, l.queue, l.name, l.version, j.kind, j.state, j.priority, j.ord, j.fence, j.attempt,
    j.attempts, j.worker, j.run_at, j.lease_until, j.broken_at, j.stale_at, j.stale, j.delete_at, j.due_at, j.chain,
    j.chain_index, j.parent, j.pending, j.stalls, j.ahead, j.data, j.settings, j.dedup, j.progress, j.result, j.error,
    array_to_json(j.errors), j.created_at, j.started_at, j.finished_at, j.seq, j.grp, j.memo)
  from (select q.name as queue, l.name, l.version from {S}.lane l join {S}.queue q on q.id = l.queue where l.id = j.lane) l
$$;

-- The record of a moved job, for groups that are refused because of it: without its payload, except for the reason of a
-- cancellation.
create or replace function {S}.header_{V}(j {S}.job) returns json language sql stable as $$
  select json_build_array(j.id, j.lane, l.queue, l.name, l.version, j.kind, j.state, j.priority, j.ord, j.fence, j.attempt,
    j.attempts, j.worker, j.run_at, j.lease_until, j.broken_at, j.stale_at, j.stale, j.delete_at, j.due_at, j.chain,
    j.chain_index, j.parent, j.pending, j.stalls, j.ahead, null, j.settings, j.dedup, null, null, case when j.state = 'cancelled' then j.error end,
    null, j.created_at, j.started_at, j.finished_at, j.seq, j.grp, null)
  from (select q.name as queue, l.name, l.version from {S}.lane l join {S}.queue q on q.id = l.queue where l.id = j.lane) l
$$;

-- A claimed job: in a short form if nothing happened to it before.
create or replace function {S}.claimed_record_{V}(j {S}.job) returns text language sql stable as $$
  select case when j.touched then {S}.record_{V}(j)::text
    else json_build_array(j.lane, j.id, j.priority, j.ord, j.fence, j.attempt, j.attempts, j.lease_until, j.ahead, j.created_at,
      j.data, j.settings, j.dedup, j.grp, j.parent)::text end
$$;

-- The value of a setting; an empty object if it is missing or not an object, because a setting must not make a commit fail.
create or replace function {S}.setting_{V}(name text) returns jsonb language plpgsql stable as $$
declare
  stored text;
  parsed jsonb;
begin
  select value into stored from {S}.cell where key = name;
  if not found then return '{}'; end if;
  begin
    parsed := stored::jsonb;
  exception when others then
    return '{}';
  end;
  return case when jsonb_typeof(parsed) = 'object' then parsed else '{}' end;
end $$;

-- When a job is next due, by its other times.
create or replace function {S}.due_at_{V}(j {S}.job) returns bigint language sql immutable as $$
  select case j.state
    when 'delayed' then j.run_at
    when 'active' then j.lease_until
    when 'waiting-children' then j.broken_at
    when 'waiting' then null
    else case when j.stale then j.delete_at else least(j.stale_at, j.delete_at) end
  end
$$;

-- The event of the state that a job has entered.
create or replace function {S}.state_event_{V}(j {S}.job, t bigint) returns text language sql stable as $$
  select json_strip_nulls(json_build_object('type', j.state, 'id', j.id, 'chain', j.chain, 'queue', l.queue, 'name', l.name, 'at', t,
    'attempt', case when j.state in ('active', 'completed', 'failed') then j.attempt end,
    'worker', case when j.state = 'active' then j.worker end,
    'result', case when j.state = 'completed' then j.result end,
    'error', case when j.state = 'failed' or (j.state = 'cancelled' and j.error::json->>'name' = 'JobCancelled') then j.error::json end,
    'runAt', case when j.state = 'delayed' then j.run_at end))::text
  from (select q.name as queue, l.name from {S}.lane l join {S}.queue q on q.id = l.queue where l.id = j.lane) l
$$;

-- Any other event of a job.
create or replace function {S}.job_event_{V}(what text, j {S}.job, t bigint, holder text) returns text language sql stable as $$
  select json_strip_nulls(json_build_object('type', what, 'id', j.id, 'chain', j.chain, 'queue', l.queue, 'name', l.name, 'at', t,
    'attempt', case when what = 'retrying' then j.attempt end,
    'worker', case when what = 'stalled' then holder end,
    'progress', case when what = 'progress' then j.progress end,
    'error', case when what = 'retrying' then j.error::json end,
    'runAt', case when what = 'retrying' then j.run_at end))::text
  from (select q.name as queue, l.name from {S}.lane l join {S}.queue q on q.id = l.queue where l.id = j.lane) l
$$;

-- An event of a note, with its \`about\`.
create or replace function {S}.note_event_{V}(what text, j {S}.job, t bigint, about text) returns text language sql stable as $$
  select json_strip_nulls(json_build_object('type', what, 'id', j.id, 'chain', j.chain, 'queue', l.queue, 'name', l.name, 'at', t,
    'progress', case when what = 'progress' then j.progress end, 'about', about))::text
  from (select q.name as queue, l.name from {S}.lane l join {S}.queue q on q.id = l.queue where l.id = j.lane) l
$$;

-- Whether a queue has waiting jobs; \`orders\` holds the order in each lane from which to look. Turns may be equal, other
-- orders are not.
create or replace function {S}.has_waiting_{V}(of int, orders jsonb) returns boolean language sql volatile as $$
  select exists (
    select 1 from {S}.lane l cross join lateral (
      select 1 from {S}.job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is null
        and (j.priority, j.ord) > (coalesce((orders->(l.id::text)->>0)::bigint, -9223372036854775808),
                                   coalesce((orders->(l.id::text)->>1)::bigint, -9223372036854775808))
      limit 1
    ) w where l.queue = of and not l.shared)
  or exists (
    select 1 from {S}.lane l cross join lateral (
      select 1 from {S}.job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is not null
        and (j.priority, j.ord) >= (coalesce((orders->(l.id::text)->>0)::bigint, -9223372036854775808),
                                    coalesce((orders->(l.id::text)->>1)::bigint, -9223372036854775808))
      limit 1
    ) w where l.queue = of and l.shared)
$$;

-- Whether a queue has waiting jobs in a lane at or below its claim cursor (\`cursors\`): a claim that began above it has
-- not read those.
create or replace function {S}.has_waiting_below_{V}(of int, cursors jsonb) returns boolean language sql volatile as $$
  select exists (
    select 1 from {S}.lane l cross join lateral (
      select 1 from {S}.job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is null
        and (j.priority, j.ord) <= ((cursors->(l.id::text)->>0)::bigint, (cursors->(l.id::text)->>1)::bigint)
      limit 1
    ) w where l.queue = of and not l.shared and cursors ? l.id::text)
  or exists (
    select 1 from {S}.lane l cross join lateral (
      select 1 from {S}.job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is not null
        and (j.priority, j.ord) < ((cursors->(l.id::text)->>0)::bigint, (cursors->(l.id::text)->>1)::bigint)
      limit 1
    ) w where l.queue = of and l.shared and cursors ? l.id::text)
$$;

-- Jobs of a queue that appear to wait, outside the range that a claim has read: in other lanes, and up to its claim cursors.
-- Returns the transaction that has locked or changed each of them, if any.
create or replace function {S}.waiting_elsewhere_{V}(of int, orders jsonb, cursors jsonb) returns table (holder xid) language sql volatile as $$
    select j.xmax as holder from {S}.lane l cross join lateral (
        select o.xmax from {S}.job o where o.lane = l.id and o.state = 'waiting' and o.kind = 'job' and o.grp is null
          and (o.priority, o.ord) <= (coalesce(case when orders ? l.id::text then (cursors->(l.id::text)->>0)::bigint end, 9223372036854775807),
                                      coalesce(case when orders ? l.id::text then (cursors->(l.id::text)->>1)::bigint end, 9223372036854775807))) j
      where l.queue = of and not l.shared and (not orders ? l.id::text or cursors ? l.id::text)
    union all
    select j.xmax as holder from {S}.lane l cross join lateral (
        select o.xmax from {S}.job o where o.lane = l.id and o.state = 'waiting' and o.kind = 'job' and o.grp is not null
          and (o.priority, o.ord) <= (coalesce(case when orders ? l.id::text then (cursors->(l.id::text)->>0)::bigint end, 9223372036854775807),
                                      coalesce(case when orders ? l.id::text then (cursors->(l.id::text)->>1)::bigint end, 9223372036854775807))) j
      where l.queue = of and l.shared and (not orders ? l.id::text or cursors ? l.id::text)
$$;

-- Whether the only jobs that wait in a queue are those that other open commits are claiming. Of two concurrent claims,
-- each sees the jobs of the other as waiting, and neither would report that the queue is drained. \`orders\` holds how
-- far a claim has read in its lanes: beyond that, the claim that takes the last job reports it. Jobs that a user
-- transaction holds are not being claimed.
create or replace function {S}.is_drained_{V}(of int, orders jsonb, cursors jsonb) returns boolean language plpgsql volatile as $$
declare
  k bigint := hashtextextended('{S}:recording', 0);
begin
  if exists (
    select 1 from {S}.lane l cross join lateral (
      select 1 from {S}.job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is null
        and (j.priority, j.ord) > ((orders->(l.id::text)->>0)::bigint, (orders->(l.id::text)->>1)::bigint) limit 1) w
    where l.queue = of and not l.shared and orders ? l.id::text)
  or exists (
    select 1 from {S}.lane l cross join lateral (
      select 1 from {S}.job j where j.lane = l.id and j.state = 'waiting' and j.kind = 'job' and j.grp is not null
        and (j.priority, j.ord) >= ((orders->(l.id::text)->>0)::bigint, (orders->(l.id::text)->>1)::bigint) limit 1) w
    where l.queue = of and l.shared and orders ? l.id::text)
  or exists (select 1 from {S}.waiting_elsewhere_{V}(of, orders, cursors) y where y.holder = 0) then return false; end if;
  return not exists (
    select 1 from {S}.waiting_elsewhere_{V}(of, orders, cursors) y where y.holder not in (
      select x.transactionid from pg_locks a join pg_locks x on x.pid = a.pid and x.virtualtransaction = a.virtualtransaction
      where x.locktype = 'transactionid' and x.granted and a.locktype = 'advisory' and a.granted and a.objsubid = 1
        and a.classid = ((k >> 32) & 4294967295)::oid and a.objid = (k & 4294967295)::oid))
    -- Of several commits that find this at the same moment, one reports it.
    and pg_try_advisory_xact_lock(hashtextextended('{S}:drained:' || of, 0));
end $$;

-- All counts, by lane or queue.
create or replace function {S}.counts_{V}() returns table (of int, what text, n numeric) language sql stable as $$
  select y.of, y.what, sum(y.n) from (
    select split_part(e.key, ' ', 1)::int as of, split_part(e.key, ' ', 2) as what, e.value::bigint as n
      from {S}.writer w cross join lateral jsonb_each_text(w.counts) e where w.counts <> '{}') y group by 1, 2
$$;
`
