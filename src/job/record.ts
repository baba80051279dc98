// job/record.ts: copies job records. Each has all fields in the same order, so that all have one shape in the
// JavaScript engine.
import type { JobHeader, JobRecord, MovedJob } from './job.js'

/** All fields of a record, in the order of `copyOf`; a field that is missing here is a type error. */
export const recordFields: { readonly [Field in keyof JobRecord]-?: true } = {
  id: true,
  kind: true,
  queue: true,
  name: true,
  version: true,
  data: true,
  state: true,
  priority: true,
  ord: true,
  fence: true,
  attempt: true,
  attempts: true,
  backoff: true,
  timeout: true,
  worker: true,
  runAt: true,
  expiresAt: true,
  leaseUntil: true,
  brokenAt: true,
  staleAt: true,
  stale: true,
  deleteAt: true,
  dueAt: true,
  chainId: true,
  chainIndex: true,
  parentId: true,
  group: true,
  pending: true,
  stalls: true,
  ahead: true,
  dedup: true,
  keep: true,
  extras: true,
  memo: true,
  progress: true,
  result: true,
  error: true,
  errors: true,
  history: true,
  createdAt: true,
  startedAt: true,
  finishedAt: true,
}

/** A writable record: one of the store's own, or one that no caller has received yet. */
export type Draft = { -readonly [Key in keyof JobRecord]: JobRecord[Key] }

/**
 * A copy: to write to, or to return. Spelled out because it runs for every change: an object made by spreading has a
 * shape of its own, takes three times as long, and slows down all code that reads it.
 */
export function copyOf(job: JobRecord): Draft {
  return {
    id: job.id,
    kind: job.kind,
    queue: job.queue,
    name: job.name,
    version: job.version,
    data: job.data,
    state: job.state,
    priority: job.priority,
    ord: job.ord,
    fence: job.fence,
    attempt: job.attempt,
    attempts: job.attempts,
    backoff: job.backoff,
    timeout: job.timeout,
    worker: job.worker,
    runAt: job.runAt,
    expiresAt: job.expiresAt,
    leaseUntil: job.leaseUntil,
    brokenAt: job.brokenAt,
    staleAt: job.staleAt,
    stale: job.stale,
    deleteAt: job.deleteAt,
    dueAt: job.dueAt,
    chainId: job.chainId,
    chainIndex: job.chainIndex,
    parentId: job.parentId,
    group: job.group,
    pending: job.pending,
    stalls: job.stalls,
    ahead: job.ahead,
    dedup: job.dedup,
    keep: job.keep,
    extras: job.extras,
    memo: job.memo,
    progress: job.progress,
    result: job.result,
    error: job.error,
    errors: job.errors,
    history: job.history,
    createdAt: job.createdAt,
    startedAt: job.startedAt,
    finishedAt: job.finishedAt,
  }
}

/** The header of a job, without its payload. */
export function headerOf(job: JobRecord): JobHeader {
  const {
    data: _data,
    memo: _memo,
    progress: _progress,
    result: _result,
    error: _error,
    errors: _errors,
    history: _history,
    ...header
  } = job
  return header
}

/** What a refusal carries of a job that was moved: its header, and the error of a cancelled one. */
export function movedJob(job: JobRecord): MovedJob {
  const { state, error } = job
  return state === 'cancelled' && error !== undefined ? { ...headerOf(job), error } : headerOf(job)
}

/** Overwrites all fields of a record that can change during the life of a job. */
export function overwrite(target: Draft, job: JobRecord): void {
  target.data = job.data
  target.state = job.state
  target.priority = job.priority
  target.ord = job.ord
  target.fence = job.fence
  target.attempt = job.attempt
  target.worker = job.worker
  target.runAt = job.runAt
  target.expiresAt = job.expiresAt
  target.leaseUntil = job.leaseUntil
  target.brokenAt = job.brokenAt
  target.staleAt = job.staleAt
  target.stale = job.stale
  target.deleteAt = job.deleteAt
  target.dueAt = job.dueAt
  target.pending = job.pending
  target.stalls = job.stalls
  target.ahead = job.ahead
  target.memo = job.memo
  target.progress = job.progress
  target.result = job.result
  target.error = job.error
  target.errors = job.errors
  target.history = job.history
  target.startedAt = job.startedAt
  target.finishedAt = job.finishedAt
}
