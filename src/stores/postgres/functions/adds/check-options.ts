// stores/postgres/functions/adds/check-options.ts: the functions that check and read the options of `add_job`.
import { failurePolicies } from '../../../../job/job.js'
import { MAX_TAG_LENGTH, MAX_TAGS } from '../../../../job/values/tags.js'

/** A hundred years, in milliseconds. */
const LONGEST_DELAY = 36_525 * 86_400_000

const POLICIES = `'{${failurePolicies.join()}}'`

/** Checks of options, as in `queue/add-options.ts`. Invalid options are refused with SQLSTATE 22023. */
export const checkOptions = `
create or replace function {S}.check_option_{V}(fine boolean, complaint text) returns void language plpgsql immutable as $$
begin
  if fine is not true then raise exception 'millrace.add_job: %', complaint using errcode = '22023'; end if;
end $$;

-- A name: 1 to 255 printable characters.
create or replace function {S}.check_name_{V}(given text, what text) returns text language plpgsql immutable as $$
begin
  perform {S}.check_option_{V}(length(given) between 1 and 255 and given !~ '[\\u0001-\\u001f\\u007f-\\u009f]',
    format('the %s must be 1 to 255 printable characters, not %s', what, coalesce(to_json(given)::text, 'nothing')));
  return given;
end $$;

-- Refuses unknown options.
create or replace function {S}.check_fields_{V}(given jsonb, known text[], field text) returns void language plpgsql immutable as $$
declare
  o text;
begin
  perform {S}.check_option_{V}(jsonb_typeof(given) = 'object', format('%s must be an object, not %s', field, given));
  for o in select jsonb_object_keys(given) loop
    perform {S}.check_option_{V}(o = any (known), format('unknown option %s in %s; it knows %s', to_json(o), field, array_to_string(known, ', ')));
  end loop;
end $$;

-- A duration in milliseconds; fractions are rounded up.
create or replace function {S}.parse_duration_{V}(given jsonb, field text, lowest int default 0) returns bigint language plpgsql immutable as $$
declare
  ms numeric;
  length interval;
begin
  if given is null then return null; end if;
  if jsonb_typeof(given) = 'number' then ms := (given #>> '{}')::numeric;
  elsif jsonb_typeof(given) = 'string' and given #>> '{}' ~ '[[:alpha:]]' then
    begin
      length := (given #>> '{}')::interval;
      -- Months differ in length.
      if extract(year from length) = 0 and extract(month from length) = 0 then ms := extract(epoch from length) * 1000; end if;
    exception when others then
      null;
    end;
  end if;
  perform {S}.check_option_{V}(ms >= lowest and ms <= ${LONGEST_DELAY},
    format('%s must be milliseconds as a number, or text such as "30s" or "5 minutes", not %s', field, given));
  return ceil(ms);
end $$;

-- One of some words; the first is the default.
create or replace function {S}.parse_word_{V}(given jsonb, words text[], field text) returns text language plpgsql immutable as $$
begin
  perform {S}.check_option_{V}(given is null or (jsonb_typeof(given) = 'string' and given #>> '{}' = any (words)),
    format('%s must be one of %s, not %s', field, array_to_string(words, ', '), given));
  return coalesce(given #>> '{}', words[1]);
end $$;

-- A whole number within bounds.
create or replace function {S}.parse_whole_{V}(given jsonb, lowest bigint, highest bigint, otherwise bigint, field text) returns bigint language plpgsql immutable as $$
declare
  n numeric;
begin
  if given is null then return otherwise; end if;
  if jsonb_typeof(given) = 'number' then n := (given #>> '{}')::numeric; end if;
  perform {S}.check_option_{V}(n = trunc(n) and n between lowest and highest, format('%s must be a whole number from %s to %s, not %s', field, lowest, highest, given));
  return n;
end $$;

create or replace function {S}.parse_backoff_{V}(given jsonb) returns jsonb language plpgsql immutable as $$
declare
  kind text;
  made jsonb;
begin
  if given is null then return null; end if;
  if jsonb_typeof(given) <> 'object' then return jsonb_build_object('type', 'fixed', 'delay', {S}.parse_duration_{V}(given, 'backoff')); end if;
  perform {S}.check_option_{V}(given ? 'type', format('backoff must be a duration or an object with a type, not %s', given));
  kind := {S}.parse_word_{V}(given->'type', '{fixed,linear,exponential,custom}', 'backoff.type');
  perform {S}.check_fields_{V}(given, case kind when 'fixed' then '{type,delay,jitter}' when 'linear' then '{type,delay,max,jitter}'
    when 'exponential' then '{type,delay,factor,max,jitter}' else '{type,name,delay}' end::text[], 'backoff');
  if kind = 'custom' then perform {S}.check_name_{V}(given->>'name', 'backoff name');
  else perform {S}.check_option_{V}(given ? 'delay', 'backoff.delay is missing'); end if;
  made := given;
  if given ? 'delay' then made := made || jsonb_build_object('delay', {S}.parse_duration_{V}(given->'delay', 'backoff.delay')); end if;
  if given ? 'max' then made := made || jsonb_build_object('max', {S}.parse_duration_{V}(given->'max', 'backoff.max')); end if;
  if given ? 'jitter' then
    perform {S}.check_option_{V}(jsonb_typeof(given->'jitter') = 'number' and given->'jitter' between '0' and '1',
      format('backoff.jitter must be a number from 0 to 1, not %s', given->'jitter'));
  end if;
  if given ? 'factor' then
    perform {S}.check_option_{V}(jsonb_typeof(given->'factor') = 'number' and given->'factor' >= '1',
      format('backoff.factor must be a number of at least 1, not %s', given->'factor'));
  end if;
  return made;
end $$;

-- When the job runs: {"run_in": milliseconds from now} or {"run_at": a date}.
create or replace function {S}.parse_run_at_{V}(delay jsonb, run_at jsonb) returns jsonb language plpgsql stable as $$
declare
  at numeric;
begin
  perform {S}.check_option_{V}(delay is null or run_at is null, 'give either delay or runAt, not both');
  if delay is not null then return case {S}.parse_duration_{V}(delay, 'delay') when 0 then '{}' else jsonb_build_object('run_in', {S}.parse_duration_{V}(delay, 'delay')) end; end if;
  if run_at is null then return '{}'; end if;
  begin
    at := case jsonb_typeof(run_at) when 'number' then (run_at #>> '{}')::numeric
      when 'string' then extract(epoch from (run_at #>> '{}')::timestamptz) * 1000 end;
  exception when others then
    null;
  end;
  perform {S}.check_option_{V}(abs(at) <= 8640000000000000, format('runAt must be a date or milliseconds since 1970, not %s', run_at));
  return jsonb_build_object('run_at', ceil(at));
end $$;

-- When the job expires: {"expires_in": milliseconds from now} or {"expires_at": a date}. A text without letters is a date,
-- as is one that begins with a year.
create or replace function {S}.parse_expires_{V}(given jsonb) returns jsonb language plpgsql stable as $$
declare
  at numeric;
begin
  if given is null then return '{}'; end if;
  if jsonb_typeof(given) = 'number' or (jsonb_typeof(given) = 'string' and given #>> '{}' !~ '^ *[0-9]{4}-') then
    return jsonb_build_object('expires_in', {S}.parse_duration_{V}(given, 'expires', 1));
  end if;
  begin
    at := case when jsonb_typeof(given) = 'string' then extract(epoch from (given #>> '{}')::timestamptz) * 1000 end;
  exception when others then
    null;
  end;
  perform {S}.check_option_{V}(abs(at) <= 8640000000000000, format('expires must be a duration such as "30s", or a date, not %s', given));
  perform {S}.check_option_{V}(at > extract(epoch from clock_timestamp()) * 1000, format('expires is in the past: %s; a job that may still run needs a later date', given));
  return jsonb_build_object('expires_at', ceil(at));
end $$;

-- A job must be able to start before it expires.
create or replace function {S}.check_expires_{V}(x jsonb) returns void language plpgsql stable as $$
declare
  t numeric := floor(extract(epoch from clock_timestamp()) * 1000);
begin
  if not x ?| '{expires_at,expires_in}'::text[] then return; end if;
  perform {S}.check_option_{V}(
    coalesce((x->>'expires_at')::numeric, t + (x->>'expires_in')::numeric) > coalesce((x->>'run_at')::numeric, t + (x->>'run_in')::numeric, t),
    'expires must be later than delay or runAt: the job would expire before it may start');
end $$;

-- How long a job is kept: true, a duration, or {"age": …, "count": …}.
create or replace function {S}.parse_keep_{V}(given jsonb, field text) returns jsonb language plpgsql immutable as $$
begin
  if given = 'true' then return '{"deleteAfter": 0}'; end if;
  if jsonb_typeof(given) = 'object' then
    given := jsonb_strip_nulls(given);
    perform {S}.check_fields_{V}(given, '{age,count}', field);
    perform {S}.check_option_{V}(given <> '{}', format('%s must have an age, a count, or both', field)),
      {S}.check_option_{V}(not given ? 'age' or jsonb_typeof(given->'age') = 'string', format('%s.age must be a duration with its unit, such as "7d", not %s', field, given->'age'));
    return jsonb_strip_nulls(jsonb_build_object('deleteAfter', {S}.parse_duration_{V}(given->'age', field || '.age', 1),
      'count', {S}.parse_whole_{V}(given->'count', 1, 9007199254740991, null, field || '.count')));
  end if;
  perform {S}.check_option_{V}(jsonb_typeof(given) <> 'number',
    format('%s must be true, a duration with its unit, such as "7d", or {"age": "7d", "count": 1000}, not %s', field, given));
  return jsonb_build_object('deleteAfter', {S}.parse_duration_{V}(given, field));
end $$;

-- The dependencies: [[id, policy], …]; null if there are none.
create or replace function {S}.parse_after_{V}(given jsonb, otherwise jsonb) returns jsonb language plpgsql immutable as $$
declare
  fallback text := {S}.parse_word_{V}(otherwise, ${POLICIES}, 'onChildFailure');
  edges jsonb := '[]';
  e jsonb;
begin
  if given is null then return null; end if;
  for e in select value from jsonb_array_elements(case jsonb_typeof(given) when 'array' then given else jsonb_build_array(given) end) loop
    if jsonb_typeof(e) = 'string' then e := jsonb_build_object('job', e); end if;
    perform {S}.check_fields_{V}(e, '{job,onFailure}', 'after');
    edges := edges || jsonb_build_array(jsonb_build_array({S}.check_name_{V}(e->>'job', 'job id in after'),
      case when e ? 'onFailure' then {S}.parse_word_{V}(e->'onFailure', ${POLICIES}, 'after.onFailure') else fallback end));
  end loop;
  return case when edges <> '[]' then edges end;
end $$;

-- At most ${MAX_TAGS} different tags.
create or replace function {S}.check_tags_{V}(given jsonb) returns void language plpgsql immutable as $$
begin
  perform {S}.check_option_{V}(jsonb_typeof(given) = 'array', format('tags must be a list of texts, not %s', given));
  perform {S}.check_option_{V}(count(*) <= ${MAX_TAGS} and count(distinct t.value) = count(*) and coalesce(bool_and(jsonb_typeof(t.value) = 'string'), true),
    format('tags must be at most ${MAX_TAGS} different texts, not %s', given)) from jsonb_array_elements(given) t;
  perform {S}.check_option_{V}(length({S}.check_name_{V}(t.value, 'tag')) <= ${MAX_TAG_LENGTH}, format('a tag has at most ${MAX_TAG_LENGTH} characters; %s has more', to_json(t.value)))
    from jsonb_array_elements_text(given) t;
end $$;

-- A new id: the time, then random bits (UUIDv7).
create or replace function {S}.new_id_{V}() returns text language sql volatile as $$
  select left(y.t, 8) || '-' || right(y.t, 4) || '-7' || substr(y.u, 16, 3) || '-' || substr(y.u, 20)
  from (select lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') as t, gen_random_uuid()::text as u) y
$$;
`
