// upkeep/upkeep.ts: the due loop: delays that ended, leases that ran out, dependencies that broke, jobs to be removed.
import { isFinished } from '../job/job.js'
import type { JobHeader, JobRecord, Millis, Time } from '../job/job.js'
import { isMillraceError } from '../job/errors.js'
import { due } from '../job/lifecycle.js'
import { isPlain } from '../job/retention.js'
import { backoffDelay } from '../job/retry.js'
import type { Backoff } from '../job/retry.js'
import type { Callbacks } from '../queue/settings/retention.js'
import type { Connection } from '../store/connection.js'
import { readDetails } from '../store/read-pages.js'
import type { Stop } from '../store/runtime.js'
import { stepwise } from '../store/maybe-sync.js'
import type { Due, Group } from '../store/store.js'
import { dueRecords } from './due-records.js'
import { Retention } from './retention/retention.js'
import type { Retired } from './retention/retention.js'
import { fireDueSchedule } from './schedules.js'
import type { FiredSchedule } from './schedules.js'
import { cancelUnneeded } from './siblings.js'
import { ownedSignals } from './signals.js'
import { Sweep } from './retention/sweep.js'

/** What upkeep needs to know of its host. */
export interface UpkeepOptions {
  readonly connection: Connection
  readonly queues: readonly string[]
  /** It looks at least this often. */
  readonly every: Millis
  /** How long living workers take to renew; reaping is held back that long after an outage. */
  readonly renewEvery: Millis
  /** Waits between tries while the store fails. */
  readonly reconnect: Backoff
  /** Who is to be called when finished jobs of the first queue grow old. */
  readonly callbacks: Callbacks | undefined
  /** The jobs that the host is running: never touched from here. */
  running(): readonly string[]
  /** Whether a job that the host does not run may have been claimed for it by a commit whose answer it still waits for. */
  mayBeClaimed(job: JobHeader): boolean
  /** How many others do the same: the more, the wider the jitter. */
  others(): number
  /** Told when the store failed. */
  failed(error: unknown): void
}

const PAGE = 500
/** Where a page was due and nothing landed, others were faster, or the store is behind: no reason to spin. */
const NOTHING_LANDED: Millis = 1000

interface CarriedOut {
  readonly carried: readonly FiredSchedule[]
  /** What nobody needs any more. */
  readonly cancelled: number
  /** What became of finished jobs. */
  readonly retired: Retired
}

/** Carries out what time asks for. Any number of these may run at once: every change is fenced. */
export class Upkeep {
  readonly #options: UpkeepOptions
  #timer: Stop | undefined
  /** When the timer fires, by the runtime's own clock. */
  #at: Millis = Infinity
  #working: Promise<void> | undefined
  #stopped = false
  /** A timer fired while a pass was under way. */
  #again = false
  #failures = 0
  #troubled = false
  #holdUntil: Millis = 0
  /** The store's clock less this process's. */
  #skew: Millis = 0
  /** Schedules that cannot be read here, as they were when that was told. */
  readonly #unread = new Map<string, number>()
  readonly #retention: Retention
  readonly #sweep: Sweep
  #unregister: Stop | undefined

  constructor(options: UpkeepOptions) {
    this.#options = options
    const { connection, queues, others, failed } = options
    const retention = new Retention(connection)
    const now = (): Time => connection.runtime.now() + this.#skew
    this.#retention = retention
    this.#sweep = new Sweep({ connection, queues, retention, now, others, failed })
  }

  /** Looks now, and from then on whenever something is due. */
  start(): void {
    const { callbacks, queues } = this.#options
    if (callbacks !== undefined) this.#unregister = this.#retention.register(queues[0]!, callbacks)
    this.#schedule(0)
    this.#sweep.start()
  }

  /** Something will be due then, by the store's clock. */
  expect(at: Time): void {
    const { now } = this.#options.connection.runtime
    this.#schedule(at - now() - this.#skew + this.#jitter())
  }

  /** The store failed somewhere else in this process: leases may have run out that nobody could renew. */
  trouble(): void {
    this.#troubled = true
  }

