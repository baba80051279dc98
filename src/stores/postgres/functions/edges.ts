// stores/postgres/functions/edges.ts: dependencies between jobs: new edges, and the release of dependents when a chain ends.
import { UNIT } from './fast-parts.js'

/** The number of family locks: a batch with many families must not need more locks than a server has. */
const FAMILIES = 256

/** The states of a job that has not finished. */
const UNFINISHED = "('waiting', 'delayed', 'waiting-children', 'active')"

/** The jobs of chain `c.chain`. */
const members = `cross join lateral (
        select o.* from {S}.job o where o.id = c.chain and o.chain is null union all select o.* from {S}.job o where o.chain = c.chain) j`

/** An error without its stack. */
const errorSummary = `json_strip_nulls(json_build_object('name', j.error::json->'name', 'message', j.error::json->'message', 'code', j.error::json->'code'))::text`

/** The key of the lock of a dependent's family. */
function familyOf(dependent: string): string {
  return `hashtextextended('{S}:family:' || abs(hashtext(${dependent}) % ${FAMILIES}), 0)`
}

/**
 * Waits for the batches that end other dependencies of the same dependents. It locks all families of this batch at once
 * and in one order, so that concurrent batches of one large family run one after the other: they neither refuse each
 * other as `busy` nor deadlock. A user transaction does not take these locks: it may stay open, and batches skip the rows
 * that it holds.
 */
const lockFamilies = `
create or replace function {S}.lock_families_{V}(b jsonb) returns boolean language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(y.k) from (
    select distinct ${familyOf('d.dependent')} as k from (
      select unnest(string_to_array(s.value->>'id', ${UNIT})) as chain from jsonb_array_elements(b->'s') s
        where s.value->>'k' in ('c', 'm')
      union all
      select e.value->>'chain' from jsonb_array_elements(b->'s') s cross join lateral jsonb_array_elements(s.value->'x') e
        where s.value->>'k' = 'g' and e.value->>'k' = 'r'
    ) c cross join lateral (select d.dependent from {S}.edge d where d.chain = c.chain and d.state <> 'ended' offset 0) d
    order by 1 offset 0) y;
  return true;
end $$;
`

/** The same, once in a batch. */
const lockFamiliesOnce = `
            if not within and not in_turn then in_turn := {S}.lock_families_{V}(b); end if;`

/**
 * The new edges of a job, one for each chain to which it has none yet, each in the state that its chain gives it. Refuses
 * with `missing` if a chain does not exist, and with `busy` if another transaction is ending one: a transaction that ends
 * a chain locks its last job, and either sees these edges or makes this one try again.
 */
export const edges = `${lockFamilies}
create or replace function {S}.new_edges_{V}(of_job text, wanted jsonb, out why text, out over text, out chains text[], out names text[], out policies text[],
  out states text[], out results text[], out errors text[]) language plpgsql volatile as $$
declare
  found_n int;
  got int;
begin
  with w as materialized (
    select e.ordinality as n, e.value->>0 as on_id, e.value->>1 as policy, o.chain, l.name from jsonb_array_elements(wanted) with ordinality e
    left join lateral (select coalesce(j.chain, j.id) as chain, j.lane from {S}.job j where j.id = e.value->>0 offset 0) o on true
    left join {S}.lane l on l.id = o.lane
  ), f as (
    select distinct on (w.chain) w.* from w where w.chain is not null
      and not exists (select 1 from {S}.edge d where d.dependent = of_job and d.chain = w.chain) order by w.chain, w.n
  )
  select (select w.on_id from w where w.chain is null order by w.n limit 1), coalesce(array_agg(f.chain order by f.n), '{}'),
    array_agg(f.name order by f.n), array_agg(f.policy order by f.n) into over, chains, names, policies from f;
  if over is not null then why := 'missing'; return; end if;
  select count(*) into found_n from unnest(chains) c(chain) ${members} where j.state in ${UNFINISHED};
  if found_n > 0 then
    select count(*) into got from (select j.id from unnest(chains) c(chain) ${members} where j.state in ${UNFINISHED}) y
      cross join lateral (select 1 from {S}.job o where o.id = y.id and o.state in ${UNFINISHED} for share skip locked) z;
    if got < found_n then why := 'busy'; return; end if;
  end if;
  select array_agg(case when z.unfinished then 'open' when z.state = 'completed' then 'ended' else 'broken' end order by z.n),
    array_agg(case when not z.unfinished and z.state = 'completed' then z.result end order by z.n),
    array_agg(case when not z.unfinished and z.state = 'failed' and z.error is not null then z.error end order by z.n) into states, results, errors
  from (
    select distinct on (c.n) c.n, j.state, j.result, ${errorSummary} as error, bool_or(j.state in ${UNFINISHED}) over (partition by c.n) as unfinished
    from unnest(chains) with ordinality c(chain, n) ${members} order by c.n, j.chain_index desc, j.seq desc
  ) z;
end $$;
`

