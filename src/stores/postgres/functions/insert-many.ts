// stores/postgres/functions/insert-many.ts: the parts of a commit that write many similar groups in one statement: new
// jobs, and renewals.
import { TURN_STEP } from '../../../job/limits.js'
import { lastTurn, turnOf } from './groups.js'
import { manyEvents, UNIT } from './fast-parts.js'
import { conflictingJob, movedJob } from './refusals.js'

/** Leaves out jobs of a run that are known to exist. */
function skipExisting(conflict: string): string {
  if (conflict === '') return ''
  return `where (cardinality(locked) = 0 or y.id <> all (locked))
            -- An insert would also wait for a job that another open transaction is removing.
            and (not s ? 'guard' or not exists (select 1 from job o where o.id = y.id))`
}

/** Inserts the new jobs of a run; returns their number, orders and ids, and when the first is due. */
function insertRun(conflict: string): string {
  return `
        with x as (
          select y.id, y.data, nextval('{S}.job_order') as n, coalesce(y.ra::bigint, t + y.ri::bigint) as run_at
          from rows from (jsonb_array_elements_text(s->'id'), jsonb_array_elements_text(s->'d'),
            jsonb_array_elements_text(coalesce(s->'ra', '[]')), jsonb_array_elements_text(coalesce(s->'ri', '[]'))) as y(id, data, ra, ri)
          ${skipExisting(conflict)}
        ), put as (
          insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data, run_at, due_at)
          select x.id, x.n, v_q, v_l, case when x.run_at is null then 'waiting' else 'delayed' end, v_p,
            case when v_lifo then -1 - x.n else x.n end, fence_from, v_at, t, v_s, x.data, x.run_at, x.run_at
          from x ${conflict}
          returning id, ord, run_at, case when recording and run_at is not null then state_event_{V}(job, t) end as entered
        )
        select count(*), array_agg(put.ord), array_agg(put.id), min(put.run_at), min(put.ord), array_agg(put.entered) filter (where put.entered is not null)
          into got, ords, ids_in, first_at, last_o, event_texts from put;
  `
}

/**
 * The same for jobs with groups; `bound` holds the limit of their queue. The first job of each group gets a turn, and the
 * next ones follow it. Turns are computed after conflicting jobs are left out.
 */
function insertShared(conflict: string): string {
  return `
        with u as materialized (
          select y.id, y.data, y.grp, nextval('{S}.job_order') as n, coalesce(y.ra::bigint, t + y.ri::bigint) as run_at
          from rows from (jsonb_array_elements_text(s->'id'), jsonb_array_elements_text(s->'d'), jsonb_array_elements_text(s->'g'),
            jsonb_array_elements_text(coalesce(s->'ra', '[]')), jsonb_array_elements_text(coalesce(s->'ri', '[]'))) as y(id, data, grp, ra, ri)
          ${skipExisting(conflict)}
        ), x as (${withTurns('u.data')}), put as (
          insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data, run_at, due_at, grp)
          select x.id, x.n, v_q, v_l, case when x.run_at is null then 'waiting' else 'delayed' end, v_p,
            x.ord, fence_from, v_at, t, v_s, x.data, x.run_at, x.run_at, x.grp
          from x order by x.n ${conflict}
          returning id, ord, run_at, case when recording and run_at is not null then state_event_{V}(job, t) end as entered
        )
        select count(*), array_agg(put.ord), array_agg(put.id), min(put.run_at), min(put.ord), array_agg(put.entered) filter (where put.entered is not null)
          into got, ords, ids_in, first_at, last_o, event_texts from put;
  `
}

/**
 * Loads what the turns of a run depend on: weights, the lanes in which its groups wait, and the turn that the queue has
 * reached.
 */
export const loadTurns = `
        bound := setting_{V}('limit:' || (s->>'qn'));
        a_lane := array(select l.id from lane l where l.queue = v_q and l.shared);
        back := ${turnOf('v_q', 'v_p')};
`

function insertWithFallback(insert: (conflict: string) => string): string {
  return `
      if found_n < 8 or s ? 'guard' then
        ${insert('on conflict (id) do nothing')}
      else
        -- Checking for a conflict first costs half as much again as the insert; do that only after a conflict.
        begin
          ${insert('')}
        exception when unique_violation then
          ${insert('on conflict (id) do nothing')}
        end;
      end if;
  `
}

/** The jobs of `u` with their turns, if they begin to wait; as `next_turns` computes them. */
export function withTurns(more: string): string {
  return `
          select w.*, case when w.run_at is null then w.first[1] + (w.k - 1) * w.first[2] else 0 end as ord from (
            select v.*, first_value(case when v.k = 1 and v.run_at is null then case when bound ? 'groups' then next_turns_{V}(v_q, v.grp, v_p, bound)
                else array[greatest(back, ${lastTurn('a_lane', 'v', 'v_p')} + ${TURN_STEP}), ${TURN_STEP}] end end) over (partition by v.grp order by v.n) as first from (
              select u.id, u.grp, u.n, u.run_at, ${more}, row_number() over (partition by u.grp order by u.n) as k from u) v) w`
}

