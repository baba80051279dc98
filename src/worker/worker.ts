// worker/worker.ts: the public consumer: claims jobs, runs their handlers and settles them.
import { MillraceError, isMillraceError } from '../job/errors/errors.js'
import type { JobRecord } from '../job/job.js'
import { workerId } from '../job/values/names.js'
import { backoffDelay } from '../job/retry.js'
import type { JobDefinitions, NameOf } from '../queue/define.js'
import { Emitter, checkListener, consoleLines, safeLogger } from '../queue/events/events.js'
import type { Listener, Logger } from '../queue/events/events.js'
import { JobOperations } from '../queue/operations/job-operations.js'
import type { Queue } from '../queue/queue.js'
import type { Deliveries, Webhooks } from '../queue/settings/webhook.js'
import { declareRetention } from '../queue/settings/retention.js'
import type { QueueRetention } from '../queue/settings/retention.js'
import type { AnyJobs } from '../queue/queue-types.js'
import { outside, refuseInside } from '../store/transaction-context.js'
import { connect } from '../store/connection.js'
import type { Connection } from '../store/connection.js'
import { within } from '../store/runtime.js'
import type { Stop } from '../store/runtime.js'
import type { Cell, Group, Notice, Store } from '../store/store.js'
import { recover } from '../upkeep/recovery.js'
import { KeepLast } from '../upkeep/retention/keep-last.js'
import { Upkeep } from '../upkeep/upkeep.js'
import type { BatchOptions } from './batches/handler.js'
import type { ExtrasOf, Middleware } from './attempt/context.js'
import { Backpressure } from './backpressure.js'
import { Runner } from './runner.js'
import type { Handling } from './handlers.js'
import { FailureLog } from './failure-log.js'
import { operationLog } from './operation-log.js'
import { Leases } from './leases.js'
import { seedLimits } from './seed-limits.js'
import { parseWorker } from './options.js'
import type { Settings, WorkerOptions } from './options.js'
import { Adders } from './parts.js'
import type { WorkerParts } from './parts.js'
import { Registration, entryOf } from './registry.js'
import { Reporter } from './reporter.js'
import { BoundedRun, alreadyRuns, parseRun } from './bounded-run.js'
import type { RunRequest, WorkerRunOptions } from './bounded-run.js'
import { RunTally } from './run-tally.js'
import type { RunReport } from './run-tally.js'
import { checkMiddleware, parseMiddleware, sourceOf } from './source.js'
import { StoreErrors, isPermanent } from './store-errors.js'
import { workerEvents } from './worker-events.js'
import type { WorkerEventOf, WorkerEventType } from './worker-events.js'
import { endDeliveries, endHandlers, handlersLate, parseClose, settlementsLate } from './close.js'
import type { CloseOptions, CloseTimeouts } from './close.js'

type State = 'new' | 'running' | 'paused' | 'closing' | 'closed'

/**
 * The queue names that a worker takes where `Jobs` is written as a type argument: none, if they are declared. With their
 * types alone it would know neither versions nor schemas, nor the options of jobs that its handlers add. Where nothing
 * is written, `Names` is inferred, and `Jobs` from the `jobs` option.
 */
type NamesByType<Jobs extends JobDefinitions> = string extends keyof Jobs ? string | readonly string[] : never

/** Runs the jobs of one or several queues. */
export class Worker<
  Jobs extends JobDefinitions = AnyJobs,
  const Wraps extends readonly Middleware[] = readonly Middleware[],
  S extends Store = Store,
  const Batching extends BatchOptions | undefined = undefined,
  Names extends string | readonly string[] = NamesByType<Jobs>,
