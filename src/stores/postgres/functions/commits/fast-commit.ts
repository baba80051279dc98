// stores/postgres/functions/commits/fast-commit.ts: the fast path of a batch that was decided without its working set.
import { writeSettings } from '../fast-parts.js'

/** How many milliseconds the time of a batch, which its process has estimated, may differ from that of the server. */
const MOST_APART = 1_000

/**
 * Checks what the process has assumed about the rows of a batch: that its jobs are leased under their fences, that no job
 * waits for the chains that end, that its ids and dedup keys are free and its queues have no limit and no pause; and the
 * time, the first fence of new jobs, and whether events are recorded. Then commits it. Returns null, and has done nothing,
 * if the engine has to decide over the working set. A taken id is an error, which rolls it back.
 */
export const fastCommit = `
create or replace function {S}.fast_commit_{V}(b jsonb) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
declare
  t bigint := coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000));
  known jsonb := b->'known';
  locked int;
begin
  if begin_commit_{V}(b->>'w', (b->>'q')::bigint) is not null then return null; end if;
  perform check_batch_{V}(b);
  if (known->>'fence')::bigint <> (select last_value from fence) or (known->>'recording')::boolean <> exists (select 1 from peer y where y.events_until > t)
      or abs(t - (b->>'at')::bigint) > ${MOST_APART} then return null; end if;
  -- Rows that others hold are not waited for.
  if known ? 'held' then
    select count(*) into locked from jsonb_array_elements(known->'held') e
      cross join lateral (select 1 from job o where o.id = e.value->>0 and o.fence = (e.value->>1)::bigint and o.lease_until > t for update skip locked) j;
    if locked < jsonb_array_length(known->'held') then return null; end if;
  end if;
  -- A dependent that was added before these rows were locked is visible by now; one that is being added has locked them.
  if known ? 'ended' and exists (select 1 from edge) and exists (select 1 from jsonb_array_elements_text(known->'ended') e(chain)
      cross join lateral (select 1 from edge d where d.chain = e.chain and d.state <> 'ended' limit 1) o) then return null; end if;
  -- Looked up in a statement of its own: the one that takes a lock does not see what its last holder has written.
  if exists (select 1 from jsonb_array_elements_text(known->'ids') e(id) where not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || e.id, 0)))
      or exists (select 1 from jsonb_array_elements_text(known->'keys') e(key) where not pg_try_advisory_xact_lock(hashtextextended('{S}:key:' || e.key, 0)))
    then return null; end if;
  if exists (select 1 from jsonb_array_elements_text(known->'ids') e(id) where exists (select 1 from job j where j.id = e.id))
      or exists (select 1 from jsonb_array_elements_text(known->'keys') e(key) where exists (select 1 from key y where y.key = e.key))
    then return null; end if;
  if exists (select 1 from jsonb_array_elements_text(known->'queues') e(name) join cell c on c.key in ('limit:' || e.name, 'pause:' || e.name)) then return null; end if;
  return commit_{V}(b, nextval('{S}.job_order'));
end $millrace$;
`
