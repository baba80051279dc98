// stores/memory/workspace.ts: the table as the engine sees it during one commit.
import type { ChainState, Orders } from '../../job/apply.js'
import type { Note } from '../../job/change.js'
import { LOGS_KEPT } from '../../job/job.js'
import type { Edge, JobRecord, JobState, LogLine, StepResult, Time } from '../../job/job.js'
import { mayRenew, renewed } from '../../job/lifecycle.js'
import { boundsOf } from '../../job/limits.js'
import type { Bounds, Rate, TakenTokens } from '../../job/limits.js'
import { copyOf } from '../../job/record.js'
import type { Draft } from '../../job/record.js'
import type { Handlers } from '../../engine/handler-index.js'
import { boundedQueue } from '../../engine/put.js'
import type { ClaimWorkspace, LaneCursor, StoredEdge } from '../../engine/workspace.js'
import { cellKey } from '../../store/settings.js'
import type { Cell } from '../../store/store.js'
import type { Lifetime } from '../../store/tally.js'
import type { WaitingRows } from './waiting-rows.js'
import type { EdgeRow } from './edges.js'
import { advanceTurn, groupIn } from './groups.js'
import { chainEnd, NO_BOUNDS } from './row.js'
import type { Lane, QueueRow, Row } from './row.js'
import { add, drop, laneOf, queueOf, replace } from './table.js'
import type { Table } from './table.js'

/** An edge, and its dependent. */
class EdgeTo implements StoredEdge {
  readonly edge: EdgeRow
  readonly row: Row

  constructor(edge: EdgeRow, row: Row) {
    this.edge = edge
    this.row = row
  }

  get state(): Edge['state'] {
    return this.edge.state
  }

  get pending(): number {
    return this.row.job.pending
  }

  get dependentState(): JobState {
    return this.row.job.state
  }
}

/** Reads the first job of an index again and again: a job that is claimed leaves the index. */
class Cursor implements LaneCursor {
  readonly #rows: WaitingRows<Row>
  readonly #now: Time
  #row: Row

  private constructor(rows: WaitingRows<Row>, now: Time, row: Row) {
    this.#rows = rows
    this.#now = now
    this.#row = row
  }

  /** A cursor over an index; undefined if none of its jobs can be claimed. */
  static over(rows: WaitingRows<Row>, now: Time): Cursor | undefined {
    const first = rows.firstUnexpired(now)
    return first && new Cursor(rows, now, first)
  }

  get priority(): number {
    return this.#row.job.priority
  }

  get ord(): number {
    return this.#row.job.ord
  }

  get seq(): number {
    return this.#row.seq
  }

  get group(): string | undefined {
    return this.#row.job.group
  }

  get limits(): JobRecord {
    return this.#row.job
  }

  read(): Row {
    return this.#row
  }

  next(): boolean {
    const first = this.#rows.firstUnexpired(this.#now)
    if (first === undefined) return false
    this.#row = first
    return true
  }

  /** Where groups are limited, a cursor reads one group. */
  skip(): readonly LaneCursor[] {
    return []
  }
}

const NO_EDGES: readonly StoredEdge[] = Object.freeze([])
const NO_QUEUES: readonly string[] = Object.freeze([])
const NO_TOKENS: TakenTokens = Object.freeze([])

/** Rates that are checked for removal whenever a new rate is stored. */
const SWEEP_LIMIT = 4

/** The workspace over a table. While the undo log is open, every step adds its inverse. */
export class MemoryWorkspace implements ClaimWorkspace {
  readonly orders: Orders
  readonly #table: Table
  readonly #now: Time

  constructor(table: Table, now: Time) {
    this.#table = table
    this.#now = now
    this.orders = table.orders
  }

  get highestFence(): number {
    return this.#table.highestFence
  }

  beginGroup(): void {
    this.#table.undoLog.open = true
  }

  keepGroup(): void {
    this.#table.undoLog.keep()
  }

  rollbackGroup(): void {
    this.#table.undoLog.rollback()
  }

  find(id: string): Row | undefined {
    return this.#table.rows.get(id)
  }

  record(id: string): JobRecord | undefined {
    const row = this.#table.rows.get(id)
    return row && copyOf(row.job)
  }

  inserted(job: JobRecord): JobRecord {
    return copyOf(job)
  }

  insert(job: Draft): Row | undefined {
    const table = this.#table
    if (table.rows.has(job.id)) return undefined
    const row: Row = {
      seq: table.seq++,
      job,
      lane: laneOf(table, job.queue, job.name, job.version, job.group !== undefined),
      group: job.group === undefined ? undefined : groupIn(queueOf(table, job.queue), job.group),
      chain: undefined,
    }
    add(table, row)
    return row
  }

