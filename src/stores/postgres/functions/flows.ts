// stores/postgres/functions/flows.ts: the part of a commit that adds a whole flow in a few statements.
import { UNIT } from './fast-parts.js'

/**
 * The flow in `s`: new jobs without dedup keys that depend only on jobs of the same group. Sets `all_ok` to whether it was
 * added. If an id is taken, or a queue's backlog is bounded, the jobs have to be added one by one.
 */
export const addFlow = `
      all_ok := not exists (select 1 from (select distinct e.value->>'qn' as name from jsonb_array_elements(s->'x') e) y
        where (setting_{V}('limit:' || y.name))->>'backlog' is not null);
      if all_ok and s ? 'guard' then
        all_ok := not exists (select 1 from jsonb_array_elements(s->'x') e where not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || (e.value->>'id'), 0)))
          and not exists (select 1 from jsonb_array_elements(s->'x') e cross join lateral (select 1 from job o where o.id = e.value->>'id' offset 0) o);
      end if;
      if all_ok then
        begin
          with x as materialized (
            select y.*, nextval('{S}.job_order') as n, coalesce(jsonb_array_length(y.edges), 0) as waits, coalesce(y.ra, t + y.ri) as run_at
            from rows from (jsonb_to_recordset(s->'x') as (id text, q int, l int, state text, p bigint, lifo boolean, at bigint, s text, ra bigint, ri bigint,
              parent text, d text, edges jsonb)) y
          ), put as (
            insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data, run_at, due_at, parent, pending, touched)
            select x.id, x.n, x.q, x.l, x.state, x.p, case when x.lifo then -1 - x.n else x.n end, fence_from, x.at, t, x.s, x.d,
              x.run_at, case when x.waits = 0 then x.run_at end, x.parent, x.waits, x.waits > 0
            from x returning id, seq, queue, lane, state, priority, ord, due_at, pending, case when recording then state_event_{V}(job, t) end as event_text
          ), tied as (
            insert into edge (dependent, position, chain, policy, state, name)
            select x.id, e.ordinality, e.value->>0, e.value->>1, 'open', e.value->>2
            from x cross join lateral jsonb_array_elements(x.edges) with ordinality e where x.waits > 0
          )
          select string_agg(format('[%s,%s,"%s"]', put.ord, fence_from, repeat('o', put.pending)), ',' order by put.seq), string_agg(put.event_text, ${UNIT} order by put.seq),
            array_agg(put.lane), array_agg(put.state), array_agg(put.queue) filter (where put.due_at is not null), array_agg(put.due_at) filter (where put.due_at is not null),
            array_agg(put.lane) filter (where put.state = 'waiting'), array_agg(put.priority) filter (where put.state = 'waiting'), array_agg(put.ord) filter (where put.state = 'waiting')
            into over, stands, lanes_in, some_text, queues, ords, a_lane, a_p, a_o from put;
        exception when unique_violation then
          all_ok := false;
        end;
      end if;
      if all_ok then
        ev := ev || string_to_array(stands, ${UNIT});
        d_queue := d_queue || queues; d_at := d_at || ords; w_lane := w_lane || a_lane; w_p := w_p || a_p; w_o := w_o || a_o;
        for r in select y.lane, y.state, l.queue, count(*)::int as n from unnest(lanes_in, some_text) y(lane, state) join lane l on l.id = y.lane group by 1, 2, 3 loop
          c_of := c_of || r.lane || r.queue; c_what := c_what || r.state || '+added'::text; c_n := c_n || r.n || r.n;
        end loop;
        g_out := g_out || format('["g",%s,[%s]]', s->>'n', over);
        g_short := g_short || format('["g",%s,[%s]]', s->>'n', over);
        over := null;
      end if;
`
