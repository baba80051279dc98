// upkeep/upkeep.ts: the due loop: ended delays, expired leases, broken dependencies, schedules, jobs to be removed.
import { isFinished } from '../job/job.js'
import type { JobHeader, JobRecord, Millis, Time } from '../job/job.js'
import { isMillraceError } from '../job/errors.js'
import { due } from '../job/lifecycle.js'
import { isPlain } from '../job/retention.js'
import { backoffDelay } from '../job/retry.js'
import type { Backoff } from '../job/retry.js'
import type { Callbacks } from '../queue/settings/retention.js'
import type { Connection } from '../store/connection.js'
import { PAGE_SIZE, readDetails } from '../store/read-pages.js'
import { poll } from '../store/runtime.js'
import type { Stop } from '../store/runtime.js'
import { runSteps } from '../store/maybe-sync.js'
import type { Due, Group } from '../store/store.js'
import { dueRecords, ownedSignals } from './due-records.js'
import { Retention } from './retention/retention.js'
import type { Retired } from './retention/retention.js'
import { fireDueSchedule } from './schedules.js'
import type { DueResult } from './schedules.js'
import { cancelUnneeded } from './siblings.js'
import { Sweep } from './retention/sweep.js'

/** What upkeep needs of its host. */
export interface UpkeepOptions {
  readonly connection: Connection
  readonly queues: readonly string[]
  /** The longest time between two passes. */
  readonly every: Millis
  /** How long live workers take to renew. Reaping is postponed by that after an outage. */
  readonly renewEvery: Millis
  /** The wait between tries while the store fails. */
  readonly reconnect: Backoff
  /** Called when finished jobs of the first queue become stale or are removed. */
  readonly callbacks: Callbacks | undefined
  /** The jobs that the host is running; upkeep never touches them. */
  running(): readonly string[]
  /** Whether a job that the host does not run may have been claimed for it by a commit that is still unanswered. */
  mayBeClaimed(job: JobHeader): boolean
  /** How many other workers do the same: the more there are, the wider the jitter. */
  others(): number
  /** The store failed. */
  failed(error: unknown): void
}

/**
 * The wait after a pass that found due jobs and applied nothing: other processes were faster, or the store is behind.
 * Prevents a busy loop.
 */
const NO_PROGRESS_WAIT: Millis = 1000

interface CarriedOut {
  readonly carried: readonly DueResult[]
  /** How many jobs were cancelled because they are not needed any more. */
  readonly cancelled: number
  /** The result for finished jobs. */
  readonly retired: Retired
}

/** Handles everything that is due. Any number of these may run at once: every change is fenced. */
export class Upkeep {
  readonly #options: UpkeepOptions
  #timer: Stop | undefined
  /** When the timer fires, by the runtime's own clock. */
  #at: Millis = Infinity
  /** When the next job is due, as far as it is known, by the same clock. The timer fires earlier in case a notice is lost. */
  #dueAt: Millis = Infinity
  #working: Promise<void> | undefined
  #stopped = false
  /** A timer fired during a pass. */
  #again = false
  #failures = 0
  #hadOutage = false
  #holdUntil: Millis = 0
  /** The store's clock minus this process's. */
  #skew: Millis = 0
  /** Schedules that this version cannot read, with their fence when that was reported. */
  readonly #unreadable = new Map<string, number>()
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

  /** Runs a pass now, and from then on whenever something is due. */
  start(): void {
    const { callbacks, queues } = this.#options
    if (callbacks !== undefined) this.#unregister = this.#retention.register(queues[0]!, callbacks)
    this.#schedule(0)
    this.#sweep.start()
  }

  /** Something will be due at that time, by the store's clock. */
  expect(at: Time): void {
    const { now } = this.#options.connection.runtime
    this.#schedule(at - now() - this.#skew + this.#jitter())
  }

  /** The store failed elsewhere in this process: leases may have expired because they could not be renewed. */
  outage(): void {
    this.#hadOutage = true
  }