  write(row: Row, after: Draft): void {
    replace(this.#table, row, after)
  }

  remove(row: Row): void {
    const table = this.#table
    const { job } = row
    if (job.fence > table.highestFence) table.highestFence = job.fence
    drop(table, row)
    table.edges.drop(job.id)
    this.#deleteFrom(table.logs, job.id)
    this.#deleteFrom(table.steps, job.id)
  }

  #deleteFrom<T>(map: Map<string, T>, id: string): void {
    const value = map.get(id)
    if (value === undefined) return
    map.delete(id)
    const { undoLog } = this.#table
    if (undoLog.open) undoLog.add(() => void map.set(id, value))
  }

  note(row: Row, { progress, data, memo, steps, logs }: Note): void {
    const { id, attempt } = row.job
    if (progress !== undefined || data !== undefined || memo !== undefined) {
      const job = copyOf(row.job)
      if (progress !== undefined) job.progress = progress
      if (data !== undefined) job.data = data ?? undefined
      if (memo !== undefined) job.memo = memo
      replace(this.#table, row, job)
    }
    for (const step of steps ?? []) this.#writeStep(id, step)
    if (logs !== undefined && logs.length > 0) this.#appendLogs(id, logs, attempt)
  }

  #writeStep(id: string, { name, result, ran }: StepResult): void {
    const { steps: stepsOf, undoLog } = this.#table
    const steps = stepsOf.get(id) ?? new Map<string, StepResult>()
    const was = steps.get(name)
    stepsOf.set(id, steps.set(name, ran === undefined ? { name, result } : { name, result, ran, endedAt: this.#now }))
    if (!undoLog.open) return
    undoLog.add(() => {
      if (was !== undefined) steps.set(name, was)
      else steps.delete(name)
    })
  }

  /** Appends lines to a job's log. The oldest lines are dropped, and restored if the group is refused. */
  #appendLogs(id: string, lines: readonly string[], attempt: number): void {
    const { logs: logsOf, undoLog } = this.#table
    const logs: LogLine[] = logsOf.get(id) ?? []
    logsOf.set(id, logs)
    const last = logs.at(-1)?.index ?? 0
    lines.forEach((line, at) => logs.push({ index: last + at + 1, at: this.#now, attempt, line }))
    const dropped = logs.length > LOGS_KEPT ? logs.splice(0, logs.length - LOGS_KEPT) : []
    if (!undoLog.open) return
    undoLog.add(() => {
      logs.unshift(...dropped)
      logs.length -= lines.length
      if (logs.length === 0) logsOf.delete(id)
    })
  }

  renew(id: string, fence: number, until: Time, started: boolean): boolean {
    const row = this.#table.rows.get(id)
    if (row === undefined || !mayRenew(row.job, fence)) return false
    replace(this.#table, row, renewed(row.job, { until, started }))
    return true
  }

  count(row: Row, what: keyof Lifetime): void {
    const { lifetime } = row.lane.nameRow.queue
    lifetime[what]++
    const { undoLog } = this.#table
    if (undoLog.open) undoLog.add(() => void lifetime[what]--)
  }

  chainOf(id: string): JobRecord | undefined {
    return this.#table.rows.get(id)?.job
  }

  chainState(chain: string): ChainState {
    const { chains, rows } = this.#table
    const row = chains.get(chain)?.rows.max ?? rows.get(chain)
    return row?.job.chainId === chain ? chainEnd(row) : 'gone'
  }

  chainsOf(row: Row): readonly string[] {
    return this.#table.edges.of(row.job.id).map(({ chain }) => chain)
  }

  failedEdges(row: Row): readonly EdgeRow[] {
    return this.#table.edges.of(row.job.id)
  }

  edgesOn(chain: string): readonly StoredEdge[] {
    const { edges, rows } = this.#table
    const all = edges.on(chain)
    if (all === undefined) return NO_EDGES
    const open: EdgeTo[] = []
    for (const edge of all) if (edge.state !== 'ended') open.push(new EdgeTo(edge, rows.get(edge.dependent)!))
    // A running job may add edges late.
    return open.length > 1 ? open.toSorted((a, b) => a.row.seq - b.row.seq) : open
  }

  dependentOf({ row }: EdgeTo): Row {
    return row
  }

  addEdges(row: Row, edges: readonly Edge[]): void {
    this.#table.edges.add(row.job.id, edges)
  }

  setEdge({ edge }: EdgeTo, to: Pick<Edge, 'state' | 'result' | 'error'>): void {
    this.#table.edges.setState(edge, to)
  }

  reopenEdges(
    _row: Row,
    changed: readonly { readonly edge: EdgeRow; readonly to: Pick<Edge, 'state' | 'result' | 'error'> }[],
  ): void {
    for (const { edge, to } of changed) this.#table.edges.setState(edge, to)
  }

  closeBroken(row: Row): number {
    return this.#table.edges.closeBroken(row.job.id)
  }

  anyBroken(row: Row): boolean {
    return this.#table.edges.anyBroken(row.job.id)
  }

  countDown({ row }: EdgeTo): void {
    row.job.pending--
    const { undoLog } = this.#table
    if (undoLog.open) undoLog.add(() => void row.job.pending++)
  }

  keyHolder(key: string): string | undefined {
    return this.#table.keys.holder(key, this.#now)?.id
  }

  takeKey(key: string, id: string, until: Time | undefined): void {
    this.#table.keys.take({ key, id, until })
  }

  freeKey(key: string, id: string): void {
    this.#table.keys.free(key, id)
  }

  sweepKeys(): void {
    this.#table.keys.sweep(this.#now)
  }

  addOrphan(row: Row, lease: Pick<JobRecord, 'fence' | 'worker'>, until: Time): void {
    this.#table.orphans.add(row.job.id, lease, row, until)
  }

  endOrphan(id: string, fence: number): string | undefined {
    return this.#table.orphans.end(id, fence)?.name.queue.name
  }

  expireOrphans(): readonly string[] {
    const { orphans } = this.#table
    if (orphans.size === 0) return NO_QUEUES
    const queues: string[] = []
    for (let expired = orphans.expire(this.#now); expired !== undefined; expired = orphans.expire(this.#now)) {
      queues.push(expired.name.queue.name)
    }
    return queues
  }

  cell(key: string): Cell | undefined {
    return this.#table.cells.get(key)
  }

  putCell(key: string, cell: Cell | undefined): void {
    const { cells, undoLog } = this.#table
    const before = cells.get(key)
    if (undoLog.open) undoLog.add(() => this.putCell(key, before))
    if (cell === undefined) cells.delete(key)
    else cells.set(key, cell)
    const queue = boundedQueue(key)
    if (queue === undefined) return
    const [pause, limit] = [cells.get(cellKey.pause(queue)), cells.get(cellKey.limit(queue))]
    queueOf(this.#table, queue).bounds = boundsOf(pause?.value, limit?.value)
  }

  bounds(queue: string): Bounds {
    return this.#table.queues.get(queue)?.bounds ?? NO_BOUNDS
  }

  backlog(queue: string): number {
    return this.#table.queues.get(queue)?.backlog ?? 0
  }

  groupBacklog(queue: string, group: string): number {
    return this.#table.queues.get(queue)?.groups.get(group)?.backlog.size ?? 0
  }

  oldestOfGroup(queue: string, group: string): JobRecord | undefined {
    const oldest = this.#table.queues.get(queue)?.groups.get(group)?.backlog.min
    return oldest && copyOf(oldest.job)
  }

  hasWaiting(queue: string): boolean {
    const row = this.#table.queues.get(queue)
    return row !== undefined && row.ready.size > 0
  }

  readyLanes(queueName: string, handlers: Handlers): Iterable<Lane> {
    const queue = this.#table.queues.get(queueName)
    if (queue === undefined) return []
    if (handlers.has(undefined) || queue.ready.size <= handlers.size) return queue.ready
    const lanes: Lane[] = []
    for (const name of handlers.keys()) {
      for (const lane of queue.names.get(name!)?.lanes.values() ?? []) if (lane.rows.size > 0) lanes.push(lane)
    }
    return lanes
  }

  openLane(lane: Lane, _size: number, groupsLimited: boolean): readonly LaneCursor[] {
    const cursors: Cursor[] = []
    const open = (rows: WaitingRows<Row> | undefined): void => {
      const cursor = rows && Cursor.over(rows, this.#now)
      if (cursor !== undefined) cursors.push(cursor)
    }
    if (!groupsLimited) open(lane.rows)
    else for (const { waiting } of lane.nameRow.queue.groups.values()) open(waiting.get(lane))
    return cursors
  }

  claim(row: Row, job: Draft): void {
    replace(this.#table, row, job)
  }

  /** Claims are written at once. */
  endClaim(): void {}

  advanceTurn(queue: string, priority: number, turn: number): void {
    advanceTurn(queueOf(this.#table, queue), priority, turn)
  }

  leasesByName(queue: string): Map<string, number> {
    const leases = new Map<string, number>()
    for (const name of this.#table.queues.get(queue)?.names.values() ?? []) leases.set(name.name, name.leases)
    return leases
  }

  leasesByGroup(queue: string): Map<string, number> {
    const leases = new Map<string, number>()
    for (const group of this.#table.queues.get(queue)?.groups.values() ?? []) leases.set(group.name, group.leases)
    return leases
  }

  takenTokens(queue: string, key: string): TakenTokens {
    return this.#table.queues.get(queue)?.rates.get(key)?.tokens ?? NO_TOKENS
  }

  takeTokens(queue: string, key: string, tokens: TakenTokens, { per }: Rate): void {
    const row = queueOf(this.#table, queue)
    if (!row.rates.has(key)) sweepRates(row, this.#now)
    row.rates.set(key, { tokens, until: tokens.at(-1)![0] + per })
  }
}

/** Removes some rates of a queue whose tokens have all returned, in rotation: groups come and go. */
function sweepRates(queue: QueueRow, now: Time): void {
  for (let left = SWEEP_LIMIT; left > 0; left--) {
    queue.sweptRates ??= queue.rates.entries()
    const { done, value } = queue.sweptRates.next()
    if (done) return void (queue.sweptRates = undefined)
    if (value[1].until <= now) queue.rates.delete(value[0])
  }
}
