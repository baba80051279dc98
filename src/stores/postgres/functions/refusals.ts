// stores/postgres/functions/refusals.ts: the jobs that an answer returns with refused groups, bounded in bytes.
import { READ_BYTES } from '../../../store/read-pages.js'

/** The moved job in `j`, for a group that is refused because of it. */
export const movedJob = 'header_{V}(j)'

/**
 * Selects the conflicting job into `stands`: its whole record, or null if it is gone. Hundreds of groups may be refused
 * because of large jobs, or because of one: once the answer holds about 8 MiB of records, it only names further jobs, and
 * the caller reads them.
 */
export function conflictingJob(id: string): string {
  return `
            stands := null;
            if sent >= ${READ_BYTES} then
              select '1' into stands from job o where o.id = ${id};
            else
              select record_{V}(o)::text into stands from job o where o.id = ${id};
              sent := sent + coalesce(octet_length(stands), 0);
            end if;`
}