  /** Stops looking; resolves when nothing is under way, and all that were called have ended. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#timer?.()
    this.#timer = undefined
    await Promise.all([this.#working, this.#sweep.stop()])
    this.#unregister?.()
    await this.#retention.idle()
  }

  #schedule(delay: Millis): void {
    if (this.#stopped) return
    const { runtime } = this.#options.connection
    const wait = Math.max(0, Math.min(delay, this.#options.every))
    const at = runtime.elapsed() + wait
    if (at >= this.#at && this.#timer !== undefined) return
    this.#timer?.()
    this.#at = at
    this.#timer = runtime.timer(wait, () => {
      this.#timer = undefined
      // A timer that is very late means that this process slept: others may be about to renew.
      if (runtime.elapsed() - at > this.#options.renewEvery) this.#troubled = true
      this.#at = Infinity
      if (this.#working === undefined) this.#working = this.#work().finally(() => (this.#working = undefined))
      else this.#again = true // what it was for may not have been there when the pass under way looked
    })
  }

  async #work(): Promise<void> {
    const { every, failed, reconnect, connection } = this.#options
    try {
      const wait = await this.#pass()
      this.#failures = 0
      this.#schedule((this.#again ? 0 : Math.min(every, wait)) + this.#jitter())
      this.#again = false
    } catch (error) {
      this.#troubled = true
      this.#schedule(backoffDelay(reconnect, ++this.#failures, connection.runtime.random))
      if (!this.#stopped) failed(error)
    }
  }

  /** Deals with all that is due now; answers how long to wait. */
  async #pass(): Promise<Millis> {
    const { connection, queues, running } = this.#options
    const heldBack: string[] = []
    let busy = false
    while (!this.#stopped) {
      const seen = await connection.store.due({ queues, except: [...running(), ...heldBack], limit: PAGE })
      this.#skew = seen.now - connection.runtime.now()
      const holding = this.#hold()
      const { carried, cancelled, retired } = await this.#carryOut(seen, holding > 0)
      const landed = carried.filter((each) => each.landed).length + retired.landed
      // Leases that are not to be reaped yet must not keep what stands behind them from its turn.
      // So must those that others are to remove, and those that a user's transaction holds: the next pass looks at them again.
      const locked = [...carried.flatMap((each) => each.busy ?? []), ...retired.busy]
      const spared = seen.jobs.filter((job) => this.#isSpared(job, holding > 0)).map((job) => job.id)
      const held = [...spared, ...retired.held, ...locked]
      busy ||= locked.length > 0 || (holding === 0 && spared.length > 0)
      heldBack.push(...held)
      if (seen.jobs.length === PAGE && landed + held.length > 0) continue
      if (cancelled > 0) continue // what they were cancelled for can be decided upon
      // When a schedule comes again is known from here, whether or not anybody tells.
      const known = carried.reduce((first, { next: at = Infinity }) => Math.min(first, at), seen.next ?? Infinity)
      const next = known - seen.now
      if (holding > 0) return Math.min(next, holding, busy ? NOTHING_LANDED : Infinity)
      return busy || (seen.jobs.length > 0 && landed === 0) ? Math.min(next, NOTHING_LANDED) : next
    }
    return Infinity
  }

  /** How much longer leases are not to be reaped: one renewal interval after trouble, so that the living renew first. */
  #hold(): Millis {
    const { connection, renewEvery } = this.#options
    const now = connection.runtime.elapsed()
    if (this.#troubled) {
      this.#troubled = false
      this.#holdUntil = now + renewEvery
    }
    return Math.max(0, this.#holdUntil - now)
  }

  /** Whether a lease is not to be reaped for now. */
  #isSpared(job: JobHeader, holding: boolean): boolean {
    return job.state === 'active' && (holding || this.#options.mayBeClaimed(job))
  }

  async #carryOut({ now, jobs }: Due, holding: boolean): Promise<CarriedOut> {
    const { store } = this.#options.connection
    const broken = jobs.filter((job) => job.state === 'waiting-children').map((job) => job.id)
    const details = await stepwise(readDetails(store, { jobs: broken, parts: ['edges'] }))
    const edges = new Map(details.map((each) => [each.id, each.edges]))
    let cancelled = 0
    for (const each of details) cancelled += await cancelUnneeded(this.#options.connection, each.edges)
    // One that began to run here while we looked is left alone as well.
    const running = new Set(this.#options.running())
    const own = jobs.filter((job) => !running.has(job.id) && !this.#isSpared(job, holding))
    const carrying = own
      .filter(isPlain)
      .filter(({ state }) => !isFinished(state))
      .map((job) => this.#carry(job.id, due(job, now, edges.get(job.id))))
    const [carried, rows, retired] = await Promise.all([
      Promise.all(carrying),
      this.#carryRows(
        own.filter(({ kind }) => kind !== 'job'),
        now,
      ),
      this.#retention.carryOut(
        jobs.filter((job) => isFinished(job.state) && job.kind === 'job'),
        now,
      ),
    ])
    return { carried: [...carried, ...rows], cancelled, retired }
  }

  async #carry(id: string, group: Group): Promise<FiredSchedule> {
    if (group.length === 0) return { landed: false }
    const verdict = await this.#options.connection.main.tryCommit(group)
    return verdict.ok || verdict.why !== 'busy' ? { landed: verdict.ok } : { landed: false, busy: id }
  }

  /** Schedules and signals: what they are due for is in their payloads. */
  async #carryRows(rows: readonly JobHeader[], now: Time): Promise<readonly FiredSchedule[]> {
    const { store } = this.#options.connection
    const carried: FiredSchedule[] = []
    for await (const records of dueRecords(store, rows)) {
      const owned = await ownedSignals(store, records)
      carried.push(
        ...(await Promise.all(
          records.map((row) =>
            row.kind === 'schedule'
              ? this.#round(row, now)
              : this.#carry(row.id, due(row, now, undefined, owned.has(row.id))),
          ),
        )),
      )
    }
    return carried
  }

  /** A schedule that cannot be read here, as one of a later version, is told of once and left to others. */
  async #round(job: JobRecord, now: Time): Promise<FiredSchedule> {
    const { main, store } = this.#options.connection
    try {
      return await fireDueSchedule(job, now, {
        commit: (group) => main.tryCommit(group),
        details: (query) => store.details(query),
      })
    } catch (error) {
      if (!isMillraceError(error, 'INVALID_SCHEDULE')) throw error
      if (this.#unread.get(job.id) !== job.fence) this.#options.failed(error)
      this.#unread.set(job.id, job.fence)
      return { landed: false }
    }
  }

  #jitter(): Millis {
    const { connection, others } = this.#options
    return connection.runtime.random() * Math.min(100, 5 * others())
  }
}
