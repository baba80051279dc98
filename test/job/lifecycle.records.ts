// Jobs for tests of the rules: the plainest record, request and change, with the fields of a test.

import type { Change, Move } from '../../src/job/change.js'
import type { FinishedState, JobRecord } from '../../src/job/job.js'
import { dueAt } from '../../src/job/lifecycle.js'
import type { JobSpec } from '../../src/job/lifecycle.js'

/** The states that a job ends in. */
export const finished = ['completed', 'failed', 'cancelled'] as const

/** The time at which tests look at jobs. */
export const NOW = 1_000_000

/** A record as a store would hold it, waiting and never claimed by default; `dueAt` follows from the other times. */
export function record(over: Partial<JobRecord> = {}): JobRecord {
  const job: JobRecord = {
    id: 'job-1',
    kind: 'job',
    queue: 'mill',
    name: 'grind',
    version: 1,
    data: '{"grain":"rye"}',
    state: 'waiting',
    priority: 0,
    ord: 4,
    fence: 7,
    attempt: 0,
    attempts: 3,
    backoff: undefined,
    timeout: undefined,
    worker: undefined,
    runAt: undefined,
    expiresAt: undefined,
    leaseUntil: undefined,
    brokenAt: undefined,
    staleAt: undefined,
    stale: false,
    deleteAt: undefined,
    dueAt: undefined,
    chainId: 'job-1',
    chainIndex: 0,
    parentId: undefined,
    group: undefined,
    pending: 0,
    stalls: 0,
    ahead: false,
    dedup: undefined,
    keep: undefined,
    extras: undefined,
    memo: undefined,
    progress: undefined,
    result: undefined,
    error: undefined,
    errors: [],
    history: undefined,
    createdAt: 1_000,
    startedAt: undefined,
    finishedAt: undefined,
    ...over,
  }
  return { ...job, dueAt: dueAt(job) }
}

/** The options of an add. */
export function spec(over: Partial<JobSpec> = {}): JobSpec {
  return {
    id: 'job-1',
    kind: 'job',
    queue: 'mill',
    name: 'grind',
    version: 1,
    data: undefined,
    priority: 0,
    lifo: false,
    attempts: 3,
    backoff: undefined,
    timeout: undefined,
    run: undefined,
    parentId: undefined,
    group: undefined,
    dedup: undefined,
    keep: undefined,
    extras: undefined,
    edges: [],
    ...over,
  }
}

/** A move of the plainest record, plain but for the given fields. */
export function move(to: Move['to'], over: Partial<Move> = {}): Move {
  const plain = { held: false, place: 'old', why: undefined, closesBroken: false, set: {} } as const
  return { kind: 'move', id: 'job-1', fence: 7, to, ...plain, ...over }
}

/** The end of a chain. */
export function release(outcome: FinishedState, chain = 'job-1'): Change {
  return { kind: 'release', chain, outcome }
}

/** The record of a job in its first attempt, leased for a while. */
export function active(over: Partial<JobRecord> = {}): JobRecord {
  return record({ state: 'active', attempt: 1, worker: 'w1', leaseUntil: NOW + 30_000, ...over })
}