/**
 * New plain jobs of one lane, in `s`: a group each (`n`). If the queue's backlog is bounded, they are added one by one
 * instead.
 */
export const newJobs = `
      found_n := jsonb_array_length(s->'id');
      -- The insert would wait for an id that another open transaction is adding; ids that the library generated are unique.
      locked := '{}';
      if s ? 'guard' then
        select coalesce(array_agg(o.value), '{}') into locked from jsonb_array_elements_text(s->'id') o
          where not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || o.value, 0));
      end if;
      v_q := (s->>'q')::int; v_l := (s->>'l')::int; v_p := (s->>'p')::bigint; v_lifo := (s->>'lifo')::boolean;
      v_at := (s->>'at')::bigint; v_s := s->>'s';
      if s ? 'g' then
        ${loadTurns}
        ${insertWithFallback(insertShared)}
      else
        ${insertWithFallback(insertRun)}
      end if;
      if got > 0 then
        ev := ev || coalesce(event_texts, '{}');
        if recording and first_at is null then
          ev := ev || ${manyEvents('waiting', { at: 't', ids: `array_to_string(ids_in, ${UNIT})`, lanes: 'array[v_l]', lane: 'v_l' })};
          many_n := many_n + got - 1;
        end if;
        c_of := c_of || v_l || v_q; c_n := c_n || got || got;
        c_what := c_what || case when first_at is null then 'waiting' else 'delayed' end || '+added'::text;
        if first_at is not null then d_queue := d_queue || v_q; d_at := d_at || first_at;
        else w_lane := w_lane || v_l; w_p := w_p || v_p; w_o := w_o || last_o; end if;
      end if;
      if got = found_n then
        g_out := g_out || format('["i",%s,[%s],%s]', s->>'n', array_to_string(ords, ','), fence_from);
        g_short := g_short || format('["i",%s,[%s],%s]', s->>'n', array_to_string(ords, ','), fence_from);
      else
        for r in select o.value as id, (s->'n'->>(o.ordinality::int - 1))::int as n, array_position(ids_in, o.value) as at
                 from jsonb_array_elements_text(s->'id') with ordinality o loop
          if r.at is not null then
            g_out := g_out || format('["i",[%s],[%s],%s]', r.n, ords[r.at], fence_from);
            g_short := g_short || format('["i",[%s],[%s],%s]', r.n, ords[r.at], fence_from);
          else
            ${conflictingJob('r.id')}
            why := case when r.id = any (locked) or stands is null then 'busy' else 'duplicate' end;
            g_out := g_out || format('["x",%s,"%s",%s,%s]', r.n, why, to_json(r.id), case why when 'busy' then 'null' else stands end);
            g_short := g_short || format('["x",%s,"%s",%s,%s]', r.n, why, to_json(r.id), case why when 'busy' then 'null' else '1' end);
          end if;
        end loop;
      end if;
`

/** Renewals, in `b->'r'`: rounds of `[number, id, fence, lease, started]`; no job occurs twice in a round. */
export const renewals = `
  for s in select value from jsonb_array_elements(b->'r') loop
    with x as (
      select value->>1 as id, (value->>2)::bigint as fence, (value->>3)::bigint as lease, (value->>4)::boolean as started
      from jsonb_array_elements(s)
    ), gone as (
      delete from orphan o using x where x.lease = 0 and o.id = x.id and o.fence = x.fence returning o.id, o.lane
    ), mine as materialized (
      select j.ctid, x.lease, x.started
      from x cross join lateral (select o.ctid, o.state from job o where o.id = x.id and o.fence = x.fence for update skip locked) j
      where j.state = 'active' and not exists (select 1 from gone g where g.id = x.id)
    ), up as (
      update job j set lease_until = t + mine.lease, due_at = t + mine.lease, ahead = j.ahead and not mine.started
      from mine where j.ctid = mine.ctid returning j.id
    )
    select coalesce((select array_agg(id) from up), '{}') || coalesce((select array_agg(id) from gone), '{}'),
           coalesce((select array_agg(l.queue) from gone join lane l on l.id = gone.lane), '{}')
      into ids_in, queues;
    credited := credited || queues;
    if cardinality(ids_in) < jsonb_array_length(s) then
      for r in select (value->>0)::int as n, value->>1 as id, (value->>2)::bigint as fence from jsonb_array_elements(s)
               where value->>1 <> all (ids_in) loop
        select * into j from job o where o.id = r.id;
        why := case when not found then 'missing' when j.fence = r.fence and j.state = 'active' then 'busy' else 'fence' end;
        r_out := r_out || format('[%s,"%s",%s,%s]', r.n, why, to_json(r.id), case when why = 'fence' then (${movedJob})::text else 'null' end);
        r_short := r_short || format('[%s,"%s",%s,%s]', r.n, why, to_json(r.id), case when why = 'fence' then '1' else 'null' end);
      end loop;
    end if;
  end loop;
`
