// queue/queue.ts: the producer's side: adding jobs, and looking after those added.
import { MillraceError } from '../job/errors.js'
import type { JobRecord } from '../job/job.js'
import type { Jsonable } from '../job/json.js'
import { checkName, refuseUnknown } from '../job/names.js'
import { refuseInside } from '../store/transaction-context.js'
import { connect, storeTime } from '../store/connection.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import { step, stepwise } from '../store/maybe-sync.js'
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
import { QueueOperations } from './operations/queue-operations.js'
import { Emitter, checkListener, safeLogger } from './events/events.js'
import type { EventOf, EventType, Listener } from './events/events.js'
import { explain } from './explain.js'
import type { Explanation } from './explain.js'
import { listen } from './events/listen.js'
import { listQuery } from './operations/filter.js'
import type { ListOptions, PageOptions, PageWish } from './operations/filter.js'
import { Job } from './job.js'
import { getLimits, setLimits } from './settings/limits.js'
import type { LimitOptions, Limits } from './settings/limits.js'
import type { ChainResult } from './flows/chain-types.js'
import { ownJob } from './operations/by-filter.js'
import type { Place } from './operations/by-filter.js'
import { oneOf } from './add-options.js'
import type { AddOptions } from './add-options.js'
import { checkQueue, checkQueueName } from './queue-checks.js'
import { setPause } from './settings/pause.js'
import { readRetention } from './settings/retention.js'
import type { QueueRetention } from './settings/retention.js'
import { dropSchedule, prepareScheduled, putSchedule, schedulesOf } from './settings/schedules.js'
import type { Schedule, ScheduleOptions, SchedulePage } from './settings/schedules.js'
import { eventStream } from './events/sse.js'
import type { EventStream, EventStreamOptions } from './events/sse.js'
import { Reporter } from './telemetry.js'
import { refuseLate, splitTransaction, transactionIn, transactionOn } from './transactions.js'
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

/** What options that name no transaction come to. */
const NO_TRANSACTION = { tx: undefined, rest: NO_OPTIONS } as const

/** A named queue in a store. Making one costs nothing; several on one store share their writes. */
export class Queue<Jobs extends JobDefinitions = AnyJobs, S extends Store = Store> extends QueueOperations<Jobs, S> {
  /** Its name in the store. */
  readonly name: string
  /** Where its jobs live. */
  readonly store: S
  /** The jobs it takes, if declared. */
  readonly jobs: Jobs | undefined
  /** @internal Lets a worker send the deliveries of its queue. */
  readonly webhooks: Webhooks | undefined
  readonly #connection: Connection
  readonly #desk: JobOperations
  readonly #adder: Adder
  readonly #emitter: Emitter
  readonly #retention: QueueRetention | undefined
  /** Where somebody wants to know what is added. */
  readonly #teller: Reporter | undefined
  #unobserve: Stop | undefined
  #watching: Stop | undefined
  #closed = false
  #closing: Promise<void> | undefined
  readonly #waiting = new Set<Promise<void>>()

  /** A queue by that name, 1 to 255 printable characters; `options.store` says where. */
  constructor(name: string, options: QueueOptions<Jobs, S> & Declaring<Jobs>) {
    super()
    this.name = checkQueueName(name, options)
    const { defaults, maxDataBytes, webhooks } = checkQueue(name, options)
    this.store = options.store
    this.jobs = options.jobs
    this.#connection = connect(options.store)
    this.#desk = new JobOperations(this.#connection, options.jobs, maxDataBytes)
    this.webhooks = webhooks
    const logger = safeLogger(options.logger)
    this.#emitter = new Emitter(logger, () => ({ queue: name, at: this.#connection.runtime.now() }))
    this.#retention = readRetention(options.retention, this.#desk, this.#emitter)
    this.#adder = new Adder(name, this.#desk, options.jobs, defaults, this.#retention?.keep, webhooks)
    const { telemetry } = options
    if (telemetry !== undefined || logger.debug !== undefined) {
      this.#teller = new Reporter(name, this.#connection, telemetry, logger.debug)
    }
    if (telemetry === undefined) return
    this.#adder.trace = () => telemetry.trace()
    this.#unobserve = telemetry.observe(options.store)
  }

  /** Adds a job; resolves when it is durable. A duplicate (by id or dedup key) resolves to the standing job. */
  add<Name extends NameOf<Jobs>>(
    name: Name,
    ...args: AddArguments<InputFor<Jobs, Name>, S>
  ): Promise<JobOf<Jobs, NoInfer<Name>>> {
    return this.#add(name, args[0], args[1] ?? NO_OPTIONS) as Promise<JobOf<Jobs, NoInfer<Name>>>
  }

