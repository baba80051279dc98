// stores/memory/row.ts: a stored job and the places it hangs in: its lane, its name, its queue, its chain.
import { isFinished, jobStates } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import type { Lifetime } from '../../store/store.js'
import type { Draft } from '../../job/record.js'
import { boundsOf } from '../queue-bounds.js'
import type { Bounds } from '../queue-bounds.js'
import type { Taken } from '../rates.js'
import type { ChainEnd } from '../apply.js'
import { BTree } from './btree.js'

/**
 * A stored job. Its record is the table's own and written over in place, which spares the collector a copy for every
 * change; whoever asks for it is given a copy. Only `replace` in `table.ts` writes to it.
 */
export interface Row {
  /** The order of insertion, over all queues. */
  readonly seq: number
  readonly job: Draft
  readonly lane: Lane
  readonly group: Grouped | undefined
  /** The chain, once it has, or had, more than one job. */
  chain: Chain | undefined
}

/** The waiting jobs of one queue, name and version, with a group or without, in the order in which they are claimed. */
export interface Lane {
  readonly name: Named
  readonly version: number
  /** Of jobs with a group: their places are turns. */
  readonly shared: boolean
  readonly rows: BTree<Row>
}

/** What a queue knows about one of its names. */
export interface Named {
  readonly name: string
  readonly queue: Queued
  /** By version; those of jobs with a group by its negative. */
  readonly lanes: Map<number, Lane>
  /** Rows that hang here, schedules included. */
  rows: number
  /** Jobs by the index of their state, schedules aside. */
  readonly counts: number[]
  /** Leases that count against limits: active jobs and orphans. */
  leases: number
  /** Claims pass it over. */
  paused: boolean
  /** Leases at a time. */
  limit: number
}

/** What the table knows about one queue. */
export interface Queued {
  readonly name: string
  readonly names: Map<string, Named>
  readonly groups: Map<string, Grouped>
  /** The highest turn that was claimed, by priority. */
  readonly come: Map<number, number>
  /** Claims that count against rates, by what is bounded. */
  readonly taken: Map<string, Taken>
  /** Lanes with jobs in them. */
  readonly ready: Set<Lane>
  /** Jobs by the index of their state, in the order of insertion, schedules aside. */
  readonly listing: readonly BTree<Row>[]
  readonly schedules: BTree<Row>
  /** Active jobs, by the end of their lease. */
  readonly leased: BTree<Row>
  /** All others that time will do something to, by when. */
  readonly timed: BTree<Row>
  readonly lifetime: { -readonly [Key in keyof Lifetime]: number }
  leases: number
  paused: boolean
  limit: number
  /** Jobs that are neither finished nor claimed. */
  backlog: number
  backlogLimit: number
  /** What bounds names and groups. */
  bounds: Bounds
  pausedNames: ReadonlySet<string>
}

/** One group in one queue. */
export interface Grouped {
  readonly name: string
  readonly queue: Queued
  /** Its jobs, in the order of insertion. */
  readonly rows: BTree<Row>
  /** Those that are neither finished nor claimed. */
  readonly backlog: BTree<Row>
  /** Those that wait, by lane, in the order in which they are claimed. */
  readonly waiting: Map<Lane, BTree<Row>>
  /** Leases that count against limits: active jobs and orphans. */
  leases: number
}

/** The jobs of a chain. */
export interface Chain {
  readonly id: string
  readonly rows: BTree<Row>
  unfinished: number
}

/** The order of insertion. */
export const bySeq = (a: Row, b: Row): number => a.seq - b.seq

/** The order in which jobs are claimed; turns may be the same. */
export function byPlace(a: Row, b: Row): number {
  return a.job.priority - b.job.priority || a.job.ord - b.job.ord || a.seq - b.seq
}

function byDueAt(a: Row, b: Row): number {
  return a.job.dueAt! - b.job.dueAt! || a.seq - b.seq
}

function byChainIndex(a: Row, b: Row): number {
  return a.job.chainIndex - b.job.chainIndex || a.seq - b.seq
}

const NO_BOUNDS = boundsOf(undefined, undefined)

/** A queue without jobs, pauses or limits. */
export function queued(name: string): Queued {
  return {
    name,
    names: new Map(),
    groups: new Map(),
    come: new Map(),
    taken: new Map(),
    ready: new Set(),
    listing: jobStates.map(() => new BTree(bySeq)),
    schedules: new BTree(bySeq),
    leased: new BTree(byDueAt),
    timed: new BTree(byDueAt),
    lifetime: { added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0 },
    leases: 0,
    paused: false,
    limit: Infinity,
    backlog: 0,
    backlogLimit: Infinity,
    bounds: NO_BOUNDS,
    pausedNames: new Set(),
  }
}

/** A name without jobs, under the settings of its queue. */
export function named(queue: Queued, name: string): Named {
  return {
    name,
    queue,
    lanes: new Map(),
    rows: 0,
    counts: jobStates.map(() => 0),
    leases: 0,
    paused: queue.pausedNames.has(name),
    limit: queue.bounds.limitedNames.get(name) ?? Infinity,
  }
}

/** A lane without jobs. */
export function lane(name: Named, version: number, shared: boolean): Lane {
  return { name, version, shared, rows: new BTree(byPlace) }
}

/** A chain without jobs. */
export function chain(id: string): Chain {
  return { id, rows: new BTree(byChainIndex), unfinished: 0 }
}

/** How the chain of a job ended: as its last job did; undefined while one of its jobs is unfinished. */
export function chainEnd(row: Row): ChainEnd | undefined {
  if (row.chain !== undefined && row.chain.unfinished > 0) return undefined
  const { state, result, error } = (row.chain?.rows.max ?? row).job
  return isFinished(state) ? { state, result, error } : undefined
}

/** The place of a state in `jobStates`. Spelled out because a lookup by text is several times slower. */
export function stateIndex(state: JobState): number {
  switch (state) {
    case 'waiting':
      return 0
    case 'delayed':
      return 1
    case 'waiting-children':
      return 2
    case 'active':
      return 3
    case 'completed':
      return 4
    case 'failed':
      return 5
    case 'cancelled':
      return 6
  }
}

/** The jobs of a queue in one state, in the order of insertion. */
export function listed(queue: Queued, state: JobState): BTree<Row> {
  return queue.listing[stateIndex(state)]!
}

/** The index of times that a record belongs in, if any. */
export function clockOf(queue: Queued, job: JobRecord): BTree<Row> | undefined {
  if (job.dueAt === undefined) return undefined
  return job.state === 'active' ? queue.leased : queue.timed
}

/** Whether a state counts towards the backlog. */
export function isBacklog(state: JobState): boolean {
  return state !== 'active' && !isFinished(state)
}

/** Whether claims pass this name over. */
export function isPaused(name: Named): boolean {
  return name.paused || name.queue.paused
}

/** Counts a lease more (1) or less (-1). */
export function countLease(name: Named, by: 1 | -1): void {
  name.leases += by
  name.queue.leases += by
}

/** Lets a name be found before the first thing is hung on it. */
export function enlist(name: Named): void {
  if (name.rows === 0 && name.leases === 0) name.queue.names.set(name.name, name)
}

/** Forgets a name that nothing hangs on any more; a queue stays, for its lifetime counters. */
export function retire(name: Named): void {
  if (name.rows === 0 && name.leases === 0) name.queue.names.delete(name.name)
}
