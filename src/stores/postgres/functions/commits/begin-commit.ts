// stores/postgres/functions/commits/begin-commit.ts: the functions with which a commit begins.

/** Every call that applies a batch makes the checks of these, the fast paths among their first statement. */
export const beginCommit = `
-- Checks that a batch is for this database, and that the lanes that its process caches still exist: a failover may have
-- lost some.
create or replace function {S}.check_batch_{V}(b jsonb) returns void language plpgsql volatile as $$
begin
  if b ? 'store' and not exists (select 1 from meta where id = (b->>'store')::uuid) then
    raise exception 'another database' using errcode = 'MR005';
  end if;
  if exists (select 1 from jsonb_array_elements(b->'lanes') y
             where not exists (select 1 from lane z where z.id = (y.value->>0)::int and z.queue = (y.value->>1)::int)) then
    raise exception 'a lane is not there any more' using errcode = 'MR007';
  end if;
end $$;

-- The answer that a writer's batch got before, if it was applied. Refuses a batch with a lower number.
create or replace function {S}.last_receipt_{V}(by text, number bigint) returns text language plpgsql volatile as $$
declare
  last {S}.writer;
begin
  select * into last from writer w where w.id = by;
  if last.seq > number then raise exception 'behind %', last.seq using errcode = 'MR004', detail = last.seq::text; end if;
  return case when last.seq = number then last.receipt end;
end $$;

-- Begins a commit: refuses other isolation levels, and waits for a batch of this writer that is still being applied. A new
-- watcher waits for open commits, which do not record for it yet; and they wait, for a moment, for the watcher. Returns the
-- answer that the batch got before, if it was applied.
create or replace function {S}.begin_commit_{V}(by text, number bigint) returns text language plpgsql volatile as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'isolation %', current_setting('transaction_isolation') using errcode = 'MR003';
  end if;
  perform pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0));
  perform pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0));
  return last_receipt_{V}(by, number);
end $$;

-- Ends this transaction if its client does nothing for so long: it has locked rows that others need.
create or replace function {S}.end_when_idle_{V}(ms bigint) returns void language plpgsql volatile as $$
begin
  if current_setting('idle_in_transaction_session_timeout') = '0'
      or current_setting('idle_in_transaction_session_timeout')::interval > ms * interval '1 ms' then
    perform set_config('idle_in_transaction_session_timeout', least(greatest(ms, 100), 2147483647)::text, true);
  end if;
end $$;
`
