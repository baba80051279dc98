// job/bulk.ts: the row of a bulk operation: what it holds, and how it is taken over, advanced, paused and ended. Pure.
import { create, move, OWN_ROW } from './change.js'
import type { Change, Insert, Move, Note } from './change.js'
import { isFinished } from './job.js'
import type { JobRecord, JobState, KeepByState, Millis, Time } from './job.js'
import type { JsonText } from './values/json.js'
import type { Decision } from './lifecycle.js'
import { end } from './moves.js'
import { RESERVED } from './values/names.js'

/** What a bulk operation can do with the jobs that match. */
export const bulkActions = ['cancel', 'retry', 'promote', 'remove', 'update'] as const

/** What a bulk operation does with the jobs that match. */
export type BulkAction = (typeof bulkActions)[number]

/** The prefix of the queues that hold the rows of bulk operations: one beside each queue that has any. */
const BULK_QUEUES = `${RESERVED}operations:`

/** The name of the rows. */
const BULK = 'operation'

/** The queue of the bulk operations of a queue. Workers of that queue look at what is due here, and claim nothing. */
export function bulkQueue(queue: string): string {
  return `${BULK_QUEUES}${queue}`
}

/** The queue whose jobs the operations in a queue of theirs change. */
export function queueOfBulk(queue: string): string {
  return queue.slice(BULK_QUEUES.length)
}

/** Whether a row is a bulk operation. */
export function isBulk({ queue }: Pick<JobRecord, 'queue'>): boolean {
  return queue.startsWith(BULK_QUEUES)
}

/** The id of a bulk operation, from a unique part. */
export function bulkId(unique: string): string {
  return `${RESERVED}operation:${unique}`
}

/** A job that a bulk operation could not change. */
export interface BulkRefusal {
  /** Its id. */
  readonly id: string
  /** Its name. */
  readonly name: string
  /** Its state at that moment. */
  readonly state: JobState
  /** The code of the error that the same call for this job alone would throw. */
  readonly code: string
  /** Why, for people to read. */
  readonly message: string
}

/** The most refused jobs that a bulk operation lists. */
export const SAMPLES_KEPT = 10

/** How far a bulk operation has come. It is written in the commit that changes the jobs, so that no crash loses a job. */
export interface BulkProgress {
  /** Jobs changed. */
  readonly done: number
  /** Jobs that already were as asked for. */
  readonly unchanged: number
  /** Jobs that could not be changed, counted by the code of the reason. */
  readonly refused: Readonly<Record<string, number>>
  /** The first of them. */
  readonly samples: readonly BulkRefusal[]
  /** Where the next page begins; absent: at the first one. */
  readonly cursor?: string
  /** Jobs of the next page that have been visited. */
  readonly visited?: readonly string[]
  /** Jobs whose children have yet to be cancelled. */
  readonly cascading?: readonly string[]
  /** Which pass over the jobs it is, from 1: some are refused because of others, and visited again after those. */
  readonly pass: number
  /** Jobs changed in this pass. */
  readonly doneInPass: number
  /** Jobs changed since the rate last let none through, and when the last of them was. */
  readonly spent?: { readonly jobs: number; readonly at: Time }
  /** Stopped until it is resumed. */
  readonly paused?: true
}

const NO_PROGRESS: BulkProgress = { done: 0, unchanged: 0, refused: {}, samples: [], pass: 1, doneInPass: 0 }

/** A bulk operation is kept this long after its end: its result shows who asked for what. */
const KEPT = { deleteAfter: 30 * 24 * 60 * 60 * 1000 }
const KEEP: KeepByState = { completed: KEPT, failed: KEPT, cancelled: KEPT }

/** When a paused operation is due: on 31 December 9999. */
const NEVER: Time = 253_402_300_799_000

/** The row of a new bulk operation. `startsIn`: no other process begins it before; 0: the next one that looks. */
export function newBulk(id: string, queue: string, data: JsonText, startsIn: Millis): Insert {
  // Due after the moment of its insert, so that a job which ends because of it ends later than that.
  const run = { in: Math.max(1, startsIn) }
  return create({ ...OWN_ROW, id, kind: 'job', queue: bulkQueue(queue), name: BULK, data, run, keep: KEEP })
}

/** Parses the progress of a bulk operation. */
export function readBulkProgress({ result }: Pick<JobRecord, 'result'>): BulkProgress {
  return result === undefined ? NO_PROGRESS : (JSON.parse(result) as BulkProgress)
}

/** Takes over a due operation for this long; of several callers, all but one are refused by its fence. */
export function takeBulk(row: JobRecord, lease: Millis): Decision {
  if (isFinished(row.state)) return ENDED(row)
  if (readBulkProgress(row).paused === true) return { denied: 'is paused' }
  return [move(row, 'delayed', { set: { run: { in: lease } } })]
}

/** Writes the progress of a taken operation, which is due again after that time, for the process that finds it then. */
export function advanceBulk(row: Pick<JobRecord, 'id' | 'fence'>, progress: BulkProgress, dueIn: Millis): Move {
  return move(row, 'delayed', { set: { run: { in: dueIn }, result: JSON.stringify(progress) } })
}

/** Ends an operation that has visited all of its jobs. */
export function finishBulk(row: JobRecord, progress: BulkProgress): Change[] {
  return [ended(row, 'completed', progress), ...end(row, 'completed', { result: JSON.stringify(progress) })]
}

/** The note that announces the end of an operation: what it was asked to do, by whom, and what it did. */
function ended(row: JobRecord, state: 'completed' | 'cancelled', progress: BulkProgress): Note {
  const { done, unchanged, refused } = progress
  const about = JSON.stringify({ ...requestIn(row), state, done, unchanged, refused })
  return { kind: 'note', id: row.id, fence: row.fence, held: false, events: [{ type: 'operation-ended', about }] }
}

/** Of a row that cannot be read, nothing: such an operation can be cancelled. */
function requestIn({ data }: JobRecord): { readonly do?: unknown; readonly reason?: unknown; readonly by?: unknown } {
  try {
    const { do: action, reason, by } = JSON.parse(data ?? '') as Readonly<Record<string, unknown>>
    return { do: action, reason, by }
  } catch {
    return {}
  }
}

/** Stops an operation until it is resumed. The process that works on it learns that by its fence, with its next commit. */
export function pauseBulk(row: JobRecord): Decision {
  if (isFinished(row.state)) return ENDED(row)
  const progress = readBulkProgress(row)
  if (progress.paused === true) return []
  const result = JSON.stringify({ ...progress, paused: true } satisfies BulkProgress)
  return [move(row, 'delayed', { set: { run: { at: NEVER }, result } })]
}

/** Lets a paused operation go on. */
export function resumeBulk(row: JobRecord): Decision {
  if (isFinished(row.state)) return ENDED(row)
  const { paused, ...progress } = readBulkProgress(row)
  return paused === true ? [advanceBulk(row, progress, 0)] : []
}

/** Ends an operation for good; what it has done stays done. */
export function cancelBulk(row: JobRecord): Decision {
  if (isFinished(row.state)) return []
  return [ended(row, 'cancelled', readBulkProgress(row)), ...end(row, 'cancelled', {})]
}

const ENDED = ({ state }: JobRecord): { readonly denied: string } => ({
  denied: `is ${state}; start another one with queue.operate`,
})
