// stores/sqlite/transaction.ts: one commit under way: what it has read, counted and has to tell.
import type { JobRecord, JobState, Time } from '../../job/job.js'
import type { Orders } from '../apply.js'
import { turn } from '../fair-order.js'
import { Counters } from './counters.js'
import type { Cache, Numbers } from './cache.js'
import { Notices } from './notices.js'
import type { Found, Lane } from './rows.js'
import type { Statements } from './statements.js'

/**
 * Jobs claimed through this connection, as they were claimed. A job that still has that fence is the same but for its
 * lease and its notes, so that whoever settles it need not read it again; every write through here checks the fence.
 */
export type Held = Map<string, Found>

/** Priorities that are looked at for each that is new, whether their turns can be forgotten. */
const SWEPT = 4

/** One commit under way. */
export class Transaction implements Orders {
  readonly sql: Statements
  readonly ground: Cache
  readonly held: Held
  readonly now: Time
  readonly news: Notices
  readonly counts = new Counters()
  readonly numbers: Numbers
  readonly #before: Readonly<Numbers>
  /** Limited queues in which leases ended, by number. */
  readonly #credited = new Map<number, string>()
  /** Jobs just completed, each a chain by itself, whose dependents have not been told yet. */
  readonly ended: string[] = []
  /** Queues from which jobs were claimed, by number. */
  readonly claimed = new Map<number, string>()
  /** The turns that queues have come to in this commit. */
  readonly #come = new Map<string, readonly [queue: number, priority: number, turn: number]>()
  /** Queues that have come to a turn in another priority. */
  readonly #further = new Set<number>()

  constructor(ground: Cache, held: Held, now: Time, recording: boolean) {
    this.ground = ground
    this.sql = ground.sql
    this.held = held
    this.now = now
    this.news = new Notices(now, recording)
    this.numbers = ground.numbers
    this.#before = { ...this.numbers }
  }

  /** A fresh place; the number of a new job comes from the same count. */
  next(lifo: boolean): number {
    const number = ++this.numbers.number
    return lifo ? -1 - number : number
  }

  turn(queueName: string, group: string, priority: number): number {
    const { groups } = this.ground
    const queue = this.ground.queue(queueName)!
    const weight = this.ground.bounds(queueName).weight(group)
    return turn(groups.come(queue, priority), groups.last(queue, group, priority), weight)
  }

  /** A turn was claimed from a queue. */
  came(queue: number, priority: number, ord: number): void {
    const { groups } = this.ground
    const before = groups.come(queue, priority)
    if (ord <= before) return
    if (before === 0) this.#further.add(queue)
    groups.came(queue, priority, ord)
    this.#come.set(`${queue} ${priority}`, [queue, priority, ord])
  }

  /** A job is new or has another record: counts it, and says what there is to tell. */
  placed(lane: Lane, job: JobRecord, from: JobState | undefined, due: Time | undefined): void {
    if (job.kind === 'job') {
      if (from === undefined) this.counts.lane(lane.id, job.state, 1)
      else this.counts.moved(lane.id, from, job.state)
    } else if (from === undefined) this.counts.lane(lane.id, 'schedule', 1)
    this.news.placed(job, from, due)
    if (job.group !== undefined && job.kind === 'job') this.ground.groups.placed(lane.queue, job, from)
    if (from === job.state) return
    if (job.state === 'waiting' && job.kind === 'job') this.work(lane)
    if (from === 'active') this.credited(lane)
  }

  /** There may be work to claim in a lane, unless it is paused. */
  work(lane: Lane): void {
    if (this.news.work.has(lane.queueName)) return
    const { paused, pausedNames } = this.ground.bounds(lane.queueName)
    if (!paused && !pausedNames.has(lane.name)) this.news.work.add(lane.queueName)
  }

  /** A lease has ended, which may let others in. */
  credited(lane: Lane): void {
    const { queueName } = lane
    if (this.ground.bounds(queueName).limited) this.#credited.set(lane.queue, queueName)
  }

  /** Whether a queue has jobs waiting, by the counters in the file. */
  hasWaiting(queue: number): boolean {
    return (this.sql.waitingIn.get(queue)![0] as number) > 0
  }

  /** Says what follows from the counts. */
  finish(): void {
    if (this.#credited.size === 0 && this.claimed.size === 0) return
    this.counts.flush(this.sql)
    for (const [queue, name] of this.#credited) {
      if (!this.news.work.has(name) && this.hasWaiting(queue)) this.news.work.add(name)
    }
    for (const [queue, name] of this.claimed) {
      if (this.hasWaiting(queue)) continue
      this.news.work.delete(name)
      this.news.tellDrained(name)
    }
  }

  /** Forgets the turns of some priorities, going round, that no job can go by any more: programs may have any number of them. */
  #forgetTurns(queue: number): void {
    const { sql, ground } = this
    const found = sql.turnsAfter.all(queue, ground.sweptTurns.get(queue) ?? '', SWEPT) as [string][]
    for (const [priority] of found) {
      if (sql.goesByTurn.get(queue, Number(priority))![0] === 1) continue
      sql.dropTurn.run(queue, priority)
      ground.groups.forgetCome(queue, priority)
    }
    ground.sweptTurns.set(queue, found.length < SWEPT ? '' : found.at(-1)![0])
  }

  /** Writes what was counted, and the numbers that have changed; the last step of all. */
  keep(): void {
    for (const [what, n] of Object.entries(this.numbers)) {
      const before = this.#before[what as keyof Numbers]
      if (n !== before) this.counts.store(what, n - before)
    }
    this.counts.flush(this.sql)
    for (const queue of this.#further) this.#forgetTurns(queue)
    for (const [queue, priority, ord] of this.#come.values()) this.sql.setTurn.run(queue, String(priority), ord)
    this.ground.trim()
  }
}
