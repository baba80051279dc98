// job/stalls.ts: decides about jobs whose worker is gone: its lease expired, or it is known to be dead.
import type { Change } from './change.js'
import type { ErrorInfo, JobHeader } from './job.js'
import { end, move } from './moves.js'

/** Decides about a job whose lease has expired: its worker is dead, frozen or disconnected. */
export function leaseExpired(job: JobHeader): Change[] {
  return stalled(job, true, `The lease of worker ${job.worker} ran out`)
}

/** What to do with a job whose worker is known to be dead. */
export type Recovery = 'retry' | 'fail'

/**
 * Decides about a job whose worker is known to be dead although its lease still runs: retried as if the lease had
 * expired, or failed for good, because it is unknown how far its handler came. The caller must give up the lease as
 * well, because it counts against limits until then.
 */
export function orphaned(job: JobHeader, recovery: Recovery): Change[] {
  const died = `Worker ${job.worker}, which held it, has died`
  if (recovery === 'retry') return stalled(job, undefined, died)
  const message = `${died} in attempt ${job.attempt} of ${job.attempts}.`
  return end(job, 'failed', { error: { name: 'MillraceError', code: 'WORKER_DIED', message }, stalls: job.stalls + 1 })
}

/** Grants another attempt, if there is one left; a prefetched job gets its attempt back. */
function stalled(job: JobHeader, reaps: true | undefined, why: string): Change[] {
  const stalls = job.stalls + 1
  if (job.ahead) return [move(job, 'waiting', { reaps, why: 'stalled', set: { stalls, attempt: job.attempt - 1 } })]
  if (job.attempt < job.attempts) return [move(job, 'waiting', { reaps, why: 'stalled', set: { stalls } })]
  const error: ErrorInfo = {
    name: 'MillraceError',
    code: 'JOB_EXHAUSTED',
    message: `${why} in attempt ${job.attempt} of ${job.attempts}: exhausted.`,
  }
  return end(job, 'failed', { error, stalls }, reaps && { reaps })
}
