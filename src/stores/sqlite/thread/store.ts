// stores/sqlite/thread/store.ts: a SQLite store in a thread of its own, so that a sync of the disk never holds the event
// loop. Calls travel as texts of store/wire/wire.ts.
import { MillraceError } from '../../../job/errors/errors.js'
import { describeError } from '../../../job/errors/failure.js'
import type { Millis } from '../../../job/job.js'
import { systemRuntime } from '../../../store/runtime.js'
import type { Stop } from '../../../store/runtime.js'
import type { DisposableStore, Notice, Store, Tx, WatchOptions } from '../../../store/store.js'
import { refuseInside } from '../../../store/transaction-context.js'
import { failures, watching, wire } from '../../../store/wire/wire.js'
import type { Codec } from '../../../store/wire/wire.js'
import type { Method, Response } from './messages.js'
import type { Thread } from './start.js'

/** After how long a thread that has ended is started again for watchers; the next call starts it at once. */
const RESTART_AFTER: Millis = 1_000

/** A call without an answer. */
interface Pending {
  readonly method: Method
  answered(body: string): void
  failed(error: unknown): void
}

interface Watch {
  readonly options: WatchOptions
  readonly listener: (notice: Notice) => void
  /** The last event that it was sent, or the one that it resumes after. */
  cursor: string | undefined
}

/** What a store in a thread is made of. */
export interface ThreadStoreOptions {
  readonly share: 'process' | 'machine'
  readonly portion: number
  /** Starts the thread. */
  start(): Thread
}

/** A store whose calls are answered by a thread. */
export class ThreadStore implements DisposableStore<never> {
  readonly name = 'threaded sqlite'
  readonly can
  readonly runtime = systemRuntime()
  readonly #start: () => Thread
  readonly #pending = new Map<number, Pending>()
  readonly #watches = new Map<number, Watch>()
  #last = 0
  #thread: Thread | undefined
  /** Whether the thread has begun to serve. */
  #ready = false
  #stopRestart: Stop = () => {}
  #closing: Promise<void> | undefined
  #closed = false

  constructor({ share, portion, start }: ThreadStoreOptions) {
    this.can = { transactions: false, share, portion } as const
    this.#start = start
  }

  async open(): Promise<void> {
    await this.#call('open', wire.open, undefined)
  }

  commit: Store['commit'] = (batch, tx) => this.#call('commit', wire.commit, batch, tx)
  get: Store['get'] = (ids, tx) => this.#call('get', wire.get, ids, tx)
  find: Store['find'] = (query, tx) => this.#call('find', wire.find, query, tx)
  details: Store['details'] = (query, tx) => this.#call('details', wire.details, query, tx)
  tally: Store['tally'] = (queues, tx, options) => {
    return this.#call('tally', wire.tally, { queues, options }, tx)
  }
  due: Store['due'] = (query) => this.#call('due', wire.due, query)

