// job/history.ts: how the attempts of a job ended. Those that left an error are in its errors; the others in its history.
import type { Move } from './change.js'
import { ERRORS_KEPT } from './job.js'
import type { AttemptEnd, AttemptError, ErrorInfo, JobRecord, Time } from './job.js'
import type { JsonText } from './values/json.js'

/** An attempt that has ended. */
export interface EndedAttempt {
  /** The fence of its claim; no two attempts of a job share one. */
  readonly fence: number
  /** Which attempt it was; the first is 1. One that was given back has the number of the attempt after it. */
  readonly attempt: number
  /** When it started, by the store's clock. */
  readonly startedAt: Time
  /** When it ended, by the store's clock. */
  readonly at: Time
  /** How it ended. */
  readonly outcome: AttemptEnd
  /** The worker that held its lease. */
  readonly worker?: string
  /** When the job was to run again, of an attempt that is retried or snoozed. */
  readonly runAt?: Time
  /** The error that it left. */
  readonly error?: ErrorInfo
}

/** An entry of a history as it is written: short, because it is written with each change of its job. */
type Written = readonly [
  fence: number,
  attempt: number,
  startedAt: Time,
  at: Time,
  outcome: AttemptEnd,
  worker: string | null,
  runAt?: Time,
]

/**
 * How a move ends the attempt at a job; undefined if there is none, or if the record alone shows it: a job that its
 * lease holder completed writes nothing more. A prefetched job that is given back was never started.
 */
export function attemptEnd(before: JobRecord, { to, why, set, held, waitsFor }: Move): AttemptEnd | undefined {
  if (before.state !== 'active' || (to === 'completed' && held)) return undefined
  if (before.ahead && to === 'waiting' && set.attempt !== undefined && set.run === undefined) return undefined
  if (why === 'retrying') return 'retried'
  if (set.stalls !== undefined) return 'stalled'
  switch (to) {
    case 'cancelled':
      return 'cancelled'
    case 'failed':
      return held ? 'failed' : 'ended-elsewhere'
    case 'completed':
      return 'ended-elsewhere'
    default:
      if (waitsFor !== undefined) return 'waited'
      return set.run === undefined ? 'handed-back' : 'snoozed'
  }
}

/** The errors of a job with one more, the last `ERRORS_KEPT` of them. `runAt`: when it runs again. */
export function withError(
  before: JobRecord,
  error: ErrorInfo,
  outcome: AttemptEnd | undefined,
  runAt: Time | undefined,
  now: Time,
): readonly AttemptError[] {
  const { fence, attempt, startedAt, worker } = before
  const entry = { ...error, fence, attempt, at: now }
  const ended = outcome !== undefined && {
    outcome,
    ...(startedAt !== undefined && { startedAt }),
    ...(worker !== undefined && { worker }),
    ...(outcome === 'retried' && runAt !== undefined && { runAt }),
  }
  return [...before.errors.slice(1 - ERRORS_KEPT), { ...entry, ...ended }]
}

/** The history of a job with one more attempt, the last `ERRORS_KEPT` of them. `runAt`: when it runs again. */
export function withQuietEnd(before: JobRecord, outcome: AttemptEnd, runAt: Time | undefined, now: Time): JsonText {
  const { fence, attempt, startedAt = now, worker = null } = before
  const entry: Written = [fence, attempt, startedAt, now, outcome, worker]
  const entries = [...entriesIn(before.history).slice(1 - ERRORS_KEPT), runAt === undefined ? entry : [...entry, runAt]]
  return JSON.stringify(entries)
}

/** A history without the attempts from this fence on, as it was before the claim that got that fence. */
export function historyBefore(history: JsonText | undefined, fence: number): JsonText | undefined {
  if (history === undefined) return undefined
  const entries = entriesIn(history).filter(([of]) => of < fence)
  return entries.length === 0 ? undefined : JSON.stringify(entries)
}

/** The attempts in a history, oldest first. */
export function readHistory(history: JsonText | undefined): readonly EndedAttempt[] {
  return entriesIn(history).map(([fence, attempt, startedAt, at, outcome, worker, runAt]): EndedAttempt => {
    return {
      ...{ fence, attempt, startedAt, at, outcome },
      ...(worker !== null && { worker }),
      ...(runAt !== undefined && { runAt }),
    }
  })
}

function entriesIn(history: JsonText | undefined): readonly Written[] {
  return history === undefined ? [] : (JSON.parse(history) as readonly Written[])
}

/** The attempts of a job that have ended, oldest first, the last `ERRORS_KEPT` of them. */
export function endedAttempts(job: JobRecord): readonly EndedAttempt[] {
  const ended = [...readHistory(job.history)]
  for (const { fence, attempt, at, outcome, startedAt, worker, runAt, ...error } of job.errors) {
    if (outcome === undefined || startedAt === undefined) continue
    ended.push({
      ...{ fence, attempt, startedAt, at, outcome },
      ...(worker !== undefined && { worker }),
      ...(runAt !== undefined && { runAt }),
      error,
    })
  }
  return ended.toSorted((a, b) => a.fence - b.fence).slice(-ERRORS_KEPT)
}

/** How the lease holder settled an attempt. */
export interface Settled {
  /** What it came to. */
  readonly outcome: 'completed' | Extract<AttemptEnd, 'failed' | 'retried' | 'snoozed' | 'handed-back'>
  /** The lease holder. */
  readonly worker: string
  /** When the job was to run again, of an attempt that is retried or snoozed. */
  readonly runAt?: Time
}

/** The ends that only a lease holder brings about. */
const BY_HOLDER: ReadonlySet<AttemptEnd> = new Set(['failed', 'retried', 'snoozed', 'handed-back'])

/**
 * How the attempt with this fence was settled by its lease holder; undefined: it was not, or that is not known any more.
 * Whoever settled it may say so again without having lost anything.
 */
export function settledAttempt(job: JobRecord, fence: number): Settled | undefined {
  const { state, worker } = job
  // A job that another caller completed has no worker.
  if (state === 'completed' && job.fence === fence + 1 && worker !== undefined) return { outcome: 'completed', worker }
  const ended = endedAttempts(job).find((each) => each.fence === fence)
  if (ended?.worker === undefined || !BY_HOLDER.has(ended.outcome)) return undefined
  const { outcome, runAt } = ended as EndedAttempt & Settled
  return { outcome, worker: ended.worker, ...(runAt !== undefined && { runAt }) }
}
