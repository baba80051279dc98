// worker/worker.ts: the consumer's side: claims jobs, runs their handlers, and sends what they come to.
import type { CellEvent } from '../job/change.js'
import { MillraceError, isInstance, isMillraceError } from '../job/errors.js'
import type { JobRecord } from '../job/job.js'
import { backoffDelay } from '../job/retry.js'
import type { JobDefinitions, NameOf } from '../queue/define.js'
import { Emitter, checkListener, safeLogger } from '../queue/events/events.js'
import type { EventOf, Listener } from '../queue/events/events.js'
import type { Queue } from '../queue/queue.js'
import type { Deliveries } from '../queue/settings/webhook.js'
import { declareRetention } from '../queue/settings/retention.js'
import type { QueueRetention } from '../queue/settings/retention.js'
import type { AnyJobs } from '../queue/queue-types.js'
import { outside, refuseInside } from '../store/transaction-context.js'
import { unavailable } from '../store/commit-errors.js'
import { connect } from '../store/connection.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Cell, Notice, Store } from '../store/store.js'
import { recover } from '../upkeep/recovery.js'
import { Upkeep } from '../upkeep/upkeep.js'
import type { Attempt } from './attempt/attempt.js'
import type { BatchOptions } from './batches/types.js'
import type { ExtrasOf, Middleware } from './attempt/context.js'
import { startDelivering } from './deliveries.js'
import { Runner } from './runner.js'
import type { Handling } from './handlers.js'
import { Claimer } from './claimer.js'
import { Leases } from './leases.js'
import { seedLimits } from './seed-limits.js'
import { parseWorker } from './options.js'
import type { Settings, WorkerOptions } from './options.js'
import { Registration } from './registry.js'
import { checkMiddleware, middlewareIn, registered, sourceOf } from './source.js'
import { StoreErrors, isForGood } from './store-errors.js'
import { closeWorker, parseClose } from './close.js'
import type { CloseOptions, Patience } from './close.js'

/** What a worker tells of itself and of the jobs it runs; for everything else there is `queue.on`. */
const workerEvents = [
  'active',
  'progress',
  'phase',
  'completed',
  'failed',
  'retrying',
  'lease-lost',
  'error',
  'worker-started',
  'worker-stopping',
  'worker-stopped',
] as const

/** The events of a worker. */
export type WorkerEventType = (typeof workerEvents)[number]

type State = 'new' | 'running' | 'paused' | 'closing' | 'closed'

/** Runs the jobs of one or several queues. */
export class Worker<
  Jobs extends JobDefinitions = AnyJobs,
  const Wraps extends readonly Middleware[] = readonly Middleware[],
  S extends Store = Store,
  const Batching extends BatchOptions | undefined = undefined,
