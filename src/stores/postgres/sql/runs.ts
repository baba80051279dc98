// stores/postgres/sql/runs.ts: the parts of a commit that write many groups alike in one statement: new jobs, and plain ends.
import { UNIT } from './quick.js'

/** Writes the new jobs of a run; answers how many, their places and ids, and when the first is due. */
function insertRun(conflict: string): string {
  return `
        with x as (
          select y.id, y.data, nextval('{S}.place') as n, coalesce(y.ra::bigint, t + y.ri::bigint) as run_at
          from rows from (jsonb_array_elements_text(s->'id'), jsonb_array_elements_text(s->'d'),
            jsonb_array_elements_text(coalesce(s->'ra', '[]')), jsonb_array_elements_text(coalesce(s->'ri', '[]'))) as y(id, data, ra, ri)
          ${
            conflict === ''
              ? ''
              : `where (cardinality(locked) = 0 or y.id <> all (locked))
            -- One that somebody's open transaction is removing would be waited for, too.
            and (not s ? 'guard' or not exists (select 1 from job o where o.id = y.id))`
          }
        ), put as (
          insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data, run_at, due_at)
          select x.id, x.n, v_q, v_l, case when x.run_at is null then 'waiting' else 'delayed' end, v_p,
            case when v_lifo then -1 - x.n else x.n end, fence_from, v_at, t, v_s, x.data, x.run_at, x.run_at
          from x ${conflict}
          returning id, ord, run_at, case when recording then v1_entered(job, t) end as entered
        )
        select count(*), array_agg(put.ord), array_agg(put.id), min(put.run_at), min(put.ord), array_agg(put.entered) filter (where recording)
          into got, ords, ids_in, first_at, last_o, told from put;
  `
}

/**
 * New jobs of one lane with nothing special about them, in `s`: a group each (`n`). Where the queue's backlog is
 * bounded they are left to be added one by one.
 */
export const newJobs = `
      found_n := jsonb_array_length(s->'id');
      -- An id that somebody's open transaction is adding would be waited for; minted ones are nobody else's.
      locked := '{}';
      if s ? 'guard' then
        select coalesce(array_agg(o.value), '{}') into locked from jsonb_array_elements_text(s->'id') o
          where not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || o.value, 0));
      end if;
      v_q := (s->>'q')::int; v_l := (s->>'l')::int; v_p := (s->>'p')::bigint; v_lifo := (s->>'lifo')::boolean;
      v_at := (s->>'at')::bigint; v_s := s->>'s';
      if found_n < 8 or s ? 'guard' then
        ${insertRun('on conflict (id) do nothing')}
      else
        -- Looking for a conflict first costs half as much again as the insert; it is done where there was one.
        begin
          ${insertRun('')}
        exception when unique_violation then
          ${insertRun('on conflict (id) do nothing')}
        end;
      end if;
      if got > 0 then
        ev := ev || coalesce(told, '{}');
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
            select v1_record(o)::text into stands from job o where o.id = r.id;
            why := case when r.id = any (locked) or stands is null then 'busy' else 'duplicate' end;
            g_out := g_out || format('["x",%s,"%s",%s,%s]', r.n, why, to_json(r.id), case why when 'busy' then 'null' else stands end);
            g_short := g_short || format('["x",%s,"%s",%s,%s]', r.n, why, to_json(r.id), case why when 'busy' then 'null' else '1' end);
          end if;
        end loop;
      end if;
`

/** What becomes of a job that is completed. */
const completed = `state = 'completed', fence = j.fence + 1, lease_until = null, due_at = null, ahead = false, claim = null,
            finished_at = t, touched = true`

/** Whether a job is held, and nothing has to follow but its end. */
const plain = "j.lease_until > t and j.dedup is null and j.chain is null and j.kind = 'job'"

/** Each with its fence and its result. */
const each = `select y.id, coalesce(y.fence, s->>'f')::bigint as fence, y.result from unnest(end_ids, fences, results) y(id, fence, result)
          where cardinality(locked) = 0 or y.id <> all (locked)`

/** Writes ends; answers how many, which, from which lanes, and what there is to tell. */
function end(update: string): string {
  return `
          with up as (
            ${update}
            returning j.id, j.lane, case when recording then v1_entered(j, t) end as entered
          )
          select count(*), array_agg(up.id), array_agg(up.lane), array_agg(up.entered) filter (where recording)
            into got, ids_in, lanes_in, told from up;
  `
}

/**
 * Jobs that their holders have completed, with or without a result, in `s`: a group each. Ids and results come as one text,
 * and a fence that is the same for all as a number. Answers in `loose` the places of those that have to be asked one by
 * one: refused, with a dedup key, or waited for.
 */
