// stores/postgres/functions/commit.ts: commits one batch: what the engine has made of its groups and renewals, then its claims.
import { claim } from './claim.js'
import { addCounts, GROUP, keepReceipt, ROW, writeSettings } from './fast-parts.js'

/** How many milliseconds a client may take to decide about the rows that it has locked. */
const MOST_IDLE = 3_000

/**
 * A batch takes two calls in one transaction. `working_set` locks and reads what the engine needs to decide; `commit` writes
 * what it has decided, claims, and keeps the receipt. A client that stops in between loses its transaction soon.
 *
 * `commit` alone does for a batch that only claims, and for one that was decided without a working set (fast-commit.ts).
 *
 * The settings make its plans independent of statistics: a table that was just filled and never analysed is as fast.
 */
export const commit = `
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

-- Writes what was decided about a batch, and makes its claims. After \`working_set\` (\`loaded\`), in a user transaction, and with
-- \`base\`, the commit has begun before. \`base\` is what order numbers are counted from that were decided without a working set.
create or replace function {S}.commit_{V}(b jsonb, base bigint default null) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_column
declare
  t bigint := coalesce((b->>'at')::bigint, (b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000));
  within boolean := b ? 'tx';
  recording boolean; listened boolean; receipt text; orders text := coalesce(b->>'orders', '[]');
  claim_no bigint;
  -- Counts, events and hints: those of the batch, then those of its claims.
  c_of int[] := array(select (e.value->>0)::int from jsonb_array_elements(b->'counts') e);
  c_what text[] := array(select e.value->>1 from jsonb_array_elements(b->'counts') e);
  c_n int[] := array(select (e.value->>2)::int from jsonb_array_elements(b->'counts') e);
  work text[] := array(select jsonb_array_elements_text(b->'work'));
  ev text[] := '{}'; many_n int := 0; freed int[] := '{}'; queues int[]; hints text;
  -- Claims.
  claimed int[] := '{}'; cut int[] := '{}'; gated_in int[] := '{}'; later bigint; began bigint; begun bigint[] := '{}'; seen_at jsonb := '{}'; below jsonb := '{}'; fit_n int; filled boolean; spent bigint; spent_now bigint; tid_now tid;
  a_out text[] := '{}'; f jsonb; r record; i int; why text; over text; stands text; bound jsonb;
  found_n int; got int; got_ahead int; lanes_in int[]; ords bigint[];
  k jsonb; l record; c record; want int; more int; lanes int; from_cursors boolean; exhausted boolean; all_ok boolean; skipped boolean;
  tids tid[]; aheads boolean[]; leases bigint[]; new_tids tid[]; new_aheads boolean[]; stopped int[]; claims text[];
  a_lane int[]; a_queue int[]; a_lease bigint[]; a_p bigint[]; a_o bigint[]; a_s bigint[]; a_max int[]; a_free int[];
  a_shared boolean[]; a_gated boolean[]; a_apart boolean[]; passed text[]; passed_n int; each_n int; lines int; v_g int; gated boolean; turns_in bigint[];
  b_key text[]; b_of int[]; b_left numeric[]; b_tokens numeric[]; b_back bigint[]; b_took int[]; b_rate numeric[]; limits_of jsonb; active_of jsonb;
  rate numeric[]; tokens numeric; back bigint;
  halts jsonb; halted jsonb; holds jsonb; held_of jsonb; by_name jsonb; queue_left numeric; last_p bigint; last_o bigint;
begin
  if not within and not b ? 'loaded' and base is null then
    receipt := begin_commit_{V}(b->>'w', (b->>'q')::bigint);
    if receipt is not null then return receipt; end if;
    perform check_batch_{V}(b);
  end if;
  -- A user transaction may end long after this, and a process may watch by then: it always records and notifies.
  select within or coalesce(bool_or(p.events_until > t), false), within or coalesce(bool_or(p.until > t and p.id <> b->>'o'), false)
    into recording, listened from peer p;

  -- Not in a user transaction: others would have to wait for the rows that it deletes.
  if not within and exists (select 1 from orphan o where o.until <= t) then
    with over as (
      delete from orphan o where (o.id, o.fence) in (select y.id, y.fence from orphan y where y.until <= t for update skip locked) returning o.lane
    ) select coalesce(array_agg(l.queue), '{}') into freed from over join lane l on l.id = over.lane;
  end if;
  if not within and exists (select 1 from key y where y.until <= t) then
    delete from key where key in (select y.key from key y where y.until <= t limit 1000 for update skip locked);
  end if;

  if b ? 'writes' then perform write_{V}(b->'writes', t, base); end if;
  if base is not null and orders <> '[]' then
    select json_agg(json_build_array(e.value->0, e.value->1, place_{V}((e.value->>2)::bigint, base)))::text into orders from jsonb_array_elements(b->'orders') e;
  end if;
  if b ? 'body' then
    ev := array[b->>'body'];
    many_n := (b->>'events')::int - 1;
  end if;
  if b ? 'a' and b->'a' <> '[]' then
    claim_no := nextval('{S}.claim');
    ${claim}
  end if;

  -- Expired leases of jobs that others have moved may make room under a limit; a claim may have emptied its queue.
  if cardinality(freed) > 0 or cardinality(claimed) > 0 then
    for r in select q.id, q.name, q.id = any (freed) as freed, q.id = any (claimed) as claimed
             from (select distinct y.id from unnest(freed || claimed) y(id)) z join queue q on q.id = z.id order by q.id loop
      if r.freed and r.name <> all (work) and is_limited_{V}(setting_{V}('limit:' || r.name)) and has_waiting_{V}(r.id, '{}') then
        work := work || r.name;
      end if;
      if r.claimed and (recording or r.name = any (work)) then
        all_ok := not r.id = any (cut) and not has_waiting_{V}(r.id, seen_at) and (below = '{}' or not has_waiting_below_{V}(r.id, below));
        if all_ok then work := array_remove(work, r.name); end if;
        if recording and not r.id = any (cut) and (all_ok or is_drained_{V}(r.id, seen_at, below)) and not has_expired_{V}(r.id, t) then
          ev := ev || json_build_object('type', 'drained', 'id', '', 'queue', r.name, 'name', '', 'at', t)::text;
        end if;
      end if;
    end loop;
  end if;
  if cardinality(ev) > 0 then
    insert into event (events, body) values (cardinality(ev) + many_n, array_to_string(ev, ${ROW}));
  end if;
  hints := format('"events":%s,"work":%s,"due":%s,"revoked":%s,"orders":%s', cardinality(ev), array_to_json(work),
    coalesce(b->>'due', '[]'), coalesce(b->>'revoked', '[]'), orders) || coalesce(',"held":' || (b->>'held'), '');
  if listened and (cardinality(ev) > 0 or cardinality(work) > 0 or coalesce(b->>'due', '[]') <> '[]' or coalesce(b->>'revoked', '[]') <> '[]' or b ? 'held') then
    -- Leaves out what exceeds the size of a notification: the rest marks that, and listeners read for themselves.
    perform pg_notify('{C}', '{"from":' || to_json(case when within then '' else b->>'o' end) || ',' || case when octet_length(hints) < 7800 then hints
      else format('"much":true,"events":%s,"work":%s,"due":[],"revoked":[],"orders":[]', cardinality(ev),
        case when octet_length(array_to_json(work)::text) < 7000 then array_to_json(work)::text else '[]' end) end || '}');
  end if;
  if not within then
    ${keepReceipt("b->>'w'", "(b->>'q')::bigint", "concat_ws(',', '[\"b\",' || base || ']', nullif(b->>'groups', ''))", "coalesce(b->>'renewals', '')", "coalesce(claim_no::text, 'null') || coalesce(',\"later\":' || later, '')")}
  elsif cardinality(c_of) > 0 then
    insert into writer (id, seq, at, receipt, counts) values ('tx ' || gen_random_uuid(), 0, t, '', ${addCounts("'{}'::jsonb")});
  end if;
  return format('{"now":%s,"groups":[],"renewals":[],"asks":[%s],%s}', t, array_to_string(a_out, ','),
    concat_ws(',', hints, '"later":' || later, '"base":' || base, '"gated":' || to_json(nullif(gated_in, '{}')),
      case when exists (select 1 from unnest(begun) y(at) where y.at <> t) then '"begun":' || to_json(begun) end));
end $millrace$;
`
