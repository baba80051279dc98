// upkeep/upkeep.ts: the due loop: ended delays, expired leases, broken dependencies, schedules, jobs to be removed.
import { bulkQueue } from '../job/bulk.js'
import { isFinished } from '../job/job.js'
import type { JobHeader, JobRecord, Millis, Time } from '../job/job.js'
import { isMillraceError } from '../job/errors/errors.js'
import { due } from '../job/lifecycle.js'
import { isPlain } from '../job/retention.js'
import type { PlainJob } from '../job/retention.js'
import { backoffDelay } from '../job/retry.js'
import type { Backoff } from '../job/retry.js'
import type { Callbacks } from '../queue/settings/retention.js'
import type { EndedOperation } from '../queue/operations/bulk/run.js'
import type { Connection } from '../store/connection.js'
import { PAGE_SIZE, readDetails } from '../store/read-pages.js'
import { poll } from '../store/runtime.js'
import type { Stop } from '../store/runtime.js'
import { runSteps } from '../store/maybe-sync.js'
import type { Due, Group } from '../store/store.js'
import { BulkRuns, isDueBulk } from './bulk-runs.js'
import { dueRecords, ownedSignals } from './due-records.js'
import type { KeepLast } from './retention/keep-last.js'
import { Retention } from './retention/retention.js'
import type { Retired } from './retention/retention.js'
import { fireDueSchedule } from '../queue/settings/schedule-firing.js'
import type { DueResult } from '../queue/settings/schedule-firing.js'
import { cancelUnneeded } from './siblings.js'
import { Sweep } from './retention/sweep.js'
import { StoreClock } from './store-clock.js'

/** What upkeep is made of: settings, and parts of the worker that it runs in. */
export interface UpkeepParts {
  readonly connection: Connection
  /** The queues that it serves; its owner may add to them. */
  readonly queues: readonly string[]
  /** The longest time between two passes. */
  readonly every: Millis
  /** How long live workers take to renew. Reaping is postponed by that after an outage. */
  readonly renewEvery: Millis
  /** How long a run of a bulk operation that is silent keeps it from other workers. */
  readonly lease: Millis
  /** The wait between tries while the store fails. */
  readonly reconnect: Backoff
  /** Keeps the newest finished jobs of names that have such a rule. */
  readonly keepLast: KeepLast
  /** Called when finished jobs of the first queue become stale or are removed. */
  readonly callbacks: Callbacks | undefined
  /** The jobs that the worker holds; upkeep never touches them. */
  readonly leases: { readonly ids: readonly string[] }
  /** While a claim is unanswered, jobs may be leased to the worker that it does not know of yet. */
  readonly claimer: { isClaimingFor(worker: string | undefined): boolean }
  /** How many other workers do the same: the more there are, the wider the jitter. */
  readonly registry: { readonly others: number }
  /** Where failures of the store are reported. */
  readonly errors: { report(error: unknown): void }
  /** Receives the changes of a job that were due, once they are durable. */
  readonly reporter: { upkept(job: JobHeader, changes: Group): void }
  /** Receives the bulk operations that were ended here. Default: none does. */
  readonly operationEnded?: (operation: EndedOperation) => void
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
  readonly #parts: UpkeepParts
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
  readonly #clock: StoreClock
  /** Schedules that this version cannot read, with their fence when that was reported. */
  readonly #unreadable = new Map<string, number>()
  readonly #retention: Retention
  readonly #sweep: Sweep
  readonly #bulkRuns: BulkRuns
  /** Its queues, and those that hold their bulk operations. */
  #known: readonly string[] = []
  #unregister: Stop | undefined

  constructor(parts: UpkeepParts) {
    this.#parts = parts
    this.#clock = new StoreClock(parts.connection.runtime)
    this.#retention = new Retention(parts.connection)
    this.#sweep = new Sweep(parts, this.#retention, this.#clock)
    this.#bulkRuns = new BulkRuns(parts, this.#clock)
  }

