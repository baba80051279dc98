// stores/sqlite/store.ts: the store in a SQLite file. A commit is one transaction, made without waiting inside it.
import { statSync } from 'node:fs'
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { systemRuntime } from '../../store/runtime.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Batch, Receipt, Store } from '../../store/store.js'
import type { Database, DriverName, SqliteHandle } from './driver.js'
import { busyHere, gone, toStoreError } from './failures.js'
import { Feed, PRESENT_EVERY } from './feed.js'
import { find, lister } from './find.js'
import type { Lister } from './find.js'
import { Ground } from './ground.js'
import { checkTarget, openDatabase } from './opening.js'
import type { Synchronous } from './opening.js'
import { whenFree } from './patience.js'
import { details, due, tally } from './read.js'
import { reduce } from './reduce.js'
import { schema, steps, VERSION } from './schema.js'
import { prepareAll } from './statements.js'
import { Transaction } from './transaction.js'
import type { Held } from './transaction.js'
import { waken, wake } from './wake.js'
import { Writers } from './writers.js'

/** Settings of a SQLite store. */
export interface SqliteOptions {
  /**
   * What an acknowledged commit survives: `'full'` everything, power cuts included; `'normal'` the death of the process,
   * while a power cut may undo the last commits, each whole; `'off'` is for tests. Default `'full'`.
   */
  readonly synchronous?: Synchronous
  /** Which driver opens the path. Default: Node's own where it has one (22.13 and later), else `@photostructure/sqlite`. */
  readonly driver?: DriverName
  /** How long to wait for another program that holds the file locked before a call fails. Default 5 s. */
  readonly patience?: Duration
  /** How many events are kept for watchers that resume. Default 10,000. */
  readonly ring?: number
  /** The world it lives in. Default: the system's. */
  readonly runtime?: Runtime
}

/** Another's commits within this time mean that the file is shared just now. */
const COMPANY: Millis = 200

/** Time at the file after which a handle in company lets the others go first, and for how long. */
const TURN: Millis = 10
const YIELD: Millis = 2

/** How often, at most, to look whether the file is still there: a look costs as much as a small statement. */
const GLANCE: Millis = 10

/** Changes in a batch, and jobs claimed with it beyond free slots: a few milliseconds of work, and little is won with more. */
const PORTION = 250

/** Pages that the log should have when it is moved into the database, a few milliseconds of work; and far too many. */
const LOG_PAGES = 1_000
const LOG_TOO_LONG = 4_000

/**
 * A store in one SQLite file, for all processes of a machine. `path` is created if need be; `':memory:'` is a store for
 * this process alone. Instead of a path it takes an open handle of `better-sqlite3` or `node:sqlite`, and opens a
 * connection of its own to the same file.
 */
export function sqlite(target: string | SqliteHandle, options: SqliteOptions = {}): Store {
  return new SqliteStore(target, options)
}

/** What an open store has. */
interface Opened {
  readonly db: Database
  readonly ground: Ground
  readonly list: Lister
  /** The file's own number, by which it is known if another takes its name. */
  readonly file: string | undefined
}

class SqliteStore implements Store {
  readonly name = 'sqlite'
  readonly can
  readonly runtime: Runtime
  readonly #target: string | SqliteHandle
  readonly #options: SqliteOptions
  readonly #patience: Millis
  readonly #feed: Feed
  readonly #held: Held = new Map()
  readonly #writers = new Writers()
  #opening: Promise<Opened> | undefined
  #opened: Opened | undefined
  #closed = false
  #closing: Promise<void> | undefined
  #stopListening: Stop | undefined
  /** When another handle was last seen to write, and how long this one has been at the file since it let others go first. */
  #company = -Infinity
  #atFile: Millis = 0
  /** When it was last seen that the file is still there. */
  #looked = -Infinity
  /** Commits since the log was last moved into the database, and how many there should be in between. */
  #commits = 0
  #tidyAfter = 200

  constructor(target: string | SqliteHandle, options: SqliteOptions) {
    refuseUnknown(options, ['synchronous', 'driver', 'patience', 'ring', 'runtime'], 'sqlite options')
    const { runtime = systemRuntime(), ring = 10_000, patience = 5_000 } = options
    if (!Number.isSafeInteger(ring) || ring < 1) {
      throw new MillraceError('INVALID_OPTION', `sqlite: ring must be a whole number from 1 up, not ${String(ring)}.`)
    }
    this.#options = options
    this.#patience = parseDuration(patience, 'sqlite: patience')
    const file = checkTarget(target, { synchronous: options.synchronous, driver: options.driver })
    this.#target = typeof target === 'string' ? (file ?? target) : target // found even if the working folder changes
    this.runtime = runtime
    this.can = { transactions: false, share: file === undefined ? 'process' : 'machine', portion: PORTION } as const
    this.#feed = new Feed(runtime.id(), ring)
  }

