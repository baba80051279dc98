// stores/postgres/functions/pages.ts: reads whose answers are bounded in bytes, and due jobs without payloads.
import { DEPENDENTS_LISTED } from '../../../store/store.js'
import { rowBytes } from './fast-parts.js'
import { clock, ofLane, readSettings, record } from './reads.js'

/** The sum of the entries before this one, in the given order; 0 for the first. */
const before = (of: string, order: string): string =>
  `coalesce(sum(${of}) over (order by ${order} rows between unbounded preceding and 1 preceding), 0)`

/** The record of a job, in the order of \`record\`, without its payload. */
const header = `json_build_array(j.id, j.lane, o.name, l.name, l.version, j.kind, j.state, j.priority, j.ord, j.fence, j.attempt,
    j.attempts, j.worker, j.run_at, j.lease_until, j.broken_at, j.stale_at, j.stale, j.delete_at, j.due_at, j.chain,
    j.chain_index, j.parent, j.pending, j.stalls, j.ahead, null, j.settings, j.dedup, null, null, null,
    null, j.created_at, j.started_at, j.finished_at, j.seq, j.grp, null, j.expires_at, null)`

/** An edge, with or without the outcome of its chain. */
const edge = (e: string, outcome: string): string =>
  `json_build_array(${e}.dependent, ${e}.chain, ${e}.policy, ${e}.state, ${e}.name, ${outcome}, ${e}.position)`

/** The entries of a list as JSON, their bytes, and the position of the last one if `fits` excludes some. */
const list = (name: string, entries: string, entry: string, bytes: string, fits = 'x.before < most'): string => `
      select coalesce(json_agg(y.entry order by y.position) filter (where y.fits), '[]'), coalesce(sum(y.bytes) filter (where y.fits), 0),
          case when bool_or(not y.fits) then max(y.position) filter (where y.fits) end
        into ${name}, spent, cut from (
          select x.position, ${entry} as entry, x.bytes, ${fits} as fits from (
            select g.*, ${bytes} as bytes, ${before(bytes, 'g.position')} as before, row_number() over (order by g.position) as n from (${entries}) g) x) y;
      total := total + spent;
      if cut is not null then more := more || jsonb_build_object('${name}', cut); end if;`

/** The edges of `i` after a position, and one more than requested. */
const edgesBehind = `select e.* from edge e where e.dependent = i.id and e.position > coalesce((asked->'edges'->>'after')::bigint, -1)
            order by e.position limit links + 1`