  watch: Store['watch'] = (options, listener) => {
    this.#check()
    const id = ++this.#last
    const watch: Watch = { options, listener, cursor: options.from }
    this.#watches.set(id, watch)
    if (this.#thread === undefined) this.#begin()
    else this.#send(id, watch)
    this.#hold()
    return () => {
      if (!this.#watches.delete(id)) return
      this.#thread?.postMessage({ kind: 'stop', id })
      this.#hold()
    }
  }

  close(): Promise<void> {
    try {
      refuseInside(this, 'store.close()')
    } catch (error) {
      return Promise.reject(error)
    }
    return (this.#closing ??= this.#close())
  }

  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    const thread = this.#thread
    const closing = thread === undefined ? undefined : this.#call('close', wire.close, undefined)
    this.#closed = true
    this.#watches.clear()
    this.#stopRestart()
    await closing?.catch(() => {}) // the thread may have ended by itself
    this.#thread = undefined
    this.#rejectAll(closedError())
    await thread?.terminate()
  }

  #check(): void {
    if (this.#closed) throw closedError()
  }

  #call<Asked, Answered>(
    method: Method,
    codec: { readonly request: Codec<Asked>; readonly answer: Codec<Answered> },
    asked: Asked,
    tx?: Tx,
  ): Promise<Answered> {
    return new Promise((resolve, reject) => {
      this.#check()
      if (tx !== undefined) throw noTransactions()
      const body = codec.request.encode(asked)
      const thread = this.#thread ?? this.#begin()
      const id = ++this.#last
      this.#pending.set(id, { method, answered: (text) => resolve(codec.answer.decode(text)), failed: reject })
      this.#hold()
      thread.postMessage({ kind: 'call', id, method, body })
    })
  }

  /** Starts the thread, and has it watch what is watched. */
  #begin(): Thread {
    this.#stopRestart()
    const thread = this.#start()
    this.#thread = thread
    this.#ready = false
    let cause: unknown
    thread.on('message', (message: Response) => {
      if (this.#thread === thread) this.#receive(message)
    })
    thread.on('error', (error) => (cause = error))
    thread.on('exit', () => {
      if (this.#thread === thread) this.#ended(cause)
    })
    for (const [id, watch] of this.#watches) this.#send(id, watch)
    this.#hold()
    return thread
  }

  #send(id: number, { options, cursor }: Watch): void {
    const from = cursor === undefined ? {} : { from: cursor }
    this.#thread!.postMessage({ kind: 'watch', id, body: watching.request.encode({ ...options, ...from }) })
  }

  /** Keeps the process running while there is something to wait for, as a store without a thread does. */
  #hold(): void {
    if (this.#pending.size > 0 || this.#watches.size > 0) this.#thread?.ref()
    else this.#thread?.unref()
  }

  #receive(message: Response): void {
    if (message.kind === 'ready') {
      this.#ready = true
      return
    }
    const { id, body } = message
    if (message.kind === 'notice') return this.#notify(this.#watches.get(id), watching.notice.decode(body))
    const pending = this.#pending.get(id)
    this.#pending.delete(id)
    this.#hold()
    if (message.kind === 'answer') pending?.answered(body)
    else pending?.failed(failures.decode(body))
  }

  #notify(watch: Watch | undefined, notice: Notice): void {
    if (watch === undefined) return
    watch.cursor = notice.events.at(-1)?.cursor ?? watch.cursor
    try {
      watch.listener(notice)
    } catch {
      // A listener may throw without harm to others.
    }
  }

  /** The thread has ended by itself. */
  #ended(cause: unknown): void {
    this.#thread = undefined
    this.#rejectAll(this.#ready ? endedError(cause) : notStartedError(cause))
    if (this.#watches.size === 0) return
    this.#stopRestart = this.runtime.timer(RESTART_AFTER, () => {
      if (this.#thread === undefined) this.#begin()
    })
    for (const watch of this.#watches.values()) {
      // Without a cursor to resume from, it is not known which events it has missed.
      const gap = watch.options.events === true && watch.cursor === undefined
      this.#notify(watch, { work: [], due: [], revoked: [], missed: true, events: [], gap })
    }
  }

  #rejectAll(error: unknown): void {
    const pending = [...this.#pending.values()]
    this.#pending.clear()
    for (const each of pending) each.failed(error)
  }
}

function closedError(): MillraceError {
  return new MillraceError(
    'STORE_CLOSED',
    'The SQLite store was used after it was closed. Close workers and queues first; shutdown([...]) does.',
  )
}

function noTransactions(): MillraceError {
  return new MillraceError(
    'INVALID_TRANSACTION',
    'A SQLite store with { thread: true } cannot write in a transaction of this thread: its connection is in another. Leave `tx` out, or open the store without { thread: true }.',
  )
}

function reasonOf(cause: unknown): string {
  return cause === undefined ? 'it exited' : describeError(cause).message
}

function endedError(cause: unknown): MillraceError {
  return new MillraceError(
    'THREAD_ENDED',
    `The thread of the SQLite store ended (${reasonOf(cause)}). Whether what it was asked has landed is not known; the next call starts a new thread.`,
    { cause },
  )
}

function notStartedError(cause: unknown): MillraceError {
  return new MillraceError(
    'THREAD_NOT_STARTED',
    `The thread of the SQLite store did not start (${reasonOf(cause)}). Nothing was written. Leave millrace out of the bundle, so that the file of its thread stays beside it, or open the store without { thread: true }.`,
    { cause },
  )
}