> {
  /** Identifies this worker in leases and in the registry: unique, and beginning with `workerName` if it has one. */
  readonly id: string
  /** Its readable name, the option `workerName`; undefined if it has none. */
  readonly name: string | undefined
  /** The queues it claims jobs from. */
  readonly queues: readonly string[]
  readonly #connection: Connection
  readonly #settings: Settings
  readonly #emitter: Emitter
  readonly #parts: WorkerParts
  readonly #runner: Runner
  readonly #leases: Leases
  readonly #upkeep: Upkeep
  readonly #registration: Registration
  readonly #retention: QueueRetention | undefined
  readonly #middleware: Middleware[]
  readonly #webhooks: Webhooks | undefined
  readonly #logger: Logger | false | undefined
  #state: State = 'new'
  #starting: Promise<void> | undefined
  /** The loops are running: claims, renewals, upkeep. */
  #started = false
  #closing: Promise<void> | undefined
  #unwatch: Stop | undefined
  /** Sends the webhook deliveries of its queue. */
  #deliveries: Deliveries | undefined
  /** Ends the wait of a run for its last jobs, once the worker is closed. */
  #endedByClose: () => void = () => {}
  /** Ends the wait between two attempts to start. */
  #interrupt: Stop | undefined
  #recovering: Promise<void> | undefined
  /** The run in progress that ends by itself. */
  #bounded: BoundedRun | undefined
  /** A run that ended by itself was the last: the worker starts no job until the next one. */
  #isIdle = false

  /** Claims jobs of a queue, or of queues by name with `options.store`. Takes one handler, or handlers by name. */
  constructor(
    source: Queue<Jobs, S> | Names,
    // An indexed access keeps TypeScript from inferring `Jobs` from the handlers, which would compare each handler with
    // all names.
    handlers: [Handling<NameOf<Jobs>, Jobs, ExtrasOf<Wraps>, S, Batching>][Jobs extends unknown ? 0 : never],
    options: WorkerOptions<Jobs, Wraps, S, Batching> = {},
  ) {
    const { queue, queues, store } = sourceOf(source, options)
    this.queues = queues
    const jobs: JobDefinitions | undefined = options.jobs ?? queue?.jobs
    this.#settings = parseWorker(handlers, options, jobs)
    this.#middleware = parseMiddleware(options.middleware)
    this.#connection = connect(store)
    const { runtime } = this.#connection
    this.name = this.#settings.workerName
    this.id = workerId(this.name, runtime.id(), store.identity)
    const origin = (): { queue: string; at: number } => ({ queue: this.queues[0] ?? '', at: runtime.now() })
    this.#emitter = new Emitter(safeLogger(options.logger), origin, { worker: this.id })
    const { telemetry } = options
    const operations = new JobOperations(this.#connection, jobs, queue?.adder.maxBytes ?? this.#settings.maxDataBytes)
    const reporter = new Reporter({
      worker: this.id,
      queues,
      runtime,
      emitter: this.#emitter,
      queueEmitter: queue?.emitter,
      actions: operations,
      failures: options.logger === undefined ? new FailureLog(safeLogger(consoleLines), runtime) : undefined,
      series: this.#connection.series,
    })
    const parts: WorkerParts = {
      id: this.id,
      queues,
      connection: this.#connection,
      settings: this.#settings,
      jobs,
      middleware: this.#middleware,
      telemetry,
      operations,
      adders: new Adders(queue?.adder, operations, jobs, telemetry),
      reporter,
      errors: new StoreErrors(store, this.#emitter, (error) => this.#onStoreError(error)),
      backpressure: new Backpressure(store.can),
      run: new RunTally(),
      keepLast: new KeepLast(this.#connection, (error) => this.#parts.errors.report(error)),
    }
    this.#parts = parts
    this.#registration = new Registration(
      this.#connection,
      entryOf(parts),
      parts.reporter,
      () => this.#runner.slots.running.length,
    )
    this.#leases = new Leases(parts, this.#registration)
    this.#runner = new Runner(parts, this.#leases)
    this.#retention = queue?.retention
    this.#webhooks = queue?.webhooks
    this.#logger = options.logger
    this.#upkeep = new Upkeep({
      connection: this.#connection,
      queues,
      every: this.#settings.upkeepEvery,
      renewEvery: this.#settings.renewEvery,
      lease: Math.min(...this.#settings.handles.map(({ lease }) => lease)),
      reconnect: this.#settings.reconnect,
      keepLast: parts.keepLast,
      callbacks: queue?.retention?.callbacks,
      leases: this.#leases,
      claimer: this.#runner.claimer,
      registry: this.#registration,
      errors: parts.errors,
      reporter,
      operationEnded: operationLog(safeLogger(options.logger ?? consoleLines)),
    })
    // Outside, because the worker outlives a transaction that it may be constructed in.
    if (options.autorun ?? true) outside(() => runtime.defer(() => this.#autorun()))
  }

  /**
   * Starts to claim jobs; resolves when the worker is registered. The constructor calls it unless `autorun` is false.
   * Retries while the store does not respond; rejects with an error that no retry can fix, such as `MISSING_DRIVER`.
   */
  run(): Promise<void>
  /**
   * Runs jobs until its queues are drained, a date has come, or so many jobs were started; for serverless functions,
   * cron and CI. Then it waits for its running handlers and their settlements, returns everything else that it has
   * leased, and resolves with what it did. `worker.close()` ends it sooner. One run at a time: `WORKER_RUNNING`. Create
   * the worker with `autorun: false`, and close it when you need it no more.
   */
  run(options: WorkerRunOptions): Promise<RunReport>
  run(options?: WorkerRunOptions): Promise<void | RunReport> {
    let request: RunRequest | undefined
    try {
      if (this.#isClosing()) throw new MillraceError('WORKER_CLOSED', 'This worker has been closed; make a new one.')
      refuseInside(this.#connection.store, 'worker.run()')
      request = options === undefined ? undefined : parseRun(options)
      const runsOn = this.#starting !== undefined && !this.#isIdle && this.#bounded === undefined
      if (this.#bounded !== undefined || (runsOn && request !== undefined)) throw alreadyRuns()
    } catch (error) {
      return Promise.reject(error)
    }
    return outside(() => (request === undefined ? this.#runOn() : this.#runBounded(request)))
  }

  /** Runs until it is closed. */
  #runOn(): Promise<void> {
    if (this.#isIdle) this.resume()
    this.#starting ??= this.#start()
    return this.#starting
  }

  async #runBounded(request: RunRequest): Promise<RunReport> {
    const run = new BoundedRun(this.#parts, this.#runner, this.#upkeep, request)
    this.#bounded = run
    try {
      if (run.begin()) {
        if (this.#isIdle) this.resume()
        this.#starting ??= this.#start()
        await Promise.race([this.#starting.then(() => this.#recovering), run.ended])
        run.watch()
      }
      const why = await run.ended
      await this.#endRun(why)
      return run.report(why)
    } catch (error) {
      run.report('closed')
      throw error
    } finally {
      this.#bounded = undefined
    }
  }

  /** Starts no further job, and waits until nothing is leased; no longer than a close does. */
  async #endRun(why: RunReport['ended']): Promise<void> {
    const { claimer, slots, settlements } = this.#runner
    const wasRunning = this.#state === 'running' || this.#state === 'new'
    if (wasRunning) this.#state = 'paused'
    this.#isIdle = !this.#isClosing()
    const stopped = claimer.stop().then(() => this.#runner.returnUnstarted())
    const closed = new Promise<void>((resolve) => (this.#endedByClose = resolve))
    const ended = stopped.then(() => slots.whenIdle()).then(() => claimer.whenAnswered())
    await Promise.race([ended.then(() => settlements.idle()), closed])
    if (this.#isClosing()) return this.#closing?.catch(() => {})
    // At a date, or by a signal, time is short: the rest is sent by the next run, or by another worker.
    const how = why === 'drained' || why === 'max-jobs' ? 'drain' : 'close'
    await endDeliveries(this.#deliveries, how, parseClose({}, 'worker.run'))
    this.#deliveries = undefined
    if (this.#started && wasRunning) this.#announce('paused')
    await this.#connection.series.flush() // a serverless process may be frozen once the run has ended
  }

  /** Stops claiming jobs until `resume()`. Running handlers continue. */
  pause(): void {
    if (this.#state !== 'running' && this.#state !== 'new') return
    this.#state = 'paused'
    void this.#runner.claimer.stop().then(() => this.#runner.returnUnstarted())
    if (this.#started) this.#announce('paused')
  }

  /** Claims jobs again after `pause()`. */
  resume(): void {
    if (this.#state !== 'paused') return
    this.#state = 'running'
    this.#isIdle = false
    if (!this.#started) return
    outside(() => {
      this.#deliveries ??= this.#startDeliveries()
      this.#announce('running')
      this.#runner.claimer.start()
    })
  }

  /** Adds a middleware inside the existing ones. It applies to jobs that start from now on. */
  use(wrap: Middleware): this {
    checkMiddleware(wrap)
    this.#middleware.push(wrap)
    return this
  }

  /**
   * Subscribes to this worker's own events. Those about a job carry it as `job`: as this worker knows it, with what the
   * event reports. Returns a function that unsubscribes.
   */
  on<Type extends WorkerEventType>(type: Type, listener: NoInfer<(event: WorkerEventOf<Type, Jobs>) => unknown>): Stop {
    checkListener(type, listener, workerEvents)
    return this.#emitter.on(type, listener as unknown as Listener<Type>)
  }

  /** How many jobs are running. Each job of a batch counts. */
  get active(): number {
    return this.#runner.slots.running.length
  }

  /**
   * Stops claiming, waits for running handlers, then aborts their signals and waits again. Returns jobs whose handlers
   * ended without a result to the queue, and waits for webhook deliveries in flight. Then, if the first wait was too
   * short, rejects with `SHUTDOWN_TIMEOUT`. A handler that ignores its signal keeps running, and its lease expires.
   */
  close(options: CloseOptions = {}): Promise<void> {
    let timeouts: CloseTimeouts
    try {
      refuseInside(this.#connection.store, 'worker.close()')
      timeouts = parseClose(options, 'close')
    } catch (error) {
      return Promise.reject(error)
    }
    this.#closing ??= outside(() => this.#close(timeouts))
    return this.#closing
  }

  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #autorun(): void {
    if (this.#isClosing() || this.#bounded !== undefined || this.#isIdle) return
    void this.run().catch((error: unknown) => this.#parts.errors.report(error))
  }

  async #start(): Promise<void> {
    if (this.#state === 'new') this.#state = 'running'
    for (let failures = 1; !this.#isClosing(); failures++) {
      try {
        await this.#prepare()
        break
      } catch (error) {
        if (isPermanent(error)) {
          this.#starting = undefined // so that run() can be called again once the cause is fixed
          throw error
        }
        this.#parts.errors.report(error)
        await this.#pauseStart(failures)
      }
    }
    if (this.#isClosing()) return
    this.#started = true
    const unwatch = this.#connection.store.watch({}, (notice) => outside(() => this.#onNotice(notice)))
    const unsubscribe = this.#connection.outage.on((error) => this.#emitter.error(error))
    this.#unwatch = () => {
      unwatch()
      unsubscribe()
    }
    this.#leases.start()
    this.#upkeep.start()
    // Sent through the batcher of the first claim, ahead of it. So the store publishes the start before any job is
    // active, and if this worker dies right after, other workers know whose job it was.
    const state = this.#state === 'paused' ? 'paused' : 'running'
    const announced = this.#registration.announce(state, 'worker-started', this.#connection.claims)
    if (this.#state === 'running') this.#runner.claimer.start()
    this.#deliveries = this.#startDeliveries()
    try {
      await announced
      this.#recovering = this.#recover(await this.#registration.refresh())
    } catch (error) {
      this.#parts.errors.report(error) // the next heartbeat writes it again
    }
  }

  /**
   * Recovers the jobs of dead workers, concurrently with everything else. Jobs that it cannot recover now are recovered
   * when their leases expire.
   */
  #recover(cells: readonly Cell[]): Promise<void> {
    if (this.#connection.store.can.upkeep === 'elsewhere') return Promise.resolve()
    const { recovery, handlerOf } = this.#settings
    const { queues } = this
    const handles = (job: JobRecord): boolean => handlerOf(job) !== undefined
    const stopped = (): boolean => this.#isClosing()
    const applied = (job: JobRecord, changes: Group): void => this.#parts.reporter.upkept(job, changes)
    const recovering = recover(cells, { connection: this.#connection, queues, recovery, handles, stopped, applied })
    return recovering.catch((error: unknown) => this.#parts.errors.report(error))
  }

  /** Everything that must be done before the first claim. */
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

  #onNotice(notice: Notice): void {
    for (const each of notice.revoked) if (each.worker === this.id) this.#leases.revoked(each)
    for (const hold of notice.held ?? []) if (this.queues.includes(hold.queue)) this.#runner.held(hold)
    if (notice.missed === true) this.#leases.check()
    for (const { queue, at } of notice.due) this.#upkeep.expect(queue, at)
    if (notice.work.some((queue) => this.queues.includes(queue))) this.#runner.claimer.wake()
  }

  /** Returns whether an error of the store is to be reported. */
  #onStoreError(error: unknown): boolean {
    if (this.#state === 'closed') return false
    if (isMillraceError(error, 'STORE_CLOSED')) {
      this.#storeClosed(error)
      return false
    }
    this.#upkeep.outage()
    return true
  }

  /** A closed store never opens again, so the worker closes instead of retrying for ever. */
  #storeClosed(error: MillraceError): void {
    if (this.#isClosing()) return
    this.#emitter.error(error)
    void this.close({ timeout: 0, grace: 0 }).catch(() => {})
  }

  #announce(state: 'running' | 'paused'): void {
    void this.#registration.announce(state).catch((error: unknown) => this.#parts.errors.report(error))
  }

  /** Starts to send the webhook deliveries of its queue, if that has webhooks. */
  #startDeliveries(): Deliveries | undefined {
    const { handles, upkeepEvery, pollEvery, reconnect } = this.#settings
    return this.#webhooks?.deliver({
      queue: this.queues[0]!,
      store: this.#connection.store,
      logger: this.#logger,
      lease: Math.min(...handles.map(({ lease }) => lease)),
      upkeepEvery,
      pollEvery,
      reconnect,
      failed: (error) => this.#emitter.error(error),
    })
  }

  /** Stop claiming, wait, abort, wait again, drain deliveries, release everything; only then reject. */
  async #close(timeouts: CloseTimeouts): Promise<void> {
    const { timeout, grace } = timeouts
    const { runtime } = this.#connection
    const { slots, settlements } = this.#runner
    const began = runtime.elapsed()
    // Not awaited yet: the last claim may be waiting for a transaction of the very handlers that are awaited below.
    const stoppedClaiming = within(runtime, grace, this.#stopClaiming())
    const left = await endHandlers(runtime, slots, timeouts)
    await stoppedClaiming
    const settled = await within(runtime, grace, settlements.idle())
    settlements.giveUp()
    // The last settlements are durable now, and so are the deliveries that they add.
    const drainTimeout = Math.max(grace, timeout - (runtime.elapsed() - began))
    const undelivered = await endDeliveries(this.#deliveries, 'close', { timeout: drainTimeout, grace })
    await within(runtime, grace, this.#stopped())
    this.#endedByClose()
    if (left !== undefined) throw handlersLate(timeout, left)
    if (!settled) throw settlementsLate(timeout)
    if (undelivered !== undefined) throw undelivered
  }

  async #stopClaiming(): Promise<void> {
    const started = this.#starting
    this.#state = 'closing'
    this.#bounded?.end('closed')
    this.#interrupt?.()
    const stopped = this.#runner.claimer.close()
    await started?.catch(() => {})
    await stopped
    this.#runner.returnUnstarted()
    if (!this.#started) return
    void this.#registration.announce('stopping', 'worker-stopping').catch(() => {})
  }

  async #stopped(): Promise<void> {
    this.#unwatch?.()
    this.#leases.stop()
    await this.#upkeep.stop()
    await this.#recovering
    if (this.#started) {
      await this.#registration.announce('stopped', 'worker-stopped').catch(() => {})
    }
    await this.#connection.series.flush()
    this.#state = 'closed'
    this.#runner.clear()
    this.#parts.operations.close()
  }
}
