// stores/postgres/functions/claims/drained.ts: the functions that find out whether jobs of a queue wait.

/** `is_drained` is asked by claims: it decides whether they report that the queue has no more waiting jobs. */
export const drained = `
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

-- Whether jobs of a queue wait that have expired, and that upkeep has still to cancel: among the rows that are due for
-- longest. Claims pass over them, so the positions of claims do not show it.
create or replace function {S}.has_expired_{V}(of int, t bigint) returns boolean language sql volatile as $$
  select exists (
    select 1 from (
      select j.state from {S}.job j where j.queue = of and j.due_at <= t and j.due_at is not null and j.state <> 'active' order by j.due_at limit 100
    ) y where y.state = 'waiting')
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
  -- Jobs that no transaction holds, or that this commit has locked without claiming them.
  or exists (select 1 from {S}.waiting_elsewhere_{V}(of, orders, cursors) y where y.holder in (0::text::xid, pg_current_xact_id()::xid)) then return false; end if;
  return not exists (
    select 1 from {S}.waiting_elsewhere_{V}(of, orders, cursors) y where y.holder not in (
      select x.transactionid from pg_locks a join pg_locks x on x.pid = a.pid and x.virtualtransaction = a.virtualtransaction
      where x.locktype = 'transactionid' and x.granted and a.locktype = 'advisory' and a.granted and a.objsubid = 1
        and a.classid = ((k >> 32) & 4294967295)::oid and a.objid = (k & 4294967295)::oid))
    -- Of several commits that find this at the same moment, one reports it.
    and pg_try_advisory_xact_lock(hashtextextended('{S}:drained:' || of, 0));
end $$;
`
