import { describe, expect, it } from 'vitest'
import { withFingerprint } from '../../src/job/errors/fingerprint.js'
import { givenOrder, moveRecord } from '../../src/job/apply.js'
import { endedAttempts, historyBefore, readHistory } from '../../src/job/history.js'
import { ERRORS_KEPT } from '../../src/job/job.js'
import type { JobRecord } from '../../src/job/job.js'
import { cancel, claimed, complete, fail, isDenied, settle } from '../../src/job/lifecycle.js'
import type { Decision, Outcome } from '../../src/job/lifecycle.js'
import { leaseExpired } from '../../src/job/moves.js'
import { NOW, record } from './lifecycle.records.js'

const STARTED = NOW - 500
const held = (over: Partial<JobRecord> = {}): JobRecord => {
  const job = claimed(record(), { worker: 'w1', lease: 30_000, ahead: false, now: STARTED })
  return { ...job, ...over }
}

/** The job after the move among these changes. */
function after(job: JobRecord, decision: Decision, now = NOW): JobRecord {
  if (isDenied(decision)) throw new Error(decision.denied)
  for (const change of decision) {
    if (change.kind !== 'move' || change.to === 'removed') continue
    const added = (change.waitsFor ?? []).map(({ on, policy }) => {
      return {
        dependent: job.id,
        chain: on,
        name: '',
        policy,
        state: 'open',
        result: undefined,
        error: undefined,
      } as const
    })
    return moveRecord(job, change.to, change, 0, givenOrder(job.ord), now, added)
  }
  throw new Error('nothing moves the job')
}

const settled = (outcome: Outcome, over?: Partial<JobRecord>): JobRecord => {
  const job = held(over)
  return after(job, settle(job, outcome))
}

const error = withFingerprint({ name: 'Error', message: 'boom' })
const base = { fence: 8, attempt: 1, startedAt: STARTED, at: NOW, worker: 'w1' }

describe('how an attempt ended', () => {
  it('is not written for one that completed its job: the record shows it', () => {
    const job = settled({ kind: 'returned', result: undefined, also: [] })
    expect([job.history, job.errors]).toEqual([undefined, []])
    expect(job).toMatchObject({ startedAt: STARTED, finishedAt: NOW, worker: 'w1', attempt: 1 })
  })

  it.each([
    ['snoozed', { kind: 'snoozed', for: 2_000 }, { runAt: NOW + 2_000 }],
    ['waited', { kind: 'waits', for: [{ on: 'other', policy: 'fail' }], also: [] }, {}],
    ['handed-back', { kind: 'interrupted' }, {}],
  ] as const)('is kept without an error: %s', (outcome, how, more) => {
    expect(endedAttempts(settled(how))).toEqual([{ ...base, outcome, ...more }])
  })

  it('is kept with its error, and with the time of the retry', () => {
    const retried = settled({ kind: 'threw', error, retryable: true, retryIn: 2_000 })
    expect(endedAttempts(retried)).toEqual([{ ...base, outcome: 'retried', runAt: NOW + 2_000, error }])
    const failed = settled({ kind: 'threw', error, retryable: false, retryIn: 0 })
    expect(endedAttempts(failed)).toEqual([{ ...base, outcome: 'failed', error }])
  })

  it('is kept for a lease that expired, with an error if no attempt is left', () => {
    const job = held()
    expect(endedAttempts(after(job, leaseExpired(job)))).toEqual([{ ...base, outcome: 'stalled' }])
    const last = held({ attempts: 1 })
    const ended = endedAttempts(after(last, leaseExpired(last)))
    expect(ended).toMatchObject([{ ...base, outcome: 'stalled', error: { code: 'JOB_EXHAUSTED' } }])
  })

  it('is kept for a job that another caller ended', () => {
    const job = held()
    const plain = { kind: 'returned', result: undefined, also: [] } as const
    expect(endedAttempts(after(job, cancel(job)))).toEqual([{ ...base, outcome: 'cancelled' }])
    expect(endedAttempts(after(job, cancel(job, 'too late')))).toMatchObject([
      { ...base, outcome: 'cancelled', error: { message: 'too late' } },
    ])
    expect(endedAttempts(after(job, complete(job, plain)))).toEqual([{ ...base, outcome: 'ended-elsewhere' }])
    expect(endedAttempts(after(job, fail(job, error)))).toEqual([{ ...base, outcome: 'ended-elsewhere', error }])
  })

  it('is not kept for a prefetched job that never started, nor for a job that was not active', () => {
    const job = held({ ahead: true })
    expect(endedAttempts(after(job, settle(job, { kind: 'interrupted' })))).toEqual([])
    const waiting = record()
    expect(endedAttempts(after(waiting, cancel(waiting, 'too late')))).toEqual([])
  })

  it('is kept for the last fifty attempts, in their order, whatever they left', () => {
    let job = held()
    for (let n = 0; n < 2 * ERRORS_KEPT; n++) {
      const outcome: Outcome =
        n % 3 === 0 ? { kind: 'threw', error, retryable: true, retryIn: 0 } : { kind: 'snoozed', for: 0 }
      const back = after({ ...job, attempts: Infinity }, settle({ ...job, attempts: Infinity }, outcome))
      job = claimed(back, { worker: 'w1', lease: 1, ahead: false, now: NOW })
    }
    const ended = endedAttempts(job)
    expect(ended).toHaveLength(ERRORS_KEPT)
    expect(ended.map(({ fence }) => fence)).toEqual(ended.map((_, at) => job.fence - 2 * (ERRORS_KEPT - at)))
    expect(readHistory(job.history)).toHaveLength(ERRORS_KEPT)
    expect(readHistory(historyBefore(job.history, job.fence - 4)).at(-1)!.fence).toBeLessThan(job.fence - 4)
  })
})
