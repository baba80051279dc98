// queue/queue.ts: the producer: adds jobs, reads and manages them, and subscribes to their events.
import { MillraceError } from '../job/errors/errors.js'
import type { JobRecord } from '../job/job.js'
import type { Jsonable } from '../job/values/json.js'
import { checkName, refuseUnknown } from '../job/values/names.js'
import { invalid, oneOf } from '../job/values/options.js'
import { refuseInside } from '../store/transaction-context.js'
import { connect, storeTime } from '../store/connection.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import { step, runSteps } from '../store/maybe-sync.js'
import type { Steps } from '../store/maybe-sync.js'
import type { Store } from '../store/store.js'
import { orAborted, refuseAborted, splitSignal } from './operations/abort-signal.js'
import type { Abortable } from './operations/abort-signal.js'
import { Adder, NO_OPTIONS } from './add.js'
import type { Prepared } from './add.js'
import { Chain } from './flows/chain.js'
import { countsOf } from './counts.js'
import type { CountOptions, QueueCounts, StateCounts } from './counts.js'
import type { JobDefinitions, NameOf } from './define.js'
import { JobOperations } from './operations/job-operations.js'
import { QueueWithHealth } from './health/queue-health.js'
import { Emitter, checkListener, consoleLines, safeLogger } from './events/events.js'
import type { EventOf, EventType, Listener, Logger } from './events/events.js'
import { explain } from './explain.js'
import type { Explanation } from './explain.js'
import { readGraph } from './graph.js'
import type { JobGraph } from './graph.js'
import { listen } from './events/subscription.js'
import { listPage } from './operations/list.js'
import type { ListOptions } from './operations/list.js'
import type { PageOptions } from './operations/filter.js'
import { Job } from './job.js'
import { getLimits, setLimits, setPause } from './settings/limits.js'
import type { LimitOptions, Limits } from './settings/limits.js'
import type { ChainResult } from './flows/chain-types.js'
import { ownJob } from './operations/operations.js'
import type { QueueScope } from './operations/operations.js'
import type { AddOptions } from './add-options.js'
import { checkQueue, checkQueueName } from './queue-types.js'
import { readRetention } from './settings/retention.js'
import type { QueueRetention } from './settings/retention.js'
import { dropSchedule, prepareSchedule, putSchedule, schedulesOf } from './settings/schedules.js'
import type {
  PreparedSchedule,
  Schedule,
  ScheduleOptions,
  SchedulePage,
  SchedulePageOptions,
} from './settings/schedules.js'
import { prepareSet, syncSchedules } from './settings/schedule-sets.js'
import type { KeyedSchedule, SyncOptions, SyncedSchedules } from './settings/schedule-sets.js'
import { ScheduleHandle } from './settings/schedule-handle.js'
import { eventStream } from './events/sse.js'
import type { EventStream } from './events/sse.js'
import type { EventStreamOptions } from './events/stream-options.js'
import { sendSignal } from './send-signal.js'
import { AddReporter } from './instrumentation.js'
import { refuseAsyncSchema, splitTransaction, transactionIn, transactionOn } from './transactions.js'
import type { InTransaction, TransactionArgument, TransactionWork, WithTransaction } from './transactions.js'
import type { Webhooks } from './settings/webhook.js'
import type {
  AddArguments,
  AnyJobs,
  BulkItem,
  Declaring,
  InputFor,
  JobOf,
  JobPage,
  QueueOptions,
} from './queue-types.js'

/** What parsing gives for an add without options. */
const NO_TRANSACTION = { tx: undefined, rest: NO_OPTIONS } as const

/** A named queue in a store. Cheap to create; queues on one store share their write batches. */
export class Queue<Jobs extends JobDefinitions = AnyJobs, S extends Store = Store> extends QueueWithHealth<Jobs, S> {
  /** Its name in the store. */
  readonly name: string
  /** The store that holds its jobs. */
  readonly store: S
  /** The jobs it accepts, if declared. */
  readonly jobs: Jobs | undefined
  /** @internal Workers use it to send the deliveries of their queue. */
  readonly webhooks: Webhooks | undefined
  /** @internal Logs lines that contain their details. */
  readonly lines: Logger
  readonly #connection: Connection
  readonly #operations: JobOperations
  readonly #adder: Adder
  readonly #emitter: Emitter
  /** @internal Lets a worker apply the queue's retention. */
  readonly retention: QueueRetention | undefined
  /** Reports adds, for queues with telemetry or a debug logger. */
  readonly #reporter: AddReporter | undefined
  #unobserve: Stop | undefined
  #stopListening: Stop | undefined
  #closed = false
  #closing: Promise<void> | undefined
  readonly #pending = new Set<Promise<void>>()

