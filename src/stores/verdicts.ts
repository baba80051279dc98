// stores/verdicts.ts: the answers to groups and renewals, one object for all that are alike.
import type { JobRecord } from '../job/job.js'
import { copyOf, movedJob } from '../job/record.js'
import type { Landed, Refused, RefusedAsMoved } from '../store/store.js'

/** No jobs. */
export const NO_JOBS: readonly JobRecord[] = Object.freeze([])

/** It is in, and inserted nothing. */
export const LANDED: Landed = Object.freeze({ ok: true, inserted: NO_JOBS })

/** There is no such job. */
export function missing(id: string): Refused {
  return { ok: false, why: 'missing', id }
}

/** A chain that the job depends on stands ended badly, or is gone. */
export function broken(chain: string): Refused {
  return { ok: false, why: 'broken', id: chain }
}

/** The job was moved since, or the lease of its holder has run out. */
export function fenced(job: JobRecord): RefusedAsMoved {
  return { ok: false, why: 'fence', id: job.id, job: movedJob(job) }
}

/** The id or the key is taken, by a job that may be gone. */
export function duplicate(id: string, standing: JobRecord | undefined): Refused {
  return standing === undefined
    ? { ok: false, why: 'duplicate', id }
    : { ok: false, why: 'duplicate', id, job: copyOf(standing) }
}
