// stores/verdicts.ts: the verdicts on groups and renewals; equal ones share one object where possible.
import type { JobRecord } from '../job/job.js'
import { copyOf, movedJob } from '../job/record.js'
import type { Landed, Refused, RefusedAsMoved } from '../store/store.js'

/** No jobs. */
export const NO_JOBS: readonly JobRecord[] = Object.freeze([])

/** Landed, and inserted nothing. */
export const LANDED: Landed = Object.freeze({ ok: true, inserted: NO_JOBS })

/** Refused: there is no such job. */
export function missing(id: string): Refused {
  return { ok: false, why: 'missing', id }
}

/** Refused: a chain that the job depends on has failed, was cancelled, or is gone. */
export function broken(chain: string): Refused {
  return { ok: false, why: 'broken', id: chain }
}

/** Refused: the job was moved since, or the lease of its holder has expired. */
export function fenced(job: JobRecord): RefusedAsMoved {
  return { ok: false, why: 'fence', id: job.id, job: movedJob(job) }
}

/** Refused: the id or the dedup key is taken, by a job that may have been removed since. */
export function duplicate(id: string, existing: JobRecord | undefined): Refused {
  return existing === undefined
    ? { ok: false, why: 'duplicate', id }
    : { ok: false, why: 'duplicate', id, job: copyOf(existing) }
}