  /** Runs a pass now, and from then on whenever something is due; nothing where the store's upkeep is done elsewhere. */
  start(): void {
    if (this.#isElsewhere) return
    const { callbacks, queues } = this.#parts
    if (callbacks !== undefined) this.#unregister = this.#retention.register(queues[0]!, callbacks)
    this.#schedule(0)
    this.#sweep.start()
  }

  get #dueQueues(): readonly string[] {
    const { queues } = this.#parts
    if (this.#known.length !== 2 * queues.length) this.#known = [...queues, ...queues.map(bulkQueue)]
    return this.#known
  }

  /** Something will be due in a queue at that time, by the store's clock. */
  expect(queue: string, at: Time): void {
    if (!this.#isElsewhere && this.#dueQueues.includes(queue)) this.#schedule(at - this.#clock.now() + this.#jitter())
  }

  /** Runs a pass now, after the one in progress; resolves when it has ended, even if the store failed. */
  async passNow(): Promise<void> {
    while (this.#working !== undefined) await this.#working
    if (this.#stopped || this.#isElsewhere) return
    await this.#begin()
  }

  get #isElsewhere(): boolean {
    return this.#parts.connection.store.can.upkeep === 'elsewhere'
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
    await Promise.all([this.#working, this.#sweep.stop(), this.#bulkRuns.stop()])
    await this.#parts.keepLast.stop()
    this.#unregister?.()
    await this.#retention.idle()
  }

  #schedule(delay: Millis): void {
    if (this.#stopped) return
    const { runtime } = this.#parts.connection
    const wait = Math.max(0, Math.min(delay, this.#parts.every))
    const at = runtime.elapsed() + wait
    this.#dueAt = Math.min(this.#dueAt, runtime.elapsed() + Math.max(0, delay))
    if (at >= this.#at && this.#timer !== undefined) return
    this.#timer?.()
    this.#at = at
    const pass = (late: Millis): void => {
      this.#timer = undefined
      // A timer that is very late means that this process was suspended: other workers may be about to renew.
      if (late > this.#parts.renewEvery) this.#hadOutage = true
      this.#at = this.#dueAt = Infinity
      if (this.#working === undefined) void this.#begin()
      else this.#again = true // what it was for may not have been there when the current pass read the store
    }
    this.#timer = poll(runtime, wait, pass, () => Math.max(0, this.#dueAt - at))
  }

  #begin(): Promise<void> {
    this.#working = this.#work().finally(() => (this.#working = undefined))
    return this.#working
  }

  async #work(): Promise<void> {
    const { errors, reconnect, connection } = this.#parts
    try {
      const wait = await this.#pass()
      this.#failures = 0
      this.#schedule((this.#again ? 0 : wait) + this.#jitter())
      this.#again = false
    } catch (error) {
      this.#hadOutage = true
      this.#schedule(backoffDelay(reconnect, ++this.#failures, connection.runtime.random))
      if (!this.#stopped) errors.report(error)
    }
  }

  /** Handles all that is due now; returns how long to wait. */
  async #pass(): Promise<Millis> {
    const { connection, leases } = this.#parts
    const queues = this.#dueQueues
    const skipped: string[] = []
    let busy = false
    while (!this.#stopped) {
      const found = await connection.store.due({ queues, except: [...leases.ids, ...skipped], limit: PAGE_SIZE })
      this.#clock.set(found.now)
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
    const { connection, renewEvery } = this.#parts
    const now = connection.runtime.elapsed()
    if (this.#hadOutage) {
      this.#hadOutage = false
      this.#holdUntil = now + renewEvery
    }
    return Math.max(0, this.#holdUntil - now)
  }

  /** Whether a lease is not to be reaped for now. */
  #isSpared(job: JobHeader, holding: boolean): boolean {
    const { claimer } = this.#parts
    return job.state === 'active' && (holding || claimer.isClaimingFor(job.worker))
  }

  /** Whether a due row is a bulk operation, which is worked on beside this pass. */
  #isBegun(job: JobHeader): boolean {
    if (!isDueBulk(job)) return false
    this.#bulkRuns.begin(job)
    return true
  }

  async #carryOut({ now, jobs }: Due, holding: boolean): Promise<CarriedOut> {
    const { store } = this.#parts.connection
    const broken = jobs.filter((job) => job.state === 'waiting-children').map((job) => job.id)
    const details = await runSteps(readDetails(store, { jobs: broken, parts: ['edges'] }))
    const edges = new Map(details.map((each) => [each.id, each.edges]))
    let cancelled = 0
    for (const each of details) cancelled += await cancelUnneeded(this.#parts.connection, each.edges)
    // Skips jobs that were claimed here while the store was read.
    const leased = new Set(this.#parts.leases.ids)
    const own = jobs.filter((job) => !leased.has(job.id) && !this.#isSpared(job, holding) && !this.#isBegun(job))
    const carrying = own
      .filter(isPlain)
      .filter(({ state }) => !isFinished(state))
      .map((job) => this.#carryJob(job, due(job, now, edges.get(job.id))))
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

  async #carryJob(job: PlainJob, group: Group): Promise<DueResult> {
    const carried = await this.#carry(job, group)
    const end = carried.landed ? group.find((change) => change.kind === 'move' && change.id === job.id) : undefined
    if (end?.kind === 'move' && end.to === 'failed') this.#parts.keepLast.ended(job, end.to)
    return carried
  }

  async #carry(job: JobHeader, group: Group): Promise<DueResult> {
    if (group.length === 0) return { landed: false }
    const verdict = await this.#parts.connection.main.tryCommit(group)
    if (verdict.ok) this.#parts.reporter.upkept(job, group)
    return verdict.ok || verdict.why !== 'busy' ? { landed: verdict.ok } : { landed: false, busy: job.id }
  }

  /** Handles schedules and signals, whose rules need their payloads. */
  async #carryRows(rows: readonly JobHeader[], now: Time): Promise<readonly DueResult[]> {
    const { store } = this.#parts.connection
    const carried: DueResult[] = []
    for await (const records of dueRecords(store, rows)) {
      const owned = await ownedSignals(store, records)
      carried.push(
        ...(await Promise.all(
          records.map((row) =>
            row.kind === 'schedule'
              ? this.#fire(row, now)
              : this.#carry(row, due(row, now, undefined, owned.has(row.id))),
          ),
        )),
      )
    }
    return carried
  }

  /** Fires a schedule. One that this version cannot read is reported once and left to other processes. */
  async #fire(job: JobRecord, now: Time): Promise<DueResult> {
    const { main, store } = this.#parts.connection
    try {
      return await runSteps(
        fireDueSchedule(job, now, {
          commit: (group) => main.tryCommit(group),
          details: (query) => store.details(query),
          find: (query) => store.find(query),
          get: async (id) => (await store.get([id]))[0],
        }),
      )
    } catch (error) {
      if (!isMillraceError(error, 'INVALID_SCHEDULE')) throw error
      if (this.#unreadable.get(job.id) !== job.fence) this.#parts.errors.report(error)
      this.#unreadable.set(job.id, job.fence)
      return { landed: false }
    }
  }

  #jitter(): Millis {
    const { connection, registry } = this.#parts
    return connection.runtime.random() * Math.min(100, 5 * registry.others)
  }
}
