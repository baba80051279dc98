// stores/postgres/functions/commits/commit.ts: commits one batch: what the engine has made of its groups and renewals, then its claims.
import { ROW, writeSettings } from '../fast-parts.js'

/**
 * The second call of a batch that the engine decides (see working-set.ts); the only one for a batch that only claims, and for
 * one that was decided without a working set (fast-commit.ts).
 *
 * The settings make its plans independent of statistics: a table that was just filled and never analysed is as fast.
 */
export const commit = `
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
  -- Counts, events and hints: those of the batch, then those of its claims.
  c_of int[] := array(select (e.value->>0)::int from jsonb_array_elements(b->'counts') e);
  c_what text[] := array(select e.value->>1 from jsonb_array_elements(b->'counts') e);
  c_n int[] := array(select (e.value->>2)::int from jsonb_array_elements(b->'counts') e);
  work text[] := array(select jsonb_array_elements_text(b->'work'));
  ev text[] := '{}'; many_n int := 0; freed int[] := '{}'; hints text; is_empty boolean;
  -- Claims: their number, their answers and times, and what they have read.
  claim_no bigint; k jsonb; c record; r record;
  asks text[] := '{}'; begun bigint[] := '{}'; later bigint; gated int[] := '{}';
  claimed int[] := '{}'; cut int[] := '{}'; positions jsonb := '{}'; below jsonb := '{}';
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
    for k in select e.value from jsonb_array_elements(b->'a') e loop
      c := claim_{V}(k, claim_no, recording, t, (b->>'now')::bigint);
      asks := asks || ('[' || coalesce(c.rows, '') || ']');
      begun := begun || c.began; later := least(later, c.later); gated := gated || c.gated;
      positions := positions || coalesce(c.positions, '{}');
      if c.leased > 0 then
        claimed := claimed || c.queues; cut := cut || c.cut; below := below || coalesce(k->'cursors', '{}');
        c_of := c_of || c.of; c_what := c_what || c.what; c_n := c_n || c.n;
        if recording then
          ev := ev || c.events;
          many_n := many_n + c.leased - 1;
        end if;
      end if;
    end loop;
  end if;

  -- Expired leases of jobs that others have moved may make room under a limit; a claim may have emptied its queue.
  if cardinality(freed) > 0 or cardinality(claimed) > 0 then
    for r in select q.id, q.name, q.id = any (freed) as freed, q.id = any (claimed) as claimed
             from (select distinct y.id from unnest(freed || claimed) y(id)) z join queue q on q.id = z.id order by q.id loop
      if r.freed and r.name <> all (work) and is_limited_{V}(setting_{V}('limit:' || r.name)) and has_waiting_{V}(r.id, '{}') then
        work := work || r.name;
      end if;
      if r.claimed and (recording or r.name = any (work)) then
        is_empty := not r.id = any (cut) and not has_waiting_{V}(r.id, positions) and (below = '{}' or not has_waiting_below_{V}(r.id, below));
        if is_empty then work := array_remove(work, r.name); end if;
        if recording and not r.id = any (cut) and (is_empty or is_drained_{V}(r.id, positions, below)) and not has_expired_{V}(r.id, t) then
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
    perform keep_receipt_{V}(b->>'w', (b->>'q')::bigint, t, format('{"again":true,"now":%s,"groups":[%s],"renewals":[%s],"claim":%s}', t,
      concat_ws(',', '["b",' || base || ']', nullif(b->>'groups', '')), coalesce(b->>'renewals', ''), coalesce(claim_no::text, 'null') || coalesce(',"later":' || later, '')),
      c_of, c_what, c_n);
  elsif cardinality(c_of) > 0 then
    perform keep_receipt_{V}('tx ' || gen_random_uuid(), 0, t, '', c_of, c_what, c_n);
  end if;
  return format('{"now":%s,"groups":[],"renewals":[],"asks":[%s],%s}', t, array_to_string(asks, ','),
    concat_ws(',', hints, '"later":' || later, '"base":' || base, '"gated":' || to_json(nullif(gated, '{}')),
      case when exists (select 1 from unnest(begun) y(at) where y.at <> t) then '"begun":' || to_json(begun) end));
end $millrace$;
`
