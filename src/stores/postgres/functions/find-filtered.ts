// stores/postgres/functions/find-filtered.ts: pages of filtered queries: from the narrowest index that holds all matches, at most
// so many rows a page.
import { endStates, FAILURES_COUNTED, FAILURES_EACH, ROWS_LOOKED } from '../../../store/read-pages.js'
import { rowBytes } from './fast-parts.js'
import { readSettings } from './reads.js'

/** Jobs that begin with a text are read by their ids if they are no more than this. */
const FEW_IDS = 1_000

/** More jobs of a tag than this are not counted to find the rarest. */
const MANY_TAGGED = 1_000

/** The most lists in which the first job added from a time on is looked up. */
const MOST_SEARCHED = 3

const ENDED = `('${endStates.join("', '")}')`

/** A text inside a text of SQL. */
const quoted = (text: string): string => text.replaceAll("'", "''")

const FAILING = `j.error is not null and j.state <> ''completed''`

/** The condition of a field, if the query has it. */
const when = (field: string, condition: string): string =>
  `if asked ? '${field}' then fits := fits || ' and ${quoted(condition)}'; end if;`

const range = (field: string, column: string): string => `
  if asked ? '${field}' then
    fits := fits || ' and ${column} is not null';
    if asked->'${field}' ? 'from' then fits := fits || ' and ${column} >= ' || (asked->'${field}'->>'from')::bigint; end if;
    if asked->'${field}' ? 'to' then fits := fits || ' and ${column} < ' || (asked->'${field}'->>'to')::bigint; end if;
  end if;`

/** Whether a row has a tag. */
const TAGGED = `(select 1 from tag o where o.queue = j.queue and o.tag = g.tag and o.seq = j.seq offset 0)`

/** The queues of a query. */
const OF_QUEUE = `(not $1 ? ''queue'' or p.name = $1->>''queue'')`

