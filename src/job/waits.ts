// job/waits.ts: how long a job has waited, and how long it ran.
import type { JobKind, JobRecord, JobState, Millis, Time } from './job.js'

/**
 * Since when a job that begins to wait could be claimed, which becomes its `runAt`: a delayed job since its date, also
 * where upkeep was late; any other since now. A job that waits from its add on needs none: it could be claimed at once.
 */
export function readySince(from: JobState, runAt: Time | undefined, now: Time): Time {
  return from === 'delayed' && runAt !== undefined && runAt < now ? runAt : now
}

/** Since when a waiting job, or one that was claimed, could be claimed. */
export function waitingSince(createdAt: Time, runAt: Time | null | undefined): Time {
  return runAt === null || runAt === undefined || runAt < createdAt ? createdAt : runAt
}

/** How long a claimed job waited to be claimed. */
export function waitOf({ createdAt, runAt, startedAt }: Pick<JobRecord, 'createdAt' | 'runAt' | 'startedAt'>): Millis {
  return startedAt === undefined ? 0 : Math.max(0, startedAt - waitingSince(createdAt, runAt))
}

/** A row that is due: what it is, its state, and since when. */
export type DueRow = readonly [kind: JobKind, state: JobState, dueAt: Time]

/** Since when a delayed job, and since when a schedule is overdue, by rows in the order in which they became due. */
export function overdueIn(rows: readonly DueRow[]): { readonly delayed?: Time; readonly schedule?: Time } {
  const delayed = rows.find(([kind, state]) => kind === 'job' && state === 'delayed')
  const schedule = rows.find(([kind, state]) => kind === 'schedule' && state === 'delayed')
  return {
    ...(delayed !== undefined && { delayed: delayed[2] }),
    ...(schedule !== undefined && { schedule: schedule[2] }),
  }
}
