// stores/postgres/functions/claims/fitting.ts: the functions that measure jobs, so that an answer has a bounded size.
import { READ_BYTES } from '../../../../store/read-pages.js'

export const fitting = `
-- The approximate bytes of text of a job. The length of a text is known without reading it; that of an array is not. An
-- expression without subqueries, so that PostgreSQL inlines it.
create or replace function {S}.row_bytes_{V}(j {S}.job) returns int language sql stable as $$
  select 500 + coalesce(octet_length(j.data), 0) + coalesce(octet_length(j.memo), 0) + coalesce(octet_length(j.progress), 0)
    + coalesce(octet_length(j.result), 0) + coalesce(octet_length(j.error), 0) + coalesce(octet_length(j.history), 0)
    + case when j.errors is null then 0 else octet_length(array_to_string(j.errors, '')) end
$$;

-- How many of these rows fit into an answer that already holds \`used\` bytes, and how many bytes it holds with them; the row
-- that reaches the limit is the last. Row by row, because measuring a row reads its errors, and rows that do not fit must
-- not be read.
create or replace function {S}.fitting_{V}(tids tid[], used bigint, out n int, out bytes bigint) language plpgsql stable as $$
declare
  row_id tid;
begin
  n := 0;
  bytes := used;
  foreach row_id in array tids loop
    exit when bytes >= ${READ_BYTES};
    n := n + 1;
    select bytes + row_bytes_{V}(o) into bytes from job o where o.ctid = row_id;
  end loop;
end $$;
`