/**
 * The dependencies that a restarted job waits for again, as `reopen` in job/apply.ts computes them. The job's row is
 * locked. A transaction that ends a chain locks its dependents, so that the states read here are valid until the end of
 * the transaction.
 */
export const reopened = `
create or replace function {S}.reopened_edges_{V}(of_job text, out over text, out positions int[], out states text[], out results text[], out more int, out broken boolean)
  language plpgsql volatile as $$
begin
  if not exists (select 1 from {S}.edge d where d.dependent = of_job and d.state in ('broken', 'closed')) then return; end if;
  -- An older snapshot does not show how the chains have changed since.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'isolation %', current_setting('transaction_isolation') using errcode = 'MR003';
  end if;
  with e as materialized (
    select d.position, d.chain, d.state as was, d.policy like 'ignore%' as ignores, z.state, z.result, coalesce(z.unfinished, false) as unfinished from {S}.edge d
    left join lateral (
      select j.state, j.result, bool_or(j.state in ${UNFINISHED}) over () as unfinished from (select d.chain as chain) c ${members}
      order by j.chain_index desc, j.seq desc limit 1) z on true
    where d.dependent = of_job and d.state in ('broken', 'closed')
  ), k as (
    select e.*, e.unfinished or coalesce(e.state = 'completed', false) as turns from e
  )
  select (array_agg(k.chain order by k.position) filter (where not k.turns and not k.ignores))[1],
    array_agg(k.position order by k.position) filter (where k.turns),
    array_agg(case when k.unfinished then 'open' else 'ended' end order by k.position) filter (where k.turns),
    array_agg(case when not k.unfinished then k.result end order by k.position) filter (where k.turns),
    coalesce(sum(case when k.unfinished then 1 else 0 end - case when k.was = 'broken' then 1 else 0 end) filter (where k.turns), 0),
    coalesce(bool_or(k.was = 'broken' and not k.turns), false)
    into over, positions, states, results, more, broken from k;
end $$;
`

/** Refuses the change in `x` because of its edges, or returns them in `ew`. */
export const wantedEdges = `
          select * into ew from {S}.new_edges_{V}(case when x->>'k' = 'm' then x->>'id' end, x->'edges');
          if ew.why is not null then why := ew.why; over := coalesce(ew.over, x->>'id'); exit; end if;
          select count(*) filter (where y.state <> 'ended'), bool_or(y.state = 'broken') into found_n, all_ok from unnest(ew.states) y(state);
          a.pending := a.pending + found_n;
          if all_ok then a.broken_at := t; end if;
          -- A concurrent claim has skipped the jobs that were locked here: its worker is notified that there is work.
          select w_lane || coalesce(array_agg(j.lane), '{}'), w_p || coalesce(array_agg(j.priority), '{}'), w_o || coalesce(array_agg(j.ord), '{}')
            into w_lane, w_p, w_o from unnest(ew.chains) c(chain) ${members} where j.state = 'waiting' and j.kind = 'job';
`

