// stores/postgres/functions/records.ts: the functions that encode records of jobs.
import { RECORD } from './job-columns.js'

/** `record` encodes in the order of `rows.ts`. */
export const records = `
create or replace function {S}.record_{V}(j {S}.job) returns json language sql stable as $$
  select json_build_array(${RECORD})
  from (select q.name as queue, l.name, l.version from {S}.lane l join {S}.queue q on q.id = l.queue where l.id = j.lane) l
$$;

-- A claimed job: in a short form if nothing happened to it before.
create or replace function {S}.claimed_record_{V}(j {S}.job) returns text language sql stable as $$
  select case when j.touched then {S}.record_{V}(j)::text
    else json_build_array(j.lane, j.id, j.priority, j.ord, j.fence, j.attempt, j.attempts, j.lease_until, j.ahead, j.created_at,
      j.data, j.settings, j.dedup, j.grp, j.parent)::text end
$$;
`
