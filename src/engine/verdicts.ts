// engine/verdicts.ts: the verdicts on groups and renewals; equal ones share one object where possible.
// A refusal is made for the first change of a group; `refusedAt` gives it the index of the change.
import type { JobRecord } from '../job/job.js'
import { movedJob } from '../job/record.js'
import type { Landed, Refused, RefusedAsMoved } from '../store/store.js'

/** No jobs. */
export const NO_JOBS: readonly JobRecord[] = Object.freeze([])

/** Applied, and inserted nothing. */
export const LANDED: Landed = Object.freeze({ ok: true, inserted: NO_JOBS })

/** Refused: there is no such job. */
export function missing(id: string): Refused {
  return { ok: false, change: 0, why: 'missing', id }
}

/** Refused: another open transaction holds what is needed. */
export function busy(id: string): Refused {
  return { ok: false, change: 0, why: 'busy', id }
}

/** Refused: a chain that the job depends on has failed, was cancelled, or is gone. */
export function broken(chain: string): Refused {
  return { ok: false, change: 0, why: 'broken', id: chain }
}

/** Refused: the job was moved since, or the lease of its holder has expired. */
export function fenced(job: JobRecord): RefusedAsMoved {
  return { ok: false, change: 0, why: 'fence', id: job.id, job: movedJob(job) }
}

/** Refused: the id or the dedup key is taken, by a job (a copy of its record) that may have been removed since. */
export function duplicate(id: string, existing: JobRecord | undefined): Refused {
  return existing === undefined
    ? { ok: false, change: 0, why: 'duplicate', id }
    : { ok: false, change: 0, why: 'duplicate', id, job: existing }
}

/** A refusal with the index of the refused change in its group. */
export function refusedAt(change: number, refused: Refused): Refused {
  return change === 0 ? refused : { ...refused, change }
}
