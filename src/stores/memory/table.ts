// stores/memory/table.ts: jobs in memory with every index over them, kept in step by three verbs: add, replace, drop.
import { isFinished } from '../../job/job.js'
import type { JobRecord, JobState, LogLine } from '../../job/job.js'
import type { JsonText } from '../../job/json.js'
import type { Cell, Handled } from '../../store/store.js'
import type { Orders } from '../apply.js'
import { Edges } from './edges.js'
import type { Handlers } from '../handlers.js'
import { UndoLog } from './undo-log.js'
import { DedupKeys } from './dedup.js'
import { Orphans } from './orphans.js'
import { copyOf, overwrite } from '../../job/record.js'
import { turn } from '../fair-order.js'
import { arrive, depart, joinGroup, lastTurn, leaveGroup } from './groups.js'
import { chain, clockOf, countLease, enlist, isBacklog, lane, named, queued, retire, stateIndex } from './row.js'
import type { Chain, Lane, Queued, Row } from './row.js'
import { BTree } from './btree.js'
import { Writers } from './writers.js'

/** Everything a store holds. */
export interface Table {
  readonly journal: UndoLog
  readonly rows: Map<string, Row>
  readonly queues: Map<string, Queued>
  /** Chains that have, or had, more than one job, by the id of the first. */
  readonly chains: Map<string, Chain>
  /** Jobs that have a parent, by its id. */
  readonly children: Map<string, BTree<Row>>
  readonly edges: Edges
  readonly keys: DedupKeys
  readonly orphans: Orphans
  readonly logs: Map<string, LogLine[]>
  /** What the steps of a job came to, by its id and their names. */
  readonly steps: Map<string, Map<string, JsonText | undefined>>
  readonly cells: Map<string, Cell>
  readonly writers: Writers
  /** What was made of the `handles` of asks, which workers send again and again. */
  readonly handlers: WeakMap<readonly Handled[], Handlers>
  /** The highest fence that a job had when it was removed: new jobs begin there, whatever their id. */
  highestFence: number
  /** The next number in the order of insertion. */
  seq: number
  /** Orders within a priority. */
  readonly places: Orders
  /** The lane found last: jobs are mostly added many of a kind. */
  recent: Lane | undefined
}

/** A table without anything in it. */
export function createTable(): Table {
  const journal = new UndoLog()
  const queues = new Map<string, Queued>()
  return {
    journal,
    rows: new Map(),
    queues,
    chains: new Map(),
    children: new Map(),
    edges: new Edges(journal),
    keys: new DedupKeys(journal),
    orphans: new Orphans(journal),
    logs: new Map(),
    steps: new Map(),
    cells: new Map(),
    writers: new Writers(),
    handlers: new WeakMap(),
    highestFence: 0,
    seq: 0,
    places: createPlaces(queues),
    recent: undefined,
  }
}

/** The queue of this name, made if need be. */
export function queueOf(table: Table, name: string): Queued {
  let queue = table.queues.get(name)
  if (queue === undefined) table.queues.set(name, (queue = queued(name)))
  return queue
}

/** The lane of this queue, name and version, of jobs with a group if `shared`, made if need be. */
export function laneOf(table: Table, queueName: string, jobName: string, version: number, shared = false): Lane {
  const { recent } = table
  if (
    recent !== undefined &&
    recent.version === version &&
    recent.shared === shared &&
    recent.name.name === jobName &&
    recent.name.queue.name === queueName &&
    recent.name.rows > 0 // else another may have taken its place
  ) {
    return recent
  }
  const queue = queueOf(table, queueName)
  const name = queue.names.get(jobName) ?? named(queue, jobName)
  const key = shared ? -version : version
  let found = name.lanes.get(key)
  if (found === undefined) name.lanes.set(key, (found = lane(name, version, shared)))
  table.recent = found
  return found
}

function createPlaces(queues: ReadonlyMap<string, Queued>): Orders {
  let next = 0
  return {
    next(lifo) {
      const ord = next++
      return lifo ? -1 - ord : ord
    },
    turn(queueName, groupName, priority) {
      const queue = queues.get(queueName)
      const group = queue?.groups.get(groupName)
      const last = group === undefined ? undefined : lastTurn(group, priority)
      return turn(queue?.come.get(priority) ?? 0, last, queue?.bounds.weight(groupName) ?? 1)
    },
  }
}