  async open(): Promise<void> {
    await this.#open()
  }

  async commit(batch: Batch): Promise<Receipt> {
    const opened = this.#opened ?? (await this.#open())
    if (this.#atFile >= TURN) await this.#letOthers()
    return this.#whenFree(() => this.#commit(opened, batch))
  }

  get: Store['get'] = (ids) => this.#read(({ ground }) => ids.map((id) => ground.byId(id)?.job))
  find: Store['find'] = (query) => this.#read(({ ground, list }) => find(ground, list, query))
  details: Store['details'] = (query) => this.#read(({ ground }) => details(ground, query))
  tally: Store['tally'] = (queues) => this.#read(({ ground }) => tally(ground, queues))
  due: Store['due'] = (query) => this.#read(({ ground }) => due(ground, query, this.runtime.now()))

  watch: Store['watch'] = (what, listener) => {
    this.#check()
    const stop = this.#feed.watch(what, listener, () => this.#left())
    void this.#announce()
    return stop
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.#closed = true
    this.#feed.close()
    this.#stopListening?.()
    const opened = await this.#opening?.catch(() => undefined)
    this.#opened = undefined
    if (opened === undefined) return
    try {
      this.#transaction(opened, () => this.#feed.announce(opened.ground, this.runtime.now()))
    } catch {
      // The others will find out that nobody is here.
    }
    opened.db.close()
  }

  #check(): void {
    if (!this.#closed) return
    throw new MillraceError(
      'STORE_CLOSED',
      'The SQLite store was used after it was closed. Close workers and queues first; shutdown([...]) does.',
    )
  }

  async #open(): Promise<Opened> {
    this.#check()
    this.#opening ??= this.#openNow().catch((error: unknown) => {
      this.#opening = undefined // so that the next call tries again
      throw error
    })
    const opened = await this.#opening
    this.#check()
    return opened
  }

  async #openNow(): Promise<Opened> {
    const { synchronous, driver } = this.#options
    const patience = this.#patience
    const settings = { synchronous, driver, patience, schema: { sql: schema, steps, version: VERSION } }
    const db = await openDatabase(this.#target, settings, this.runtime)
    let opened: Opened
    try {
      opened = {
        db,
        ground: new Ground(prepareAll(db)),
        list: lister((text) => db.prepare(text)),
        file: db.path === undefined ? undefined : fileNumber(db.path),
      }
    } catch (error) {
      db.close()
      throw toStoreError(error, db.path)
    }
    if (!this.#closed) this.#opened = opened
    return opened
  }

  /** Runs work while the file is free; it fails only if somebody holds it for long. */
  #whenFree<T>(work: () => T): Promise<T> {
    return whenFree(
      this.runtime,
      this.#opened?.db.path,
      () => {
        this.#check()
        return work()
      },
      this.#patience,
    )
  }

  async #read<T>(work: (opened: Opened) => T): Promise<T> {
    const opened = this.#opened ?? (await this.#open())
    return this.#whenFree(() => {
      // Whoever watches and then reads must be told of everything that comes after what was read.
      if (this.#feed.isNew) this.#announceNow(opened)
      return snapshot(opened, () => work(opened))
    })
  }

  /** One transaction. What it throws has been undone. */
  #transaction<T>({ db, ground, file }: Opened, work: () => T): T {
    if (db.inTransaction) throw busyHere('A transaction is open on this connection.')
    const { sql } = ground
    const began = this.runtime.elapsed()
    if (file !== undefined && began - this.#looked >= GLANCE) {
      if (fileNumber(db.path!) !== file) throw gone(db.path!)
      this.#looked = began
    }
    sql.begin.run()
    try {
      const seen = ground.refresh()
      if (seen !== 'same') this.#writers.suspect()
      if (seen === 'changed') this.#company = this.runtime.elapsed()
      const answer = work()
      sql.commit.run()
      return answer
    } catch (error) {
      if (db.inTransaction) sql.rollback.run()
      ground.forget()
      this.#held.clear()
      throw error
    } finally {
      this.#atFile += this.runtime.elapsed() - began
    }
  }

  #commit(opened: Opened, batch: Batch): Receipt {
    const { ground, db } = opened
    if (this.#feed.isNew) this.#announceNow(opened)
    let wakes = false
    let done: Transaction | undefined
    const receipt = this.#transaction(opened, () => {
      const before = this.#writers.replay(ground, batch)
      if (before !== undefined) return before
      const now = this.runtime.now()
      done = new Transaction(ground, this.#held, now, this.#feed.recording(ground, now))
      const answer = reduce(done, batch)
      wakes = this.#feed.record(done)
      done.keep()
      return answer
    })
    if (done === undefined) return receipt
    this.#writers.keep(receipt)
    if (wakes && db.path !== undefined) wake(db.path)
    try {
      this.#feed.publish(ground, done.news)
    } catch {
      // It is durable, whatever can be read now: what there was to tell is read again when next looked for.
    }
    if (++this.#commits === this.#tidyAfter && db.path !== undefined) this.runtime.defer(() => this.#tidy(opened))
    return receipt
  }

  /**
   * Moves the log into the database, in a turn of its own, so that no commit is held up by it. SQLite begins the log anew
   * only at a moment when nobody reads it, and with several processes at work there may be none for long: then it is
   * emptied, as soon as that can be done without waiting.
   */
  #tidy({ ground: { sql } }: Opened): void {
    if (this.#closed) return
    const commits = this.#commits
    this.#commits = 0
    try {
      const pages = sql.checkpoint.get()![1] as number
      this.#tidyAfter = Math.min(1_000, Math.max(1, Math.round((commits * LOG_PAGES) / Math.max(1, pages))))
      if (pages > LOG_TOO_LONG) sql.emptyLog.get()
    } catch {
      // Somebody is at it; another commit will be luckier.
    }
  }

  /** Lets others at the file, if there are any: whoever comes back at once would always be first. */
  async #letOthers(): Promise<void> {
    this.#atFile = 0
    const { runtime } = this
    if (runtime.elapsed() - this.#company > COMPANY) return
    await new Promise<void>((resolve) => void runtime.timer(1 + runtime.random() * YIELD, resolve))
  }

  /** Tells the other handles that somebody watches here, now and as long as that is so. */
  async #announce(): Promise<void> {
    try {
      const opened = this.#opened ?? (await this.#open())
      await this.#whenFree(() => {
        if (this.#feed.isNew) this.#announceNow(opened)
      })
    } catch {
      // Whoever uses the store hears of it there; a commit announces before anything else.
      if (!this.#closed && this.#feed.isNew) this.runtime.timer(1_000, () => void this.#announce())
    }
  }

  #announceNow(opened: Opened): void {
    const announced = this.#transaction(opened, () => this.#feed.announce(opened.ground, this.runtime.now()))
    announced()
    this.#listen(opened)
  }

  /** Listens to other processes as long as anybody watches here. */
  #listen(opened: Opened): void {
    const { path } = opened.db
    if (this.#stopListening !== undefined || path === undefined || this.#closed || !this.#feed.watched) return
    const version = opened.db.prepare('PRAGMA data_version')
    let last: unknown
    const look = (): boolean => {
      try {
        const [now] = version.get()!
        if (now === last) return false
        const any = this.#lookAround(opened)
        last = now
        return any
      } catch {
        return false // it is looked at again in a moment
      }
    }
    const stopWaking = waken(path, this.runtime, look)
    let stopTimer: Stop
    const arm = (): void => {
      stopTimer = this.runtime.timer(PRESENT_EVERY, () => {
        void this.#whenFree(() => {
          if (this.#feed.watched) this.#announceNow(opened)
        }).catch(() => {})
        arm()
      })
    }
    arm()
    this.#stopListening = () => {
      this.#stopListening = undefined
      stopWaking()
      stopTimer()
    }
  }

  /** Reads what other processes have told; the numbers of the file are read anew. */
  #lookAround(opened: Opened): boolean {
    return snapshot(opened, () => {
      if (opened.ground.refresh() !== 'same') this.#writers.suspect()
      return this.#feed.look(opened.ground)
    })
  }

  /** A watcher has left; with the last one, so does this handle. */
  #left(): void {
    if (this.#feed.watched || this.#closed) return
    this.#stopListening?.()
    const opened = this.#opened
    if (opened === undefined) return
    void this.#whenFree(() => {
      const announced = this.#transaction(opened, () => this.#feed.announce(opened.ground, this.runtime.now()))
      announced()
    }).catch(() => {})
  }
}

/** Reads everything as it is at one moment. */
function snapshot<T>({ db, ground: { sql } }: Opened, work: () => T): T {
  if (db.inTransaction) throw busyHere('A transaction is open on this connection.')
  sql.beginRead.run()
  try {
    return work()
  } finally {
    if (db.inTransaction) sql.rollback.run() // there is nothing to keep; and some failures have ended it by themselves
  }
}

/** What identifies a file beyond its name; nothing where it is gone. */
function fileNumber(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${stat.dev}:${stat.ino}`
}
