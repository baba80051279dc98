// stores/sqlite/transaction.ts: one commit in progress: what it has read, counted and has to publish.
import type { JobRecord, JobState, Time } from '../../job/job.js'
import type { Orders } from '../../job/apply.js'
import { turn } from '../../job/limits.js'
import { Counters } from './counters.js'
import type { Cache, Numbers } from './cache.js'
import { Notices } from './notices.js'
import type { Found, Lane } from './rows.js'
import type { Statements } from './statements.js'

/**
 * Jobs claimed through this connection, as they were claimed. While the fence is the same, a job can differ only in its
 * lease and its notes, so that a settlement need not read it again; every such write checks the fence.
 */
export type LeasedJobs = Map<string, Found>

/** Priorities that are checked for removal whenever a new priority appears. */
const SWEEP_LIMIT = 4

/** One commit in progress. */
export class Transaction implements Orders {
  readonly sql: Statements
  readonly cache: Cache
  readonly leased: LeasedJobs
  readonly now: Time
  readonly notices: Notices
  readonly counts = new Counters()
  readonly numbers: Numbers
  readonly #before: Readonly<Numbers>
  /** Limited queues in which leases ended, by id. */
  readonly #leasesEndedIn = new Map<number, string>()
  /** Jobs just completed, each a chain by itself, whose dependents have not been released yet. */
  readonly endedChains: string[] = []
  /** Queues from which jobs were claimed, by id. */
  readonly claimedQueues = new Map<number, string>()
  /** Turns of queues that have advanced in this commit. */
  readonly #turns = new Map<string, readonly [queue: number, priority: number, turn: number]>()
  /** Queues in which a priority got its first turn. */
  readonly #newPriorities = new Set<number>()

  constructor(cache: Cache, leased: LeasedJobs, now: Time, recording: boolean) {
    this.cache = cache
    this.sql = cache.sql
    this.leased = leased
    this.now = now
    this.notices = new Notices(now, recording)
    this.numbers = cache.numbers
    this.#before = { ...this.numbers }
  }

  /** A new order number; insertion numbers of new jobs come from the same counter. */
  next(lifo: boolean): number {
    const number = ++this.numbers.number
    return lifo ? -1 - number : number
  }

  turn(queueName: string, group: string, priority: number): number {
    const { groups } = this.cache
    const queue = this.cache.queue(queueName)!
    const weight = this.cache.bounds(queueName).weight(group)
    return turn(groups.currentTurn(queue, priority), groups.last(queue, group, priority), weight)
  }

  /** Records that a turn was claimed from a queue. */
  advanceTurn(queue: number, priority: number, ord: number): void {
    const { groups } = this.cache
    const before = groups.currentTurn(queue, priority)
    if (ord <= before) return
    if (before === 0) this.#newPriorities.add(queue)
    groups.setCurrentTurn(queue, priority, ord)
    this.#turns.set(`${queue} ${priority}`, [queue, priority, ord])
  }

  /** A job is new or has changed: counts it, and collects its notices. */
  jobChanged(lane: Lane, job: JobRecord, from: JobState | undefined, due: Time | undefined): void {
    if (job.kind === 'job') {
      if (from === undefined) this.counts.lane(lane.id, job.state, 1)
      else this.counts.moved(lane.id, from, job.state)
    } else if (from === undefined) this.counts.lane(lane.id, 'schedule', 1)
    this.notices.jobChanged(job, from, due)
    if (job.group !== undefined && job.kind === 'job') this.cache.groups.jobChanged(lane.queue, job, from)
    if (from === job.state) return
    if (job.state === 'waiting' && job.kind === 'job') this.addWork(lane)
    if (from === 'active') this.leaseEnded(lane)
  }

  /** There may be work to claim in a lane, unless it is paused. */
  addWork(lane: Lane): void {
    if (this.notices.work.has(lane.queueName)) return
    const { paused, pausedNames } = this.cache.bounds(lane.queueName)
    if (!paused && !pausedNames.has(lane.name)) this.notices.work.add(lane.queueName)
  }

  /** A lease has ended, which may make room under a limit. */
  leaseEnded(lane: Lane): void {
    const { queueName } = lane
    if (this.cache.bounds(queueName).limited) this.#leasesEndedIn.set(lane.queue, queueName)
  }

  /** Whether a queue has waiting jobs, according to the counters in the file. */
  hasWaiting(queue: number): boolean {
    return (this.sql.waitingIn.get(queue)![0] as number) > 0
  }

  /** Adds the notices that depend on the counters. */
  finish(): void {
    if (this.#leasesEndedIn.size === 0 && this.claimedQueues.size === 0) return
    this.counts.flush(this.sql)
    for (const [queue, name] of this.#leasesEndedIn) {
      if (!this.notices.work.has(name) && this.hasWaiting(queue)) this.notices.work.add(name)
    }
    for (const [queue, name] of this.claimedQueues) {
      if (this.hasWaiting(queue)) continue
      this.notices.work.delete(name)
      this.notices.addDrained(name)
    }
  }

  /**
   * Forgets the turns of some priorities that no job needs any more, in rotation: programs may use any number of
   * priorities.
   */
  #forgetTurns(queue: number): void {
    const { sql, cache } = this
    const found = sql.turnsAfter.all(queue, cache.sweptTurns.get(queue) ?? '', SWEEP_LIMIT) as [string][]
    for (const [priority] of found) {
      if (sql.needsTurn.get(queue, Number(priority))![0] === 1) continue
      sql.dropTurn.run(queue, priority)
      cache.groups.forgetTurn(queue, priority)
    }
    cache.sweptTurns.set(queue, found.length < SWEEP_LIMIT ? '' : found.at(-1)![0])
  }

  /** Writes the counters, and the numbers that have changed. Call it last. */
  writeNumbers(): void {
    for (const [what, n] of Object.entries(this.numbers)) {
      const before = this.#before[what as keyof Numbers]
      if (n !== before) this.counts.store(what, n - before)
    }
    this.counts.flush(this.sql)
    for (const queue of this.#newPriorities) this.#forgetTurns(queue)
    for (const [queue, priority, ord] of this.#turns.values()) this.sql.setTurn.run(queue, String(priority), ord)
    this.cache.trim()
  }
}
