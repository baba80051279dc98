// stores/postgres/functions/queue-limits.ts: the functions that read settings: the limits and holds of a queue.
import { LONGEST_INTERVAL } from '../../../job/limits.js'

/** A value in a setting that is not a number or not a rate limits nothing. */
export const queueLimits = `
-- The value of a setting; an empty object if it is missing or not an object, because a setting must not make a commit fail.
create or replace function {S}.setting_{V}(name text) returns jsonb language plpgsql stable as $$
declare
  stored text;
  parsed jsonb;
begin
  select value into stored from {S}.cell where key = name;
  if not found then return '{}'; end if;
  begin
    parsed := stored::jsonb;
  exception when others then
    return '{}';
  end;
  return case when jsonb_typeof(parsed) = 'object' then parsed else '{}' end;
end $$;

-- A number in a setting.
create or replace function {S}.number_{V}(value jsonb) returns numeric language sql immutable as $$
  select case when jsonb_typeof(value) = 'number' then value::numeric end
$$;

-- The ends of the holds in a cell of pauses that are not over, by what they are for.
create or replace function {S}.holds_{V}(pause jsonb, t bigint) returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(e.key, e.value->'until'), '{}')
    from jsonb_each(case when jsonb_typeof(pause->'holds') = 'object' then pause->'holds' else '{}' end) e
    where jsonb_typeof(e.value->'until') = 'number' and (e.value->'until')::numeric > t
$$;

-- The rate of a limit: how many claims, and in how many milliseconds.
create or replace function {S}.rate_of_{V}(bound jsonb) returns numeric[] language sql immutable as $$
  select case when jsonb_typeof(bound->'rate'->'max') = 'number' and jsonb_typeof(bound->'rate'->'per') = 'number' and bound->'rate'->'per' > '0'
    then array[(bound->'rate'->'max')::numeric, least((bound->'rate'->'per')::numeric, ${LONGEST_INTERVAL})] end
$$;

-- Whether a limit bounds claims.
create or replace function {S}.limits_claims_{V}(bound jsonb) returns boolean language sql immutable as $$
  select coalesce(jsonb_typeof(bound->'concurrency') = 'number', false) or {S}.rate_of_{V}(bound) is not null
$$;

-- Whether a limit bounds the claims of any group.
create or replace function {S}.limits_groups_{V}(bound jsonb) returns boolean language sql immutable as $$
  select {S}.limits_claims_{V}(bound->'group')
    or exists (select 1 from jsonb_each(case when jsonb_typeof(bound->'groups') = 'object' then bound->'groups' else '{}' end) e where {S}.limits_claims_{V}(e.value))
$$;

-- Whether a limit bounds claims of the queue, of a name or of a group.
create or replace function {S}.is_limited_{V}(bound jsonb) returns boolean language sql immutable as $$
  select {S}.limits_claims_{V}(bound) or {S}.limits_groups_{V}(bound)
    or exists (select 1 from jsonb_each(case when jsonb_typeof(bound->'names') = 'object' then bound->'names' else '{}' end) e where {S}.limits_claims_{V}(e.value))
$$;

-- The limit of one group: its own values override those for every group.
create or replace function {S}.group_limit_{V}(bound jsonb, g text) returns jsonb language sql immutable as $$
  select case when jsonb_typeof(bound->'group') = 'object' then bound->'group' else '{}' end
    || case when jsonb_typeof(bound->'groups'->g) = 'object' then bound->'groups'->g else '{}' end
$$;
`