/** Appends the edges in `ew` to those of the job. */
export const writeEdges = `
          insert into edge (dependent, position, chain, policy, state, name, result, error)
            select a.id, coalesce((select max(d.position) from edge d where d.dependent = a.id), 0) + y.position, y.chain, y.policy, y.state, y.name, y.result, y.error
            from unnest(ew.chains, ew.policies, ew.states, ew.names, ew.results, ew.errors) with ordinality y(chain, policy, state, name, result, error, position);
`

/** Locks the dependents of the chains that a group ends. */
export const lockDependents = `
      -- Laterally, so that edges are found by the index on their chain, however many there are.
      if exists (select 1 from jsonb_array_elements(s->'x') e
                 cross join lateral (select 1 from edge d where d.chain = e.value->>'chain' and d.state <> 'ended' limit 1) d
                 where e.value->>'k' = 'r') then
        ${lockFamiliesOnce}
        select count(*) into found_n from jsonb_array_elements(s->'x') e
          cross join lateral (select d.dependent from edge d where d.chain = e.value->>'chain' and d.state <> 'ended' offset 0) d
          cross join lateral (select 1 from job o where o.id = d.dependent offset 0) j
          where e.value->>'k' = 'r';
        begin -- all or none: two transactions that hold some each would wait for each other until they end
        select count(*) into got from jsonb_array_elements(s->'x') e
          cross join lateral (select d.dependent from edge d where d.chain = e.value->>'chain' and d.state <> 'ended' offset 0) d
          cross join lateral (select 1 from job o where o.id = d.dependent for update skip locked) j
          where e.value->>'k' = 'r';
        if got < found_n then
          why := 'busy'; over := s->'x'->0->>'id'; at_change := 0; raise exception using errcode = 'MR001';
        end if;
        exception when sqlstate 'MR001' then null;
        end;
      end if;
`

/** One release, in `x`. */
export const release = `
        -- An older snapshot does not show new dependents: the row that those have locked was not changed.
        if within and current_setting('transaction_isolation') <> 'read committed' then
          raise exception 'isolation %', current_setting('transaction_isolation') using errcode = 'MR003';
        end if;
        -- The dependents were locked before anything was written.
        if exists (select 1 from edge where chain = x->>'chain' and state <> 'ended') and not exists (
          select 1 from job o where o.chain = x->>'chain' and o.state in ${UNFINISHED}
          union all
          select 1 from job o where o.id = x->>'chain' and o.chain is null and o.state in ${UNFINISHED})
        then
          -- The result or error of the last job, unless the removal of that job is the end of the chain.
          select case when j.state = x->>'outcome' and j.state = 'completed' then j.result end,
              case when j.state = x->>'outcome' and j.state = 'failed' and j.error is not null then ${errorSummary} end into end_result, end_error
            from (select x->>'chain' as chain) c ${members} order by j.chain_index desc, j.seq desc limit 1;
          for e in select d.dependent, d.position, d.state from edge d cross join lateral (select o.seq from job o where o.id = d.dependent offset 0) o
                   where d.chain = x->>'chain' and d.state <> 'ended' and (d.state = 'open' or x->>'outcome' = 'completed') order by o.seq loop
            update edge set state = case x->>'outcome' when 'completed' then 'ended' else 'broken' end,
              result = end_result, error = end_error
              where dependent = e.dependent and position = e.position;
            continue when e.state = 'closed'; -- it was counted down when it was closed
            select * into j from job where id = e.dependent for update;
            a := j;
            if x->>'outcome' <> 'completed' then
              a.broken_at := t; -- in every state: a later retry checks it
              if j.state = 'waiting-children' then a.fence := a.fence + 1; end if;
            else
              a.pending := a.pending - 1;
              if e.state = 'broken' and not exists (select 1 from edge d where d.dependent = j.id and d.state = 'broken') then a.broken_at := null; end if;
              if j.state = 'waiting-children' and (e.state = 'broken' or a.pending = 0) then a.fence := a.fence + 1; end if;
              if j.state = 'waiting-children' and a.pending = 0 then
                a.state := case when a.run_at > t then 'delayed' else 'waiting' end;
                if a.state = 'waiting' then
                  a.run_at := null;
                  new_ord := case when a.grp is null then nextval('{S}.job_order') else (next_turns_{V}(a.queue, a.grp, a.priority))[1] end;
                  a.ord := case when j.ord < 0 then -1 - new_ord else new_ord end;
                end if;
              end if;
            end if;
            a.due_at := due_at_{V}(a);
            update job set (state, ord, fence, run_at, broken_at, due_at, pending, touched) =
              (a.state, a.ord, a.fence, a.run_at, a.broken_at, a.due_at, a.pending, true) where id = a.id;
            if a.state <> j.state then
              if a.kind = 'job' then
                c_of := c_of || a.lane || a.lane; c_what := c_what || j.state || a.state; c_n := c_n || -1 || 1;
              end if;
              if recording then ev := ev || state_event_{V}(a, t); end if;
              if a.state = 'waiting' and a.kind = 'job' then
                w_lane := w_lane || a.lane; w_p := w_p || a.priority; w_o := w_o || a.ord;
              end if;
            end if;
            if a.due_at is not null and a.state <> 'active' and (a.state <> j.state or a.due_at is distinct from j.due_at) then
              d_queue := d_queue || a.queue; d_at := d_at || a.due_at;
            end if;
          end loop;
        end if;
`

