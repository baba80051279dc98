// stores/postgres/functions/commit.ts: applies one batch in one round trip: groups in order, then renewals, then claims.
import { backlogStates } from '../../../job/limits.js'
import { changes } from './changes.js'
import { claim } from './claim.js'
import { addFlow } from './flows.js'
import { keyedJobs } from './insert-keyed.js'
import { decodeRun, moveMany, singleGroups } from './move-many.js'
import { notes } from './notes.js'
import { addCounts, keepReceipt, ROW, writeSettings } from './fast-parts.js'
import { newJobs, renewals } from './insert-many.js'

/**
 * Applies a batch and returns its receipt, with its notices. Each statement sees what the statements before it wrote, and
 * all that others have committed meanwhile.
 *
 * The settings make its plans independent of statistics: a table that was just filled and never analysed is as fast.
 */
export const commit = `
create or replace function {S}.commit_{V}(b jsonb) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_column
declare
  t bigint := coalesce((b->>'now')::bigint, floor(extract(epoch from clock_timestamp()) * 1000));
  within boolean := b ? 'tx';
  sent bigint := 0;
  held text; recording boolean; listened boolean; in_turn boolean := false; e_ids text[]; e_deps text[]; e_open boolean[];
  last_seq bigint; last_receipt text;
  claim_no bigint; fence_now bigint; fence_from bigint; fence_top bigint := 0; new_ord bigint;
  -- Counts, events and notices.
  c_of int[] := '{}'; c_what text[] := '{}'; c_n int[] := '{}';
  ev text[] := '{}'; many_n int := 0; many text; rv text[] := '{}'; d_queue int[] := '{}'; d_at bigint[] := '{}';
  w_lane int[] := '{}'; w_p bigint[] := '{}'; w_o bigint[] := '{}'; credited int[] := '{}'; bounded text[] := '{}';
  claimed int[] := '{}'; cut int[] := '{}'; gated_in int[] := '{}'; later bigint; began bigint; begun bigint[] := '{}'; seen_at jsonb := '{}'; below jsonb := '{}'; fit_n int; filled boolean; spent bigint; spent_now bigint; tid_now tid;
  k_ev int; k_rv int; k_c int; k_d int; k_w int; k_cr int; k_b int; k_full jsonb; backlogs jsonb := '{}'; whose_backlog text; oldest text;
  -- Answers.
  g_out text[] := '{}'; g_short text[] := '{}'; r_out text[] := '{}'; r_short text[] := '{}'; a_out text[] := '{}';
  -- One group, and one change of it.
  s jsonb; whole jsonb; x jsonb; f jsonb; j job; a job; e record; r record; i int; cell_now cell;
  why text; over text; stands text; born text[]; born_ids text[]; edges text; ew record; end_result text; end_error text;
  dedup_key text; was_done boolean; ends boolean; goes_on boolean;
  found_n int; at_change int; got int; got_ahead int; lanes_in int[]; some_text text[]; event_texts text[]; releasing text[]; freeing text[]; kept_back text[]; states_in text[]; queues int[]; locked text[]; loose int[];
  ords bigint[]; ids_in text[]; end_ids text[]; fences text[]; results text[]; verbs text[]; faults text[]; keyed text[]; gone text[]; first_at bigint; v_q int; v_l int; v_p bigint; v_lifo boolean; v_at bigint; v_s text; bound jsonb;
  -- One claim.
  k jsonb; l record; c record; want int; more int; lanes int; from_cursors boolean; exhausted boolean; all_ok boolean; skipped boolean;
  tids tid[]; aheads boolean[]; leases bigint[]; new_tids tid[]; new_aheads boolean[]; stopped int[]; claims text[];
  a_lane int[]; a_queue int[]; a_lease bigint[]; a_p bigint[]; a_o bigint[]; a_s bigint[]; a_max int[]; a_free int[];
  a_shared boolean[]; a_gated boolean[]; a_apart boolean[]; passed text[]; passed_n int; each_n int; lines int; v_g int; gated boolean; turns_in bigint[];
  b_key text[]; b_of int[]; b_left numeric[]; b_tokens numeric[]; b_back bigint[]; b_took int[]; b_rate numeric[]; limits_of jsonb; active_of jsonb;
  rate numeric[]; tokens numeric; back bigint;
  halts jsonb; halted jsonb; by_name jsonb; queue_left numeric; last_p bigint; last_o bigint;
  work text; due text; orders text; hints text;
begin
  if not within then
    if current_setting('transaction_isolation') <> 'read committed' then
      raise exception 'isolation %', current_setting('transaction_isolation') using errcode = 'MR003';
    end if;
    -- A new watcher waits for open commits, which do not record for it yet; and they wait, for a moment, for the watcher.
    held := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text;
    -- The writer first: wait for a batch that was sent before and is still being applied.
    perform pg_advisory_xact_lock(hashtextextended('{S}:writer:' || (b->>'w'), 0));
    select w.seq, w.receipt into last_seq, last_receipt from writer w where w.id = b->>'w';
    if found then
      if last_seq = (b->>'q')::bigint then return last_receipt; end if;
      if last_seq > (b->>'q')::bigint then
        raise exception 'behind %', last_seq using errcode = 'MR004', detail = last_seq::text;
      end if;
    end if;
  end if;
  if b ? 'store' and not exists (select 1 from meta where id = (b->>'store')::uuid) then
    raise exception 'another database' using errcode = 'MR005';
  end if;
  -- Every process caches lanes, and a failover may have lost some.
  if exists (select 1 from jsonb_array_elements(b->'lanes') y
             where not exists (select 1 from lane z where z.id = (y.value->>0)::int and z.queue = (y.value->>1)::int)) then
    raise exception 'a lane is not there any more' using errcode = 'MR007';
  end if;
  -- A user transaction may end long after this, and a process may watch by then: it always records and notifies.
  select within or coalesce(bool_or(p.events_until > t), false), within or coalesce(bool_or(p.until > t and p.id <> b->>'o'), false)
    into recording, listened from peer p;
  select last_value into fence_now from fence;
  if jsonb_array_length(b->'a') > 0 then claim_no := nextval('{S}.claim'); end if;

  -- Not in a user transaction: others would have to wait for the rows that it deletes.
  if not within and exists (select 1 from orphan o where o.until <= t) then
    with over as (
      delete from orphan o where (o.id, o.fence) in (select y.id, y.fence from orphan y where y.until <= t for update skip locked) returning o.lane
    ) select coalesce(array_agg(l.queue), '{}') into queues from over join lane l on l.id = over.lane;
    credited := credited || queues;
  end if;
  if not within and exists (select 1 from key y where y.until <= t) then
    delete from key where key in (select y.key from key y where y.until <= t limit 1000 for update skip locked);
  end if;

  for s in select value from jsonb_array_elements(b->'s') loop
    fence_from := greatest(fence_now, fence_top);
    if s->>'k' = 'b' then
      g_out := g_out || format('["x",%s,"busy",%s,null]', s->>'n', s->'id');
      g_short := g_short || format('["x",%s,"busy",%s,null]', s->>'n', s->'id');
      continue;
    elsif s->>'k' = 'i' and not limits_backlog_{V}(setting_{V}('limit:' || (s->>'qn')), s ? 'g') then
      ${newJobs}
      continue;
    elsif s->>'k' = 'd' and not limits_backlog_{V}(setting_{V}('limit:' || (s->>'qn')), s ? 'g') then
      ${keyedJobs}
    elsif s->>'k' = 'g' and s ? 'f' then
      ${addFlow}
      loose := case when all_ok then '{}'::int[] end;
    elsif s->>'k' in ('i', 'd') then
      -- The same, one by one, because each may exceed the backlog limit.
      loose := array(select generate_series(0, jsonb_array_length(s->'id') - 1));
    elsif s->>'k' in ('c', 'm', 'n') then
      ${decodeRun}
      backlogs := '{}';
      if within then loose := array(select generate_series(0, cardinality(end_ids) - 1)); -- a user transaction needs further checks
      elsif s->>'k' = 'n' then
        ${notes}
      else
        ${moveMany}
      end if;
    else
      loose := null;
    end if;
    continue when loose = '{}';
    whole := s;
    foreach i in array coalesce(loose, '{0}') loop
      if loose is not null then
        s := case whole->>'k' when 'i' then insert_in_run_{V}(whole, i) when 'd' then insert_in_run_{V}(whole, i)
          when 'n' then note_in_run_{V}(whole, i, end_ids[i + 1], coalesce(fences[i + 1], whole->>'f')::bigint, results[i + 1])
          else move_in_run_{V}(whole, i, end_ids[i + 1], coalesce(fences[i + 1], whole->>'f')::bigint, coalesce(verbs[i + 1], 'c'), results[i + 1], faults[i + 1]) end;
      end if;
      ${changes}
    end loop;
  end loop;
  ${renewals}
  ${claim}
  if fence_top > fence_now then
    -- Increments, never sets: a concurrent commit that removes jobs can only raise it further.
    while nextval('{S}.fence') < fence_top loop null; end loop;
  end if;

  -- The notices of the whole batch.
  work := '';
  due := '';
  if cardinality(w_lane) > 0 or cardinality(credited) > 0 or cardinality(bounded) > 0 or (cardinality(claimed) > 0 and recording) then
    some_text := '{}';
    for r in select q.id, q.name, array_agg(distinct z.kind) as kinds, array_agg(z.name) filter (where z.kind = 'w') as names from (
               select 'w' as kind, l.queue, l.name from unnest(w_lane) y(lane) join lane l on l.id = y.lane group by 1, 2, 3
               union all select 'c', y.queue, null from unnest(credited) y(queue) group by 1, 2
               union all select 'b', q.id, null from unnest(bounded) y(name) join queue q on q.name = y.name group by 1, 2
               union all select 'd', y.queue, null from unnest(claimed) y(queue) group by 1, 2
             ) z join queue q on q.id = z.queue group by q.id, q.name order by q.id loop
      got := 0;
      if r.kinds <> '{d}' then
        bound := setting_{V}('pause:' || r.name);
        if bound->'all' is distinct from 'true' then
          if r.names is not null and exists (select 1 from unnest(r.names) y(name) where not coalesce(bound->'names' ? y.name, false)) then got := 1;
          elsif 'b' = any (r.kinds) or ('c' = any (r.kinds) and is_limited_{V}(setting_{V}('limit:' || r.name))) then
            if has_waiting_{V}(r.id, '{}') then got := 1; end if;
          end if;
        elsif 'c' = any (r.kinds) and is_limited_{V}(setting_{V}('limit:' || r.name)) and has_waiting_{V}(r.id, '{}') then got := 1;
        end if;
      end if;
      if 'd' = any (r.kinds) and (recording or got = 1) then
        all_ok := not r.id = any (cut) and not has_waiting_{V}(r.id, seen_at) and (below = '{}' or not has_waiting_below_{V}(r.id, below));
        if all_ok then got := 0; end if;
        if recording and not r.id = any (cut) and (all_ok or is_drained_{V}(r.id, seen_at, below)) then
          ev := ev || json_build_object('type', 'drained', 'id', '', 'queue', r.name, 'name', '', 'at', t)::text;
        end if;
      end if;
      if got = 1 then some_text := some_text || to_json(r.name)::text; end if;
    end loop;
    work := array_to_string(some_text, ',');
  end if;
  if cardinality(d_queue) > 0 then
    select string_agg(json_build_object('queue', z.name, 'at', z.at)::text, ',') into due from (
      select q.name, min(y.at) as at from unnest(d_queue, d_at) y(queue, at) join queue q on q.id = y.queue group by q.name) z;
  end if;
  if cardinality(ev) > 0 then
    insert into event (events, body) values (cardinality(ev) + many_n, array_to_string(ev, ${ROW}));
  end if;
  select coalesce(string_agg(format('[%s,%s,%s]', y.lane, y.p, y.o), ','), '') into orders from (
    select distinct on (z.lane) z.* from unnest(w_lane, w_p, w_o) z(lane, p, o) order by z.lane, z.p, z.o) y;
  hints := format('"events":%s,"work":[%s],"due":[%s],"revoked":[%s],"orders":[%s]', cardinality(ev), work, due, array_to_string(rv, ','), orders);
  if listened and (cardinality(ev) > 0 or work <> '' or due <> '' or cardinality(rv) > 0) then
    -- Leaves out what exceeds the size of a notification: the rest marks that, and listeners read for themselves.
    perform pg_notify('{C}', '{"from":' || to_json(case when within then '' else b->>'o' end) || ',' || case when octet_length(hints) < 7800 then hints
      else format('"much":true,"events":%s,"work":[%s],"due":[],"revoked":[],"orders":[]', cardinality(ev),
        case when octet_length(work) < 7000 then work else '' end) end || '}');
  end if;
  if not within then
    ${keepReceipt("b->>'w'", "(b->>'q')::bigint", "array_to_string(g_short, ',')", "array_to_string(r_short, ',')", "coalesce(claim_no::text, 'null') || coalesce(',\"later\":' || later, '')")}
  elsif cardinality(c_of) > 0 then
    insert into writer (id, seq, at, receipt, counts) values ('tx ' || gen_random_uuid(), 0, t, '', ${addCounts("'{}'::jsonb")});
  end if;
  return format('{"now":%s,"groups":[%s],"renewals":[%s],"asks":[%s],%s}', t, array_to_string(g_out, ','), array_to_string(r_out, ','),
    array_to_string(a_out, ','), concat_ws(',', hints, '"later":' || later, '"gated":' || to_json(nullif(gated_in, '{}')),
      case when exists (select 1 from unnest(begun) y(at) where y.at <> t) then '"begun":' || to_json(begun) end));
end $millrace$;

-- The backlog of a queue, including the changes of this commit.
create or replace function {S}.backlog_{V}(of_queue int, c_of int[], c_what text[], c_n int[]) returns numeric language sql volatile as $$
  select coalesce(sum(y.n), 0) from (
    select z.of, z.what, z.n from {S}.counts_{V}() z
    union all
    select z.of, z.what, z.n from unnest(c_of, c_what, c_n) z(of, what, n)
  ) y join {S}.lane l on l.id = y.of where l.queue = of_queue and y.what = any ('{${backlogStates.join(',')}}')
$$;

-- One new job of a run, as a group by itself.
create or replace function {S}.insert_in_run_{V}(s jsonb, i int) returns jsonb language sql immutable as $$
  select jsonb_build_object('k', 'g', 'n', s->'n'->i, 'x', jsonb_build_array(
    (s - array['k', 'n', 'id', 'd', 'ra', 'ri', 'guard', 'dd', 'u', 'g']) || jsonb_build_object('k', 'i', 'id', s->'id'->i, 'd', s->'d'->i, 'ci', 0, 'kind', 'job',
      'state', case when s ? 'ra' or s ? 'ri' then 'delayed' else 'waiting' end)
      || case when s ? 'ra' then jsonb_build_object('ra', s->'ra'->i) else '{}' end
      || case when s ? 'ri' then jsonb_build_object('ri', s->'ri'->i) else '{}' end
      || case when s ? 'g' then jsonb_build_object('g', s->'g'->i) else '{}' end
      || case when s ? 'dd' then jsonb_strip_nulls(jsonb_build_object('dedup', s->'dd'->i, 'key', (s->'dd'->>i)::jsonb->'key', 'win', (s->'dd'->>i)::jsonb->'window')) else '{}' end))
$$;

-- The number of a group in a run: a run with consecutive numbers holds only the first.
create or replace function {S}.group_in_run_{V}(s jsonb, i int) returns int language sql immutable as $$
  select case jsonb_typeof(s->'n') when 'number' then (s->>'n')::int + i else (s->'n'->>i)::int end
$$;
${singleGroups}`