/** Functions that read a bounded number of bytes. */
export const pages = `
-- The first of some jobs, up to a number of bytes. Row by row, as in \`find\`: measuring a job reads its errors.
create or replace function {S}.get_many_{V}(ids jsonb, bytes bigint) returns text language plpgsql stable ${readSettings} as $$
declare
  wanted text;
  found text;
  records text[] := '{}';
  size bigint;
  total bigint := 0;
begin
  for wanted in select value from jsonb_array_elements_text(ids) with ordinality order by ordinality loop
    exit when total >= bytes;
    select ${record}, ${rowBytes('j')} into found, size from job j ${ofLane('j')} where j.id = wanted;
    records := records || coalesce(found, 'null');
    total := total + coalesce(size, 0);
  end loop;
  return '[' || array_to_string(records, ',') || ']';
end $$;

-- Due jobs of some queues, without payloads, and the time at which the next one is due.
create or replace function {S}.due_{V}(asked jsonb, clock bigint) returns text language plpgsql stable ${readSettings} as $$
declare
  t bigint := ${clock};
  most int := (asked->>'limit')::int;
  skip int := jsonb_array_length(asked->'except');
  answer text;
begin
  with q as (select q.id from queue q where asked->'queues' ? q.name),
  ripe as (
    select y.* from q cross join lateral (
      (select j.id, j.due_at, j.seq from job j where j.queue = q.id and j.due_at is not null and j.state <> 'active' and j.due_at <= t
       order by j.due_at limit most + 1 + skip)
      union all
      (select j.id, j.due_at, j.seq from job j where j.queue = q.id and j.state = 'active' and j.due_at <= t
       order by j.due_at limit most + 1 + skip)) y
    where not asked->'except' ? y.id order by y.due_at, y.seq limit most + 1
  ),
  next as (
    select min(y.due_at) as at from q cross join lateral (
      (select j.id, j.due_at from job j where j.queue = q.id and j.due_at is not null and j.state <> 'active' and j.due_at > t
       order by j.due_at limit 1 + skip)
      union all
      (select j.id, j.due_at from job j where j.queue = q.id and j.state = 'active' and j.due_at > t order by j.due_at limit 1 + skip)) y
    where not asked->'except' ? y.id
  )
  select json_build_object('now', t,
    'jobs', coalesce((select json_agg(${header} order by r.due_at, r.seq) from (select * from ripe order by due_at, seq limit most) r
                      join job j on j.id = r.id join lane l on l.id = j.lane join queue o on o.id = l.queue), '[]'),
    'next', coalesce((select r.due_at from ripe r order by r.due_at, r.seq offset most limit 1), (select at from next)))::text into answer;
  return answer;
end $$;

-- The details of jobs, up to a number of bytes.
create or replace function {S}.details_{V}(asked jsonb) returns text language plpgsql stable ${readSettings} as $$
declare
  parts jsonb := coalesce(asked->'parts', '["edges", "outcomes", "dependents", "logs", "steps", "related"]');
  most bigint := (asked->>'bytes')::bigint;
  links bigint := coalesce((asked->'edges'->>'limit')::bigint, ${2 ** 31});
  total bigint := 0; spent bigint; cut bigint; more jsonb;
  edges json; dependents json; cut_off boolean; logs json; steps json; related boolean;
  answers text[] := '{}'; cells text; under text[]; cells_cut boolean;
  i record;
begin
  for i in select a.value as id, j.id is not null as there, coalesce(j.chain, j.id) as chain, j.chain is not null as follows
      from jsonb_array_elements_text(coalesce(asked->'jobs', '[]')) with ordinality a
      left join lateral (select o.id, o.chain from job o where o.id = a.value) j on true order by a.ordinality loop
    exit when total >= most and cardinality(answers) > 0;
    edges := '[]'; dependents := '[]'; cut_off := false; logs := '[]'; steps := '[]'; related := false; more := '{}';
    if i.there and parts ? 'edges' and parts ? 'outcomes' then${list(
      'edges',
      edgesBehind,
      edge('x', 'x.result, x.error'),
      '200 + coalesce(octet_length(g.result), 0) + coalesce(octet_length(g.error), 0)',
      'x.before < most and x.n <= links',
    )}
    elsif i.there and parts ? 'edges' then${list('edges', edgesBehind, edge('x', 'null, null'), '200', 'x.n <= links')}
    end if;
    if i.there and parts ? 'dependents' then
      select coalesce(json_agg(y.entry order by y.seq) filter (where y.n <= ${DEPENDENTS_LISTED}), '[]'), count(*) * 200, count(*) > ${DEPENDENTS_LISTED} into dependents, spent, cut_off from (
        select ${edge('e', 'null, null')} as entry, o.seq, row_number() over (order by o.seq) as n
          from (select * from edge g where g.chain = i.chain limit ${DEPENDENTS_LISTED + 1}) e join job o on o.id = e.dependent) y;
      total := total + spent;
    end if;
    if i.there and parts ? 'logs' then${list(
      'logs',
      `select o.at, o.attempt, o.line, o.n as position from log o where o.job = i.id and o.n > coalesce((asked->'logs'->>'after')::bigint, 0)
            order by o.n limit (asked->'logs'->>'limit')::bigint`,
      'json_build_array(x.at, x.attempt, x.line, x.position)',
      '50 + octet_length(g.line)',
    )}
    end if;
    if i.there and parts ? 'steps' then${list(
      'steps',
      `select o.name, o.result, o.ran, o.at, o.n as position from step o where o.job = i.id and o.n > coalesce((asked->'steps'->>'after')::bigint, 0)`,
      'json_build_array(x.name, x.result, x.ran, x.at)',
      '50 + coalesce(octet_length(g.result), 0)',
    )}
    end if;
    if i.there and parts ? 'related' then
      related := exists (select 1 from job k where k.chain = i.chain and k.id <> i.id)
        or (i.follows and exists (select 1 from job k where k.id = i.chain))
        or exists (select 1 from job k where k.parent = i.id);
    end if;
    answers := answers || json_build_object('id', i.id, 'edges', edges, 'dependents', dependents, 'moreDependents', cut_off, 'logs', logs, 'steps', steps, 'related', related, 'more', more)::text;
  end loop;
  -- Keys in byte order, which does not depend on the locale of the database.
  select array_agg(y.key order by y.key collate "C") filter (where y.before < most), bool_or(y.before >= most) into under, cells_cut from (
    select c.key, ${before('50 + octet_length(c.key) + octet_length(c.value)', 'c.key collate "C"')} as before from cell c
    where asked ? 'under' and left(c.key, length(asked->>'under')) = asked->>'under' and c.key collate "C" > coalesce(asked->>'cellsAfter', '')) y;
  select coalesce(json_agg(json_build_array(c.key, c.value, c.version, c.at) order by c.key collate "C"), '[]')::text into cells from cell c
    where c.key in (select jsonb_array_elements_text(coalesce(asked->'cells', '[]'))) or c.key = any (under);
  return '{"jobs":[' || array_to_string(answers, ',') || '],"cells":' || cells
    || ',"moreCells":' || case when cells_cut then to_json(under[cardinality(under)])::text else 'null' end || '}';
end $$;
`
