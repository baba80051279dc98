// stores/sqlite/rows.ts: converts job records to rows and back.
import type { AttemptError, ErrorInfo, JobKind, JobRecord, JobState } from '../../job/job.js'
import type { Draft } from '../../job/record.js'
import type { Cell } from '../../store/store.js'
import { settingsOf } from '../job-settings.js'
import type { SettingsCache } from '../job-settings.js'
import type { SqlRow, Value } from './file/driver.js'

/** The queue, name and version that jobs share, and whether they have groups. Its id never changes. */
export interface Lane {
  readonly id: number
  readonly queue: number
  readonly queueName: string
  readonly name: string
  readonly version: number
  readonly shared: boolean
}

/** A job as it was read, and its location. */
export interface Found {
  readonly seq: number
  readonly lane: Lane
  readonly job: JobRecord
}

const NO_ERRORS: readonly AttemptError[] = Object.freeze([])

/** The cell in a row. */
export function cellOf([key, value, version, at]: SqlRow): Cell {
  return { key: key as string, value: value as string, version: version as number, at: at as number }
}

/** Converts undefined to null for a column. */
export function nullable<T extends Value>(value: T | undefined): T | null {
  return value === undefined ? null : value
}

/** Longer data is stored beside its job, so that the job's row stays small. In characters. */
const MAX_INLINE = 400

/** Whether data is too large for its job's row. */
export function isBulky(data: string | null | undefined): boolean {
  return data !== null && data !== undefined && data.length > MAX_INLINE
}

const time = (value: Value): number | undefined => (value === null ? undefined : (value as number))
const text = (value: Value): string | undefined => (value === null ? undefined : (value as string))

/** The record in a row of `jobById` or `jobBySeq`; `errors` reads its failed attempts, if there are any. */
export function recordOf(
  row: SqlRow,
  lane: Lane,
  settings: SettingsCache,
  errors: (seq: number) => readonly AttemptError[],
): Draft {
  const id = row[1] as string
  const { backoff, timeout, keep, extras } = settings.parse(row[32] as string | null)
  return {
    id,
    kind: row[3] as JobKind,
    queue: lane.queueName,
    name: lane.name,
    version: lane.version,
    data: text(row[31]!),
    state: row[4] as JobState,
    priority: row[5] as number,
    ord: row[6] as number,
    fence: row[7] as number,
    attempt: row[8] as number,
    attempts: row[9] === null ? Infinity : (row[9] as number),
    backoff,
    timeout,
    worker: text(row[10]!),
    runAt: time(row[11]!),
    expiresAt: time(row[36]!),
    leaseUntil: time(row[12]!),
    brokenAt: time(row[13]!),
    staleAt: time(row[14]!),
    stale: row[15] === 1,
    deleteAt: time(row[16]!),
    dueAt: time(row[17]!),
    chainId: row[18] === null ? id : (row[18] as string),
    chainIndex: row[19] as number,
    parentId: text(row[20]!),
    group: text(row[34]!),
    pending: row[21] as number,
    stalls: row[22] as number,
    ahead: row[23] === 1,
    dedup: row[33] === null ? undefined : JSON.parse(row[33] as string),
    keep,
    extras,
    memo: text(row[35]!),
    progress: text(row[25]!),
    result: text(row[26]!),
    error: row[27] === null ? undefined : JSON.parse(row[27] as string),
    errors: row[24] === 0 ? NO_ERRORS : errors(row[0] as number),
    history: text(row[37]!),
    createdAt: row[28] as number,
    startedAt: time(row[29]!),
    finishedAt: time(row[30]!),
  }
}

/**
 * The record in a row of `laneHead`, `sharedHead` or `groupHead`, for a job that has not changed since it was added;
 * `body` reads large data, which is stored beside the job.
 */
export function newRecordOf(row: SqlRow, lane: Lane, settings: SettingsCache, body: (seq: number) => string): Draft {
  const id = row[1] as string
  const { backoff, timeout, keep, extras } = settings.parse(row[10] as string | null)
  return {
    id,
    kind: 'job',
    queue: lane.queueName,
    name: lane.name,
    version: lane.version,
    data: row[14] === 1 ? body(row[0] as number) : text(row[9]!),
    state: 'waiting',
    priority: row[2] as number,
    ord: row[3] as number,
    fence: row[4] as number,
    attempt: row[5] as number,
    attempts: row[6] === null ? Infinity : (row[6] as number),
    backoff,
    timeout,
    worker: undefined,
    runAt: undefined,
    expiresAt: undefined,
    leaseUntil: undefined,
    brokenAt: undefined,
    staleAt: undefined,
    stale: false,
    deleteAt: undefined,
    dueAt: undefined,
    chainId: id,
    chainIndex: 0,
    parentId: text(row[13]!),
    group: lane.shared ? text(row[15]!) : undefined,
    pending: 0,
    stalls: 0,
    ahead: false,
    dedup: row[11] === null ? undefined : JSON.parse(row[11] as string),
    keep,
    extras,
    memo: undefined,
    progress: undefined,
    result: undefined,
    error: undefined,
    errors: NO_ERRORS,
    history: undefined,
    createdAt: row[8] as number,
    startedAt: undefined,
    finishedAt: undefined,
  }
}

/** A failed attempt in a row of `failuresOf`. */
export function failureOf([fence, attempt, at, error]: SqlRow): AttemptError {
  const info = JSON.parse(error as string) as ErrorInfo
  return { ...info, fence: fence as number, attempt: attempt as number, at: at as number }
}

/** The values of the columns that `insertJob` writes, in order; `bulky`: its data is stored beside it. */
export function insertedColumns(seq: number, lane: Lane, job: JobRecord, bulky: boolean): Value[] {
  return [
    seq,
    job.id,
    lane.queue,
    lane.id,
    job.kind,
    job.state,
    job.priority,
    job.ord,
    job.fence,
    job.attempts === Infinity ? null : job.attempts,
    nullable(job.runAt),
    nullable(job.brokenAt),
    nullable(job.dueAt),
    job.chainId === job.id ? null : job.chainId,
    job.chainIndex,
    nullable(job.parentId),
    job.pending,
    job.createdAt,
    Number(job.chainId !== job.id || job.chainIndex !== 0 || job.pending > 0 || job.expiresAt !== undefined),
    Number(bulky),
    bulky ? null : nullable(job.data),
    settingsOf(job),
    job.dedup === undefined ? null : JSON.stringify(job.dedup),
    nullable(job.group),
    nullable(job.expiresAt),
  ]
}

/** The values of the columns that `move` writes, in order. */
export function movedColumns(job: JobRecord): Value[] {
  return [
    job.state,
    job.priority,
    job.ord,
    job.fence,
    job.attempt,
    nullable(job.worker),
    nullable(job.runAt),
    nullable(job.leaseUntil),
    nullable(job.brokenAt),
    nullable(job.staleAt),
    Number(job.stale),
    nullable(job.deleteAt),
    nullable(job.dueAt),
    job.pending,
    job.stalls,
    Number(job.ahead),
    job.errors.length,
    nullable(job.result),
    job.error === undefined ? null : JSON.stringify(job.error),
    nullable(job.finishedAt),
    nullable(job.expiresAt),
    nullable(job.history),
  ]
}
