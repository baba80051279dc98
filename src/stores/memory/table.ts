// stores/memory/table.ts: jobs in memory with all their indexes, kept consistent by three functions: add, replace, drop.
import { isClaimable, isFinished, isLeased, stateIndex } from '../../job/job.js'
import type { JobRecord, JobState, LogLine, StepResult } from '../../job/job.js'
import type { Cell } from '../../store/store.js'
import type { Orders } from '../../job/apply.js'
import { Edges } from './edges.js'
import { UndoLog } from '../undo-log.js'
import { DedupKeys } from './dedup.js'
import { Orphans } from './orphans.js'
import { copyOf, overwrite } from '../../job/record.js'
import { isBacklog, turn } from '../../job/limits.js'
import { enterGroupIndexes, leaveGroupIndexes, joinGroup, lastTurn, leaveGroup } from './groups.js'
import {
  createChain,
  dueIndexOf,
  countLease,
  registerName,
  createLane,
  createName,
  createQueue,
  dropNameIfUnused,
} from './row.js'
import type { Chain, Lane, QueueRow, Row } from './row.js'
import { BTree } from './btree.js'
import { FindIndexes, isListed } from './find-indexes.js'
import { Writers } from './writers.js'

/** All data of a store. */
export interface Table {
  readonly undoLog: UndoLog
  readonly rows: Map<string, Row>
  readonly queues: Map<string, QueueRow>
  /** Chains that have, or had, more than one job, by the id of their first job. */
  readonly chains: Map<string, Chain>
  /** Children by the id of their parent. */
  readonly children: Map<string, BTree<Row>>
  readonly edges: Edges
  readonly keys: DedupKeys
  readonly orphans: Orphans
  readonly logs: Map<string, LogLine[]>
  /** Steps that have ended, by job id and step name. */
  readonly steps: Map<string, Map<string, StepResult>>
  readonly cells: Map<string, Cell>
  readonly find: FindIndexes
  readonly writers: Writers
  /** The highest fence of any job at its removal. New jobs start there, whatever their id. */
  highestFence: number
  /** The next insertion number. */
  seq: number
  /** Assigns order numbers within a priority. */
  readonly orders: Orders
  /** The lane that was looked up last: most consecutive inserts are of the same lane. */
  lastLane: Lane | undefined
}

/** Creates an empty table. */
export function createTable(): Table {
  const undoLog = new UndoLog()
  const queues = new Map<string, QueueRow>()
  return {
    undoLog,
    rows: new Map(),
    queues,
    chains: new Map(),
    children: new Map(),
    edges: new Edges(undoLog),
    keys: new DedupKeys(undoLog),
    orphans: new Orphans(undoLog),
    logs: new Map(),
    steps: new Map(),
    cells: new Map(),
    find: new FindIndexes(),
    writers: new Writers(),
    highestFence: 0,
    seq: 0,
    orders: createOrders(queues),
    lastLane: undefined,
  }
}

/** The queue of this name, created if it does not exist. */
export function queueOf(table: Table, name: string): QueueRow {
  let queue = table.queues.get(name)
  if (queue === undefined) table.queues.set(name, (queue = createQueue(name)))
  return queue
}

/** The lane of this queue, name and version, created if it does not exist; `shared`: for jobs with a group. */
export function laneOf(table: Table, queueName: string, jobName: string, version: number, shared = false): Lane {
  const { lastLane } = table
  if (
    lastLane !== undefined &&
    lastLane.version === version &&
    lastLane.shared === shared &&
    lastLane.name === jobName &&
    lastLane.nameRow.queue.name === queueName &&
    lastLane.nameRow.rows > 0 // else the name may have been removed and created again
  ) {
    return lastLane
  }
  const queue = queueOf(table, queueName)
  const name = queue.names.get(jobName) ?? createName(queue, jobName)
  const key = shared ? -version : version
  let found = name.lanes.get(key)
  if (found === undefined) name.lanes.set(key, (found = createLane(name, version, shared)))
  table.lastLane = found
  return found
}

function createOrders(queues: ReadonlyMap<string, QueueRow>): Orders {
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
  const { nameRow: name } = row.lane
  if (table.undoLog.open) table.undoLog.add(() => drop(table, row))
  table.rows.set(job.id, row)
  registerName(name)
  name.rows++
  if (job.kind !== 'job') name.queue.schedules.insert(row)
  else {
    enterState(row, job.state)
    if (isClaimable(job.state)) enterLane(row)
  }
  joinGroup(row)
  if (job.extras?.tags !== undefined || isListed(job)) table.find.add(row)
  dueIndexOf(name.queue, job)?.insert(row)
  if (job.parentId !== undefined) {
    const siblings = table.children.get(job.parentId)
    if (siblings !== undefined) siblings.insert(row)
    else addFirst(table.children, job.parentId, row)
  }
  if (job.chainId !== job.id || table.chains.size > 0) joinChain(table, row)
}