  /** A queue of this name, 1 to 255 printable characters, in `options.store`. */
  constructor(name: string, options: QueueOptions<Jobs, S> & Declaring<Jobs>) {
    super()
    this.name = checkQueueName(name, options)
    const { defaults, maxDataBytes, webhooks, series } = checkQueue(name, options)
    this.store = options.store
    this.jobs = options.jobs
    this.#connection = connect(options.store)
    if (series !== undefined) this.#connection.series.keep(name, series)
    this.#operations = new JobOperations(this.#connection, options.jobs, maxDataBytes)
    this.webhooks = webhooks
    const logger = safeLogger(options.logger)
    this.lines = safeLogger(options.logger ?? consoleLines)
    this.#emitter = new Emitter(logger, () => ({ queue: name, at: this.#connection.runtime.now() }))
    this.retention = readRetention(options.retention, this.#operations, this.#emitter)
    this.#adder = new Adder(name, this.#operations, options.jobs, defaults, this.retention?.keep, webhooks)
    const { telemetry } = options
    if (telemetry !== undefined || logger.debug !== undefined) {
      this.#reporter = new AddReporter(name, this.#connection, telemetry, logger.debug)
    }
    if (telemetry === undefined) return
    this.#adder.trace = () => telemetry.trace()
    this.#unobserve = telemetry.observe(options.store)
  }

  /** Adds a job; resolves when it is durable. A duplicate, by id or dedup key, resolves to the existing job. */
  add<Name extends NameOf<Jobs>>(
    name: Name,
    ...args: AddArguments<InputFor<Jobs, Name>, S>
  ): Promise<JobOf<Jobs, NoInfer<Name>>> {
    return this.#add(name, args[0], args[1] ?? NO_OPTIONS) as Promise<JobOf<Jobs, NoInfer<Name>>>
  }

  #add(name: string, data: unknown, options: AddOptions & InTransaction & Abortable): Promise<Job> {
    const reporter = this.#reporter
    if (reporter === undefined) return this.#send(name, data, options)
    return reporter.reportAdd(1, options?.tx, () => this.#send(name, data, options))
  }

  /** Not an async function: most adds need only one promise. */
  #send(name: string, data: unknown, options: AddOptions & InTransaction & Abortable): Promise<Job> {
    try {
      this.#refuseClosed()
      const plain = options === NO_OPTIONS // the common case
      const { tx, rest: others } = plain ? NO_TRANSACTION : splitTransaction(options, 'queue.add options')
      const { signal, rest } = splitSignal(others, 'queue.add')
      refuseAborted(signal)
      const session = this.#operations.session(tx)
      const prepared = this.#adder.prepare(name, data, rest)
      if (!(prepared instanceof Promise)) return orAborted(this.#adder.send(prepared, session, signal), signal)
      refuseAsyncSchema(this.store, tx, name)
      return orAborted(this.#track(prepared.then((each) => this.#adder.send(each, session, signal))), signal)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** `close` waits for adds whose schema is still running. */
  #track<T>(work: Promise<T>): Promise<T> {
    const done = (): void => void this.#pending.delete(settled)
    const settled: Promise<void> = work.then(done, done)
    this.#pending.add(settled)
    return work
  }

  /** Adds many jobs, in order. Each is committed by itself; if one of them is invalid, none is written. */
  addBulk(items: readonly BulkItem<Jobs>[], options?: WithTransaction<S, Abortable>): Promise<JobOf<Jobs>[]> {
    const { tx, signal } = (options ?? {}) as InTransaction & Abortable
    const add = (): Promise<Job[]> => orAborted(this.#track(runSteps(this.#addBulk(items, options))), signal)
    const count = Array.isArray(items) ? items.length : 0
    return this.measureAdds(count, add, tx) as Promise<JobOf<Jobs>[]>
  }

  /** @internal Reports adds that are sent by the adder. */
  measureAdds(count: number, add: () => Promise<Job[]>, tx?: InTransaction['tx']): Promise<Job[]> {
    return this.#reporter === undefined ? add() : this.#reporter.reportAdd(count, tx, add)
  }

  *#addBulk(items: readonly BulkItem<Jobs>[], options: (InTransaction & Abortable) | undefined): Steps<Job[]> {
    this.#refuseClosed()
    if (!Array.isArray(items)) throw invalid('queue.addBulk takes an array of jobs.')
    const { signal, rest } = splitSignal(options ?? {}, 'queue.addBulk')
    refuseAborted(signal)
    const tx = transactionIn(rest, 'queue.addBulk')
    const session = this.#operations.session(tx)
    const ready: Prepared[] = []
    const prepared = (items as readonly BulkItem<AnyJobs>[]).map((item) => {
      refuseUnknown(item, ['name', 'data', 'options'], 'queue.addBulk')
      return this.#adder.prepare(item.name, item.data, item.options ?? NO_OPTIONS)
    })
    for (const [at, each] of prepared.entries()) {
      if (each instanceof Promise) refuseAsyncSchema(this.store, tx, items[at]!.name)
      ready.push(each instanceof Promise ? yield* step(each) : each)
    }
    return yield* step(this.#adder.sendAll(ready, session, signal))
  }

  /** The job with this id, or undefined. */
  get(id: string, ...options: TransactionArgument<S>): Promise<JobOf<Jobs> | undefined> {
    const handle = (record: JobRecord): JobOf<Jobs> => this.#handle(record)
    return this.run(options[0], 'queue.get', function* ({ queue, session }) {
      const record = yield* step(session.get(checkName(id, 'job id')))
      return record?.queue === queue && record.kind !== 'signal' ? handle(record) : undefined
    })
  }

  /** Jobs by page, in the order in which they were added or ended. */
  async list(options?: WithTransaction<S, ListOptions<NameOf<Jobs>>>): Promise<JobPage<JobOf<Jobs>>> {
    this.#refuseClosed()
    const { tx, rest } = splitTransaction(
      (options === undefined ? {} : options) as ListOptions & InTransaction,
      'queue.list',
    )
    const session = this.#operations.session(tx)
    const { items, ...more } = await listPage(session, this.name, rest, this.#connection.runtime.now())
    return { jobs: items.map((record) => this.#handle(record)), ...more }
  }

  /**
   * Runs work in a transaction, which commits when the work resolves and rolls back when it throws. `tx` is the handle
   * to write with; calls of queues on the same store inside the work join the transaction. Inside another such
   * transaction it is a savepoint. Not on a store without transactions, such as memory.
   */
  transaction<T>(...work: TransactionWork<S, T>): Promise<T> {
    return transactionOn(this.store, () => this.#refuseClosed(), work[0])
  }

  /**
   * The chain that begins with this job: the job and its continuations. With a handle instead of an id, `result()` has
   * the type of what a chain that begins with that job name can end with.
   */
  chain<Name extends NameOf<Jobs> = NameOf<Jobs>>(
    of: string | { readonly id: string; readonly name: Name },
  ): Chain<Jobs, S, JobOf<Jobs>, ChainResult<Jobs, Name>> {
    return new Chain<Jobs, S, JobOf<Jobs>, ChainResult<Jobs, Name>>(
      {
        queue: this.name,
        store: this.store,
        jobs: this.jobs,
        operations: this.#operations,
        adder: this.#adder,
        refuseClosed: () => this.#refuseClosed(),
      },
      typeof of === 'string' ? of : of?.id,
    )
  }

  /** Job counts by state: in total and by name. */
  counts(options: WithTransaction<S, { readonly by: 'name' }>): Promise<QueueCounts<NameOf<Jobs>>>
  /** Job counts by state, as the store maintains them: the cost does not depend on the number of jobs. */
  counts(options?: WithTransaction<S, { readonly by?: 'state' }>): Promise<StateCounts>
  async counts(options: CountOptions & InTransaction = {}): Promise<StateCounts | QueueCounts> {
    this.#refuseClosed()
    const { tx, rest } = splitTransaction(options, 'queue.counts')
    refuseUnknown(rest, ['by'], 'queue.counts')
    const by = oneOf(rest.by ?? 'state', ['state', 'name'], 'queue.counts: by')
    const [tally] = await this.#operations.session(tx).tally(this.name)
    const counts = countsOf(tally, Object.keys(this.jobs ?? {}))
    return by === 'state' ? counts.total : counts
  }

  /**
   * Limits the queue, its names and its groups, for all workers and at once; returns all limits that then apply.
   * Omitted limits stay as they are, `null` removes one. Worker options only seed limits; limits set here override
   * them.
   */
  limit(changes: LimitOptions<NameOf<Jobs>>, ...options: TransactionArgument<S>): Promise<Limits> {
    return this.run(options[0], 'queue.limit', ({ queue, session }) =>
      setLimits(session, queue, changes, (name) => void this.#adder.definition(name)),
    )
  }

  /** The limits of the queue, its names and its groups. */
  limits(...options: TransactionArgument<S>): Promise<Limits> {
    return this.run(options[0], 'queue.limits', ({ queue, session }) => getLimits(session, queue))
  }

  /** Stops claims from the whole queue or of one name; running jobs continue. */
  pause(name?: NameOf<Jobs>, ...options: TransactionArgument<S>): Promise<void> {
    return this.#pause(name, true, options[0])
  }

  /** Undoes `pause` for the whole queue or for one name. */
  resume(name?: NameOf<Jobs>, ...options: TransactionArgument<S>): Promise<void> {
    return this.#pause(name, false, options[0])
  }

  #pause(name: string | undefined, paused: boolean, options: InTransaction | undefined): Promise<void> {
    return this.run(options, paused ? 'queue.pause' : 'queue.resume', ({ queue, session }) => {
      if (name !== undefined) this.#adder.definition(name)
      return setPause(session, queue, name, paused)
    })
  }

  /**
   * Adds a job repeatedly, by `cron` or `every`, under a key. For an existing key, updates future runs; the same
   * schedule again changes nothing. Pausing the queue holds back the runs, not the schedule.
   */
  schedule(key: string, options: WithTransaction<S, ScheduleOptions<Jobs>>): Promise<Schedule<NameOf<Jobs>>>
  /** A handle of the schedule with this key: to read, pause, resume, trigger, backfill or remove it. */
  schedule(key: string): ScheduleHandle<NameOf<Jobs>, S>
  schedule(
    ...[key, options]: readonly [key: string, options?: WithTransaction<S, ScheduleOptions<Jobs>>]
  ): Promise<Schedule<NameOf<Jobs>>> | ScheduleHandle<NameOf<Jobs>, S> {
    if (options === undefined) return new ScheduleHandle(this.calls, key)
    const given = options as ScheduleOptions<JobDefinitions> & InTransaction
    const { store } = this
    const now = this.#connection.runtime.now()
    const prepare = this.#adder.prepare.bind(this.#adder)
    const scheduled = this.run({ tx: given?.tx }, 'queue.schedule', function* (scope) {
      const { tx, rest } = splitTransaction<ScheduleOptions<JobDefinitions>>(given, 'queue.schedule options')
      const prepared = prepareSchedule(prepare, key, rest, now)
      if (prepared instanceof Promise) refuseAsyncSchema(store, tx, rest.name)
      return yield* putSchedule(scope, prepared instanceof Promise ? yield* step(prepared) : prepared)
    })
    return this.#track(scheduled) as Promise<Schedule<NameOf<Jobs>>>
  }

  /**
   * Makes the schedules of one owner what the list says: adds what is missing, changes what differs, and removes what the
   * owner has besides. Schedules without an owner that are in the list are taken over; those of others are refused with
   * `SCHEDULE_OWNED`. Up to 400 changes are one commit. `dryRun`: only returns what would change.
   */
  syncSchedules(
    list: readonly KeyedSchedule<Jobs>[],
    options: WithTransaction<S, SyncOptions> = {},
  ): Promise<SyncedSchedules> {
    const given = options as SyncOptions & InTransaction
    const { store } = this
    const now = this.#connection.runtime.now()
    const prepare = this.#adder.prepare.bind(this.#adder)
    const synced = this.run({ tx: given?.tx }, 'queue.syncSchedules', function* (scope) {
      const { tx, rest } = splitTransaction<SyncOptions>(given, 'queue.syncSchedules')
      const ready: PreparedSchedule[] = []
      for (const each of prepareSet(prepare, list, rest, now)) {
        if (each instanceof Promise) refuseAsyncSchema(store, tx, 'queue.syncSchedules')
        ready.push(each instanceof Promise ? yield* step(each) : each)
      }
      return yield* syncSchedules(scope, ready, rest)
    })
    return this.#track(synced)
  }

  /** Removes a schedule; false if there was none. Jobs that it has already created stay. */
  unschedule(key: string, ...options: TransactionArgument<S>): Promise<boolean> {
    return this.run(options[0], 'queue.unschedule', (scope) => dropSchedule(scope, key))
  }

  /** Schedules of this queue by page, in the order in which they were created, each with its next five times; with `runs`, also its last runs. */
  schedules(options: WithTransaction<S, SchedulePageOptions>): Promise<SchedulePage<NameOf<Jobs>>>
  /** All of them at once. */
  schedules(...options: TransactionArgument<S>): Promise<readonly Schedule<NameOf<Jobs>>[]>
  async schedules(options: PageOptions & { readonly runs?: number } & InTransaction = {}): Promise<unknown> {
    const { tx, rest } = splitTransaction(options, 'queue.schedules')
    return this.run({ tx }, 'queue.schedules', (scope) => schedulesOf(scope, rest))
  }

  /**
   * Sends a signal to a job: `ctx.waitForSignal(name)` in its handler returns the data, whether it already waits or
   * will. Returns whether the signal was accepted: false if one of that name was sent before or the wait has ended,
   * even if the job has finished. Any other signal to a finished job throws `INVALID_STATE`.
   */
  signal<T>(id: string, name: string, data?: T & Jsonable<T>, ...options: TransactionArgument<S>): Promise<boolean> {
    return this.run(options[0], 'queue.signal', function* (scope) {
      return yield* sendSignal(scope.session, yield* ownJob(scope, id), name, data, scope.payloads.maxBytes)
    })
  }

  /** Explains why a job is not running. */
  explain(id: string): Promise<Explanation> {
    const connection = this.#connection
    return this.run(undefined, 'queue.explain', function* (scope) {
      const now = yield* step(storeTime(connection, scope.session.within))
      return yield* step(explain(scope.session, yield* ownJob(scope, id), now))
    })
  }

  /**
   * The jobs around a job, and the edges between them: its flow, its chain, and what waits for what; at most 500 jobs,
   * in layers, and counts of the others.
   */
  graph(id: string): Promise<JobGraph> {
    const connection = this.#connection
    return this.run(undefined, 'queue.graph', function* (scope) {
      const now = yield* step(storeTime(connection, scope.session.within))
      return yield* readGraph(scope.session, yield* ownJob(scope, id), now)
    })
  }

  /**
   * Subscribes to events of this queue, from every process that shares the store. Each event is published once, after
   * the commit that caused it. Returns a function that unsubscribes.
   */
  on<Type extends EventType>(type: Type, listener: NoInfer<(event: EventOf<Type, Jobs>) => unknown>): Stop {
    this.#refuseClosed()
    checkListener(type, listener)
    const stop = this.#emitter.on(type, listener as unknown as Listener<Type>)
    this.#stopListening ??= listen(this.name, this.#operations.subscription, this.#connection, this.#emitter)
    return () => {
      stop()
      if (this.#emitter.size > 0) return
      this.#stopListening?.()
      this.#stopListening = undefined
    }
  }

  /**
   * The events of this queue as server-sent events, from every process that shares the store: a snapshot, then events,
   * with a ping every 15 s. With `jobId`, those of one job, until it ends. Cancelling the stream, aborting its `signal`
   * or closing the queue releases its resources.
   */
  eventStream(options: EventStreamOptions = {}): EventStream {
    this.#refuseClosed()
    return eventStream(this.name, this.#operations, options)
  }

  /** @internal Lets a worker in this process publish its own events. */
  get emitter(): Emitter {
    return this.#emitter
  }

  /** @internal Lets a worker add jobs with the queue's defaults. */
  get adder(): Adder {
    return this.#adder
  }

  /** Whether it is closed. */
  get closed(): boolean {
    return this.#closed
  }

  /** Waits until pending calls are durable, rejects waits for results, and refuses further calls. */
  close(): Promise<void> {
    try {
      refuseInside(this.store, 'queue.close()')
    } catch (error) {
      return Promise.reject(error)
    }
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    this.#closed = true
    this.#unobserve?.()
    this.#operations.close()
    await Promise.all(this.#pending)
    await this.#connection.main.flushed()
    await this.#connection.outcomes.leave(this.name)
    await this.#connection.counting.leave(this.name)
    await this.#connection.series.flush()
    this.#stopListening?.()
    this.#stopListening = undefined
    this.#emitter.clear()
  }

  #handle(record: JobRecord): JobOf<Jobs> {
    return new Job(this.#operations, record) as JobOf<Jobs>
  }

  /** @internal */
  protected override reading(): { readonly connection: Connection; readonly declared: readonly string[] } {
    this.#refuseClosed()
    return { connection: this.#connection, declared: Object.keys(this.jobs ?? {}) }
  }

  /** @internal */
  protected override scope(options: InTransaction | undefined, call: string): QueueScope {
    this.#refuseClosed()
    return {
      queue: this.name,
      session: this.#operations.session(transactionIn(options, call)),
      payloads: this.#operations.payloads,
      runtime: this.#connection.runtime,
      connection: this.#connection,
    }
  }

  /** @internal */
  protected override checkJob(name: string): void {
    this.#adder.definition(name)
  }

  /** @internal */
  protected override get actions(): JobOperations {
    return this.#operations
  }

  #refuseClosed(): void {
    if (this.#closed) throw new MillraceError('QUEUE_CLOSED', `Queue '${this.name}' has been closed; make a new one.`)
  }
}