/** Adds a row to every index. */
export function add(table: Table, row: Row): void {
  const { job } = row
  const { name } = row.lane
  if (table.journal.open) table.journal.add(() => drop(table, row))
  table.rows.set(job.id, row)
  enlist(name)
  name.rows++
  if (job.kind !== 'job') name.queue.schedules.insert(row)
  else {
    enterState(row, job.state)
    if (job.state === 'waiting') enterLane(row)
  }
  joinGroup(row)
  clockOf(name.queue, job)?.insert(row)
  if (job.parentId !== undefined) {
    const siblings = table.children.get(job.parentId)
    if (siblings !== undefined) siblings.insert(row)
    else addFirst(table.children, job.parentId, row)
  }
  if (job.chainId !== job.id || table.chains.size > 0) joinChain(table, row)
}

/** Takes a row out of every index. */
export function drop(table: Table, row: Row): void {
  const { job } = row
  const { name } = row.lane
  if (table.journal.open) table.journal.add(() => add(table, row))
  table.rows.delete(job.id)
  if (job.kind !== 'job') name.queue.schedules.delete(row)
  else {
    if (job.state === 'waiting') leaveLane(row)
    leaveState(row, job.state)
  }
  leaveGroup(row)
  clockOf(name.queue, job)?.delete(row)
  name.rows--
  retire(name)
  if (job.parentId !== undefined) {
    const siblings = table.children.get(job.parentId)
    if (siblings?.delete(row) && siblings.size === 0) table.children.delete(job.parentId)
  }
  if (row.chain !== undefined) leaveChain(table, row)
}

/** Writes another record over a row's, and puts the row where that belongs. */
export function replace(table: Table, row: Row, job: JobRecord): void {
  const before = row.job
  const { queue } = row.lane.name
  if (table.journal.open) {
    const kept = copyOf(before)
    table.journal.add(() => replace(table, row, kept))
  }
  const from = before.state
  const moves = before.state !== job.state
  const retimed = moves || before.dueAt !== job.dueAt
  if (retimed) clockOf(queue, before)?.delete(row)
  if (job.kind !== 'job') overwrite(before, job)
  else {
    const replaced = moves || before.priority !== job.priority || before.ord !== job.ord
    if (replaced && from === 'waiting') leaveLane(row)
    if (moves) leaveState(row, from)
    if (replaced) depart(row)
    overwrite(before, job)
    if (replaced) arrive(row)
    if (moves) enterState(row, job.state)
    if (replaced && job.state === 'waiting') enterLane(row)
  }
  if (retimed) clockOf(queue, job)?.insert(row)
  if (row.chain !== undefined && moves) {
    row.chain.unfinished += Number(isFinished(from)) - Number(isFinished(job.state))
  }
}

function enterLane(row: Row): void {
  const { rows, name } = row.lane
  rows.insert(row)
  if (rows.size === 1) name.queue.ready.add(row.lane)
}

function leaveLane(row: Row): void {
  const { rows, name } = row.lane
  rows.delete(row)
  if (rows.size === 0) name.queue.ready.delete(row.lane)
}

function enterState(row: Row, state: JobState): void {
  const { name } = row.lane
  const index = stateIndex(state)
  name.queue.listing[index]!.insert(row)
  name.counts[index]!++
  if (state === 'active') countLease(name, 1)
  else if (isBacklog(state)) name.queue.backlog++
}

function leaveState(row: Row, state: JobState): void {
  const { name } = row.lane
  const index = stateIndex(state)
  name.queue.listing[index]!.delete(row)
  name.counts[index]!--
  if (state === 'active') countLease(name, -1)
  else if (isBacklog(state)) name.queue.backlog--
}

function addFirst(children: Map<string, BTree<Row>>, parent: string, row: Row): void {
  const rows = new BTree<Row>((a, b) => a.seq - b.seq)
  rows.insert(row)
  children.set(parent, rows)
}

/** Most chains have one job and need no entry; the second one makes it, and brings in the first. */
function joinChain(table: Table, row: Row): void {
  const { id, chainId } = row.job
  let joined = table.chains.get(chainId)
  if (joined === undefined) {
    if (id === chainId) return
    table.chains.set(chainId, (joined = chain(chainId)))
    const first = table.rows.get(chainId)
    if (first !== undefined && first.job.chainId === chainId) link(joined, first)
  }
  link(joined, row)
}

function link(joined: Chain, row: Row): void {
  row.chain = joined
  joined.rows.insert(row)
  if (!isFinished(row.job.state)) joined.unfinished++
}

function leaveChain(table: Table, row: Row): void {
  const left = row.chain!
  row.chain = undefined
  left.rows.delete(row)
  if (!isFinished(row.job.state)) left.unfinished--
  if (left.rows.size === 0) table.chains.delete(left.id)
}
