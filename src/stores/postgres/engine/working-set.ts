// stores/postgres/engine/working-set.ts: requests the rows that the engine may need to apply a batch, and reads the answer.
import { isFinished } from '../../../job/job.js'
import type { Change, Move } from '../../../job/change.js'
import type { EdgePolicy, EdgeState, JobRecord, JobState } from '../../../job/job.js'
import type { Batch } from '../../../store/store.js'
import type { LaneFinder } from '../lanes.js'
import type { IsOwnId } from '../own-ids.js'
import { GROUP } from '../rows.js'
import type { RecordRow } from '../rows.js'

/** A list of texts in the order in which they were first added; absent while it is empty. */
type Texts = readonly string[] | undefined

/** What `load` is to read. Absent lists are empty. */
export interface Request {
  /** Jobs to change: id, the fences that changes name, a new priority, and 1 for a move that may take a finished job back into work. */
  readonly rows?: readonly (readonly [id: string, fences: readonly number[], priority: number | null, revives: 0 | 1])[]
  /** Jobs that this process leases and changes as their holder: they are locked, and not read. With the id of their queue. */
  readonly leases?: readonly (readonly [id: string, fence: number, queue: number])[]
  /** Chains that end. */
  readonly releases?: Texts
  /** Ids of jobs that jobs of the batch are to wait for. */
  readonly dependencies?: Texts
  /** Ids of jobs that are to wait for more: all of their edges are needed. */
  readonly waits?: Texts
  /** Ids of jobs that start over: their broken and closed edges are needed. */
  readonly reopens?: Texts
  /** Ids of new jobs that another process may be adding as well. */
  readonly ids?: Texts
  /** Dedup keys of new jobs. */
  readonly keys?: Texts
  readonly cells?: Texts
  /** Queues that jobs are added to, by id. */
  readonly queues?: readonly (readonly [id: number])[]
  /** Groups that jobs are added to. */
  readonly groups?: readonly (readonly [queue: number, group: string, priority: number])[]
  /** Revoked leases that are given up. */
  readonly orphans?: readonly (readonly [id: string, fence: number])[]
  /** Jobs that a lease holder changes in a user transaction. */
  readonly held?: Texts
  /** Order numbers needed, besides those of dependents. */
  readonly orders: number
  /** Jobs that may be removed; and moved by other callers than their lease holder. */
  readonly removals: number
  readonly changes: number
  readonly tx?: true
}

/** Finds a job that this process leases, as it was claimed. */
export type FindLeased = (id: string, fence: number) => JobRecord | undefined

/** The request for a batch; `leased` is undefined in a user transaction. */
export function requestFor(batch: Batch, lanes: LaneFinder, isOwnId: IsOwnId, leased: FindLeased | undefined): Request {
  const within = leased === undefined
  const rows = new Map<string, [id: string, fences: number[], priority: number | null, revives: 0 | 1]>()
  const [releases, dependencies, waits, reopens] = [
    new Set<string>(),
    new Set<string>(),
    new Set<string>(),
    new Set<string>(),
  ]
  const [ids, keys, cells, held] = [new Set<string>(), new Set<string>(), new Set<string>(), new Set<string>()]
  const queues = new Set<number>()
  const changedByOthers = new Set<string>()
  const groups = new Map<string, readonly [queue: number, group: string, priority: number]>()
  const orphans: (readonly [id: string, fence: number])[] = []
  let [orders, removals, changes] = [0, 0, 0]

  const addRow = (id: string, fence: number): [string, number[], number | null, 0 | 1] => {
    let row = rows.get(id)
    if (row === undefined) rows.set(id, (row = [id, [], null, 0]))
    if (!row[1].includes(fence)) row[1].push(fence)
    return row
  }
  const addMove = (change: Move): void => {
    const row = addRow(change.id, change.fence)
    if (change.set.priority !== undefined) row[2] = change.set.priority
    if (change.to === 'removed') removals++
    else if (!isFinished(change.to)) {
      row[3] = 1
      orders++
    }
    if (!change.held) {
      changes++
      changedByOthers.add(change.id)
    }
    for (const { on } of change.waitsFor ?? []) dependencies.add(on)
    if (change.waitsFor !== undefined) waits.add(change.id)
    if (change.reopens) reopens.add(change.id)
  }
  const add = (change: Change): void => {
    switch (change.kind) {
      case 'insert': {
        const { job, edges } = change
        const lane = lanes(job)
        orders++
        if (!isOwnId(job.id)) ids.add(job.id)
        if (job.dedup !== undefined) keys.add(job.dedup.key)
        for (const { on } of edges) dependencies.add(on)
        if (lane === undefined) return
        queues.add(lane.queue)
        if (job.group !== undefined) {
          groups.set(`${lane.queue} ${job.priority} ${job.group}`, [lane.queue, job.group, job.priority])
        }
        return
      }
      case 'move':
        return addMove(change)
      case 'note':
        addRow(change.id, change.fence)
        if (!change.held) changedByOthers.add(change.id)
        else if (within) held.add(change.id)
        return
      case 'release':
        return void releases.add(change.chain)
      case 'put':
        return void cells.add(change.key)
    }
  }
  for (const group of batch.groups) for (const change of group) add(change)
  for (const { id, fence, lease } of batch.renewals) {
    addRow(id, fence)
    if (lease === 0) {
      orphans.push([id, fence])
      changedByOthers.add(id)
    }
  }
  const leases: (readonly [id: string, fence: number, queue: number])[] = []
  for (const [id, fences, priority] of rows.values()) {
    const job = fences.length === 1 && priority === null ? leased?.(id, fences[0]!) : undefined
    const lane = job && lanes(job)
    // Keys and turns are read with rows.
    if (lane === undefined || job!.dedup !== undefined || job!.group !== undefined) continue
    if (changedByOthers.has(id) || waits.has(id)) continue
    leases.push([id, fences[0]!, lane.queue])
    rows.delete(id)
  }
  const list = <T>(name: string, values: Iterable<T>): object => {
    const items = [...values]
    return items.length === 0 ? {} : { [name]: items }
  }
  return {
    ...list('rows', rows.values()),
    ...list('leases', leases),
    ...list('releases', releases),
    ...list('dependencies', dependencies),
    ...list('waits', waits),
    ...list('reopens', reopens),
    ...list('ids', ids),
    ...list('keys', keys),
    ...list('cells', cells),
    ...list('held', held),
    ...list('orphans', orphans),
    ...list(
      'queues',
      [...queues].map((id) => [id]),
    ),
    ...list('groups', groups.values()),
    orders,
    removals,
    changes,
    ...(within && { tx: true as const }),
  }
}

