// stores/postgres/store.ts: the PostgreSQL store. A commit is one call of an SQL function, or two in one transaction.
import { MillraceError, isInstance } from '../../job/errors/errors.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { unavailable } from '../../store/commit-errors.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Batch, DisposableStore, Notice, Receipt, Store, Tx } from '../../store/store.js'
import { PAGE_BYTES, PAGE_EVENTS } from '../event-pages.js'
import { KeptReceipts } from '../kept-receipts.js'
import { PRESENCE_EVERY } from '../listeners.js'
import { Waits } from '../read-loop.js'
import { SettingsCache } from '../job-settings.js'
import { callOf } from './calls.js'
import type { FunctionName } from './calls.js'
import { checkTarget, openDriver } from './drivers/open.js'
import type { Call, Driver, Value } from './drivers/driver.js'
import { encoded, isMissing, toStoreError } from './errors.js'
import { pageOf as eventsOf } from './events/event-rows.js'
import { EventFeed } from './events/event-feed.js'
import type { CommitNotice, FeedSource } from './events/event-feed.js'
import { Batches } from './batches.js'
import { ClaimCursors } from './claim-cursors.js'
import { LaneIds } from './lane-ids.js'
import type { LaneName } from './lane-ids.js'
import { channelOf, prepare } from './migrate.js'
import type { SchemaInfo } from './migrate.js'
import { checkOptions } from './options.js'
import type { CheckedOptions, ClientOf, PgPoolLike, PostgresJsLike, PostgresOptions } from './options.js'
import { answerWithin, NoAnswer } from './drivers/timeout.js'
import type { Applied, EngineSource } from './engine/decide.js'
import { newLanes } from './lanes.js'
import { findPage, readDetails } from './queries.js'
import { dueOf, getCall, talliesOf, withHeads } from './read.js'
import type { DueAnswer, HeadsAnswer, TallyAnswer } from './read.js'
import { notificationOf, receiptOf, replayOf, withRecords } from './decode.js'
import type { CommitAnswer } from './decode.js'
import { recordOf } from './rows.js'
import type { RecordRow } from './rows.js'
import { indexValues } from './value-index.js'
import type { IndexAnswer } from './value-index.js'
import { toTransactionError, Transactions } from './transactions.js'
import type { PgTransaction, PostgresJsSql, PostgresTransaction } from './transactions.js'
import { ListenConnection } from './events/listen-connection.js'

/** Writers whose receipts are kept as they are. */
const KEPT = 10

/** The limit of changes in a batch, and of jobs prefetched with it: larger batches gain little. */
const PORTION = 1_000

/** Batches of one writer: while any transaction is open in the database, each leaves a dead version of the writer's row. */
const TENURE = 1_000

/** How often each process deletes what is no longer needed. */
const TIDY_EVERY: Millis = 30_000

/** The driver and schema of an open store. */
interface Opened {
  readonly driver: Driver
  readonly schemaInfo: SchemaInfo
}

/**
 * A store in PostgreSQL 14 or later, for any number of machines. It takes a URL (which needs the package `pg`), a `Pool` of
 * `pg`, or a client of `postgres`, and keeps everything in a schema of its own.
 */
export function postgres(url: string, options?: PostgresOptions): DisposableStore<PgTransaction, PostgresTransaction>
/** The same, on a `Pool` of `pg`; `queue.transaction` passes one of its clients. */
export function postgres<Pool extends PgPoolLike<unknown>>(
  pool: Pool,
  options?: PostgresOptions,
): DisposableStore<ClientOf<Pool>, PostgresTransaction>
/** The same, on a client of `postgres`; `queue.transaction` passes one of its transactions. */
export function postgres(
  sql: PostgresJsLike,
  options?: PostgresOptions,
): DisposableStore<PostgresJsSql, PostgresTransaction>
/** The same, on any of these. */
export function postgres(
  target: string | PgPoolLike<unknown> | PostgresJsLike,
  options?: PostgresOptions,
): DisposableStore<unknown, PostgresTransaction>
export function postgres(target: unknown, options: PostgresOptions = {}): DisposableStore<never, PostgresTransaction> {
  return new PostgresStore(target, options) as DisposableStore as DisposableStore<never, PostgresTransaction>
}

