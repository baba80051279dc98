// job/stalls.ts: what becomes of jobs whose worker is gone: because its lease ran out, or because it is known to be dead.
import type { Change } from './change.js'
import type { ErrorInfo, JobHeader } from './job.js'
import { end, move } from './moves.js'

/** What becomes of a job whose lease has run out: its worker is dead, frozen or cut off. */
export function leaseRanOut(job: JobHeader): Change[] {
  return stalled(job, true, `The lease of worker ${job.worker} ran out`)
}

/** What becomes of a job whose worker is known to be dead. */
export type Recovery = 'retry' | 'fail'

/**
 * Decides about a job whose worker is known to be dead though its lease still runs: as if the lease had run out, or failed
 * for good, since nobody knows how far its handler has come. The lease must be given up as well, for it counts until then.
 */
export function orphaned(job: JobHeader, recovery: Recovery): Change[] {
  const died = `Worker ${job.worker}, which held it, has died`
  if (recovery === 'retry') return stalled(job, undefined, died)
  const message = `${died} in attempt ${job.attempt} of ${job.attempts}.`
  return end(job, 'failed', { error: { name: 'MillraceError', code: 'WORKER_DIED', message }, stalls: job.stalls + 1 })
}

/** Another attempt, if there is one; one leased ahead gets its attempt back. */
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