/** Removes a row from every index. */
export function drop(table: Table, row: Row): void {
  const { job } = row
  const { nameRow: name } = row.lane
  if (table.undoLog.open) table.undoLog.add(() => add(table, row))
  table.rows.delete(job.id)
  if (job.kind !== 'job') name.queue.schedules.delete(row)
  else {
    if (isClaimable(job.state)) leaveLane(row)
    leaveState(row, job.state)
  }
  leaveGroup(row)
  if (job.extras?.tags !== undefined || isListed(job)) table.find.drop(row)
  dueIndexOf(name.queue, job)?.delete(row)
  name.rows--
  dropNameIfUnused(name)
  if (job.parentId !== undefined) {
    const siblings = table.children.get(job.parentId)
    if (siblings?.delete(row) && siblings.size === 0) table.children.delete(job.parentId)
  }
  if (row.chain !== undefined) leaveChain(table, row)
}

/** Overwrites the record of a row, and moves the row between indexes accordingly. */
export function replace(table: Table, row: Row, job: JobRecord): void {
  const before = row.job
  const { queue } = row.lane.nameRow
  if (table.undoLog.open) {
    const copy = copyOf(before)
    table.undoLog.add(() => replace(table, row, copy))
  }
  const from = before.state
  const moves = before.state !== job.state
  if (isListed(before)) table.find.leave(row)
  const retimed = moves || before.dueAt !== job.dueAt
  if (retimed) dueIndexOf(queue, before)?.delete(row)
  if (job.kind !== 'job') overwrite(before, job)
  else {
    const reordered = moves || before.priority !== job.priority || before.ord !== job.ord
    if (reordered && isClaimable(from)) leaveLane(row)
    if (moves) leaveState(row, from)
    if (reordered) leaveGroupIndexes(row)
    const mayRun = before.expiresAt !== job.expiresAt || before.attempt !== job.attempt
    overwrite(before, job)
    if (reordered) enterGroupIndexes(row)
    else if (mayRun && isClaimable(from)) recheckExpiry(row)
    if (moves) enterState(row, job.state)
    if (reordered && isClaimable(job.state)) enterLane(row)
  }
  if (isListed(job)) table.find.enter(row)
  if (retimed) dueIndexOf(queue, job)?.insert(row)
  if (row.chain !== undefined && moves) {
    row.chain.unfinished += Number(isFinished(from)) - Number(isFinished(job.state))
  }
}

function enterLane(row: Row): void {
  const { rows, nameRow: name } = row.lane
  rows.insert(row)
  if (rows.size === 1) name.queue.ready.add(row.lane)
}

/** The expiry of a waiting job has changed. */
function recheckExpiry(row: Row): void {
  row.lane.rows.recheck(row)
  row.group?.waiting.get(row.lane)?.recheck(row)
}

function leaveLane(row: Row): void {
  const { rows, nameRow: name } = row.lane
  rows.delete(row)
  if (rows.size === 0) name.queue.ready.delete(row.lane)
}

function enterState(row: Row, state: JobState): void {
  const { nameRow: name } = row.lane
  const index = stateIndex(state)
  name.queue.listing[index]!.insert(row)
  name.counts[index]!++
  if (isLeased(state)) countLease(name, 1)
  else if (isBacklog(state)) name.queue.backlog++
}

function leaveState(row: Row, state: JobState): void {
  const { nameRow: name } = row.lane
  const index = stateIndex(state)
  name.queue.listing[index]!.delete(row)
  name.counts[index]!--
  if (isLeased(state)) countLease(name, -1)
  else if (isBacklog(state)) name.queue.backlog--
}

function addFirst(children: Map<string, BTree<Row>>, parent: string, row: Row): void {
  const rows = new BTree<Row>((a, b) => a.seq - b.seq)
  rows.insert(row)
  children.set(parent, rows)
}

/** Most chains have one job and need no entry. The second job creates the entry and adds the first job to it. */
function joinChain(table: Table, row: Row): void {
  const { id, chainId } = row.job
  let chain = table.chains.get(chainId)
  if (chain === undefined) {
    if (id === chainId) return
    table.chains.set(chainId, (chain = createChain(chainId)))
    const first = table.rows.get(chainId)
    if (first !== undefined && first.job.chainId === chainId) link(chain, first)
  }
  link(chain, row)
}

function link(chain: Chain, row: Row): void {
  row.chain = chain
  chain.rows.insert(row)
  if (!isFinished(row.job.state)) chain.unfinished++
}

function leaveChain(table: Table, row: Row): void {
  const chain = row.chain!
  row.chain = undefined
  chain.rows.delete(row)
  if (!isFinished(row.job.state)) chain.unfinished--
  if (chain.rows.size === 0) table.chains.delete(chain.id)
}
