// stores/postgres/functions/refusals.ts: what an answer says of the jobs over which groups are refused, without growing too large.
import { READ_BYTES } from '../../../store/read-pages.js'

/**
 * A job that was moved, in `j`, for those who are refused because of it. Whoever sends `brief` reads the header alone; versions
 * before read all of it.
 */
export const movedJob = 'case when brief then v4_moved(j) else v1_record(j) end'

/**
 * The job that stands in the way, into `stands`: all of it, or nothing if it is gone. Hundreds may be refused over heavy jobs, or
 * over one: once the answer holds some 8 MiB of them, those that follow are named only, and whoever asked reads them.
 */
export function standing(id: string): string {
  return `
            stands := null;
            if sent >= ${READ_BYTES} then
              select '1' into stands from job o where o.id = ${id};
            else
              select v1_record(o)::text into stands from job o where o.id = ${id};
              if brief then sent := sent + coalesce(octet_length(stands), 0); end if;
            end if;`
}