/** The arguments of `lane_names`. */
function namesOf(ids: readonly number[]): readonly Value[] {
  return [JSON.stringify(ids.map(String))]
}

class PostgresStore implements DisposableStore {
  readonly name = 'postgres'
  readonly can = { transactions: true, share: 'network', portion: PORTION, parallel: true, tenure: TENURE } as const
  readonly runtime: Runtime
  readonly #target: unknown
  readonly #schema: string
  readonly #options: CheckedOptions
  readonly #id: string
  readonly #waits: Waits
  readonly #feed: EventFeed
  readonly #lanes: LaneIds
  readonly #settings = new SettingsCache()
  readonly #claimCursors = new ClaimCursors()
  readonly #batches: Batches
  readonly #transactions: Transactions
  /** For batches that are sent again at once, while the server has the answers to all. */
  readonly #receipts = new KeptReceipts(KEPT)
  #opening: Promise<Opened> | undefined
  #opened: Opened | undefined
  #closed = false
  #closing: Promise<void> | undefined
  #listener: ListenConnection | undefined
  #stops: Stop[] = []

  constructor(target: unknown, options: PostgresOptions) {
    checkTarget(target)
    const checked = checkOptions(options)
    const { runtime } = checked
    this.#target = target
    this.#options = checked
    this.#schema = checked.schema
    this.runtime = { ...runtime, id: () => this.#batches.keepId(runtime.id()) }
    this.#id = runtime.id()
    this.#transactions = new Transactions(() => runtime.id())
    this.#waits = new Waits(runtime)
    this.#feed = new EventFeed(this.#feedSource(), this.#waits)
    this.#lanes = new LaneIds({
      make: async (lanes) => JSON.parse((await this.#call('lane_ids', [JSON.stringify(lanes), 'false']))!),
      look: async (lanes, tx) => JSON.parse((await this.#call('lane_ids', [JSON.stringify(lanes), null], tx))!),
      pause: (delay) => new Promise((resolve) => void runtime.timer(delay, resolve)),
      names: (ids) => this.#query('lane_names', namesOf(ids)),
    })
    this.#batches = new Batches({
      ...{ origin: this.#id, runtime, lanes: this.#lanes, claimCursors: this.#claimCursors, settings: this.#settings },
      clock: checked.clock,
      call: (name, values, tx) => this.#call(name, values, tx),
      names: (ids, tx) => this.#query('lane_names', namesOf(ids), tx),
      exchange: (body, decide) => this.#exchange(body, decide),
    })
  }

  async open(): Promise<void> {
    await this.#open()
  }

  async commit(batch: Batch, tx?: Tx): Promise<Receipt> {
    if (tx !== undefined) return this.#commitWithin(batch, tx)
    if (this.#opened === undefined) await this.#open()
    const known = this.#receipts.of(batch)
    if (known !== undefined) return known
    if (this.#feed.isNew) await this.#feed.known()
    await this.#lanes.know(newLanes(batch))
    // Before the batch is sent: hints that arrive during the call may be for jobs that its claims did not see.
    for (const { queues } of batch.asks) this.#lanes.useQueues(queues)
    const applied = await this.#batches.send(batch)
    const { answer } = applied
    const receipt = answer.again === true ? await this.#replayed(batch, answer) : await this.#receipt(batch, applied)
    this.#receipts.keep(receipt)
    return receipt
  }

  get: Store['get'] = async (ids, tx) => {
    const found: (JobRecord | undefined)[] = []
    do {
      const left = ids.slice(found.length)
      const rows = await this.#query<readonly (RecordRow | null)[]>(...getCall(left), tx)
      for (const row of rows) found.push(row === null ? undefined : recordOf(row, this.#settings))
    } while (found.length < ids.length)
    return found
  }

  find: Store['find'] = (query, tx) => findPage(query, (name, text) => this.#query(name, [text], tx), this.#settings)

  details: Store['details'] = (query, tx) => readDetails(query, (name, text) => this.#query(name, [text], tx))

  tally: Store['tally'] = async (queues, tx, { heads = false } = {}) => {
    const names = queues === undefined ? null : JSON.stringify(queues)
    const tallies = talliesOf(await this.#query<readonly TallyAnswer[]>('tally', [names], tx))
    if (!heads) return tallies
    return withHeads(tallies, await this.#query<readonly HeadsAnswer[]>('heads', [names, this.#now()], tx))
  }

  due: Store['due'] = async (query) => {
    const text = await this.#call('due', [JSON.stringify(query), this.#now()])
    return dueOf(JSON.parse(text!) as DueAnswer, this.#settings)
  }

  watch: Store['watch'] = (what, listener) => {
    this.#check()
    const stop = this.#feed.watch(what, listener, () => this.#left())
    void this.#announce()
    return stop
  }

  async transact<T>(work: (tx: Tx) => Promise<T>, within?: Tx): Promise<T> {
    const { driver } = this.#opened ?? (await this.#open())
    if (within === undefined) return driver.transact(work)
    await this.#call('get_one', ['[]'], within) // throws at once if `within` is not a transaction, or has ended
    return driver.savepoint(within, work)
  }

  async indexValues(queue: string, wanted: boolean): Promise<void> {
    const { driver } = this.#opened ?? (await this.#open())
    const look = (of: string, make: boolean): Promise<IndexAnswer> => this.#query('search_index', [of, String(make)])
    await indexValues({ schema: this.#schema, driver, look }, queue, wanted).catch((error: unknown) => {
      throw toStoreError(error, this.#schema)
    })
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    const watched = this.#feed.watched || this.#listener !== undefined
    this.#closed = true
    this.#feed.close()
    this.#waits.close()
    for (const stop of this.#stops) stop()
    const opened = await this.#opening?.catch(() => undefined)
    await this.#listener?.close()
    if (opened === undefined) return
    if (watched) await this.#presence(opened.driver, 0, 0).catch(() => {}) // the entry of this process expires by itself
    this.#opened = undefined
    await opened.driver.close().catch(() => {})
  }

  #check(): void {
    if (!this.#closed) return
    throw new MillraceError(
      'STORE_CLOSED',
      'The PostgreSQL store was used after it was closed. Close workers and queues first; shutdown([...]) does.',
    )
  }

  async #open(): Promise<Opened> {
    this.#check()
    this.#opening ??= this.#openNow().catch((error: unknown) => {
      this.#opening = undefined // so that the next call retries
      throw toStoreError(error, this.#schema)
    })
    const opened = await this.#opening
    this.#check()
    return opened
  }

  async #openNow(): Promise<Opened> {
    const { patience, connections } = this.#options
    const driver = await openDriver(this.#target, { patience, connections, timer: this.runtime.timer })
    try {
      const opened = { driver, schemaInfo: await this.#prepare(driver, this.#options.migrate) }
      this.#batches.seen.opened(opened.schemaInfo)
      if (!this.#closed) this.#opened = opened
      this.#every(TIDY_EVERY, () => this.#tidy())
      return opened
    } catch (error) {
      await driver.close().catch(() => {})
      throw error
    }
  }

  /** Runs work at an interval until the store is closed; ignores its errors. */
  #every(delay: Millis, work: () => Promise<unknown>): void {
    const at = this.#stops.length
    const arm = (): void => {
      this.#stops[at] = this.runtime.timer(delay, () => {
        if (this.#closed) return
        arm()
        work().catch(() => {})
      })
    }
    this.#stops.push(() => {})
    arm()
  }

  /** Sums up old counts and deletes old rows, in portions, until there are no more. */
  async #tidy(): Promise<void> {
    const { ring, ringBytes } = this.#options
    while (!this.#closed && (await this.#call('tidy', [this.#now(), ring, ringBytes])) === 'true');
  }

  #now(): number | null {
    return this.#options.clock?.() ?? null
  }

  /** Calls a function of the schema. */
  async #call(name: FunctionName, values: readonly Value[], tx?: Tx): Promise<string | null> {
    const { driver, schemaInfo } = this.#opened ?? (await this.#open())
    this.#check()
    const call = callOf(this.#schema, name, values)
    try {
      if (tx === undefined) return await driver.call(call)
      const answer = this.#transactions.call(tx, call, { schema: this.#schema, id: schemaInfo.id })
      return await answerWithin(answer, this.#options.patience, this.runtime.timer)
    } catch (error) {
      if (isInstance(error, NoAnswer) && tx !== undefined) throw unavailable(this, error)
      if (tx === undefined) return this.#retryIfMigrated(error, () => driver.call(call))
      if (isMissing(error)) await this.#prepare(driver, false) // throws if the schema is missing or of another version
      throw toStoreError(toTransactionError(error, this.#schema), this.#schema)
    }
  }

  /** Retries a call once if it failed only because another process was migrating the schema: it was rolled back. */
  async #retryIfMigrated<T>(error: unknown, retry: () => Promise<T>): Promise<T> {
    if (!isMissing(error)) throw toStoreError(error, this.#schema)
    await this.#prepare(this.#opened!.driver, false) // throws if the schema is missing or of another version
    return retry().catch((again: unknown) => {
      throw toStoreError(again, this.#schema)
    })
  }

  #prepare(driver: Driver, migrate: boolean): Promise<SchemaInfo> {
    return prepare(driver, this.#schema, migrate, (delay) => new Promise((go) => void this.runtime.timer(delay, go)))
  }

  async #query<T>(name: FunctionName, values: readonly Value[], tx?: Tx): Promise<T> {
    // Announce watchers first: a caller that watches and then reads gets notices of everything after the read.
    if (tx === undefined && this.#feed.isNew) await this.#feed.known()
    return JSON.parse((await this.#call(name, values, tx))!) as T
  }

  /** Loads the working set of a batch and writes what is decided, in one transaction. */
  #exchange: EngineSource['exchange'] = async (body, decide) => {
    const { driver } = this.#opened ?? (await this.#open())
    this.#check()
    const made = (name: FunctionName, of: object): Call =>
      callOf(this.#schema, name, [encoded(() => JSON.stringify(of))])
    const exchanged = async (): Promise<string> => {
      const answered = await driver.exchange(made('working_set', body), async (answer, call) => {
        const decided = await decide(answer!, async (ids) => {
          return JSON.parse((await call(callOf(this.#schema, 'lane_names', namesOf(ids))))!) as readonly LaneName[]
        })
        return decided && made('commit', decided)
      })
      return answered!
    }
    return exchanged().catch((error: unknown) => this.#retryIfMigrated(error, exchanged))
  }

  /** Commits groups in a user transaction. Their notice arrives as a notification once the transaction is committed. */
  async #commitWithin(batch: Batch, tx: Tx): Promise<Receipt> {
    const { schemaInfo } = this.#opened ?? (await this.#open())
    if (this.#feed.isNew) await this.#feed.known()
    return this.#receipt(batch, await this.#batches.sendWithin(batch, tx, schemaInfo.id), tx)
  }

  async #receipt(batch: Batch, { answer, verdicts, unread }: Applied, tx?: Tx): Promise<Receipt> {
    const lanes = new Set<number>()
    for (const rows of answer.asks) {
      for (const row of rows) if (typeof row[0] === 'number') lanes.add(row[0])
    }
    await this.#lanes.recognise(lanes)
    if (tx === undefined) {
      this.#claimCursors.placed(answer.orders)
      for (const [at, ask] of batch.asks.entries()) this.#claimCursors.claimed(ask, answer.asks[at]!, answer.gated)
      this.#feed.publish(answer, answer.events)
    }
    const receipt = receiptOf(batch, answer, { settings: this.#settings, lane: this.#lanes.lane })
    this.#batches.leased(receipt)
    if (verdicts === undefined) return receipt
    const { groups, renewals } = verdicts
    return { ...receipt, groups: await withRecords(groups, unread, (ids) => this.get(ids, tx)), renewals }
  }

  #replayed(batch: Batch, answer: CommitAnswer): Promise<Receipt> {
    const reader = { settings: this.#settings, lane: this.#lanes.lane }
    return replayOf(batch, answer, reader, {
      get: (ids) => this.get(ids),
      claimed: (number) => this.#query('claimed', [number]),
    })
  }

  #feedSource(): FeedSource {
    const { ring, ringBytes } = this.#options
    return {
      announce: async (present, events) => {
        const { driver } = this.#opened ?? (await this.#open())
        if (this.#feed.watched) await this.#listen(driver)
        return this.#presence(driver, present, events)
      },
      underWay: async (among) => {
        const commits = among === undefined ? null : JSON.stringify(among)
        return JSON.parse((await this.#call('commits', [commits, ring, ringBytes]))!)
      },
      events: async (after) => {
        return eventsOf((await this.#call('events', [after, ring, ringBytes, PAGE_EVENTS, PAGE_BYTES]))!)
      },
      skip: async () => void (await this.#call('skip', [ring, ringBytes])),
      overdue: () => this.#look({ missed: true }),
    }
  }

  async #presence(driver: Driver, present: Millis, events: Millis): Promise<CommitNotice> {
    const { ring, ringBytes } = this.#options
    const call = callOf(this.#schema, 'watch', [this.#id, present, events, ring, ringBytes, this.#now()])
    return JSON.parse((await driver.call(call))!) as CommitNotice
  }

  /** Announces this process as a watcher; retries until that succeeds. */
  async #announce(): Promise<void> {
    try {
      await this.#feed.known()
    } catch {
      // Calls of the store report the error; a commit announces watchers before anything else.
      if (!this.#closed && this.#feed.isNew) this.#stops.push(this.runtime.timer(1_000, () => void this.#announce()))
    }
  }

  /** Starts to listen for notifications; resolves when the connection is ready. */
  async #listen(driver: Driver): Promise<void> {
    if (this.#listener !== undefined || this.#closed) return this.#listener?.ready
    this.#listener = new ListenConnection(driver, channelOf(this.#schema), this.runtime, {
      notified: (payload) => this.#receive(payload),
      look: () => this.#look({}),
      missed: () => this.#look({ missed: true }), // not at every poll: `missed` makes workers renew all leases
    })
    this.#every(PRESENCE_EVERY, async () => {
      if (this.#feed.watched) await this.#feed.announce()
    })
    await this.#listener.ready
  }

  /** Notifications may have been missed: wakes all queues that this process uses, and reads events. */
  #look(what: Pick<Notice, 'missed'>): void {
    if (!this.#feed.watched) return
    this.#claimCursors.drop()
    this.#feed.publish({ work: this.#lanes.queues, due: [], revoked: [], ...what }, 1)
  }

  /** Handles a notification of another process or of a user transaction. */
  #receive(payload: string): void {
    const notification = notificationOf(payload)
    if (notification === undefined || notification.from === this.#id) return // from this process, or not from Millrace
    if (notification.much === true) return this.#look({ missed: true }) // the notice did not fit
    this.#claimCursors.placed(notification.orders)
    const { work, due, revoked, held, events } = notification
    this.#feed.publish({ work, due, revoked, ...(held !== undefined && { held }) }, events)
  }

  /** A watcher has left; after the last one, this process is announced as not watching. */
  #left(): void {
    if (this.#feed.watched || this.#closed || this.#opened === undefined) return
    this.#feed.announce().catch(() => {})
  }
}
