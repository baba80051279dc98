// stores/postgres/functions/adds/insert-job.ts: the general insert in SQL, which `add_job` needs because it runs without the library.
// It decides as engine/insert.ts does, over the same working set.
import { unfinishedStates } from '../../../../job/job.js'
import { writeSettings } from '../fast-parts.js'

const UNFINISHED = `'{${unfinishedStates.join(',')}}'`

/** The function belongs to a user transaction: it locks its working set, decides, and writes it by `commit`. */
export const insertJob = `
-- The event of the state that a job has entered.
create or replace function {S}.state_event_{V}(j jsonb, queue_name text, job_name text, t bigint) returns text language sql immutable as $$
  select json_strip_nulls(json_build_object('type', j->>'state', 'id', j->>'id', 'queue', queue_name, 'name', job_name, 'at', t,
    'runAt', case when j->>'state' = 'delayed' then (j->>'run_at')::bigint end))::text
$$;

-- Inserts a job. \`x\` holds its columns, and besides \`edges\` ([[id, policy], …]), \`lifo\`, \`run_in\`, and the \`key\`
-- and \`until_in\` of its dedup key. Returns null, or why it is refused, the id or key, and the record of the job that
-- has it: [why, over, record]; of a full group, the id of its oldest job instead.
create or replace function {S}.insert_job_{V}(x jsonb, queue_name text, job_name text) returns jsonb language plpgsql volatile
  ${writeSettings}
as $millrace$
#variable_conflict use_column
declare
  t bigint := floor(extract(epoch from clock_timestamp()) * 1000);
  loaded record;
  fixed jsonb;
  extra jsonb;
  bound jsonb := setting_{V}('limit:' || queue_name);
  pause jsonb := setting_{V}('pause:' || queue_name);
  j jsonb;
  e record;
  found_chain text;
  last jsonb;
  chains text[] := '{}';
  edges jsonb := '[]';
  pending int := 0;
  broken boolean := false;
  most numeric;
  number bigint;
  run_at bigint := coalesce((x->>'run_at')::bigint, t + (x->>'run_in')::bigint);
  expires_at bigint := coalesce((x->>'expires_at')::bigint, t + (x->>'expires_in')::bigint);
  state text := x->>'state';
begin
  loaded := load_{V}(jsonb_build_object('tx', true, 'ids', jsonb_build_array(x->'id'), 'queues', jsonb_build_array(jsonb_build_array(x->'queue')),
      'orders', 1, 'removals', 0, 'changes', 0)
    || case when x ? 'key' then jsonb_build_object('keys', jsonb_build_array(x->'key')) else '{}' end
    || case when x ? 'edges' then jsonb_build_object('dependencies', (select jsonb_agg(y.value->0) from jsonb_array_elements(x->'edges') y)) else '{}' end
    || case when x ? 'grp' then jsonb_build_object('groups', jsonb_build_array(jsonb_build_array(x->'queue', x->'grp', x->'priority'))) else '{}' end, true, t);
  fixed := loaded.fixed;
  extra := loaded.extra;

  -- The first of: its id, its dedup key, a missing dependency, a full queue.
  if fixed->'busy' ? ('id ' || (x->>'id')) then return jsonb_build_array('busy', x->'id'); end if;
  select jsonb_build_array('duplicate', x->'id', y.value->1) into j from jsonb_array_elements(fixed->'taken') y where y.value->>0 = x->>'id';
  if j is not null then return j; end if;
  if x ? 'key' then
    if fixed->'busy' ? ('key ' || (x->>'key')) then return jsonb_build_array('busy', x->'id'); end if;
    select jsonb_build_array('duplicate', k.value->1, (select y.value->1 from jsonb_array_elements(fixed->'taken') y where y.value->0 = k.value->1)) into j
      from jsonb_array_elements(fixed->'keys') k where k.value->>0 = x->>'key' and ((k.value->>2)::bigint > t or k.value->>2 is null);
    if j is not null then return j; end if;
  end if;
  for e in select y.value->>0 as job, y.value->>1 as policy from jsonb_array_elements(x->'edges') y loop
    select y.value into last from jsonb_array_elements(fixed->'reachable') y where y.value->>0 = e.job;
    if not found then return jsonb_build_array('missing', e.job); end if;
    found_chain := last->>1;
    continue when found_chain = any (chains);
    if fixed->'busy' ? ('chain ' || found_chain) then return jsonb_build_array('busy', x->'id'); end if;
    chains := chains || found_chain;
    edges := edges || (
      select jsonb_strip_nulls(jsonb_build_object('dependent', x->'id', 'position', cardinality(chains), 'chain', found_chain, 'policy', e.policy, 'name', l.name,
        'state', case when y.unfinished then 'open' when y.state = 'completed' then 'ended' else 'broken' end,
        'result', case when not y.unfinished and y.state = 'completed' then y.result end,
        'error', case when not y.unfinished and y.state = 'failed' and y.error is not null
          then json_strip_nulls(json_build_object('name', y.error::json->'name', 'message', y.error::json->'message', 'code', y.error::json->'code'))::text end))
      from (select z.value->>4 as state, z.value->>5 as result, z.value->>6 as error, bool_or(z.value->>4 = any (${UNFINISHED})) over () as unfinished
            from jsonb_array_elements(fixed->'ends') z where z.value->>0 = found_chain
            order by (z.value->>2)::int desc, (z.value->>3)::bigint desc limit 1) y,
        (select o.name from lane o where o.id = (last->>2)::int) l);
    if edges->-1->>'state' <> 'ended' then pending := pending + 1; end if;
    broken := broken or edges->-1->>'state' = 'broken';
  end loop;
  most := number_{V}(bound->'backlog');
  if most is not null then
    if fixed->'busy' ? ('backlog ' || queue_name) then return jsonb_build_array('busy', x->'id'); end if;
    if (select (y.value->>1)::numeric from jsonb_array_elements(fixed->'backlogs') y where y.value->>0 = queue_name) >= most then
      return jsonb_build_array('full', x->'id');
    end if;
  end if;
  most := case when x ? 'grp' then number_{V}(group_limit_{V}(bound, x->>'grp')->'backlog') end;
  if most is not null then
    if fixed->'busy' ? ('backlog ' || queue_name || chr(31) || (x->>'grp')) then return jsonb_build_array('busy', x->'id'); end if;
    select y.value into last from jsonb_array_elements(fixed->'groupBacklogs') y where y.value->>0 = queue_name and y.value->>1 = x->>'grp';
    if (last->>2)::numeric >= most then return jsonb_build_array('full', x->'id', last->3->0); end if;
  end if;

  if pending > 0 then state := 'waiting-children';
  elsif x ? 'edges' or state = 'waiting-children' then state := case when run_at > t then 'delayed' else 'waiting' end;
  end if;
  if state = 'waiting' then run_at := null; end if;
  number := (extra->'orders'->>0)::bigint;
  j := (x - array['edges', 'lifo', 'run_in', 'expires_in', 'key', 'until_in', 'tags']) || jsonb_build_object('state', state, 'run_at', run_at, 'seq', number,
    'ord', case when x ? 'grp' then case when state = 'waiting' then (next_turns_{V}((x->>'queue')::int, x->>'grp', (x->>'priority')::bigint, bound))[1] else 0 end
      when (x->>'lifo')::boolean then -1 - number else number end,
    'fence', extra->'fence', 'attempt', 0, 'pending', pending, 'stalls', 0, 'stale', false, 'ahead', false, 'touched', pending > 0 or expires_at is not null, 'created_at', t, 'expires_at', expires_at,
    'broken_at', case when broken then t end, 'due_at', least(case state when 'delayed' then run_at when 'waiting-children' then case when broken then t end end, expires_at));
  perform commit_{V}(jsonb_build_object('tx', true, 'at', t,
    'writes', jsonb_build_object('inserted', jsonb_build_array(j))
      || case when x ? 'tags' then jsonb_build_object('tagged', (select jsonb_agg(jsonb_build_object('queue', x->'queue', 'tag', g.value, 'seq', number, 'job', x->'id'))
          from jsonb_array_elements_text(x->'tags') g)) else '{}' end
      || case when edges <> '[]' then jsonb_build_object('newEdges', edges) else '{}' end
      || case when x ? 'key' then jsonb_build_object('taken', jsonb_build_array(jsonb_build_object('key', x->'key', 'job', x->'id', 'until', t + (x->>'until_in')::bigint))) else '{}' end,
    'counts', jsonb_build_array(jsonb_build_array(x->'lane', state, 1), jsonb_build_array(x->'queue', '+added', 1), jsonb_build_array(x->'lane', '*added', 1)),
    -- A concurrent claim has skipped the waiting jobs that were locked because this one is to wait for them.
    'work', (select coalesce(jsonb_agg(distinct y.name), '[]') from (
        select queue_name as name where state = 'waiting' and pause->'all' is distinct from 'true' and not coalesce(pause->'names' ? job_name, false)
        union all
        select q.name from jsonb_array_elements(extra->'shared') s join lane l on l.id = (s.value->>0)::int join queue q on q.id = l.queue) y),
    'orders', extra->'shared' || case when state = 'waiting' then jsonb_build_array(jsonb_build_array(x->'lane', x->'priority', j->'ord')) else '[]' end,
    'due', case when j->>'due_at' is null then '[]' else jsonb_build_array(jsonb_build_object('queue', queue_name, 'at', j->'due_at')) end,
    'events', 1, 'body', state_event_{V}(j, queue_name, job_name, t)));
  return null;
end $millrace$;
`
