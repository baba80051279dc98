// stores/postgres/functions/adds/add-job.ts: the SQL function `add_job`, for triggers, other languages, and psql.
import { DEFAULT_ATTEMPTS } from '../../../../job/job.js'
import { RESERVED, RESERVED_IDS } from '../../../../job/values/names.js'
import { searchPath } from '../fast-parts.js'

const RESERVED_STARTS = `array[${RESERVED_IDS.map((each) => `'${each}'`).join(', ')}]`

/** How often to try to drop a job that another transaction holds or has just moved, and the seconds between tries. */
const DROP_TRIES = 25
const DROP_PAUSE = 0.02

/** The maximum number of jobs that one call drops, as in `queue/settings/overflow.ts`. */
const MOST_DROPPED = 1000

/**
 * `select millrace.add_job('emails', 'send-email', '{"to":"a@example.com"}', '{"delay":"5 minutes"}')`: adds a job in the
 * current transaction, with the defaults of the library, and returns its id; or the id of the existing job, if the id or
 * the dedup key is taken. An option that is null counts as absent.
 */
export const addJob = `
create or replace function {S}.add_job(queue text, name text, data jsonb default null, options jsonb default '{}') returns text language plpgsql volatile ${searchPath} as $$
declare
  given jsonb := '{}';
  word text;
  lane jsonb;
  settings jsonb := '{}';
  keep jsonb := '{}';
  dedup jsonb;
  edges jsonb;
  x jsonb;
  answer jsonb;
  outcome text;
  dropped int := 0;
  races int := 0;
begin
  if options is not null then
    perform {S}.check_fields_{V}(options, '{id,delay,runAt,expires,priority,lifo,group,tags,attempts,backoff,timeout,dedup,after,onChildFailure,removeOnComplete,removeOnFail,version}', 'options');
    select coalesce(jsonb_object_agg(e.key, e.value), '{}') into given from jsonb_each(options) e where jsonb_typeof(e.value) <> 'null';
  end if;
  perform {S}.check_name_{V}(queue, 'queue'), {S}.check_name_{V}(name, 'name');
  perform {S}.check_option_{V}(not starts_with(queue, '${RESERVED}'), format('the queue %s is one of Millrace''s own; choose another', to_json(queue)));
  perform {S}.check_option_{V}(given->'lifo' is null or jsonb_typeof(given->'lifo') = 'boolean', format('lifo must be true or false, not %s', given->'lifo'));
  if given ? 'group' then
    perform {S}.check_name_{V}(case when jsonb_typeof(given->'group') = 'string' then given->>'group' end, 'group'),
      {S}.check_option_{V}(given->'lifo' is distinct from 'true', 'give either group or lifo, not both: groups go by turns');
  end if;
  perform {S}.check_option_{V}(given->'id' is null or not given->>'id' ^@ any (${RESERVED_STARTS}),
    format('the id %s begins as those of Millrace''s own do; choose another', given->'id'));
  x := jsonb_build_object('kind', 'job', 'chain_index', 0, 'data', data::text,
    'id', case when given ? 'id' then {S}.check_name_{V}(given->>'id', 'id') else {S}.new_id_{V}() end,
    'priority', {S}.parse_whole_{V}(given->'priority', -2147483647, 2147483647, 0, 'priority'),
    'lifo', coalesce((given->>'lifo')::boolean, false),
    'attempts', case when given->>'attempts' = 'Infinity' then null else {S}.parse_whole_{V}(given->'attempts', 1, 9007199254740991, ${DEFAULT_ATTEMPTS}, 'attempts (or "Infinity")') end)
    || {S}.parse_run_at_{V}(given->'delay', given->'runAt') || {S}.parse_expires_{V}(given->'expires');
  perform {S}.check_expires_{V}(x);
  edges := {S}.parse_after_{V}(given->'after', given->'onChildFailure');
  if edges is not null then x := x || jsonb_build_object('edges', edges, 'state', 'waiting-children');
  else x := x || jsonb_build_object('state', case when x ? 'run_at' then 'waiting-children' when x ? 'run_in' then 'delayed' else 'waiting' end); end if;

  if given ? 'backoff' then settings := settings || jsonb_build_object('backoff', {S}.parse_backoff_{V}(given->'backoff')); end if;
  if given ? 'timeout' then settings := settings || jsonb_build_object('timeout', {S}.parse_duration_{V}(given->'timeout', 'timeout', 1)); end if;
  foreach word in array '{removeOnComplete,removeOnFail}'::text[] loop
    continue when not given ? word or given->word = 'false';
    keep := keep || jsonb_build_object(case word when 'removeOnFail' then 'failed' else 'completed' end, {S}.parse_keep_{V}(given->word, word));
  end loop;
  if keep <> '{}' then settings := settings || jsonb_build_object('keep', keep); end if;
  if given ? 'tags' then
    perform {S}.check_tags_{V}(given->'tags');
    if given->'tags' <> '[]' then
      settings := settings || jsonb_build_object('extras', jsonb_build_object('tags', given->'tags'));
      x := x || jsonb_build_object('tags', given->'tags');
    end if;
  end if;
  if settings <> '{}' then x := x || jsonb_build_object('settings', settings::text); end if;

  if given ? 'dedup' then
    perform {S}.check_fields_{V}(given->'dedup', '{key,scope,window,mode}', 'dedup');
    perform {S}.check_name_{V}(given->'dedup'->>'key', 'dedup key'), {S}.parse_word_{V}(given->'dedup'->'mode', '{keep,reject}', 'dedup.mode');
    dedup := case {S}.parse_word_{V}(given->'dedup'->'scope', '{queue,name,global}', 'dedup.scope')
      when 'global' then '[]' when 'name' then jsonb_build_array(queue, name) else jsonb_build_array(queue) end || jsonb_build_array(given->'dedup'->>'key');
    -- Without spaces, as JSON.stringify writes it.
    select '[' || string_agg(e.value::text, ',' order by e.ordinality) || ']' into word from jsonb_array_elements(dedup) with ordinality e;
    dedup := jsonb_strip_nulls(jsonb_build_object('key', word, 'window', {S}.parse_duration_{V}(given->'dedup'->'window', 'dedup.window', 1)));
    x := x || jsonb_build_object('key', word, 'until_in', dedup->'window', 'dedup', dedup::text);
  end if;

  -- A new lane belongs to this transaction: until it ends, the library keeps other jobs of that lane waiting.
  lane := {S}.lane_ids_{V}(jsonb_build_array(jsonb_build_array(queue, name, {S}.parse_whole_{V}(given->'version', 1, 9007199254740991, 1, 'version'), given ? 'group')), true)::jsonb->0;
  x := x || jsonb_build_object('lane', lane->0, 'queue', lane->1) || case when given ? 'group' then jsonb_build_object('grp', given->'group') else '{}' end;
  loop
    answer := {S}.insert_job_{V}(x, queue, name);
    if answer is null then return x->>'id'; end if;
    exit when answer->>0 <> 'full' or answer->>2 is null
      or {S}.group_limit_{V}({S}.setting_{V}('limit:' || queue), given->>'group')->>'whenFull' is distinct from 'drop-oldest';
    -- Drops the group's oldest job. An error raised from here on also undoes the drops.
    exit when dropped = ${MOST_DROPPED};
    if current_setting('transaction_isolation') <> 'read committed' then
      raise exception 'millrace.add_job: group ''%'' of queue ''%'' is at its backlog limit, and its oldest job can be dropped under read committed alone, not under %',
        given->>'group', queue, current_setting('transaction_isolation') using errcode = '54000';
    end if;
    outcome := {S}.drop_job_{V}(answer->>2);
    if outcome = 'dropped' then dropped := dropped + 1;
    elsif outcome = 'unsuitable' then
      raise exception 'millrace.add_job: group ''%'' of queue ''%'' is at its backlog limit, and its oldest job, %, cannot be dropped from SQL: a webhook is to be called, or the job is to be removed at once',
        given->>'group', queue, answer->>2 using errcode = '54000', hint = 'Add the job with queue.add, or cancel the oldest with queue.cancel first.';
    else
      races := races + 1;
      if races = ${DROP_TRIES} then
        raise exception 'millrace.add_job: another transaction holds job %, the oldest of group ''%'', which is to be dropped; try again',
          answer->>2, given->>'group' using errcode = '55P03';
      end if;
      if outcome = 'busy' then perform pg_sleep(${DROP_PAUSE}); end if;
    end if;
  end loop;
  case answer->>0
    when 'duplicate' then
      if answer->>1 = x->>'id' then
        if answer->2->>2 <> queue or answer->2->>3 <> name then
          raise exception 'millrace.add_job: job % exists already, as ''%'' in queue ''%''', answer->>1, answer->2->>3, answer->2->>2 using errcode = '23505';
        end if;
      elsif given->'dedup'->>'mode' = 'reject' then
        raise exception 'millrace.add_job: job % holds the dedup key ''%''', answer->>1, given->'dedup'->>'key' using errcode = '23505';
      end if;
      return answer->>1;
    when 'missing' then
      raise exception 'millrace.add_job: there is no job % to wait for', answer->>1 using errcode = '22023';
    when 'full' then
      if answer->>2 is not null then
        raise exception 'millrace.add_job: group ''%'' of queue ''%'' is at its backlog limit', given->>'group', queue using errcode = '54000';
      end if;
      raise exception 'millrace.add_job: queue ''%'' is at its backlog limit', queue using errcode = '54000';
    else
      raise exception 'millrace.add_job: another transaction is adding the same id or key, or holds a job that this one waits for; try again'
        using errcode = '55P03';
  end case;
end $$;
`
