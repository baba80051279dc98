// server/upkeep.ts: what a server does for its queues besides answering: due jobs, schedules, expired leases, retention,
// bulk operations, deliveries to webhooks. So workers that only speak HTTP lack nothing.
import { isReserved } from '../job/values/names.js'
import { DELIVERIES } from '../job/webhooks.js'
import type { Millis, Time } from '../job/job.js'
import { backoffDelay } from '../job/retry.js'
import type { Logger } from '../queue/events/events.js'
import { declareRetention } from '../queue/settings/retention.js'
import type { Deliveries } from '../queue/settings/webhook.js'
import type { Queue } from '../queue/queue.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Notice } from '../store/store.js'
import { outside } from '../store/transaction-context.js'
import { KeepLast } from '../upkeep/retention/keep-last.js'
import { Upkeep } from '../upkeep/upkeep.js'
import type { UpkeepParts } from '../upkeep/upkeep.js'
import { endDeliveries } from '../worker/close.js'
import { defaultReconnect } from '../worker/options.js'
import { AUDIT_QUEUE } from './audit.js'
import type { ServedQueues } from './queues.js'

/** The longest time between two passes, and how long workers have to renew after an outage. */
const UPKEEP_EVERY: Millis = 30_000
const RENEW_EVERY: Millis = 10_000
/** How often claims of deliveries are sent without a hint, and their leases. */
const POLL_EVERY: Millis = 5_000
const DELIVERY_LEASE: Millis = 30_000
/** How often a server of any queue looks for queues that no hint has told it of. */
const LOOK_EVERY: Millis = 60_000
/** How often it removes what is left of workers that are gone. */
const SWEEP_EVERY: Millis = 600_000
/** The most queues whose upkeep one server does. */
const MAX_QUEUES = 10_000
/** How long a close waits for deliveries. */
const CLOSE_TIMEOUTS = { timeout: 30_000, grace: 5_000 } as const

/** What upkeep uses of its server. */
interface ServerUpkeepParts {
  readonly connection: Connection
  readonly queues: ServedQueues
  readonly logger: Logger
  readonly readOnly: boolean
  /** Whether a claim of this worker is on its way. */
  isClaimingFor(worker: string): boolean
  /** Receives the notices of the store. */
  notice(notice: Notice): void
  /** Removes what is left of workers that are gone. */
  sweep(): Promise<void>
}

/** The upkeep of a server's queues. Any number of servers and workers may do the same: every change is fenced. */
export class ServerUpkeep {
  readonly keepLast: KeepLast
  readonly #parts: ServerUpkeepParts
  /** The queues of the shared upkeep; more become known while the server runs, if it serves any. */
  readonly #names: string[]
  readonly #known: Set<string>
  readonly #all: readonly Upkeep[]
  readonly #shared: Upkeep
  readonly #deliveries: Deliveries[] = []
  #started: Promise<void> | undefined
  #stopped = false
  #failures = 0
  #timers: Stop[] = []
  #unwatch: Stop = () => {}

  constructor(parts: ServerUpkeepParts) {
    this.#parts = parts
    const { connection, queues } = parts
    this.keepLast = new KeepLast(connection, (error) => this.#report(error))
    const withCallbacks = queues.given.filter(({ retention }) => retention?.callbacks !== undefined)
    const apart = new Set(withCallbacks.map(({ name }) => name))
    this.#names = [...(queues.names ?? []).filter((name) => !apart.has(name)), AUDIT_QUEUE]
    this.#known = new Set([...this.#names, ...apart])
    this.#shared = this.#upkeepOf(this.#names, undefined)
    this.#all = [
      this.#shared,
      ...withCallbacks.map(({ name, retention }) => this.#upkeepOf([name], retention!.callbacks)),
    ]
  }

  /** Starts, and tries again by itself as long as the store fails. */
  start(): void {
    this.started().catch((error: unknown) => {
      if (this.#stopped) return
      this.#report(error)
      const { runtime } = this.#parts.connection
      this.#after(backoffDelay(defaultReconnect, ++this.#failures, runtime.random), () => this.start())
    })
  }

  /** Resolves when the notices of the store arrive: a claim that waits before that would not be woken. */
  started(): Promise<void> {
    this.#started ??= this.#begin().catch((error: unknown) => {
      this.#started = undefined
      throw error
    })
    return this.#started
  }

