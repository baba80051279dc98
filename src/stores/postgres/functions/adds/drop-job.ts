// stores/postgres/functions/adds/drop-job.ts: the function that cancels the oldest job of a group for `add_job`, as `drop` in
// job/lifecycle.ts does.
import { unfinishedStates } from '../../../../job/job.js'
import { droppedFrom } from '../../../../job/lifecycle.js'
import { backlogStates } from '../../../../job/limits.js'
import { writeSettings } from '../fast-parts.js'

const UNFINISHED = `'{${unfinishedStates.join(',')}}'`
const BACKLOG = `'{${backlogStates.join(',')}}'`

/** The error of a dropped job, a template for `format` with its group. */
const DROPPED = JSON.stringify(droppedFrom('%s')).replaceAll("'", "''")

/** It belongs to a user transaction: it locks its working set, decides, and writes it by `commit`. */
export const dropJob = `
-- Cancels a job that has not started, to make room in its group for a newer one. Returns \`dropped\`; \`busy\`, if another
-- transaction holds it or what depends on it; \`moved\`, if it is no longer there to be dropped; or \`unsuitable\`: only the
-- library delivers to webhooks, and removes jobs that are not kept.
create or replace function {S}.drop_job_{V}(of_job text) returns text language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_column
declare
  t bigint := floor(extract(epoch from clock_timestamp()) * 1000);
  j job;
  settings jsonb;
  keep jsonb;
  loaded record;
  fixed jsonb;
  error text;
  names record;
  is_last boolean;
  changed jsonb;
  edges jsonb;
begin
  select * into j from job o where o.id = of_job and o.state = any (${BACKLOG}) for update skip locked;
  if not found then return case when exists (select 1 from job o where o.id = of_job and o.state = any (${BACKLOG})) then 'busy' else 'moved' end; end if;
  settings := coalesce(j.settings::jsonb, '{}');
  keep := coalesce(settings->'keep'->'cancelled', '{}');
  if settings->'extras'->'webhook'->'on' ? 'cancelled' or (keep->'deleteAfter' = '0' and not keep ? 'byQueue') then return 'unsuitable'; end if;
  loaded := load_{V}(jsonb_build_object('tx', true, 'rows', jsonb_build_array(jsonb_build_array(j.id, jsonb_build_array(j.fence), null, 0)),
    'releases', jsonb_build_array(coalesce(j.chain, j.id)), 'orders', 0, 'removals', 0, 'changes', 0), true, t);
  fixed := loaded.fixed;
  if fixed->'busy' <> '[]' then return 'busy'; end if;
  select q.name as queue, l.name as job into names from lane l join queue q on q.id = l.queue where l.id = j.lane;
  error := format('${DROPPED}', substr(to_json(j.grp)::text, 2, length(to_json(j.grp)::text) - 2));
  changed := jsonb_build_array(to_jsonb(j) || jsonb_build_object('state', 'cancelled', 'fence', j.fence + 1, 'finished_at', t,
    'pending', j.pending - case when j.broken_at is null then 0 else (select count(*) from edge d where d.dependent = j.id and d.state = 'broken') end, 'broken_at', null,
    'stale_at', t + (keep->>'staleAfter')::bigint, 'delete_at', t + (keep->>'deleteAfter')::bigint,
    'due_at', least(t + (keep->>'staleAfter')::bigint, t + (keep->>'deleteAfter')::bigint),
    'error', error, 'failures', jsonb_build_array(format('{"fence":%s,"attempt":%s,"at":%s,%s', j.fence, j.attempt, t, substr(error, 2)))));
  -- Its dependents are marked as broken, and due: upkeep decides by the policies of their edges.
  is_last := not exists (select 1 from jsonb_array_elements(fixed->'ends') y where y.value->>4 = any (${UNFINISHED}) and y.value->>1 <> j.id);
  select jsonb_agg(jsonb_build_array(y.value->1, y.value->2)) into edges
    from jsonb_array_elements(fixed->'edges') y where y.value->>3 = 'open' and is_last;
  select changed || coalesce(jsonb_agg(to_jsonb(o) || jsonb_build_object('broken_at', t)
      || case when o.state = 'waiting-children' then jsonb_build_object('fence', o.fence + 1, 'due_at', least(t, case when o.attempt = 0 then o.expires_at end)) else '{}' end), '[]') into changed
    from (select distinct y->>0 as id from jsonb_array_elements(edges) y) d cross join lateral (select * from job n where n.id = d.id offset 0) o;
  perform commit_{V}(jsonb_build_object('tx', true, 'at', t,
    'writes', jsonb_build_object('changed', changed)
      || case when j.broken_at is null then '{}' else jsonb_build_object('closed', jsonb_build_array(j.id)) end
      || case when edges is null then '{}' else jsonb_build_object('edges', jsonb_build_array(jsonb_build_object('state', 'broken', 'dependents', edges))) end
      || case when j.dedup is null then '{}' else jsonb_build_object('freed', jsonb_build_array(jsonb_build_object('key', j.dedup::json->>'key', 'job', j.id))) end,
    'counts', jsonb_build_array(jsonb_build_array(j.lane, j.state, -1), jsonb_build_array(j.lane, 'cancelled', 1), jsonb_build_array(j.queue, '+cancelled', 1),
      jsonb_build_array(j.lane, '*cancelled', 1)),
    'due', (select coalesce(jsonb_agg(jsonb_build_object('queue', q.name, 'at', (y.value->>'due_at')::bigint)), '[]')
      from jsonb_array_elements(changed) y join queue q on q.id = (y.value->>'queue')::int where y.value->>'due_at' is not null),
    'events', 1, 'body', state_event_{V}(changed->0, names.queue, names.job, t)));
  return 'dropped';
end $millrace$;
`
