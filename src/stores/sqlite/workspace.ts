// stores/sqlite/workspace.ts: the file as the engine sees it during one commit.
import type { ChainState, Orders, Reopened } from '../../job/apply.js'
import type { Move, Note } from '../../job/change.js'
import { ERRORS_KEPT, isClaimable, isFinished, LOGS_KEPT } from '../../job/job.js'
import type { Edge, EdgePolicy, EdgeState, FinishedState, JobRecord, JobState, Time } from '../../job/job.js'
import { turn } from '../../job/limits.js'
import type { Bounds, Rate, TakenTokens } from '../../job/limits.js'
import type { Draft } from '../../job/record.js'
import { tagsOf } from '../../job/values/tags.js'
import { boundedQueue } from '../../engine/put.js'
import type { ClaimWorkspace, LaneCursor, StoredEdge } from '../../engine/workspace.js'
import type { Cell } from '../../store/store.js'
import type { Lifetime } from '../../store/tally.js'
import type { Cache, Numbers } from './cache.js'
import { Counters } from './counters.js'
import { isConstraint } from './file/errors.js'
import { openCursor } from './lane-cursors.js'
import { LeasedJobs } from './fast-settle.js'
import type { LeasedById } from './fast-settle.js'
import { writeTo } from './ranges.js'
import { cellOf, insertedColumns, isBulky, movedColumns, nullable } from './rows.js'
import type { Found, Lane } from './rows.js'
import type { Statements } from './statements.js'
import { sweepRates, sweepTurns } from './sweeps.js'

/** An edge to a chain: its dependent by number, and its position among the edges of the dependent. */
interface EdgeTo extends StoredEdge {
  readonly dependent: number
  readonly position: number
}

/** An edge with its position among the edges of its job. */
type PositionedEdge = Edge & { readonly position: number }

/** Claimed jobs with the same lease, which are written together. */
interface SameLease {
  readonly until: Time
  readonly ahead: boolean
  readonly seqs: number[]
}

const NO_EDGES: readonly EdgeTo[] = Object.freeze([])
const NO_QUEUES: readonly string[] = Object.freeze([])
const NO_TOKENS: TakenTokens = Object.freeze([])

/** The workspace of one commit. Counters and numbers are written at its end. */
export class SqliteWorkspace implements ClaimWorkspace, Orders {
  readonly sql: Statements
  readonly cache: Cache
  readonly now: Time
  readonly counts = new Counters()
  readonly numbers: Numbers
  readonly leased: LeasedJobs
  readonly orders: Orders = this
  readonly #before: Readonly<Numbers>
  #restoreCounts: (() => void) | undefined
  #claims: SameLease[] = []
  #claimedSeqs: number[] = []
  /** The numbers of the jobs that each claim took, in order. */
  readonly claimedSeqs: (readonly number[])[] = []
  /** Turns of queues that have advanced in this commit. */
  readonly #turns = new Map<string, readonly [queue: number, priority: number, turn: number]>()
  /** Queues in which a priority got its first turn. */
  readonly #newPriorities = new Set<number>()
  /** Rates that the file has no tokens of. */
  readonly #newRates = new Set<string>()