export const completions = `
      loose := '{}';
      locked := '{}';
      if jsonb_typeof(s->'id') = 'string' then
        end_ids := string_to_array(s->>'id', ${UNIT});
        fences := case when jsonb_typeof(s->'f') = 'number' then '{}' else string_to_array(s->>'f', ',') end;
        results := coalesce(string_to_array(s->>'r', ${UNIT}, ''), '{}');
      else -- as version 1 sends them
        end_ids := array(select jsonb_array_elements_text(s->'id'));
        fences := array(select jsonb_array_elements_text(s->'f'));
        results := array(select jsonb_array_elements_text(s->'r'));
      end if;
      if exists (select 1 from edge e where e.state = 'open') then
        select coalesce(array_agg(y.id), '{}') into locked from unnest(end_ids) y(id)
          cross join lateral (select 1 from edge e where e.chain = y.id and e.state = 'open' limit 1) z;
      end if;
      begin
        -- Nobody holds these rows in almost all cases: they are written at once, and whoever does is not waited for.
        perform set_config('lock_timeout', '1ms', true);
        if fences = '{}' and results = '{}' and locked = '{}' then
          ${end(`update job j set ${completed} where j.id = any (end_ids) and j.fence = (s->>'f')::bigint and ${plain}`)}
        else
          ${end(`update job j set ${completed}, result = x.result from (${each}) x where j.id = x.id and j.fence = x.fence and ${plain}`)}
        end if;
        -- Whoever adds a dependent locks what it waits for: by now that is either done, and seen here, or told to try again.
        if got > 0 and exists (select 1 from edge e where e.state = 'open') and exists (select 1 from unnest(ids_in) y(id)
          cross join lateral (select 1 from edge e where e.chain = y.id and e.state = 'open' limit 1) z)
        then
          raise exception using errcode = 'MR006';
        end if;
      exception when lock_not_available or deadlock_detected or sqlstate 'MR006' then
        select coalesce(array_agg(y.id), '{}') into ids_in from unnest(end_ids) y(id)
          cross join lateral (select 1 from job o where o.id = y.id for update skip locked) z;
        select coalesce(array_agg(y.id), '{}') into locked from unnest(end_ids) y(id)
          left join lateral (select true as open from edge e where e.chain = y.id and e.state = 'open' limit 1) z on true
          where z.open or y.id <> all (ids_in);
        with mine as materialized (
          select j.ctid, x.result from (${each}) x cross join lateral (
            select o.ctid, o.fence, o.lease_until, o.dedup, o.chain, o.kind from job o where o.id = x.id for update skip locked) j
          where j.fence = x.fence and ${plain}
        )
        ${end(`update job j set ${completed}, result = x.result from mine x where j.ctid = x.ctid`).replace('with up', ', up')}
      end;
      perform set_config('lock_timeout', '5s', true);
      if got > 0 then
        ev := ev || coalesce(told, '{}');
        for r in select y.lane, l.queue, y.n from (select z.lane, count(*)::int as n from unnest(lanes_in) z(lane) group by 1) y join lane l on l.id = y.lane loop
          credited := credited || r.queue;
          c_of := c_of || r.lane || r.lane || r.queue;
          c_what := c_what || 'active'::text || 'completed'::text || '+completed'::text;
          c_n := c_n || -r.n || r.n || r.n;
        end loop;
      end if;
      if got < cardinality(end_ids) then
        select coalesce(array_agg(o.n::int - 1), '{}') into loose from unnest(end_ids) with ordinality o(id, n) where got = 0 or o.id <> all (ids_in);
      end if;
`

/** Renewals, in `b->'r'`: rounds of `[number, id, fence, lease, started]` in which every job is there once. */
export const renewals = `
  for s in select value from jsonb_array_elements(b->'r') loop
    with x as (
      select value->>1 as id, (value->>2)::bigint as fence, (value->>3)::bigint as lease, (value->>4)::boolean as started
      from jsonb_array_elements(s)
    ), gone as (
      delete from orphan o using x where x.lease = 0 and o.id = x.id and o.fence = x.fence returning o.id, o.lane
    ), mine as materialized (
      select j.ctid, x.lease, x.started
      from x cross join lateral (select o.ctid, o.fence, o.state from job o where o.id = x.id for update skip locked) j
      where j.fence = x.fence and j.state = 'active' and not exists (select 1 from gone g where g.id = x.id)
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
        r_out := r_out || format('[%s,"%s",%s,%s]', r.n, why, to_json(r.id), case when why = 'fence' then v1_record(j)::text else 'null' end);
        r_short := r_short || format('[%s,"%s",%s,%s]', r.n, why, to_json(r.id), case when why = 'fence' then '1' else 'null' end);
      end loop;
    end if;
  end loop;
`