  #add(name: string, data: unknown, options: AddOptions & InTransaction & Abortable): Promise<Job> {
    const teller = this.#teller
    if (teller === undefined) return this.#send(name, data, options)
    return teller.sending(1, options?.tx, () => this.#send(name, data, options))
  }

  /** Not an async function: for most adds, one promise is enough. */
  #send(name: string, data: unknown, options: AddOptions & InTransaction & Abortable): Promise<Job> {
    try {
      this.#refuseClosed()
      const plain = options === NO_OPTIONS // as most are
      const { tx, rest: others } = plain ? NO_TRANSACTION : splitTransaction(options, 'queue.add options')
      const { signal, rest } = splitSignal(others, 'queue.add')
      refuseAborted(signal)
      const way = this.#desk.way(tx)
      const prepared = this.#adder.prepare(name, data, rest)
      if (!(prepared instanceof Promise)) return orAborted(this.#adder.send(prepared, way, signal), signal)
      refuseLate(this.store, tx, name)
      return orAborted(this.#underWay(prepared.then((each) => this.#adder.send(each, way, signal))), signal)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Closing waits for adds whose schema is still at work. */
  #underWay<T>(work: Promise<T>): Promise<T> {
    const done = (): void => void this.#waiting.delete(settled)
    const settled: Promise<void> = work.then(done, done)
    this.#waiting.add(settled)
    return work
  }

  /** Adds many, in order, each landing by itself; if one of them is malformed, none is written. */
  addBulk(items: readonly BulkItem<Jobs>[], options?: WithTransaction<S, Abortable>): Promise<JobOf<Jobs>[]> {
    const { tx, signal } = (options ?? {}) as InTransaction & Abortable
    const add = (): Promise<Job[]> => orAborted(this.#underWay(stepwise(this.#addBulk(items, options))), signal)
    const count = Array.isArray(items) ? items.length : 0
    const added = this.#teller === undefined ? add() : this.#teller.sending(count, tx, add)
    return added as Promise<JobOf<Jobs>[]>
  }

  *#addBulk(items: readonly BulkItem<Jobs>[], options: (InTransaction & Abortable) | undefined): Steps<Job[]> {
    this.#refuseClosed()
    if (!Array.isArray(items)) throw new MillraceError('INVALID_OPTION', 'queue.addBulk takes an array of jobs.')
    const { signal, rest } = splitSignal(options ?? {}, 'queue.addBulk')
    refuseAborted(signal)
    const tx = transactionIn(rest, 'queue.addBulk')
    const way = this.#desk.way(tx)
    const ready: Prepared[] = []
    const prepared = (items as readonly BulkItem<AnyJobs>[]).map((item) => {
      refuseUnknown(item, ['name', 'data', 'options'], 'queue.addBulk')
      return this.#adder.prepare(item.name, item.data, item.options ?? NO_OPTIONS)
    })
    for (const [at, each] of prepared.entries()) {
      if (each instanceof Promise) refuseLate(this.store, tx, items[at]!.name)
      ready.push(each instanceof Promise ? yield* step(each) : each)
    }
    return yield* step(this.#adder.sendAll(ready, way, signal))
  }

  /** The job with this id, or undefined. */
  get(id: string, ...options: TransactionArgument<S>): Promise<JobOf<Jobs> | undefined> {
    const handle = (record: JobRecord): JobOf<Jobs> => this.#handle(record)
    return this.run(options[0], 'queue.get', function* ({ queue, way }) {
      const record = yield* step(way.get(checkName(id, 'job id')))
      return record?.queue === queue && record.kind !== 'signal' ? handle(record) : undefined
    })
  }

  /** Jobs in the order in which they were added, by page. */
  async list(options?: WithTransaction<S, ListOptions<NameOf<Jobs>>>): Promise<JobPage<JobOf<Jobs>>> {
    this.#refuseClosed()
    const { tx, rest } = splitTransaction(
      (options === undefined ? {} : options) as ListOptions & InTransaction,
      'queue.list',
    )
    const { items, cursor } = await this.#desk.way(tx).find(listQuery(this.name, rest))
    const jobs = items.map((record) => this.#handle(record))
    return cursor === undefined ? { jobs } : { jobs, cursor }
  }

  /**
   * Runs work in a transaction, which is committed when it answers and rolled back when it throws. `tx` is the handle to
   * write with; calls of queues on the same store made by the work belong to the transaction by themselves. Inside
   * another such transaction it is a savepoint. Not on a store that has no transactions, such as memory.
   */
  transaction<T>(...work: TransactionWork<S, T>): Promise<T> {
    return transactionOn(this.store, () => this.#refuseClosed(), work[0])
  }

  /**
   * The chain that begins with this job: that job and those that it is continued with. Given the handle rather than the id,
   * `result()` is typed by what a chain that begins with a job of that name can end with.
   */
  chain<Name extends NameOf<Jobs> = NameOf<Jobs>>(
    of: string | { readonly id: string; readonly name: Name },
  ): Chain<Jobs, S, JobOf<Jobs>, ChainResult<Jobs, Name>> {
    return new Chain<Jobs, S, JobOf<Jobs>, ChainResult<Jobs, Name>>(
      {
        queue: this.name,
        store: this.store,
        jobs: this.jobs,
        desk: this.#desk,
        adder: this.#adder,
        refuseClosed: () => this.#refuseClosed(),
      },
      typeof of === 'string' ? of : of?.id,
    )
  }

  /** How many jobs there are in each state: in all, and of each name. */
  counts(options: WithTransaction<S, { readonly by: 'name' }>): Promise<QueueCounts<NameOf<Jobs>>>
  /** How many jobs there are in each state, as the store keeps count: it costs the same however many there are. */
  counts(options?: WithTransaction<S, { readonly by?: 'state' }>): Promise<StateCounts>
  async counts(options: CountOptions & InTransaction = {}): Promise<StateCounts | QueueCounts> {
    this.#refuseClosed()
    const { tx, rest } = splitTransaction(options, 'queue.counts')
    refuseUnknown(rest, ['by'], 'queue.counts')
    const by = oneOf(rest.by ?? 'state', ['state', 'name'], 'queue.counts: by')
    const [tally] = await this.#desk.way(tx).tally(this.name)
    const counts = countsOf(tally, Object.keys(this.jobs ?? {}))
    return by === 'state' ? counts.total : counts
  }

  /**
   * Bounds the queue, its names and its groups, for all workers and at once; answers all that then stands. What is left out
   * stays as it is, `null` lifts it. Options of workers are only seeds: what was said here goes before them.
   */
  limit(changes: LimitOptions<NameOf<Jobs>>, ...options: TransactionArgument<S>): Promise<Limits> {
    return this.run(options[0], 'queue.limit', ({ queue, way }) =>
      setLimits(way, queue, changes, (name) => void this.#adder.definition(name)),
    )
  }

  /** What bounds the queue, its names and its groups. */
  limits(...options: TransactionArgument<S>): Promise<Limits> {
    return this.run(options[0], 'queue.limits', ({ queue, way }) => getLimits(way, queue))
  }

  /** Stops claims from the whole queue or of one name; what runs goes on. */
  pause(name?: NameOf<Jobs>, ...options: TransactionArgument<S>): Promise<void> {
    return this.#pause(name, true, options[0])
  }

  /** Undoes `pause` for the whole queue or for one name. */
  resume(name?: NameOf<Jobs>, ...options: TransactionArgument<S>): Promise<void> {
    return this.#pause(name, false, options[0])
  }

  #pause(name: string | undefined, paused: boolean, options: InTransaction | undefined): Promise<void> {
    return this.run(options, paused ? 'queue.pause' : 'queue.resume', ({ queue, way }) => {
      if (name !== undefined) this.#adder.definition(name)
      return setPause(way, queue, name, paused)
    })
  }

  /**
   * Adds a job again and again, under a key: by `cron` or `every` so often. A key that stands is changed for times to
   * come; with the same schedule nothing changes. Pausing holds its runs back, and not the schedule.
   */
  schedule(key: string, options: WithTransaction<S, ScheduleOptions<Jobs>>): Promise<Schedule<NameOf<Jobs>>> {
    const given = options as ScheduleOptions<JobDefinitions> & InTransaction
    const { store } = this
    const now = this.#connection.runtime.now()
    const prepare = this.#adder.prepare.bind(this.#adder)
    const scheduled = this.run({ tx: given?.tx }, 'queue.schedule', function* (place) {
      const { tx, rest } = splitTransaction<ScheduleOptions<JobDefinitions>>(given, 'queue.schedule options')
      const prepared = prepareScheduled(prepare, key, rest, now)
      if (prepared instanceof Promise) refuseLate(store, tx, rest.name)
      return yield* putSchedule(place, prepared instanceof Promise ? yield* step(prepared) : prepared)
    })
    return this.#underWay(scheduled) as Promise<Schedule<NameOf<Jobs>>>
  }

  /** Takes a schedule away; false if there was none. Runs that it has made stay. */
  unschedule(key: string, ...options: TransactionArgument<S>): Promise<boolean> {
    return this.run(options[0], 'queue.unschedule', (place) => dropSchedule(place, key))
  }

  /** Schedules of this queue by page, in the order in which they were made, each with its next five times. */
  schedules(options: WithTransaction<S, PageWish>): Promise<SchedulePage<NameOf<Jobs>>>
  /** All of them at once. */
  schedules(...options: TransactionArgument<S>): Promise<readonly Schedule<NameOf<Jobs>>[]>
  async schedules(options: PageOptions & InTransaction = {}): Promise<unknown> {
    const { tx, rest } = splitTransaction(options, 'queue.schedules')
    return this.run({ tx }, 'queue.schedules', (place) => schedulesOf(place, rest))
  }

  /**
   * Sends a signal to a job: `ctx.waitForSignal(name)` of its handler gives that data, whether it waits already or will. Answers
   * whether it was taken: false if one of that name was sent before, or its wait was over, also of a finished job. Any other
   * is refused for a finished job, with `INVALID_STATE`.
   */
  signal<T>(id: string, name: string, data?: T & Jsonable<T>, ...options: TransactionArgument<S>): Promise<boolean> {
    return this.run(options[0], 'queue.signal', function* (place) {
      return yield* place.desk.signalling(id, name, data, place.way, yield* ownJob(place, id))
    })
  }

  /** Why a job is not running. */
  explain(id: string): Promise<Explanation> {
    const connection = this.#connection
    return this.run(undefined, 'queue.explain', function* (place) {
      const now = yield* step(storeTime(connection, place.way.within))
      return yield* step(explain(place.way, yield* ownJob(place, id), now))
    })
  }

  /**
   * Hears events of this queue, from every process that shares the store. An event is announced once, after the commit
   * that made it true. Answers how to stop.
   */
  on<Type extends EventType>(type: Type, listener: NoInfer<(event: EventOf<Type, Jobs>) => unknown>): Stop {
    this.#refuseClosed()
    checkListener(type, listener)
    const stop = this.#emitter.on(type, listener as unknown as Listener<Type>)
    this.#watching ??= listen(this.name, this.#desk, this.#emitter)
    return () => {
      stop()
      if (this.#emitter.size > 0) return
      this.#watching?.()
      this.#watching = undefined
    }
  }

  /**
   * The events of this queue as server-sent events, from every process that shares the store: a snapshot, then what
   * happens, with a ping every 15 s. Cancelling it, aborting its `signal` or closing the queue frees all that it holds.
   */
  eventStream(options: EventStreamOptions = {}): EventStream {
    this.#refuseClosed()
    return eventStream(this.name, this.#desk, options)
  }

  /** @internal Lets a worker in this process tell what only it knows. */
  get emitter(): Emitter {
    return this.#emitter
  }

  /** @internal Lets a worker carry out what was said about finished jobs. */
  get retention(): QueueRetention | undefined {
    return this.#retention
  }

  /** @internal Lets a worker add jobs with the queue's own defaults. */
  get adder(): Adder {
    return this.#adder
  }

  /** Whether it has been closed. */
  get closed(): boolean {
    return this.#closed
  }

  /** Waits for what was asked for to be durable, lets go of those who wait for results, and refuses further calls. */
  close(): Promise<void> {
    try {
      refuseInside(this.store, 'queue.close()')
    } catch (error) {
      return Promise.reject(error)
    }
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#closed = true
    this.#unobserve?.()
    this.#desk.close()
    await Promise.all(this.#waiting)
    await this.#connection.main.flushed()
    await this.#connection.outcomes.leave(this.name)
    this.#watching?.()
    this.#watching = undefined
    this.#emitter.clear()
  }

  #handle(record: JobRecord): JobOf<Jobs> {
    return new Job(this.#desk, record) as JobOf<Jobs>
  }

  /** @internal */
  protected override place(options: InTransaction | undefined, call: string): Place {
    this.#refuseClosed()
    return { queue: this.name, desk: this.#desk, way: this.#desk.way(transactionIn(options, call)) }
  }

  #refuseClosed(): void {
    if (this.#closed) throw new MillraceError('QUEUE_CLOSED', `Queue '${this.name}' has been closed; make a new one.`)
  }
}