  constructor(cache: Cache, leased: LeasedById, now: Time) {
    this.cache = cache
    this.sql = cache.sql
    this.now = now
    this.numbers = cache.numbers
    this.#before = { ...this.numbers }
    this.leased = new LeasedJobs(leased, this.sql, now, (row, after, set) => this.#afterWrite(row, after, set))
  }

  get highestFence(): number {
    return this.numbers.fence
  }

  // Order numbers.

  /** A new order number; insertion numbers of new jobs come from the same counter. */
  next(lifo: boolean): number {
    const number = ++this.numbers.number
    return lifo ? -1 - number : number
  }

  turn(queueName: string, group: string, priority: number): number {
    const { groups } = this.cache
    const queue = this.cache.queue(queueName)
    const weight = this.cache.bounds(queueName).weight(group)
    if (queue === undefined) return turn(0, undefined, weight) // its first job
    return turn(groups.currentTurn(queue, priority), groups.last(queue, group, priority), weight)
  }

  advanceTurn(queueName: string, priority: number, ord: number): void {
    const { groups } = this.cache
    const queue = this.cache.queue(queueName)!
    const before = groups.currentTurn(queue, priority)
    if (ord <= before) return
    if (before === 0) this.#newPriorities.add(queue)
    groups.setCurrentTurn(queue, priority, ord)
    this.#turns.set(`${queue} ${priority}`, [queue, priority, ord])
  }

  // Groups of changes.

  beginGroup(): void {
    this.#restoreCounts = this.counts.mark()
    this.sql.beginGroup.run()
  }

  keepGroup(): void {
    this.sql.keepGroup.run()
  }

  rollbackGroup(): void {
    this.sql.rollbackGroup.run()
    this.sql.keepGroup.run()
    this.#restoreCounts!()
    this.cache.forgetCreated()
  }

  // Jobs.

  find(id: string): Found | undefined {
    return this.cache.lightById(id)
  }

  record(id: string): JobRecord | undefined {
    return this.cache.byId(id)?.job
  }

  inserted(job: JobRecord, changed: boolean): JobRecord {
    return changed ? (this.cache.byId(job.id)?.job ?? job) : job
  }

  insert(job: Draft): Found | undefined {
    const lane = this.cache.laneOf(job)
    const seq = job.group === undefined ? seqOf(job) : this.next(false)
    const bulky = isBulky(job.data)
    try {
      this.sql.insertJob.run(...insertedColumns(seq, lane, job, bulky))
    } catch (error) {
      // Any other constraint is an error: a caller that gets a duplicate assumes that the job exists.
      if (isConstraint(error) && this.sql.seqOf.get(job.id) !== undefined) return undefined
      throw error
    }
    if (bulky) this.sql.insertBody.run(seq, job.data!)
    for (const tag of tagsOf(job)) this.sql.addTag.run(lane.queue, tag, seq)
    this.#countChange(lane, job, undefined)
    return { seq, lane, job }
  }

  write(row: Found, after: Draft, set?: Move['set']): void {
    this.sql.move.run(...movedColumns(after), row.seq)
    this.#afterWrite(row, after, set)
  }

  /** Writes what the columns of a move do not hold: payloads, failed attempts and counters. */
  #afterWrite({ seq, lane, job: before }: Found, after: JobRecord, set: Move['set'] | undefined): void {
    if (set !== undefined) {
      if (set.data !== undefined) this.#writeData(seq, set.data)
      if (set.memo !== undefined) this.sql.setMemo.run(set.memo, seq)
      if (set.error) {
        const { fence, attempt, at, ...error } = after.errors.at(-1)!
        this.sql.addFailure.run(seq, fence, attempt, at, JSON.stringify(error))
        if (before.errors.length >= ERRORS_KEPT) this.sql.dropFailures.run(seq, after.errors[0]!.fence)
      }
    }
    this.#countChange(lane, after, before.state)
  }

  remove({ seq, lane, job }: Found): void {
    const { sql } = this
    if (job.fence > this.numbers.fence) this.numbers.fence = job.fence
    sql.removeJob.run(seq)
    sql.removeBody.run(seq)
    sql.removeLogs.run(seq)
    sql.removeSteps.run(seq)
    for (const tag of tagsOf(job)) sql.removeTag.run(lane.queue, tag, seq)
    if (job.errors.length > 0) sql.removeFailures.run(seq)
    if (Number(sql.removeEdges.run(seq).changes) > 0) this.cache.openEdges = undefined
    this.counts.lane(lane.id, job.kind === 'job' ? job.state : 'schedule', -1)
    if (job.group !== undefined) this.cache.groups.forget(lane.queue, job.group)
  }