/** Rows of `working_row`: records without their payload, and the number of broken edges. */
interface Rows {
  readonly rows: readonly RecordRow[]
  /** The jobs of `leases` that are leased indeed. */
  readonly leased: readonly (readonly [id: string, fence: number])[]
  readonly dependents: readonly RecordRow[]
}

/** What decisions depend on besides the rows. */
interface Fixed {
  /** The edges to chains that end. */
  readonly edges: readonly (readonly [chain: string, dependent: string, position: number, state: EdgeState])[]
  /** The edges of jobs in `waits` and `reopens`. */
  readonly edgesOf: readonly (readonly [
    dependent: string,
    position: number,
    chain: string,
    name: string,
    policy: EdgePolicy,
    state: EdgeState,
  ])[]
  /** The jobs that decide the states of chains. */
  readonly ends: readonly (readonly [
    chain: string,
    id: string,
    index: number,
    seq: number,
    state: JobState,
    result: string | null,
    error: string | null,
  ])[]
  /** The dependencies that exist. */
  readonly reachable: readonly (readonly [id: string, chain: string, lane: number])[]
  /** Jobs that have an id of `ids`, or hold a key; without their records once those fill an answer. */
  readonly taken: readonly (readonly [id: string, record: RecordRow | null])[]
  readonly keys: readonly (readonly [key: string, job: string, until: number | null])[]
  readonly cells: readonly (readonly [key: string, value: string, version: number, at: number])[]
  readonly bounds: readonly (readonly [queue: string, pause: string | null, limit: string | null])[]
  readonly backlogs: readonly (readonly [queue: string, jobs: number])[]
  /** With the oldest jobs of the group. */
  readonly groupBacklogs: readonly (readonly [queue: string, group: string, jobs: number, oldest: readonly string[]])[]
  readonly orphans: readonly (readonly [id: string, fence: number, lane: number])[]
  /** What other transactions hold: `row`, `chain`, `id`, `key`, `cell` or `backlog`, and which. */
  readonly busy: readonly string[]
  readonly recording: boolean
}

/** What may change without making a decision wrong. */
interface Extra {
  readonly fence: number
  /** The first number of each block of order numbers. */
  readonly orders: readonly number[]
  /** The turn that a queue has reached in a priority, and the last waiting jobs of a group in it, the last one first. */
  readonly turns: readonly (readonly [
    queue: string,
    group: string,
    priority: number,
    reached: number,
    last: readonly (readonly [id: string, ord: number])[],
  ])[]
  /** Waiting jobs that are locked because others are to wait for them: lane, priority, order. */
  readonly shared: readonly (readonly [lane: number, priority: number, ord: number])[]
  /** Queues with waiting jobs, of those that have limits. */
  readonly waiting: readonly string[]
}

/** A working set: the store's time, and the rows. */
export interface WorkingSet {
  readonly now: number
  readonly fixed: Fixed
  readonly rows: Rows
  readonly extra: Extra
  /** Leased jobs that were not read. */
  readonly held?: readonly JobRecord[]
}

/** Parses a working set; undefined if the text is another answer. */
export function workingSetOf(text: string): WorkingSet | undefined {
  const parts = text.split(GROUP)
  if (parts.length !== 4) return undefined
  const [now, fixed, rows, extra] = parts as [string, string, string, string]
  return {
    now: Number(now),
    fixed: JSON.parse(fixed) as Fixed,
    rows: JSON.parse(rows) as Rows,
    extra: JSON.parse(extra) as Extra,
  }
}

/** The lanes that a working set names by their ids. */
export function lanesIn({ fixed, rows, extra }: WorkingSet): ReadonlySet<number> {
  const lanes = new Set<number>()
  for (const row of rows.rows) lanes.add(row[1] as number)
  for (const row of rows.dependents) lanes.add(row[1] as number)
  for (const [, , lane] of fixed.reachable) lanes.add(lane)
  for (const [, , lane] of fixed.orphans) lanes.add(lane)
  for (const [lane] of extra.shared) lanes.add(lane)
  return lanes
}
