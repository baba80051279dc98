// stores/postgres/functions/commits/write.ts: writes what the engine has made of a working set, each kind of row in one statement.
import { ERRORS_KEPT, LOGS_KEPT } from '../../../../job/job.js'
import { INSERTED, INSERTED_DEFAULTS, INSERTED_VALUES, MOVED_ASSIGNMENTS, UNPLACED } from '../job-columns.js'

/** The values that are not sent. */
const DEFAULTS = JSON.stringify(INSERTED_DEFAULTS)

/** The errors that are kept beside a new one. */
const EARLIER_ERRORS = ERRORS_KEPT - 1

/** Writes the changes of a batch; `writes.ts` makes them. All rows were locked when the working set was loaded. */
export const write = `
-- An order number: one that was decided without a working set is counted from \`base\`.
create or replace function {S}.place_{V}(n bigint, base bigint) returns bigint language sql immutable as $$
  select case when base is null then n when n >= ${UNPLACED} then n - ${UNPLACED} + base when n < -${UNPLACED} then n + ${UNPLACED} - base else n end
$$;

-- Columns that are equal in all new rows, or in all changed ones, are sent once: \`insertedAlike\`, \`changedAlike\`. A changed
-- row has the payload that it changes.
create or replace function {S}.write_{V}(w jsonb, t bigint, base bigint) returns void language plpgsql volatile as $millrace$
#variable_conflict use_column
begin
  if w ? 'untagged' then
    delete from tag g using jsonb_to_recordset(w->'untagged') x(queue int, tag text, job text), job j
      where j.id = x.job and g.queue = x.queue and g.tag = x.tag and g.seq = j.seq;
  end if;
  if w ? 'removed' then
    delete from job j using jsonb_array_elements_text(w->'removed') x(id) where j.id = x.id;
    delete from log l using jsonb_array_elements_text(w->'removed') x(id) where l.job = x.id;
    delete from step s using jsonb_array_elements_text(w->'removed') x(id) where s.job = x.id;
    delete from edge e using jsonb_array_elements_text(w->'removed') x(id) where e.dependent = x.id;
  end if;
  if w ? 'tagged' then
    insert into tag (queue, tag, seq, job) select x.queue, x.tag, place_{V}(x.seq, base), x.job from jsonb_populate_recordset(null::tag, w->'tagged') x;
  end if;
  if (w->>'fence')::bigint > (select last_value from fence) then
    -- Increments, never sets: a concurrent commit that removes jobs can only raise it further.
    while nextval('{S}.fence') < (w->>'fence')::bigint loop null; end loop;
  end if;
  if w ? 'inserted' then
    insert into job (${INSERTED})
      select ${INSERTED_VALUES}
      from jsonb_populate_recordset(jsonb_populate_record(null::job, '${DEFAULTS}' || coalesce(w->'insertedAlike', '{}')), w->'inserted') x;
  end if;
  if w ? 'changed' then
    update job j set
        ${MOVED_ASSIGNMENTS},
        claim = case when x.state = 'active' then j.claim end, touched = true,
        data = case when x.value ? 'data' then x.data else j.data end,
        memo = coalesce(x.memo, j.memo),
        progress = coalesce(x.progress, j.progress),
        result = case when x.value ? 'result' then x.result else j.result end,
        error = case when x.value ? 'error' then x.error else j.error end,
        -- The last failed attempts, and the new ones.
        errors = case when x.value ? 'failures' then (coalesce(j.errors, '{}') || array(select jsonb_array_elements_text(x.value->'failures')))
            [greatest(1, coalesce(cardinality(j.errors), 0) + jsonb_array_length(x.value->'failures') - ${EARLIER_ERRORS}):] else j.errors end
      from rows from (jsonb_populate_recordset(jsonb_populate_record(null::job, coalesce(w->'changedAlike', '{}')), w->'changed'), jsonb_array_elements(w->'changed')) x
      where j.id = x.id;
  end if;
  if w ? 'renewed' then
    update job j set lease_until = x.lease_until, due_at = x.lease_until, ahead = x.ahead
      from jsonb_to_recordset(w->'renewed') x(id text, lease_until bigint, ahead boolean) where j.id = x.id;
  end if;
  if w ? 'noted' then
    update job j set touched = true,
        data = case when x.payload ? 'data' then x.payload->>'data' else j.data end,
        memo = coalesce(x.payload->>'memo', j.memo),
        progress = coalesce(x.payload->>'progress', j.progress)
      from jsonb_to_recordset(w->'noted') x(id text, payload jsonb) where j.id = x.id;
  end if;
  if w ? 'logs' then
    insert into log (job, n, at, attempt, line)
      select x.job, coalesce((select max(o.n) from log o where o.job = x.job), 0) + l.n, t, (l.value->>0)::int, l.value->>1
      from jsonb_to_recordset(w->'logs') x(job text, lines jsonb) cross join lateral jsonb_array_elements(x.lines) with ordinality l(value, n);
    delete from log g using jsonb_to_recordset(w->'logs') x(job text)
      where g.job = x.job and g.n <= (select max(o.n) from log o where o.job = x.job) - ${LOGS_KEPT};
  end if;
  if w ? 'steps' then
    insert into step (job, name, n, result, ran, at)
      select x.job, s.value->>0, coalesce((select max(o.n) from step o where o.job = x.job), 0) + s.n, s.value->>1, (s.value->>2)::bigint, case when s.value->>2 is not null then t end
      from jsonb_to_recordset(w->'steps') x(job text, results jsonb) cross join lateral jsonb_array_elements(x.results) with ordinality s(value, n)
      on conflict (job, name) do update set result = excluded.result, ran = excluded.ran, at = excluded.at;
  end if;

  if w ? 'closed' then
    update edge e set state = 'closed' from jsonb_array_elements_text(w->'closed') x(id) where e.dependent = x.id and e.state = 'broken';
  end if;
  -- Dependents by the end of their chain, which many may have in common.
  if w ? 'edges' then
    update edge e set state = x.state, result = x.result, error = x.error
      from jsonb_to_recordset(w->'edges') x(state text, result text, error text, dependents jsonb)
        cross join lateral jsonb_array_elements(x.dependents) d
      where e.dependent = d.value->>0 and e.position = (d.value->>1)::int;
  end if;
  if w ? 'newEdges' then
    insert into edge (dependent, position, chain, policy, state, name, result, error) select x.dependent, x.position, x.chain, x.policy, x.state, x.name, x.result, x.error from jsonb_populate_recordset(null::edge, w->'newEdges') x;
  end if;

  if w ? 'freed' then
    delete from key k using jsonb_to_recordset(w->'freed') x(key text, job text) where k.key = x.key and k.job = x.job and k.until is null;
  end if;
  if w ? 'taken' then
    insert into key (key, job, until) select x.key, x.job, x.until from jsonb_populate_recordset(null::key, w->'taken') x
      on conflict (key) do update set job = excluded.job, until = excluded.until;
  end if;
  if w ? 'orphansEnded' then
    delete from orphan o using jsonb_to_recordset(w->'orphansEnded') x(id text, fence bigint) where o.id = x.id and o.fence = x.fence;
  end if;
  if w ? 'orphans' then
    insert into orphan (id, fence, lane, until, grp, worker) select x.id, x.fence, x.lane, x.until, x.grp, x.worker from jsonb_populate_recordset(null::orphan, w->'orphans') x
      on conflict (id, fence) do update set lane = excluded.lane, until = excluded.until, grp = excluded.grp, worker = excluded.worker;
  end if;
  if w ? 'cellsDropped' then
    delete from cell c using jsonb_array_elements_text(w->'cellsDropped') x(key) where c.key = x.key;
  end if;
  if w ? 'cells' then
    insert into cell (key, value, version, at) select x.key, x.value, x.version, x.at from jsonb_populate_recordset(null::cell, w->'cells') x
      on conflict (key) do update set value = excluded.value, version = excluded.version, at = excluded.at;
  end if;
end $millrace$;
`