/**
 * Among the jobs in `end_ids` that have dependents, finds those whose completion only counts the dependents down (in
 * `releasing`): the job is a chain by itself, all its edges are open, and no other transaction holds its dependents. The
 * dependents have no group, because turns are given one by one. Locks these dependents (in `freeing`). The other jobs are
 * in `kept_back`.
 */
export const lockReleasable = `
            select coalesce(array_agg(y.id), '{}'), array_agg(e.dependent), array_agg(e.state = 'open') into e_ids, e_deps, e_open from unnest(end_ids) y(id)
              cross join lateral (select e.dependent, e.state from edge e where e.chain = y.id and e.state <> 'ended') e;
            if e_ids = '{}' then
              freeing := '{}'; kept_back := '{}'; releasing := '{}';
            else
              if not within and not in_turn then
                if jsonb_array_length(b->'s') > 1 then in_turn := {S}.lock_families_{V}(b);
                else
                  in_turn := true;
                  perform pg_advisory_xact_lock(y.k) from (select distinct ${familyOf('y.dependent')} as k from unnest(e_deps) y(dependent) order by 1 offset 0) y;
                end if;
              end if;
              -- Mostly, each job has one edge and is a chain by itself, and no other transaction holds its dependents.
              all_ok := false;
              if array_position(e_open, false) is null and (select count(distinct y.id) from unnest(e_ids) y(id)) = cardinality(e_ids)
                and not exists (select 1 from job o where o.chain = any (e_ids)) then
                select array_agg(z.dependent), bool_and(k.mine is not null) into freeing, all_ok from (select distinct y.dependent from unnest(e_deps) y(dependent)) z
                  left join lateral (select true as mine from job o where o.id = z.dependent and o.grp is null for update skip locked) k on true;
              end if;
              if all_ok then
                releasing := e_ids; kept_back := '{}';
              else
              with e as materialized (
                select y.id, y.dependent, y.open, count(*) over (partition by y.id) as edges from unnest(e_ids, e_deps, e_open) y(id, dependent, open)
              ), d as materialized (
                select z.* from (select e.dependent, array_agg(e.id) as ids, array_agg(e.edges) as edges from e where e.open group by 1) z
                cross join lateral (select 1 from job o where o.id = z.dependent and o.grp is null for update skip locked) k
              )
              select array(select d.dependent from d), array(select distinct e.id from e),
                array(select i.id from d cross join lateral unnest(d.ids, d.edges) i(id, edges) where not exists (select 1 from job o where o.chain = i.id)
                  group by 1 having count(*) = max(i.edges)) into freeing, kept_back, releasing;
              if cardinality(kept_back) = cardinality(releasing) then kept_back := '{}';
              elsif releasing <> '{}' then kept_back := array(select y.id from unnest(kept_back) y(id) where y.id <> all (releasing)); end if;
              end if;
            end if;
`

