// store/settings.ts: the keys of cells, how a cell is changed, and the cells of retention and of the worker registry.
// job/limits.ts has those of pauses and limits.
import type { Put } from '../job/change.js'
import { pauseKey } from '../job/holds.js'
import type { KeepByState } from '../job/job.js'
import { step } from './maybe-sync.js'
import type { Steps } from './maybe-sync.js'
import type { Origin } from './processes.js'
import type { Session } from './session.js'
import type { Verdict } from './store.js'

/** The keys of the known cells. */
export const cellKey = {
  /** Holds a `PauseCell`. */
  pause: pauseKey,
  /** Holds a `LimitCell`. */
  limit: (queue: string): string => `limit:${queue}`,
  /** Holds a `RetentionCell`. */
  retention: (queue: string): string => `retention:${queue}`,
  /** Holds a `WorkerCell`; `at` of the cell is when the worker was last seen. */
  worker: (id: string): string => `worker:${id}`,
  /** Holds a `SteeringCell`. */
  steering: (id: string): string => `steering:${id}`,
} as const

/** Where cells are read and written. */
export type CellSession = Pick<Session, 'details' | 'commit'>

/** The value to write to a cell, and the events to publish with it. */
interface CellChange {
  readonly value: string
  readonly events?: Put['events']
}

/**
 * Writes what `change` makes of the value of a cell; again if another writer was faster, with its value. Writes nothing
 * where `change` returns undefined.
 */
export function* updateCell(
  session: CellSession,
  key: string,
  change: (value: string | undefined) => CellChange | undefined,
): Steps<void> {
  let [cell] = (yield* step(session.details({ cells: [key] }))).cells
  for (;;) {
    const next = change(cell?.value)
    if (next === undefined) return
    const { value, events = [] } = next
    const verdict: Verdict = yield* step(
      session.commit([{ kind: 'put', key, value, version: cell?.version ?? 0, events }]),
    )
    if (verdict.ok) return
    cell = verdict.cell
  }
}

/** The prefix of all worker cells. */
export const WORKERS = 'worker:'

/**
 * How long finished jobs of a queue are kept, where the jobs do not define it, and which processes apply it. Stores do
 * not read it.
 */
export interface RetentionCell {
  /** The retention has callbacks: only processes that have registered them apply it. */
  readonly callbacks?: boolean
  /** Absent: the default. */
  readonly keep?: KeepByState
}

/** The prefix of all cells by which workers are steered. */
export const STEERING = 'steering:'

/** What an operator asks of a worker that claims over HTTP. */
export interface SteeringCell {
  readonly state: 'running' | 'pausing' | 'stopping'
  /** Who asked. */
  readonly by: string
}

/** A worker's entry in the registry. */
export interface WorkerCell {
  readonly id: string
  /** Its readable name, if it has one. */
  readonly name?: string
  readonly host: string
  readonly pid: number
  /** Its process, where it can be identified: others on the same machine can check whether it is gone. */
  readonly origin?: Origin
  readonly queues: readonly string[]
  /** The names it handles; `undefined`: all. */
  readonly names: readonly string[] | undefined
  /** The versions that it handles, of the names that have any. */
  readonly versions: Readonly<Record<string, readonly number[]>>
  readonly state: 'running' | 'paused' | 'stopping'
  /** How many handlers it runs at a time; 0: jobs are claimed by hand. */
  readonly slots?: number
  /** How many were running at its last heartbeat. */
  readonly running?: number
  /** Its heartbeat interval in milliseconds: a live worker writes its entry at least this often. */
  readonly every: number
  readonly startedAt: number
  /** It claims over HTTP, so that it can be asked to pause or to stop. */
  readonly remote?: true
  /** Of such a worker, the lease of its last claim. */
  readonly lease?: number
}
