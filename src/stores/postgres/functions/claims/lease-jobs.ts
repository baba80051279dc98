// stores/postgres/functions/claims/lease-jobs.ts: the function that leases the jobs that a claim has locked.
import { UNIT } from '../fast-parts.js'

export const leaseJobs = `
-- Leases locked jobs, some of them ahead, each for so many milliseconds. Returns their rows, what is to be counted, the
-- queues and the number of the jobs, and one text of their events.
create or replace function {S}.lease_jobs_{V}(tids tid[], aheads boolean[], leases bigint[], worker_id text, claim_no bigint, began bigint, recording boolean,
  out rows text, out of int[], out what text[], out n int[], out queues int[], out leased int, out events text) language plpgsql volatile
as $$
#variable_conflict use_column
declare
  lanes int[]; priorities bigint[]; orders bigint[]; ids text; attempts text; chains text; grouped boolean := false;
  l record;
begin
  with up as (
    update job j set state = 'active', fence = j.fence + 1, attempt = j.attempt + 1, worker = worker_id, claim = claim_no,
      lease_until = began + x.lease, due_at = began + x.lease, started_at = began, ahead = x.ahead
    from unnest(tids, aheads, leases) with ordinality as x(ctid, ahead, lease, n)
    where j.ctid = x.ctid
    returning claimed_record_{V}(j) as claimed_row, j.id, j.chain, j.attempt, j.lane, j.ahead, j.priority, j.ord, x.n
  )
  select array_to_string(array_agg(up.claimed_row order by up.ahead, up.n), ','), array_agg(up.lane), array_agg(up.priority), array_agg(up.ord),
         string_agg(up.id, ${UNIT}) filter (where recording), string_agg(up.attempt::text, ',') filter (where recording),
         case when bool_or(up.chain is not null) then string_agg(coalesce(up.chain, ''), ${UNIT}) end
    into rows, lanes, priorities, orders, ids, attempts, chains from up;
  leased := cardinality(lanes);
  for l in select y.lane, o.queue, o.shared, y.n from (select z.lane, count(*)::int as n from unnest(lanes) z(lane) group by 1) y join lane o on o.id = y.lane loop
    of := of || l.lane || l.lane; what := what || 'waiting'::text || 'active'::text; n := n || -l.n || l.n;
    queues := queues || l.queue;
    grouped := grouped or l.shared;
  end loop;
  if grouped then
    perform advance_turn_{V}(y.queue, y.p, y.o) from (
      select o.queue, z.p, max(z.ord) as o from unnest(lanes, priorities, orders) z(lane, p, ord) join lane o on o.id = z.lane where o.shared group by 1, 2) y;
  end if;
  if recording then
    events := many_events_{V}('active', began, worker_id, ids, lanes, array_to_string(lanes, ','), attempts, null, chains);
  end if;
end $$;
`