  note({ seq, job }: Found, { data, progress, memo, steps, logs }: Note): void {
    const { sql } = this
    if (data !== undefined) this.#writeData(seq, data)
    if (progress !== undefined) sql.setProgress.run(progress, seq)
    if (memo !== undefined) sql.setMemo.run(memo, seq)
    for (const { name, result, ran } of steps ?? []) {
      sql.addStep.run(seq, name, nullable(result), nullable(ran), ran === undefined ? null : this.now)
    }
    if (logs === undefined || logs.length === 0) return
    let n = sql.lastLog.get(seq)![0] as number
    // These lines are counted, but not written, because they would be dropped below.
    const dropped = Math.max(0, logs.length - LOGS_KEPT)
    n += dropped
    for (let at = dropped; at < logs.length; at++) sql.addLog.run(seq, ++n, this.now, job.attempt, logs[at]!)
    if (n > LOGS_KEPT) sql.dropLogs.run(seq, n - LOGS_KEPT)
  }

  #writeData(seq: number, data: string | null): void {
    const bulky = isBulky(data)
    this.sql.setData.run(bulky ? null : data, Number(bulky), seq)
    this.sql.removeBody.run(seq)
    if (bulky) this.sql.insertBody.run(seq, data)
  }

  renew(id: string, fence: number, until: Time, started: boolean): boolean {
    const { sql } = this
    const seq = this.leased.find(id, fence)?.seq ?? (sql.seqOf.get(id)?.[0] as number | undefined)
    if (seq !== undefined && Number(sql.renew.run(until, Number(started), seq, fence).changes) > 0) return true
    this.leased.forget(id)
    return false
  }

  count({ lane }: Found, what: keyof Lifetime): void {
    this.counts.lifetime(lane.queue, what)
  }

  /** Counts a job that is new, or went from one state to another. */
  #countChange(lane: Lane, job: JobRecord, from: JobState | undefined): void {
    if (job.kind === 'job') {
      if (isClaimable(job.state)) this.cache.expired.waits(lane.id, job)
      if (from === undefined) this.counts.lane(lane.id, job.state, 1)
      else this.counts.moved(lane.id, from, job.state)
      if (job.group !== undefined) this.cache.groups.jobChanged(lane.queue, job, from)
    } else if (from === undefined) this.counts.lane(lane.id, 'schedule', 1)
  }

  // Chains and edges.

  chainOf(id: string): Pick<JobRecord, 'chainId' | 'name'> | undefined {
    const found = this.sql.chainOf.get(id) as [chainId: string, name: string] | undefined
    return found && { chainId: found[0], name: found[1] }
  }

  chainState(chain: string): ChainState {
    let last: [seq: number, index: number, state: JobState] | undefined
    for (const row of this.sql.chainJobs.all(chain) as [number, number, JobState][]) {
      const [seq, index, state] = row
      if (!isFinished(state)) return undefined
      if (last === undefined || index > last[1] || (index === last[1] && seq > last[0])) last = row
    }
    if (last === undefined) return 'gone'
    // Reads the outcome of the last job only: a chain may have many jobs.
    const [result, error] = this.sql.endOf.get(last[0]) as [result: string | null, error: string | null]
    const state = last[2] as FinishedState
    return { state, result: result ?? undefined, error: error === null ? undefined : JSON.parse(error) }
  }

  chainsOf({ seq }: Found): readonly string[] {
    return this.sql.chainsOf.all(seq).map(([chain]) => chain as string)
  }

  failedEdges({ seq, job: { id: dependent } }: Found): readonly PositionedEdge[] {
    const rows = this.sql.badEdgesOf.all(seq) as [number, string, string, EdgePolicy, EdgeState][]
    return rows.map(([position, chain, name, policy, state]) => {
      return { position, dependent, chain, name, policy, state, result: undefined, error: undefined }
    })
  }

  edgesOn(chain: string): readonly EdgeTo[] {
    if (!this.cache.openEdges) return NO_EDGES
    const rows = this.sql.openEdgesOn.all(chain) as [number, number, EdgeState, number, JobState][]
    return rows.map(([dependent, position, state, pending, dependentState]) => {
      return { dependent, position, state, pending, dependentState }
    })
  }

  dependentOf({ dependent }: EdgeTo): Found {
    return this.cache.lightBySeq(dependent)
  }

  addEdges({ seq }: Found, edges: readonly Edge[], existing: number): void {
    for (const [at, { chain, name, policy, state, result, error }] of edges.entries()) {
      this.sql.addEdge.run(seq, existing + at, chain, name, policy, state, nullable(result), textOf(error))
      if (state !== 'ended') this.cache.openEdges = true
    }
  }

  setEdge({ dependent, position }: EdgeTo, { state, result, error }: Pick<Edge, 'state' | 'result' | 'error'>): void {
    this.sql.setEdge.run(state, nullable(result), textOf(error), dependent, position)
    this.cache.openEdges = undefined
  }

  reopenEdges({ seq }: Found, changed: Reopened<PositionedEdge>['changed']): void {
    for (const { edge, to } of changed) {
      this.sql.setEdge.run(to.state, nullable(to.result), textOf(to.error), seq, edge.position)
      this.cache.openEdges = true
    }
  }

  closeBroken({ seq }: Found): number {
    return Number(this.sql.closeBroken.run(seq).changes)
  }

  anyBroken({ seq }: Found): boolean {
    return this.sql.anyBroken.get(seq) !== undefined
  }

  countDown({ dependent }: EdgeTo): void {
    this.sql.countDown.run(dependent, 1)
  }

  // Dedup keys.

  keyHolder(key: string): string | undefined {
    const holder = this.sql.keyHolder.get(key)
    if (holder === undefined || (holder[1] !== null && (holder[1] as Time) <= this.now)) return undefined
    return holder[0] as string
  }

  takeKey(key: string, id: string, until: Time | undefined): void {
    this.sql.takeKey.run(key, id, nullable(until))
    if (until !== undefined) this.cache.windows = true
  }

  freeKey(key: string, id: string): void {
    this.sql.freeKey.run(key, id)
  }

  sweepKeys(): void {
    const { cache } = this
    if (cache.windows && Number(this.sql.sweepKeys.run(this.now).changes) > 0) cache.windows = undefined
  }

  // Revoked leases.

  addOrphan({ lane, job }: Found, { fence, worker }: Pick<JobRecord, 'fence' | 'worker'>, until: Time): void {
    const { sql, counts } = this
    if (Number(sql.dropOrphan.run(job.id, fence).changes) > 0) counts.lane(lane.id, 'orphaned', -1)
    sql.addOrphan.run(job.id, fence, lane.id, until, nullable(job.group), nullable(worker))
    counts.lane(lane.id, 'orphaned', 1)
    this.cache.orphans = true
  }

  endOrphan(id: string, fence: number): string | undefined {
    const orphan = this.cache.orphans ? this.sql.orphan.get(id, fence) : undefined
    if (orphan === undefined) return undefined
    if (this.leased.find(id, fence) !== undefined) this.leased.forget(id)
    return this.#dropOrphan(id, fence, orphan[0] as number)
  }

  expireOrphans(): readonly string[] {
    if (!this.cache.orphans) return NO_QUEUES
    const expired = this.sql.orphansOver.all(this.now) as [id: string, fence: number, lane: number][]
    return expired.map(([id, fence, lane]) => this.#dropOrphan(id, fence, lane))
  }

  #dropOrphan(id: string, fence: number, lane: number): string {
    this.sql.dropOrphan.run(id, fence)
    this.counts.lane(lane, 'orphaned', -1)
    this.cache.orphans = undefined
    return this.cache.lane(lane).queueName
  }

  // Cells, bounds and backlogs.

  cell(key: string): Cell | undefined {
    const row = this.sql.cell.get(key)
    return row && cellOf(row)
  }

  putCell(key: string, cell: Cell | undefined): void {
    if (cell === undefined) this.sql.dropCell.run(key)
    else this.sql.putCell.run(key, cell.value, cell.version, cell.at)
    const queue = boundedQueue(key)
    if (queue !== undefined) this.cache.forgetBounds(queue)
  }

  bounds(queue: string): Bounds {
    return this.cache.bounds(queue)
  }

  backlog(queue: string): number {
    const id = this.#flushed(queue)
    return id === undefined ? 0 : (this.sql.backlogIn.get(id)![0] as number)
  }

  groupBacklog(queue: string, group: string): number {
    const id = this.cache.queue(queue)
    return id === undefined ? 0 : this.cache.groups.backlog(id, group)
  }

  oldestOfGroup(queue: string, group: string): JobRecord | undefined {
    const id = this.cache.queue(queue)
    const oldest = id === undefined ? null : (this.sql.oldestOfGroup.get(id, group)![0] as number | null)
    return oldest === null ? undefined : this.cache.bySeq(oldest).job
  }

  hasWaiting(queue: string): boolean {
    const id = this.#flushed(queue)
    return id !== undefined && (this.sql.waitingIn.get(id)![0] as number) > 0
  }

  /** The id of a queue, if it has ever held a job, after its counters were written. */
  #flushed(queue: string): number | undefined {
    this.counts.flush(this.sql)
    return this.cache.queue(queue)
  }

  // Claims.

  readyLanes(queue: string): readonly Lane[] {
    const id = this.#flushed(queue)
    return id === undefined ? [] : this.sql.readyLanes.all(id).map(([lane]) => this.cache.lane(lane as number))
  }

  openLane(lane: Lane, size: number): readonly LaneCursor[] {
    return openCursor(this.cache, lane, size, this.now)
  }

  claim({ seq, lane, job: before }: Found, job: Draft): void {
    const same = this.#claims.find(({ until, ahead }) => until === job.leaseUntil && ahead === job.ahead)
    if (same === undefined) this.#claims.push({ until: job.leaseUntil!, ahead: job.ahead, seqs: [seq] })
    else same.seqs.push(seq)
    this.#claimedSeqs.push(seq)
    this.leased.add({ seq, lane, job })
    this.#countChange(lane, job, before.state)
  }

  endClaim(worker: string): void {
    const statements = { range: this.sql.claimRange, many: this.sql.claimMany }
    for (const { until, ahead, seqs } of this.#claims) {
      writeTo(seqs, statements, worker, until, Number(ahead), this.now)
    }
    this.claimedSeqs.push(this.#claimedSeqs)
    this.#claims = []
    this.#claimedSeqs = []
  }

  leasesByName(queue: string): Map<string, number> {
    const id = this.#flushed(queue)
    return new Map(id === undefined ? [] : (this.sql.leasesIn.all(id) as [string, number][]))
  }

  leasesByGroup(queue: string): Map<string, number> {
    const id = this.cache.queue(queue)!
    const leases = new Map(this.sql.groupLeases.all(id) as [string, number][])
    const orphans = this.cache.orphans ? (this.sql.groupOrphans.all(id) as [string, number][]) : []
    for (const [group, count] of orphans) leases.set(group, (leases.get(group) ?? 0) + count)
    return leases
  }

  takenTokens(queue: string, key: string): TakenTokens {
    const id = this.cache.queue(queue)!
    const stored = this.sql.rate.get(id, key)?.[0] as string | undefined
    if (stored !== undefined) return JSON.parse(stored) as TakenTokens
    this.#newRates.add(`${id} ${key}`)
    return NO_TOKENS
  }

  takeTokens(queue: string, key: string, tokens: TakenTokens, { per }: Rate): void {
    const id = this.cache.queue(queue)!
    this.sql.setRate.run(id, key, tokens.at(-1)![0] + per, JSON.stringify(tokens))
    if (this.#newRates.delete(`${id} ${key}`)) sweepRates(this.cache, id, this.now)
  }

  // The end of the commit.

  /** Writes the counters, and the numbers that have changed. Call it last. */
  writeNumbers(): void {
    for (const [what, n] of Object.entries(this.numbers)) {
      const before = this.#before[what as keyof Numbers]
      if (n !== before) this.counts.store(what, n - before)
    }
    this.counts.flush(this.sql)
    for (const queue of this.#newPriorities) sweepTurns(this.cache, queue)
    for (const [queue, priority, ord] of this.#turns.values()) this.sql.setTurn.run(queue, String(priority), ord)
    this.cache.trim()
  }
}

/** The insertion number of a new job without a group, from which its order was derived. */
function seqOf({ ord }: JobRecord): number {
  return ord < 0 ? -1 - ord : ord
}

/** An error as column value. */
function textOf(error: Edge['error']): string | null {
  return error === undefined ? null : JSON.stringify(error)
}