/**
 * Counts down the dependents of the jobs among `end_ids` that were just completed, in `ids_in`, and moves those on that
 * wait for nothing else. Dependents that were added meanwhile are not in `freeing`.
 */
export const releaseMany = `
            with ended as (
              update edge e set state = 'ended', result = i.result
              from unnest(end_ids, results) with ordinality i(id, result, n)
              where e.chain = i.id and e.state = 'open' and (got = cardinality(end_ids) or i.id = any (ids_in)) returning e.dependent, i.n
            ), met as (
              select ended.dependent, count(*)::int as n, max(ended.n) as last from ended group by 1
            ), on_ as materialized (
              select o.dependent, o.n, o.pending = o.n and o.state = 'waiting-children' as goes,
                case when o.pending = o.n and o.state = 'waiting-children' and (o.run_at is null or o.run_at <= t) then nextval('{S}.job_order') end as new_ord
              from (select met.*, o.* from met cross join lateral (select j.pending, j.state, j.run_at, j.seq from job j where j.id = met.dependent offset 0) o
                order by met.last, o.seq) o
            ), up as (
              update job j set pending = j.pending - on_.n, fence = j.fence + case when on_.goes then 1 else 0 end, touched = true,
                state = case when on_.new_ord is not null then 'waiting' when on_.goes then 'delayed' else j.state end,
                due_at = case when on_.goes then case when on_.new_ord is null then j.run_at end else j.due_at end,
                run_at = case when on_.new_ord is null then j.run_at end,
                ord = case when on_.new_ord is null then j.ord when j.ord < 0 then -1 - on_.new_ord else on_.new_ord end
              from on_ where j.id = on_.dependent
              returning j.lane, j.state, j.queue, j.due_at, j.priority, j.ord, on_.goes, case when recording and on_.goes then state_event_{V}(j, t) end as event_text
            )
            select array_agg(up.lane), array_agg(up.state), array_agg(up.queue), array_agg(up.due_at), array_agg(up.priority), array_agg(up.ord),
              string_agg(up.event_text, ${UNIT}), (select coalesce(bool_and(met.dependent = any (freeing)), true) from met)
              into a_lane, states_in, a_queue, a_lease, a_p, a_o, over, all_ok
              from up where up.goes;
            if not all_ok then raise exception using errcode = 'MR006'; end if;
            if a_lane is not null then
              ev := ev || string_to_array(over, ${UNIT});
              c_of := c_of || a_lane || a_lane; c_n := c_n || array_fill(-1, array[cardinality(a_lane)]) || array_fill(1, array[cardinality(a_lane)]);
              c_what := c_what || array_fill('waiting-children'::text, array[cardinality(a_lane)]) || states_in;
              for r in select y.* from unnest(a_lane, states_in, a_queue, a_lease, a_p, a_o) y(lane, state, queue, due, p, o) loop
                if r.state = 'waiting' then w_lane := w_lane || r.lane; w_p := w_p || r.p; w_o := w_o || r.o;
                else d_queue := d_queue || r.queue; d_at := d_at || r.due; end if;
              end loop;
            end if;
            a_lane := null; a_p := null; a_o := null; over := null;
`