> {
  /** Its name in leases and in the registry. */
  readonly id: string
  /** The queues it takes jobs from. */
  readonly queues: readonly string[]
  readonly #connection: Connection
  readonly #settings: Settings
  readonly #emitter: Emitter
  readonly #floor: Runner
  readonly #intake: Claimer
  readonly #leases: Leases
  readonly #upkeep: Upkeep
  readonly #presence: Registration
  readonly #retention: QueueRetention | undefined
  readonly #middleware: Middleware[]
  readonly #deliver: () => Deliveries | undefined
  #state: State = 'new'
  #starting: Promise<void> | undefined
  /** The loops run: claims, renewals, upkeep. */
  #started = false
  #closing: Promise<void> | undefined
  #unwatch: Stop | undefined
  /** Sends the deliveries of its queue. */
  #deliveries: Deliveries | undefined
  /** Ends the pause between two tries to start. */
  #interrupt: Stop | undefined
  #recovering: Promise<void> | undefined
  readonly #trouble = new StoreErrors()

  /** Takes jobs of a queue, or of queues by name with `options.store`; runs one handler for all, or handlers by name. */
  constructor(
    source: Queue<Jobs, S> | string | readonly string[],
    // An indexed access, so that `Jobs` is not inferred from handlers: each of them would be compared with all names.
    handlers: [Handling<NameOf<Jobs>, Jobs, ExtrasOf<Wraps>, S, Batching>][Jobs extends unknown ? 0 : never],
    options: WorkerOptions<Jobs, Wraps, S, Batching> = {},
  ) {
    const { queue, queues, store } = sourceOf(source, options)
    this.queues = queues
    const jobs: JobDefinitions | undefined = options.jobs ?? queue?.jobs
    this.#settings = parseWorker(handlers, options, jobs)
    this.#middleware = middlewareIn(options.middleware)
    this.#connection = connect(store)
    const { runtime } = this.#connection
    this.id = runtime.id()
    const origin = (): { queue: string; at: number } => ({ queue: this.queues[0] ?? '', at: runtime.now() })
    this.#emitter = new Emitter(safeLogger(options.logger), origin, true)
    const host = {
      queue: this.queues[0]!,
      store,
      settings: this.#settings,
      logger: options.logger,
      emitter: this.#emitter,
    }
    this.#deliver = () => (queue?.webhooks === undefined ? undefined : startDelivering(queue.webhooks, host))
    this.#presence = new Registration(
      this.#connection,
      registered(this.id, this.queues, this.#settings, runtime),
      (type) => this.#tell(type),
    )
    this.#floor = new Runner({
      id: this.id,
      connection: this.#connection,
      settings: this.#settings,
      jobs,
      middleware: this.#middleware,
      emitter: this.#emitter,
      adder: queue?.adder,
      queueEmitter: queue?.emitter,
      telemetry: options.telemetry,
      leases: () => this.#leases,
      intake: () => this.#intake,
      takes: () => this.#state === 'running',
      failed: (error) => this.#failed(error),
    })
    this.#leases = new Leases({
      connection: this.#connection,
      renewEvery: this.#settings.renewEvery,
      shortest: Math.min(...this.#settings.handles.map(({ lease }) => lease)),
      held: () => this.#floor.held(),
      lost: (attempt: Attempt, ...why) => this.#floor.lost(attempt, ...why),
      failed: (error) => this.#failed(error),
      tick: () => void this.#presence.beat().catch((error: unknown) => this.#failed(error)),
    })
    this.#retention = queue?.retention
    this.#upkeep = new Upkeep({
      connection: this.#connection,
      queues: this.queues,
      every: this.#settings.upkeepEvery,
      renewEvery: this.#settings.renewEvery,
      reconnect: this.#settings.reconnect,
      callbacks: queue?.retention?.callbacks,
      running: () => this.#floor.ids(),
      mayBeClaimed: (job) => job.worker === this.id && this.#intake.asking,
      others: () => this.#presence.others,
      failed: (error) => this.#failed(error),
    })
    this.#intake = new Claimer({
      id: this.id,
      queues: this.queues,
      connection: this.#connection,
      settings: this.#settings,
      slots: this.#floor.slots,
      closing: () => this.#isClosing(),
      behind: () => this.#floor.settlements.behind,
      claimed: (records, asked, ranDry) => this.#floor.claimed(records, asked, ranDry),
      answered: () => this.#trouble.over(),
      late: () => this.#leases.check(),
      failed: (error) => this.#failed(error),
    })
    // It lives longer than a transaction that it may have been made in.
    if (options.autorun ?? true) outside(() => runtime.defer(() => this.#autorun()))
  }

  /**
   * Starts to take jobs; resolves when it is registered. Called by itself unless `autorun` is false. A store that does not answer
   * is tried again; rejects where that is no use, such as `MISSING_DRIVER`.
   */
  run(): Promise<void> {
    if (this.#state === 'closing' || this.#state === 'closed') {
      return Promise.reject(new MillraceError('WORKER_CLOSED', 'This worker has been closed; make a new one.'))
    }
    try {
      refuseInside(this.#connection.store, 'worker.run()')
    } catch (error) {
      return Promise.reject(error)
    }
    this.#starting ??= outside(() => this.#start())
    return this.#starting
  }

  /** Takes no further jobs until `resume()`; what runs goes on. */
  pause(): void {
    if (this.#state !== 'running' && this.#state !== 'new') return
    this.#state = 'paused'
    void this.#intake.stop().then(() => this.#floor.handBack())
    if (this.#started) this.#announce('paused')
  }

  /** Takes jobs again after `pause()`. */
  resume(): void {
    if (this.#state !== 'paused') return
    this.#state = 'running'
    if (!this.#started) return
    outside(() => {
      this.#announce('running')
      this.#intake.start()
    })
  }

  /** Adds a middleware inside those there are; jobs that start from now on pass through it. */
  use(wrap: Middleware): this {
    checkMiddleware(wrap)
    this.#middleware.push(wrap)
    return this
  }

  /** Hears this worker's own events. Answers how to stop. */
  on<Type extends WorkerEventType>(type: Type, listener: NoInfer<(event: EventOf<Type, Jobs>) => unknown>): Stop {
    checkListener(type, listener, workerEvents)
    return this.#emitter.on(type, listener as unknown as Listener<Type>)
  }

  /** How many jobs are running: each job of a batch counts. */
  get active(): number {
    return this.#floor.slots.running.length
  }

  /**
   * Takes no further jobs, waits for those running, then aborts them and waits once more; hands back those that ended
   * without a result; waits for deliveries to webhooks under way; and only then rejects with `SHUTDOWN_TIMEOUT` if the first wait was too short. A handler that
   * ignores its signal is left alone: its lease runs out by itself.
   */
  close(options: CloseOptions = {}): Promise<void> {
    let patience: Patience
    try {
      refuseInside(this.#connection.store, 'worker.close()')
      patience = parseClose(options, 'close')
    } catch (error) {
      return Promise.reject(error)
    }
    this.#closing ??= outside(() =>
      closeWorker(patience, {
        runtime: this.#connection.runtime,
        slots: this.#floor.slots,
        settlements: this.#floor.settlements,
        stopTaking: () => this.#stopTaking(),
        deliveries: () => this.#deliveries,
        stopped: () => this.#stopped(),
      }),
    )
    return this.#closing
  }

  #autorun(): void {
    if (!this.#isClosing()) void this.run().catch((error: unknown) => this.#failed(error))
  }

  async #start(): Promise<void> {
    if (this.#state === 'new') this.#state = 'running'
    for (let failures = 1; !this.#isClosing(); failures++) {
      try {
        await this.#prepare()
        break
      } catch (error) {
        if (isForGood(error)) {
          this.#starting = undefined // so that it can be tried again once that is mended
          throw error
        }
        this.#failed(error)
        await this.#pauseStart(failures)
      }
    }
    if (this.#isClosing()) return
    this.#started = true
    const unwatch = this.#connection.store.watch({}, (notice) => outside(() => this.#heard(notice)))
    const unheard = this.#connection.outage.on((error) => this.#emitter.error(error))
    this.#unwatch = () => {
      unwatch()
      unheard()
    }
    this.#leases.start()
    this.#upkeep.start()
    // In front of the first ask, in the same lane: the start is announced before any job is active, and of a worker that dies
    // in the next moment others must know whose job it was.
    const state = this.#state === 'paused' ? 'paused' : 'running'
    const registered = this.#presence.announce(state, 'worker-started', this.#connection.asks)
    if (this.#state === 'running') this.#intake.start()
    this.#deliveries = this.#deliver()
    try {
      await registered
      this.#recovering = this.#recover(await this.#presence.look())
    } catch (error) {
      this.#failed(error) // the next sign of life makes up for it
    }
  }

  /** Deals with the jobs of the dead, beside all else. What cannot be done now is done when their leases are over. */
  #recover(cells: readonly Cell[]): Promise<void> {
    const { recovery, handlerOf } = this.#settings
    const { queues } = this
    const handles = (job: JobRecord): boolean => handlerOf(job) !== undefined
    const stopped = (): boolean => this.#isClosing()
    const recovering = recover(cells, { connection: this.#connection, queues, recovery, handles, stopped })
    return recovering.catch((error: unknown) => this.#failed(error))
  }

  /** What must be so before the first claim. */
  async #prepare(): Promise<void> {
    await this.#connection.ready()
    const { maxGlobalConcurrency } = this.#settings
    if (maxGlobalConcurrency !== undefined) await seedLimits(this.#connection, this.queues, maxGlobalConcurrency)
    if (this.#retention !== undefined) await declareRetention(this.#connection, this.queues[0]!, this.#retention)
  }

  #pauseStart(failures: number): Promise<void> {
    const { runtime } = this.#connection
    return new Promise((resolve) => {
      const stop = runtime.timer(backoffDelay(this.#settings.reconnect, failures, runtime.random), resolve)
      this.#interrupt = () => {
        stop()
        resolve()
      }
    })
  }

  #isClosing(): boolean {
    return this.#state === 'closing' || this.#state === 'closed'
  }

  #heard(notice: Notice): void {
    for (const each of notice.revoked) if (each.worker === this.id) this.#floor.revoked(each)
    if (notice.missed === true) this.#leases.check()
    for (const { queue, at } of notice.due) if (this.queues.includes(queue)) this.#upkeep.expect(at)
    if (notice.work.some((queue) => this.queues.includes(queue))) this.#intake.wake()
  }

  #failed(error: unknown): void {
    if (this.#state === 'closed') return
    if (isMillraceError(error, 'STORE_CLOSED')) return this.#storeClosed(error)
    this.#upkeep.trouble()
    if (!this.#trouble.isNews(error)) return
    this.#emitter.error(isInstance(error, MillraceError) ? error : unavailable(this.#connection.store, error))
  }

  /** There is nothing left to work for, and trying again would never end. */
  #storeClosed(said: MillraceError): void {
    if (this.#isClosing()) return
    this.#emitter.error(said)
    void this.close({ timeout: 0, grace: 0 }).catch(() => {})
  }

  #announce(state: 'running' | 'paused'): void {
    void this.#presence.announce(state).catch((error: unknown) => this.#failed(error))
  }

  #tell(type: CellEvent['type']): void {
    if (type === 'paused' || type === 'resumed') return
    const at = this.#connection.runtime.now()
    for (const queue of this.queues) this.#emitter.emit({ type, id: '', name: '', queue, at, worker: this.id })
  }

  async #stopTaking(): Promise<void> {
    const started = this.#starting
    this.#state = 'closing'
    this.#interrupt?.()
    const stopped = this.#intake.stop()
    await started?.catch(() => {})
    await stopped
    this.#floor.handBack()
    if (!this.#started) return
    void this.#presence.announce('stopping', 'worker-stopping').catch(() => {})
  }

  async #stopped(): Promise<void> {
    this.#unwatch?.()
    this.#leases.stop()
    await this.#upkeep.stop()
    await this.#recovering
    if (this.#started) {
      await this.#presence.announce('stopped', 'worker-stopped').catch(() => {})
    }
    this.#state = 'closed'
    this.#floor.clear()
  }
}
