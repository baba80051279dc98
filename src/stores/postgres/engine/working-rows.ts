// stores/postgres/engine/working-rows.ts: the jobs and edges of a working set, and the undo log of their changes.
import type { Edge, EdgeError, EdgeState, JobRecord, JobState } from '../../../job/job.js'
import type { Draft } from '../../../job/record.js'
import type { StoredEdge } from '../../../engine/workspace.js'
import { UndoLog } from '../../undo-log.js'

/** The payload that changes write to a stored job; `null` empties a field. Errors are JSON. */
export interface Payload {
  data?: string | null
  memo?: string
  progress?: string
  result?: string | null
  error?: string | null
  /** Failed attempts to append. */
  failures?: readonly string[]
}

/** A job of the working set: loaded, or inserted by the batch. */
export class WorkingRow {
  job: Draft
  readonly seq: number
  readonly lane: number
  readonly queue: number
  /** The record as it was loaded; undefined for a job that the batch inserts. */
  readonly loaded: JobRecord | undefined
  removed = false
  /** What a commit has to write of a loaded job: its columns, its lease, or its payload alone. */
  changed = false
  renewed = false
  payload: Payload = {}
  brokenEdges = 0
  logs: readonly (readonly [attempt: number, line: string])[] = []
  /** Results and lengths of steps, by name. */
  steps: ReadonlyMap<string, readonly [result: string | null, ran: number | null]> = new Map()

  constructor(job: Draft, seq: number, lane: number, queue: number, loaded: JobRecord | undefined) {
    this.job = job
    this.seq = seq
    this.lane = lane
    this.queue = queue
    this.loaded = loaded
  }
}

/** An edge of the working set. `chain` may be the only thing known of it besides its state. */
export class WorkingEdge implements StoredEdge {
  readonly row: WorkingRow | undefined
  readonly dependent: string
  readonly chain: string
  readonly position: number
  readonly name: string
  readonly policy: Edge['policy']
  state: EdgeState
  result: string | undefined
  error: EdgeError | undefined
  readonly isNew: boolean
  /** The state in which it was added or loaded. */
  readonly firstState: EdgeState
  changed = false

  constructor(edge: Edge, position: number, row: WorkingRow | undefined, isNew: boolean) {
    this.row = row
    this.dependent = edge.dependent
    this.chain = edge.chain
    this.position = position
    this.name = edge.name
    this.policy = edge.policy
    this.state = edge.state
    this.result = edge.result
    this.error = edge.error
    this.isNew = isNew
    this.firstState = edge.state
  }

  get pending(): number {
    return this.row!.job.pending
  }

  get dependentState(): JobState {
    return this.row!.job.state
  }
}

/** Records how to undo the changes of a group. */
export class Journal {
  readonly #log = new UndoLog()

  begin(): void {
    this.#log.open = true
  }

  keep(): void {
    this.#log.keep()
  }

  rollback(): void {
    this.#log.rollback()
  }

  /** Adds the inverse of a step, in case the group is rolled back. */
  undo(step: () => void): void {
    if (this.#log.open) this.#log.add(step)
  }

  /** Restores a row if the group is rolled back. */
  save(row: WorkingRow): void {
    if (!this.#log.open) return
    const { job, removed, changed, renewed, payload, brokenEdges, logs, steps } = row
    const before = { job, removed, changed, renewed, payload, brokenEdges, logs, steps }
    this.#log.add(() => void Object.assign(row, before))
  }

  /** Sets an entry of a map, until the group is rolled back. */
  put<T>(map: Map<string, T>, key: string, value: T): void {
    const [had, before] = [map.has(key), map.get(key)]
    map.set(key, value)
    this.undo(() => void (had ? map.set(key, before!) : map.delete(key)))
  }
}

/** The list of a key, created if it is missing. */
export function listIn<T>(map: Map<string, T[]>, key: string): T[] {
  let list = map.get(key)
  if (list === undefined) map.set(key, (list = []))
  return list
}

/** A job that decides the state of its chain. */
export interface ChainMember {
  readonly id: string
  readonly index: number
  readonly seq: number
  readonly state: JobState
  readonly result: string | undefined
  readonly error: Edge['error']
}

/** An error that is stored as JSON. */
export function parsedError(text: string | null | undefined): Edge['error'] {
  return text === null || text === undefined ? undefined : (JSON.parse(text) as Edge['error'])
}

/** How a loaded job of a chain has ended, if the batch has changed it. */
export function outcomeOf(
  { job, payload }: WorkingRow,
  member: ChainMember,
): Pick<ChainMember, 'state' | 'result' | 'error'> {
  return {
    state: job.state,
    result: payload.result === undefined ? member.result : (payload.result ?? undefined),
    error: payload.error === undefined ? member.error : parsedError(payload.error),
  }
}