  /** Something will be due in a queue: the end of a lease that was given here, of which no notice tells. */
  expect(queue: string, at: Time): void {
    for (const each of this.#all) each.expect(queue, at)
  }

  /** Ends it; resolves when no pass and no delivery is in progress. */
  async close(): Promise<void> {
    this.#stopped = true
    for (const stop of this.#timers.splice(0)) stop()
    await this.#started?.catch(() => {})
    this.#unwatch()
    await Promise.all(this.#all.map((upkeep) => upkeep.stop()))
    await this.keepLast.stop()
    const late = await Promise.all(this.#deliveries.map((each) => endDeliveries(each, 'close', CLOSE_TIMEOUTS)))
    for (const error of late) if (error !== undefined) this.#report(error)
    await this.#parts.connection.series.flush()
  }

  async #begin(): Promise<void> {
    const { connection, queues, readOnly } = this.#parts
    const { store } = connection
    await connection.ready()
    if (this.#stopped) return
    const unwatch = store.watch({}, (notice) => outside(() => this.#onNotice(notice)))
    const unsubscribe = connection.outage.on(() => {
      for (const each of this.#all) each.outage()
    })
    this.#unwatch = () => {
      unwatch()
      unsubscribe()
    }
    // A store that is served elsewhere has its upkeep there.
    if (readOnly || store.can.upkeep === 'elsewhere') return
    for (const { name, retention } of queues.given) {
      if (retention !== undefined) await declareRetention(connection, name, retention)
    }
    await this.#look()
    if (this.#stopped) return
    for (const each of this.#all) each.start()
    for (const queue of queues.given) this.#deliver(queue)
    if (queues.names === undefined) this.#lookAgain()
    this.#sweepAgain()
  }

  #sweepAgain(): void {
    this.#after(SWEEP_EVERY, () => {
      const swept = this.#parts.sweep().catch((error: unknown) => this.#report(error))
      void swept.finally(() => this.#sweepAgain())
    })
  }

  /**
   * Finds the queues that there are. Where jobs are leased already, their workers could not renew while no server ran:
   * they have the time of a renewal to do so.
   */
  async #look(): Promise<void> {
    const { connection, queues } = this.#parts
    const tallies = await connection.store.tally(queues.names)
    for (const { queue } of tallies) this.#learn(queue)
    const leased = tallies.some(({ names }) => Object.values(names).some(({ active = 0 }) => active > 0))
    if (leased) for (const each of this.#all) each.outage()
  }

  #lookAgain(): void {
    this.#after(LOOK_EVERY, () => {
      const { store } = this.#parts.connection
      const looked = store.tally().then((tallies) => {
        for (const { queue } of tallies) if (this.#learn(queue)) this.#shared.expect(queue, 0)
      })
      void looked.catch((error: unknown) => this.#report(error)).finally(() => this.#lookAgain())
    })
  }

  /** Takes on a queue, if any is served and it is a new one. */
  #learn(queue: string): boolean {
    if (this.#parts.queues.names !== undefined || this.#known.has(queue)) return false
    if (this.#known.size >= MAX_QUEUES || (isReserved(queue) && queue !== DELIVERIES)) return false
    this.#known.add(queue)
    this.#names.push(queue)
    return true
  }

  #onNotice(notice: Notice): void {
    for (const queue of notice.work) if (this.#learn(queue)) this.#shared.expect(queue, 0)
    for (const { queue, at } of notice.due) {
      this.#learn(queue)
      this.expect(queue, at)
    }
    this.#parts.notice(notice)
  }

  #deliver({ name, webhooks }: Queue): void {
    if (webhooks === undefined) return
    const deliveries = webhooks.deliver({
      queue: name,
      store: this.#parts.connection.store,
      logger: false,
      lease: DELIVERY_LEASE,
      upkeepEvery: UPKEEP_EVERY,
      pollEvery: POLL_EVERY,
      reconnect: defaultReconnect,
      failed: (error) => this.#report(error),
    })
    this.#deliveries.push(deliveries)
  }

  #upkeepOf(names: readonly string[], callbacks: UpkeepParts['callbacks']): Upkeep {
    const { connection } = this.#parts
    return new Upkeep({
      connection,
      queues: names,
      every: UPKEEP_EVERY,
      renewEvery: RENEW_EVERY,
      lease: 3 * RENEW_EVERY,
      reconnect: defaultReconnect,
      keepLast: this.keepLast,
      callbacks,
      leases: { ids: [] }, // a lease that its client does not renew expires like any other
      claimer: { isClaimingFor: (worker) => worker !== undefined && this.#parts.isClaimingFor(worker) },
      registry: { others: 0 },
      errors: { report: (error) => this.#report(error) },
      reporter: { upkept: (job, changes) => connection.series.changed(job, changes) },
    })
  }

  #after(delay: Millis, work: () => void): void {
    if (this.#stopped) return
    const stop = this.#parts.connection.runtime.timer(delay, () => {
      this.#timers = this.#timers.filter((each) => each !== stop)
      work()
    })
    this.#timers.push(stop)
  }

  #report(error: unknown): void {
    this.#parts.logger.error({ error }, 'The upkeep of the server failed; it tries again.')
  }
}