export const findFiltered = `
-- The order number from which on, in one list, jobs were added at a time or later, as far as that list shows: null without
-- such a job. Jobs are added in the order of their numbers.
create or replace function {S}.added_from_{V}(of_lane int, of_state text, t bigint) returns bigint language plpgsql stable as $$
declare
  low bigint := (select j.seq from job j where j.lane = of_lane and j.state = of_state and j.state <> 'active' order by j.seq limit 1);
  high bigint := (select j.seq from job j where j.lane = of_lane and j.state = of_state and j.state <> 'active' order by j.seq desc limit 1) + 1;
  last bigint := high;
  middle bigint;
  found record;
begin
  while low < high loop
    middle := low + (high - low) / 2;
    select j.seq, j.created_at into found from job j where j.lane = of_lane and j.state = of_state and j.state <> 'active' and j.seq >= middle order by j.seq limit 1;
    if found.created_at >= t then high := middle; else low := found.seq + 1; end if;
  end loop;
  return case when low < last then low end;
end $$;

-- The order numbers between which the jobs of a query were added: from the first, to the one before the last.
create or replace function {S}.added_within_{V}(asked jsonb) returns bigint[] language plpgsql stable as $$
declare
  from_seq bigint := -1;
  to_seq bigint := 9223372036854775807;
  e record;
  found bigint;
begin
  if asked->'added' <> '{}' then
    for e in select l.id, s.state from lane l cross join unnest(array['completed', 'waiting', 'failed', 'delayed']) with ordinality s(state, n)
          cross join lateral (select 1 from job j where j.lane = l.id and j.state = s.state and j.state <> 'active' limit 1) y
        where not asked ? 'queue' or l.queue in (select q.id from queue q where q.name = asked->>'queue')
        order by s.n, l.id limit ${MOST_SEARCHED} loop
      if asked->'added' ? 'from' then
        found := added_from_{V}(e.id, e.state, (asked->'added'->>'from')::bigint);
        -- Every job before the first one added from then on was added before, whatever its list.
        if found is null then
          found := (select j.seq + 1 from job j where j.lane = e.id and j.state = e.state and j.state <> 'active' order by j.seq desc limit 1);
        else
          found := coalesce((select j.seq + 1 from job j where j.lane = e.id and j.state = e.state and j.state <> 'active' and j.seq < found order by j.seq desc limit 1), -1);
        end if;
        from_seq := greatest(from_seq, found);
      end if;
      if asked->'added' ? 'to' then
        found := added_from_{V}(e.id, e.state, (asked->'added'->>'to')::bigint);
        if found is not null then
          found := (select j.seq from job j where j.lane = e.id and j.state = e.state and j.state <> 'active' and j.seq >= found order by j.seq limit 1);
        end if;
        to_seq := least(to_seq, found);
      end if;
    end loop;
  end if;
  return array[from_seq, to_seq];
end $$;

-- The condition on each row \`j\` of a filtered query \`$1\`.
create or replace function {S}.filter_condition_{V}(asked jsonb, source text) returns text language plpgsql immutable as $$
declare
  fits text := 'true';
begin
  ${when('queue', `j.queue in (select q.id from queue q where q.name = $1->>'queue')`)}
  ${when('states', `$1->'states' ? j.state`)}
  ${when('names', `exists (select 1 from lane l where l.id = j.lane and $1->'names' ? l.name)`)}
  ${when('chain', `coalesce(j.chain, j.id) = $1->>'chain'`)}
  ${when('parent', `j.parent = $1->>'parent'`)}
  ${when('group', `j.grp = $1->>'group'`)}
  ${when('kind', `j.kind = $1->>'kind'`)}
  ${when('worker', `(j.worker = $1->>'worker' or left(j.worker, -36) = ($1->>'worker') || ':')`)}
  ${when('idPrefix', `j.id >= $1->>'idPrefix' and j.id < $1->>'idEnd'`)}
  -- Each tag is looked up by itself: joined, the planner may go through all tags of a queue for a row.
  if asked ? 'tags' and not (source = 'tags' and jsonb_array_length(asked->'tags') = 1) then
    fits := fits || ' and (select count(*) from jsonb_array_elements_text($1->''tags'') g(tag) cross join lateral ${quoted(TAGGED)} y) = jsonb_array_length($1->''tags'')';
  end if;
  if asked ? 'anyTag' and source <> 'anyTag' then
    fits := fits || ' and exists (select 1 from jsonb_array_elements_text($1->''anyTag'') g(tag) cross join lateral ${quoted(TAGGED)} y)';
  end if;
  if asked->>'order' = 'finished' then fits := fits || ' and j.state in ${quoted(ENDED)}'; end if;${range('created', 'j.created_at')}${range('started', 'j.started_at')}${range('finished', 'j.finished_at')}
  -- Last, because they read the error; the index of one of them holds no others.
  if asked ? 'errorCode' and source <> 'errorCode' then fits := fits || ' and ${FAILING} and j.error::json->>''code'' = $1->>''errorCode'''; end if;
  if asked ? 'fingerprint' and source <> 'fingerprint' then fits := fits || ' and ${FAILING} and j.error::json->>''fingerprint'' = $1->>''fingerprint'''; end if;
  return fits;
end $$;

-- The lists of rows that together hold all matches of a filtered query: after $2 and as many as $3 of each, as (tid, key,
-- fits, n); and about how many lists there are.
create or replace function {S}.filtered_lists_{V}(asked jsonb, bounds bigint[], out lists text, out many int) language plpgsql stable as $$
declare
  ended boolean := coalesce(asked->>'order', 'oldest') = 'finished';
  up boolean := coalesce(asked->>'order', 'oldest') = 'oldest';
  direction text := case when up then 'asc' else 'desc' end;
  few int := case when asked ? 'idPrefix' and not ended then
    (select count(*) from (select 1 from job o where o.id >= asked->>'idPrefix' and o.id < asked->>'idEnd' limit ${FEW_IDS + 1}) y) end;
  source text := case when ended then 'ended' when asked ? 'chain' then 'chain' when asked ? 'parent' then 'parent' when few <= ${FEW_IDS} then 'ids'
    when asked ? 'fingerprint' then 'fingerprint' when asked ? 'errorCode' then 'errorCode' when asked ? 'tags' then 'tags' when asked ? 'anyTag' then 'anyTag'
    when asked ? 'group' then 'group' else 'lanes' end;
  fits text := filter_condition_{V}(asked, source);
  -- A row of a list: with the source, the condition of the index, and the column of the order of insertion.
  list text := format('select j.ctid as tid, array[0, %%3$s] as key, coalesce(%1$s, false) as fits, row_number() over (order by %%3$s %2$s) as n from %%1$s where %%2$s and %%3$s %3$s order by %%3$s %2$s limit $3',
    replace(fits, '%', '%%'), direction,
    case when up then format('> $2[2] and %%3$s < %s', bounds[2]) else format('< $2[2] and %%3$s >= %s', bounds[1]) end);
  rare text;
begin
  many := case source when 'lanes' then (select count(*) from lane l where (not asked ? 'names' or asked->'names' ? l.name)
      and (not asked ? 'queue' or l.queue in (select q.id from queue q where q.name = asked->>'queue')))
      * case when asked ? 'states' then jsonb_array_length(asked->'states') else 6 end
    else (select count(*) from queue q where not asked ? 'queue' or q.name = asked->>'queue')
      * case source when 'group' then 7 when 'anyTag' then jsonb_array_length(asked->'anyTag') else 1 end end;
  case source
    when 'ended' then
      list := format('select j.ctid as tid, array[j.finished_at, j.seq] as key, coalesce(%s, false) as fits, row_number() over (order by j.finished_at desc, j.seq desc) as n '
        'from job j where j.queue = p.id and j.state in ${quoted(ENDED)} and (j.finished_at, j.seq) < ($2[1], $2[2]) and j.finished_at >= %s and j.finished_at < %s '
        'order by j.finished_at desc, j.seq desc limit $3', fits,
        coalesce((asked->'finished'->>'from')::bigint, -1), coalesce((asked->'finished'->>'to')::bigint, 9223372036854775807));
      lists := format('select y.* from queue p cross join lateral (%s) y where ${OF_QUEUE}', list);
    when 'chain' then
      lists := format('(%s) union all (%s)', format(list, 'job j', 'j.chain = $1->>''chain''', 'j.seq'), format(list, 'job j', 'j.id = $1->>''chain'' and j.chain is null', 'j.seq'));
    when 'parent' then
      lists := format(list, 'job j', 'j.parent = $1->>''parent''', 'j.seq');
    when 'ids' then
      lists := format(list, '(select o.ctid, o.* from job o where o.id >= $1->>''idPrefix'' and o.id < $1->>''idEnd'' limit ${FEW_IDS}) j', 'true', 'j.seq');
    when 'fingerprint' then
      lists := format('select y.* from queue p cross join lateral (%s) y where ${OF_QUEUE}',
        format(list, 'job j', '${FAILING} and j.queue = p.id and (j.error::json->>''fingerprint'') collate "C" = $1->>''fingerprint''', 'j.seq'));
    when 'errorCode' then
      lists := format('select y.* from queue p cross join lateral (%s) y where ${OF_QUEUE}',
        format(list, 'job j', '${FAILING} and j.queue = p.id and (j.error::json->>''code'') = $1->>''errorCode''', 'j.seq'));
    when 'tags', 'anyTag' then
      if source = 'tags' then
        select g.tag into rare from jsonb_array_elements_text(asked->'tags') g(tag) order by (
          select count(*) from queue q cross join lateral (select 1 from tag o where o.queue = q.id and o.tag = g.tag limit ${MANY_TAGGED}) y
          where not asked ? 'queue' or q.name = asked->>'queue') limit 1;
      end if;
      lists := format('select y.* from queue p cross join %s g(tag) cross join lateral (%s) y where ${OF_QUEUE}',
        case when source = 'tags' then format('(values (%L))', rare) else 'jsonb_array_elements_text($1->''anyTag'')' end,
        format(list, 'tag t cross join lateral (select o.ctid, o.* from job o where o.id = t.job offset 0) j', 't.queue = p.id and t.tag = g.tag', 't.seq'));
    when 'group' then
      lists := format('select y.* from queue p cross join unnest(array[''waiting'', ''delayed'', ''waiting-children'', ''completed'', ''failed'', ''cancelled'']) s(state) '
        'cross join lateral (%s) y where ${OF_QUEUE} and (not $1 ? ''states'' or $1->''states'' ? s.state) union all select y.* from queue p cross join lateral (%s) y where ${OF_QUEUE}',
        format(list, 'job j', 'j.queue = p.id and j.grp = $1->>''group'' and j.state = s.state and (j.state || '''') <> ''active''', 'j.seq'),
        format(list, 'job j', 'j.queue = p.id and j.state = ''active'' and j.grp = $1->>''group''', 'j.seq'));
    else
      lists := format('select y.* from lane p cross join unnest(array[''waiting'', ''delayed'', ''waiting-children'', ''completed'', ''failed'', ''cancelled'']) s(state) '
        'cross join lateral (%s) y where (not $1 ? ''queue'' or p.queue in (select q.id from queue q where q.name = $1->>''queue'')) and (not $1 ? ''names'' or $1->''names'' ? p.name) '
        'and (not $1 ? ''states'' or $1->''states'' ? s.state) union all select y.* from queue p cross join lateral (%s) y where ${OF_QUEUE}',
        format(list, 'job j', 'j.lane = p.id and j.state = s.state and j.state <> ''active''', 'j.seq'),
        format(list, 'job j', 'j.queue = p.id and j.state = ''active''', 'j.seq'));
  end case;
end $$;

-- A page of a filtered query: the rows of its lists, merged, at most ${ROWS_LOOKED} of them; and after which to go on, if there may be more.
create or replace function {S}.find_filtered_{V}(asked jsonb) returns text language plpgsql stable ${readSettings} as $$
declare
  ended boolean := coalesce(asked->>'order', 'oldest') = 'finished';
  up boolean := coalesce(asked->>'order', 'oldest') = 'oldest';
  counts boolean := coalesce((asked->>'count')::boolean, false);
  most int := case when counts then ${ROWS_LOOKED} else (asked->>'limit')::int end;
  bounds bigint[] := case when ended then array[-1, 9223372036854775807] else added_within_{V}(asked) end;
  lists text; many int;
  direction text := case when up then 'asc' else 'desc' end;
  after bigint[] := coalesce(array(select y.value::bigint from jsonb_array_elements_text(asked->'after') with ordinality y order by y.ordinality),
    '{}');
  per int; most_per int;
  looked int := 0; rows_read int := 0; fetched int;
  kept int; total int; known bigint[]; last bigint[];
  matched tid[]; matched_keys bigint[];
  page tid[] := '{}';
  keys bigint[] := '{}';
  row_id tid;
  size bigint := 0;
  fit int := 0;
  rows text;
begin
  select y.lists, y.many into lists, many from filtered_lists_{V}(asked, bounds) y;
  most_per := greatest(8, ${ROWS_LOOKED} / greatest(1, many));
  per := least(most_per, greatest(8, 2 * (most + 1) / greatest(1, many)));
  if after = '{}' then after := case when up then array[0, bounds[1] - 1] else array[9223372036854775807, bounds[2]] end;
  elsif up then after[2] := greatest(after[2], bounds[1] - 1);
  else after[2] := case when ended then after[2] else least(after[2], bounds[2]) end;
  end if;
  loop
    execute format('with y as materialized (%1$s), k as materialized (select %2$s(y.key) as key from y where y.n = $3), '
      'm as (select z.*, row_number() over (order by z.key %3$s) as r, coalesce(sum(z.fits::int) over (order by z.key %3$s rows between unbounded preceding and 1 preceding), 0) as before '
        'from (select distinct on (y.key) y.* from y, k where (y.key %4$s k.key) is not true order by y.key %3$s) z), '
      'kept as (select * from m where m.r <= $4 and m.before < $5) '
      'select array_agg(o.tid order by o.key %3$s) filter (where o.fits), array_agg(o.key order by o.key %3$s) filter (where o.fits), '
        'count(*), %5$s(o.key), (select count(*) from m), (select k.key from k), (select count(*) from y) from kept o',
      lists, case when up then 'min' else 'max' end, direction, case when up then '>' else '<' end, case when up then 'max' else 'min' end)
      into matched, matched_keys, kept, last, total, known, fetched using asked, after, per, ${ROWS_LOOKED} - looked, most + 1 - cardinality(page);
    page := page || matched;
    keys := keys || matched_keys;
    looked := looked + kept;
    rows_read := rows_read + fetched;
    exit when cardinality(page) > most;
    after := case when kept < total then last else known end;
    exit when after is null or rows_read >= ${ROWS_LOOKED};
    per := least(most_per, 2 * per);
  end loop;
  if counts then
    return '{"rows":[],"after":' || coalesce(to_json(after)::text, 'null') || ',"count":' || cardinality(page) || '}';
  end if;
  foreach row_id in array page[:most] loop
    exit when size >= (asked->>'bytes')::bigint and fit > 0;
    fit := fit + 1;
    select size + ${rowBytes('z')} into size from job z where z.ctid = row_id;
  end loop;
  if fit < cardinality(page) then after := array[keys[fit][1], keys[fit][2]]; end if;
  select string_agg(record_{V}(z)::text, ',' order by u.n) into rows
    from unnest(page[:fit]) with ordinality u(tid, n) cross join lateral (select * from job o where o.ctid = u.tid offset 0) z;
  return '{"rows":[' || coalesce(rows, '') || '],"after":' || coalesce(to_json(after)::text, 'null') || ',"count":null}';
end $$;

-- When a job failed last.
create or replace function {S}.failed_at_{V}(j {S}.job) returns bigint language sql stable as $$
  select coalesce((j.errors[cardinality(j.errors)]::json->>'at')::bigint, j.finished_at, j.created_at)
$$;

-- The failing jobs of a queue by fingerprint: each is found from the one before, and counted up to a bound.
create or replace function {S}.failures_{V}(asked jsonb) returns text language plpgsql stable ${readSettings} as $$
declare
  of int := (select q.id from queue q where q.name = asked->>'queue');
  mark text := coalesce(asked->>'after', '');
  budget int := ${FAILURES_COUNTED};
  most int; n int;
  oldest job; newest job;
  answers text[] := '{}';
begin
  while cardinality(answers) < (asked->>'limit')::int loop
    mark := (select (j.error::json->>'fingerprint') from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" > mark collate "C" order by (j.error::json->>'fingerprint') collate "C" limit 1);
    exit when mark is null;
    most := greatest(${FAILURES_EACH}, budget);
    n := (select count(*) from (select 1 from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" = mark limit most + 1) y);
    select * into oldest from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" = mark order by j.seq limit 1;
    select * into newest from job j where j.queue = of and j.error is not null and j.state <> 'completed'
      and (j.error::json->>'fingerprint') collate "C" = mark order by j.seq desc limit 1;
    budget := budget - least(n, most);
    answers := answers || json_build_object('fingerprint', mark, 'count', least(n, most), 'more', n > most, 'first', failed_at_{V}(oldest), 'last', failed_at_{V}(newest),
      'id', newest.id, 'name', (select l.name from lane l where l.id = newest.lane), 'error', newest.error)::text;
  end loop;
  return '[' || array_to_string(answers, ',') || ']';
end $$;
`