  /** Stops; resolves when no pass and no callback is in progress. */
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
    this.#dueAt = Math.min(this.#dueAt, runtime.elapsed() + Math.max(0, delay))
    if (at >= this.#at && this.#timer !== undefined) return
    this.#timer?.()
    this.#at = at
    const pass = (late: Millis): void => {
      this.#timer = undefined
      // A timer that is very late means that this process was suspended: other workers may be about to renew.
      if (late > this.#options.renewEvery) this.#hadOutage = true
      this.#at = this.#dueAt = Infinity
      if (this.#working === undefined) this.#working = this.#work().finally(() => (this.#working = undefined))
      else this.#again = true // what it was for may not have been there when the current pass read the store
    }
    this.#timer = poll(runtime, wait, pass, () => Math.max(0, this.#dueAt - at))
  }

  async #work(): Promise<void> {
    const { failed, reconnect, connection } = this.#options
    try {
      const wait = await this.#pass()
      this.#failures = 0
      this.#schedule((this.#again ? 0 : wait) + this.#jitter())
      this.#again = false
    } catch (error) {
      this.#hadOutage = true
      this.#schedule(backoffDelay(reconnect, ++this.#failures, connection.runtime.random))
      if (!this.#stopped) failed(error)
    }
  }

  /** Handles all that is due now; returns how long to wait. */
  async #pass(): Promise<Millis> {
    const { connection, queues, running } = this.#options
    const skipped: string[] = []
    let busy = false
    while (!this.#stopped) {
      const found = await connection.store.due({ queues, except: [...running(), ...skipped], limit: PAGE_SIZE })
      this.#skew = found.now - connection.runtime.now()
      const holding = this.#hold()
      const { carried, cancelled, retired } = await this.#carryOut(found, holding > 0)
      const landed = carried.filter((each) => each.landed).length + retired.landed
      // Leases that may not be reaped yet must not keep the jobs behind them from their turn. The same goes for jobs
      // that other processes remove, and for those that a user transaction has locked. The next pass reads them again.
      const locked = [...carried.flatMap((each) => each.busy ?? []), ...retired.busy]
      const spared = found.jobs.filter((job) => this.#isSpared(job, holding > 0)).map((job) => job.id)
      const held = [...spared, ...retired.held, ...locked]
      busy ||= locked.length > 0 || (holding === 0 && spared.length > 0)
      skipped.push(...held)
      if (found.jobs.length === PAGE_SIZE && landed + held.length > 0) continue
      if (cancelled > 0) continue // the parents they were cancelled for can be handled now
      // The next time of a schedule is known here, so it does not depend on a notice.
      const known = carried.reduce((first, { next: at = Infinity }) => Math.min(first, at), found.next ?? Infinity)
      const next = known - found.now
      if (holding > 0) return Math.min(next, holding, busy ? NO_PROGRESS_WAIT : Infinity)
      return busy || (found.jobs.length > 0 && landed === 0) ? Math.min(next, NO_PROGRESS_WAIT) : next
    }
    return Infinity
  }

  /**
   * How much longer leases may not be reaped: one renewal interval after an outage, so that live workers renew first.
   */
  #hold(): Millis {
    const { connection, renewEvery } = this.#options
    const now = connection.runtime.elapsed()
    if (this.#hadOutage) {
      this.#hadOutage = false
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
    const details = await runSteps(readDetails(store, { jobs: broken, parts: ['edges'] }))
    const edges = new Map(details.map((each) => [each.id, each.edges]))
    let cancelled = 0
    for (const each of details) cancelled += await cancelUnneeded(this.#options.connection, each.edges)
    // Skips jobs that started to run here while the store was read.
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

  async #carry(id: string, group: Group): Promise<DueResult> {
    if (group.length === 0) return { landed: false }
    const verdict = await this.#options.connection.main.tryCommit(group)
    return verdict.ok || verdict.why !== 'busy' ? { landed: verdict.ok } : { landed: false, busy: id }
  }

  /** Handles schedules and signals, whose rules need their payloads. */
  async #carryRows(rows: readonly JobHeader[], now: Time): Promise<readonly DueResult[]> {
    const { store } = this.#options.connection
    const carried: DueResult[] = []
    for await (const records of dueRecords(store, rows)) {
      const owned = await ownedSignals(store, records)
      carried.push(
        ...(await Promise.all(
          records.map((row) =>
            row.kind === 'schedule'
              ? this.#fire(row, now)
              : this.#carry(row.id, due(row, now, undefined, owned.has(row.id))),
          ),
        )),
      )
    }
    return carried
  }

  /** Fires a schedule. One that this version cannot read is reported once and left to other processes. */
  async #fire(job: JobRecord, now: Time): Promise<DueResult> {
    const { main, store } = this.#options.connection
    try {
      return await fireDueSchedule(job, now, {
        commit: (group) => main.tryCommit(group),
        details: (query) => store.details(query),
      })
    } catch (error) {
      if (!isMillraceError(error, 'INVALID_SCHEDULE')) throw error
      if (this.#unreadable.get(job.id) !== job.fence) this.#options.failed(error)
      this.#unreadable.set(job.id, job.fence)
      return { landed: false }
    }
  }

  #jitter(): Millis {
    const { connection, others } = this.#options
    return connection.runtime.random() * Math.min(100, 5 * others())
  }
}
