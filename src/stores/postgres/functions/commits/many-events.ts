// stores/postgres/functions/commits/many-events.ts: the function that encodes many similar events as one.
import { GROUP } from '../fast-parts.js'

export const manyEvents = `
-- Many events of one type in one text, as \`event-rows.ts\` reads it: writing each event by itself would cost more than the
-- change that it reports. The values in which they differ are one text each: ids; lanes, or one for all; attempts; results;
-- and chains, if there are any.
create or replace function {S}.many_events_{V}(type text, t bigint, worker_id text, ids text, of_lanes int[], lanes text, attempts text, results text, chains text)
  returns text language plpgsql stable
as $$
begin
  return concat_ws(${GROUP}, '{"many":"' || type || '","at":' || t || coalesce(',"worker":' || to_json(worker_id)::text, '') || ',"of":' || (
      select json_object_agg(l.id, json_build_array(q.name, l.name))::text from lane l join queue q on q.id = l.queue where l.id = any (of_lanes)) || '}',
    ids, lanes, coalesce(attempts, ''), coalesce(results, ''), chains);
end $$;
`
