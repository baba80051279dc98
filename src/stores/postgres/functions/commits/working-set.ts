// stores/postgres/functions/commits/working-set.ts: the first call of a batch that the engine decides: locks and reads what it needs.
import { GROUP, writeSettings } from '../fast-parts.js'

/** How many milliseconds a client may take to decide about the rows that it has locked. */
const MOST_IDLE = 3_000

/**
 * A batch takes two calls in one transaction. `working_set` locks and reads what the engine needs to decide; `commit` writes
 * what it has decided, claims, and keeps the receipt. A client that stops in between loses its transaction soon.
 */
export const workingSet = `
-- Locks and reads the working set of a batch; or returns its receipt, if it was applied before. In a user transaction
-- (\`tx\`), the locks last until that ends.
create or replace function {S}.working_set_{V}(b jsonb) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
declare
  t bigint := coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000));
  within boolean := b ? 'tx';
  recording boolean;
  receipt text;
  loaded record;
  lease bigint;
begin
  if not within then
    receipt := begin_commit_{V}(b->>'w', (b->>'q')::bigint);
    if receipt is not null then return receipt; end if;
    perform end_when_idle_{V}(${MOST_IDLE});
  end if;
  perform check_batch_{V}(b);
  -- An older snapshot shows neither new dependents nor how the chains of old ones have changed.
  if within and current_setting('transaction_isolation') <> 'read committed' and (b->'asked' ? 'releases' or exists (
      select 1 from jsonb_array_elements_text(b->'asked'->'reopens') e(id) join edge d on d.dependent = e.id and d.state in ('broken', 'closed'))) then
    raise exception 'isolation %', current_setting('transaction_isolation') using errcode = 'MR003';
  end if;
  -- A user transaction may end long after this, and a process may watch by then: it always records and notifies.
  recording := within or exists (select 1 from peer p where p.events_until > t);
  loaded := load_{V}(b->'asked', recording, t);
  -- The time once all locks are held: it decides about leases.
  t := coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000));
  if within and b->'asked' ? 'held' then
    -- If a lease holder disappears silently, its transaction would keep the job locked: the transaction must not outlast
    -- the lease.
    select min(o.lease_until) - t into lease from jsonb_array_elements_text(b->'asked'->'held') e(id)
      cross join lateral (select j.lease_until from job j where j.id = e.id and j.lease_until > t offset 0) o;
    if lease is not null then perform end_when_idle_{V}(lease); end if;
  end if;
  return concat(t, ${GROUP}, loaded.fixed, ${GROUP}, loaded.rows, ${GROUP}, loaded.extra);
end $millrace$;
`
