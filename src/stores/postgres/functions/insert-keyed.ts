// stores/postgres/functions/insert-keyed.ts: the part of a commit that adds many jobs with dedup keys in one statement.
import { conflictingJob } from './refusals.js'
import { loadTurns, withTurns } from './insert-many.js'

/** Whether a key is taken. */
const taken = '(k.until is null or k.until > t)'

/** Each job of the run, with its key. */
const keyedRows = `rows from (jsonb_array_elements_text(s->'id'), unnest(some_text), jsonb_array_elements_text(s->'d'), jsonb_array_elements_text(s->'dd'),
            jsonb_array_elements_text(s->'u'), jsonb_array_elements_text(coalesce(s->'ra', '[]')), jsonb_array_elements_text(coalesce(s->'ri', '[]')),
            jsonb_array_elements_text(coalesce(s->'g', '[]')))`

/** Inserts the jobs whose keys are free; jobs with groups get a turn as their order. */
function insertKeyed(shared: boolean): string {
  const chosen = `
        select y.id, y.data, y.dedup, nextval('{S}.job_order') as n, coalesce(y.ra::bigint, t + y.ri::bigint) as run_at${shared ? ', y.grp' : ''}
        from ${keyedRows} y(id, key, data, dedup, again, ra, ri, grp)
        where y.again = '0' and (cardinality(locked) = 0 or y.id <> all (locked)) and (cardinality(keyed) = 0 or y.key <> all (keyed))
          and not exists (select 1 from key k where k.key = y.key and ${taken})
          and (not s ? 'guard' or not exists (select 1 from job o where o.id = y.id))`
  const order = shared ? 'x.ord' : "case when (s->>'lifo')::boolean then -1 - x.n else x.n end"
  return `
      with ${shared ? `u as materialized (${chosen}), x as (${withTurns('u.data, u.dedup')})` : `x as (${chosen})`}, put as (
        insert into job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, settings, data, dedup, run_at, due_at${shared ? ', grp' : ''})
        select x.id, x.n, v_q, v_l, case when x.run_at is null then 'waiting' else 'delayed' end, v_p,
          ${order}, fence_from, (s->>'at')::bigint, t, s->>'s', x.data, x.dedup, x.run_at, x.run_at${shared ? ', x.grp' : ''}
        from x ${shared ? 'order by x.n' : ''} on conflict (id) do nothing
        returning id, ord, run_at, dedup, case when recording then state_event_{V}(job, t) end as entered
      ), took as (
        insert into key select put.dedup::json->>'key', put.id, t + (put.dedup::json->>'window')::bigint from put
          on conflict (key) do update set job = excluded.job, until = excluded.until
      )
      select count(*), array_agg(put.ord), array_agg(put.id), min(put.run_at), min(put.ord), array_agg(put.entered) filter (where recording)
        into got, ords, ids_in, first_at, last_o, event_texts from put;
`
}

/**
 * New jobs of one lane with a dedup key and no other special options, in `s`: a group each (`n`). Of several jobs with
 * the same key, the first is added, and the others (`u`) find the key taken. They are left in `loose` if the first was
 * not added. The id is checked before the key, and the first of them that is taken is the reason of the refusal.
 */
export const keyedJobs = `
      found_n := jsonb_array_length(s->'id');
      -- As in a run without keys: skip ids that another open transaction is adding, because the insert would wait for it.
      locked := '{}';
      if s ? 'guard' then
        select coalesce(array_agg(o.value), '{}') into locked from jsonb_array_elements_text(s->'id') o
          where not pg_try_advisory_xact_lock(hashtextextended('{S}:id:' || o.value, 0));
      end if;
      some_text := array(select o.value::json->>'key' from jsonb_array_elements_text(s->'dd') with ordinality o order by o.ordinality);
      keyed := array(select y.key from unnest(some_text) y(key) where not pg_try_advisory_xact_lock(hashtextextended('{S}:key:' || y.key, 0)));
      v_q := (s->>'q')::int; v_l := (s->>'l')::int; v_p := (s->>'p')::bigint;
      if s ? 'g' then
        ${loadTurns}
        ${insertKeyed(true)}
      else
        ${insertKeyed(false)}
      end if;
      if got > 0 then
        ev := ev || event_texts;
        c_of := c_of || v_l || v_q; c_n := c_n || got || got;
        c_what := c_what || case when first_at is null then 'waiting' else 'delayed' end || '+added'::text;
        if first_at is not null then d_queue := d_queue || v_q; d_at := d_at || first_at;
        else w_lane := w_lane || v_l; w_p := w_p || v_p; w_o := w_o || last_o; end if;
      end if;
      loose := '{}';
      if got = found_n then
        g_out := g_out || format('["i",%s,[%s],%s]', s->>'n', array_to_string(ords, ','), fence_from);
        g_short := g_short || format('["i",%s,[%s],%s]', s->>'n', array_to_string(ords, ','), fence_from);
      else
        for r in select y.id, y.at, y.position, (s->'n'->>(y.position::int - 1))::int as n, same.id as same, k.job,
                   case when y.id = any (locked) then 'busy' when same.id is not null then 'duplicate' when y.key = any (keyed) then 'busy'
                     when k.job is not null then 'duplicate' end as why
                 from (select z.id, z.key, z.position, array_position(ids_in, z.id) as at
                       from rows from (jsonb_array_elements_text(s->'id'), unnest(some_text)) with ordinality z(id, key, position)) y
                 left join lateral (select o.id from job o where o.id = y.id and y.at is null offset 0) same on true
                 left join lateral (select k.job from key k where k.key = y.key and y.at is null and ${taken} offset 0) k on true
                 order by y.position loop
          if r.at is not null then
            g_out := g_out || format('["i",[%s],[%s],%s]', r.n, ords[r.at], fence_from);
            g_short := g_short || format('["i",[%s],[%s],%s]', r.n, ords[r.at], fence_from);
          elsif r.why is null then
            loose := loose || (r.position::int - 1);
          else
            stands := null;
            if r.why = 'duplicate' then${conflictingJob('coalesce(r.same, r.job)')}
            end if;
            over := to_json(case when r.why = 'busy' or r.same is not null then r.id else r.job end);
            g_out := g_out || format('["x",%s,"%s",%s,%s]', r.n, r.why, over, coalesce(stands, 'null'));
            g_short := g_short || format('["x",%s,"%s",%s,%s]', r.n, r.why, over, case when stands is null then 'null' else '1' end);
          end if;
        end loop;
      end if;
`
