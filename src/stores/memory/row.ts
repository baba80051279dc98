// stores/memory/row.ts: a stored job and the indexes that contain it: of its lane, its name, its queue and its chain.
import { isFinished, isLeased, jobStates, stateIndex } from '../../job/job.js'
import type { JobRecord, JobState, Time } from '../../job/job.js'
import type { Lifetime } from '../../store/tally.js'
import type { Draft } from '../../job/record.js'
import { boundsOf } from '../../job/limits.js'
import type { Bounds, TakenTokens } from '../../job/limits.js'
import type { ChainEnd } from '../../job/apply.js'
import { BTree } from './btree.js'
import { WaitingRows } from './waiting-rows.js'

/**
 * A stored job. The table owns its record and overwrites it in place, which saves a copy per change; readers get a
 * copy. Only `replace` in `table.ts` writes to it.
 */
export interface Row {
  /** Insertion order over all queues. */
  readonly seq: number
  readonly job: Draft
  readonly lane: Lane
  readonly group: GroupRow | undefined
  /** The chain, once it has, or had, more than one job. */
  chain: Chain | undefined
}

/** The waiting jobs of one queue, name and version, either with or without groups, in claim order. */
export interface Lane {
  readonly name: string
  readonly nameRow: NameRow
  readonly version: number
  /** For jobs with a group, which are in fair order. */
  readonly shared: boolean
  readonly rows: WaitingRows<Row>
}

/** What a queue stores about one of its names. */
export interface NameRow {
  readonly name: string
  readonly queue: QueueRow
  /** By version; lanes of jobs with a group by the negative version. */
  readonly lanes: Map<number, Lane>
  /** Number of rows of this name, including schedules. */
  rows: number
  /** Number of jobs by index of state, without schedules. */
  readonly counts: number[]
  /** Leases that count against limits: active jobs and orphans. */
  leases: number
}

/** Tokens that count against a rate, and when the last of them returns. */
interface StoredRate {
  readonly tokens: TakenTokens
  readonly until: Time
}

/** What the table stores about one queue. */
export interface QueueRow {
  readonly name: string
  readonly names: Map<string, NameRow>
  readonly groups: Map<string, GroupRow>
  /** The highest turn that was claimed, by priority. */
  readonly come: Map<number, number>
  /** By the key of the rate. */
  readonly rates: Map<string, StoredRate>
  /** How far the rates have been swept; undefined: not since the last of them was. */
  sweptRates: MapIterator<[key: string, rate: StoredRate]> | undefined
  /** Lanes that contain jobs. */
  readonly ready: Set<Lane>
  /** Jobs by index of state, in insertion order, without schedules. */
  readonly listing: readonly BTree<Row>[]
  readonly schedules: BTree<Row>
  /** Active jobs, by the end of their lease. */
  readonly leased: BTree<Row>
  /** All other jobs with a due time, by that time. */
  readonly timed: BTree<Row>
  readonly lifetime: { -readonly [Key in keyof Lifetime]: number }
  leases: number
  /** Jobs that are neither finished nor claimed. */
  backlog: number
  bounds: Bounds
}

/** One group in one queue. */
export interface GroupRow {
  readonly name: string
  readonly queue: QueueRow
  /** Its jobs, in insertion order. */
  readonly rows: BTree<Row>
  /** Its jobs that are neither finished nor claimed. */
  readonly backlog: BTree<Row>
  /** Its waiting jobs by lane, in claim order. */
  readonly waiting: Map<Lane, WaitingRows<Row>>
  /** Leases that count against limits: active jobs and orphans. */
  leases: number
}

/** The jobs of a chain. */
export interface Chain {
  readonly id: string
  readonly rows: BTree<Row>
  unfinished: number
}

/** Insertion order. */
export const bySeq = (a: Row, b: Row): number => a.seq - b.seq

function byDueAt(a: Row, b: Row): number {
  return a.job.dueAt! - b.job.dueAt! || a.seq - b.seq
}

function byChainIndex(a: Row, b: Row): number {
  return a.job.chainIndex - b.job.chainIndex || a.seq - b.seq
}

/** The bounds of a queue without pauses and limits. */
export const NO_BOUNDS = boundsOf(undefined, undefined)

/** Creates a queue without jobs, pauses or limits. */
export function createQueue(name: string): QueueRow {
  return {
    name,
    names: new Map(),
    groups: new Map(),
    come: new Map(),
    rates: new Map(),
    sweptRates: undefined,
    ready: new Set(),
    listing: jobStates.map(() => new BTree(bySeq)),
    schedules: new BTree(bySeq),
    leased: new BTree(byDueAt),
    timed: new BTree(byDueAt),
    lifetime: { added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0 },
    leases: 0,
    backlog: 0,
    bounds: NO_BOUNDS,
  }
}

/** Creates a name without jobs. */
export function createName(queue: QueueRow, name: string): NameRow {
  return {
    name,
    queue,
    lanes: new Map(),
    rows: 0,
    counts: jobStates.map(() => 0),
    leases: 0,
  }
}

/** Creates a lane without jobs. */
export function createLane(nameRow: NameRow, version: number, shared: boolean): Lane {
  return { name: nameRow.name, nameRow, version, shared, rows: new WaitingRows() }
}

/** Creates a chain without jobs. */
export function createChain(id: string): Chain {
  return { id, rows: new BTree(byChainIndex), unfinished: 0 }
}

/** The end of a job's chain, which is its last job; undefined while one of its jobs is unfinished. */
export function chainEnd(row: Row): ChainEnd | undefined {
  if (row.chain !== undefined && row.chain.unfinished > 0) return undefined
  const { state, result, error } = (row.chain?.rows.max ?? row).job
  return isFinished(state) ? { state, result, error } : undefined
}

/** The jobs of a queue in one state, in insertion order. */
export function listed(queue: QueueRow, state: JobState): BTree<Row> {
  return queue.listing[stateIndex(state)]!
}

/** The index by due time that contains a record, if any. */
export function dueIndexOf(queue: QueueRow, job: JobRecord): BTree<Row> | undefined {
  if (job.dueAt === undefined) return undefined
  return isLeased(job.state) ? queue.leased : queue.timed
}

/** Counts 1 lease more or 1 less. */
export function countLease(name: NameRow, by: 1 | -1): void {
  name.leases += by
  name.queue.leases += by
}

/** Registers a name in its queue before the first row or lease is added to it. */
export function registerName(name: NameRow): void {
  if (name.rows === 0 && name.leases === 0) name.queue.names.set(name.name, name)
}

/** Removes a name without rows and leases. Its queue stays, for its lifetime counters. */
export function dropNameIfUnused(name: NameRow): void {
  if (name.rows === 0 && name.leases === 0) name.queue.names.delete(name.name)
}
