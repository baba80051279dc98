// stores/http/store.ts: a store that a server serves, over HTTP. What it is asked travels as texts of store/wire/wire.ts.
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import { within } from '../../store/runtime.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Notice, RemoteStore, Store, Tx } from '../../store/store.js'
import { refuseInside } from '../../store/transaction-context.js'
import { OLDEST_PROTOCOL, PROTOCOL, STORE_PATH } from '../../store/wire/protocol.js'
import type { Call, Handshake } from '../../store/wire/protocol.js'
import { wire } from '../../store/wire/wire.js'
import type { Codec } from '../../store/wire/wire.js'
import { Calls, closedError } from './calls.js'
import { parseOptions } from './options.js'
import type { HttpOptions, Settings } from './options.js'
import { NoticeStream } from './stream.js'

/**
 * A store that a server serves: `http('https://jobs.example.com', { token })`. Queues and workers run on it as on any
 * other store. It has no transactions.
 */
export function http(url: string, options: HttpOptions = {}): RemoteStore {
  return new HttpStore(parseOptions(url, options))
}

/** How long a close waits for the answers of calls. */
const CLOSE_WITHIN: Millis = 5_000

type Listener = (notice: Notice) => void

/** A store behind a server. */
class HttpStore implements RemoteStore {
  readonly name = 'remote'
  readonly can = { transactions: false, share: 'network', upkeep: 'elsewhere', retries: 'itself' } as const
  readonly runtime: Runtime
  readonly #settings: Settings
  readonly #calls: Calls
  /** The name of the token, as far as it is known. */
  #identity: string | undefined
  /** The stream that all listeners to hints share. */
  #hints: NoticeStream | undefined
  readonly #hinted = new Set<{ readonly listener: Listener }>()
  readonly #streams = new Set<NoticeStream>()
  #opening: Promise<void> | undefined
  #working = new Set<Promise<unknown>>()
  #closing: Promise<void> | undefined
  #closed = false

  constructor(settings: Settings) {
    this.#settings = settings
    this.#calls = new Calls(settings)
    this.runtime = settings.runtime
    this.#identity = /^mrt_([\w.-]{1,64})\.[\w-]+$/.exec(settings.token ?? '')?.[1]
  }

  get identity(): string | undefined {
    return this.#identity === undefined ? undefined : `${this.#identity}/`
  }

  async open(): Promise<void> {
    this.#check()
    this.#opening ??= this.#shake().catch((error: unknown) => {
      this.#opening = undefined // so that the next call tries again
      throw error
    })
    await this.#opening
  }

  commit: Store['commit'] = async (batch, tx) => {
    refuseTransaction(tx)
    // Those who watch hear of what is committed from now on.
    for (const stream of this.#streams) await stream.ready
    return this.#call('commit', wire.commit, batch)
  }

  get: Store['get'] = (ids, tx) => this.#read('get', wire.get, ids, tx)
  find: Store['find'] = (query, tx) => this.#read('find', wire.find, query, tx)
  details: Store['details'] = (query, tx) => this.#read('details', wire.details, query, tx)
  tally: Store['tally'] = (queues, tx, options) => this.#read('tally', wire.tally, { queues, options }, tx)
  due: Store['due'] = (query) => this.#read('due', wire.due, query)

  watch: Store['watch'] = (options, listener) => {
    this.#check()
    if (options.events === true || options.from !== undefined) {
      const { events = false, from } = options
      return this.#stream({ events, from }, listener)
    }
    const watcher = { listener }
    this.#hinted.add(watcher)
    if (this.#hints === undefined) {
      const stop = this.#stream({ events: false, from: undefined }, (notice) => {
        for (const each of [...this.#hinted]) if (this.#hinted.has(each)) notify(each.listener, notice)
      })
      this.#hints = [...this.#streams].at(-1)!
      this.#stopHints = stop
    }
    return () => {
      if (!this.#hinted.delete(watcher) || this.#hinted.size > 0) return
      this.#stopHints()
      this.#hints = undefined
    }
  }

  #stopHints: Stop = () => {}

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
    this.#closed = true
    this.#hinted.clear()
    for (const stream of this.#streams) stream.close()
    this.#streams.clear()
    this.#calls.end()
    await within(this.runtime, CLOSE_WITHIN, Promise.allSettled(this.#working))
    this.#calls.close()
  }

  #check(): void {
    if (this.#closed) throw closedError()
  }

  #stream(options: { readonly events: boolean; readonly from: string | undefined }, listener: Listener): Stop {
    const stream: NoticeStream = new NoticeStream(this.#settings, this.#calls, options, (notice) => {
      if (this.#streams.has(stream)) notify(listener, notice)
    })
    this.#streams.add(stream)
    return () => {
      if (this.#streams.delete(stream)) stream.close()
    }
  }

  async #shake(): Promise<void> {
    const text = await this.#track(this.#calls.send({ method: 'GET', path: STORE_PATH }))
    const { protocol, you } = JSON.parse(text) as Handshake
    if (protocol.oldest > PROTOCOL || protocol.newest < OLDEST_PROTOCOL) {
      throw new MillraceError(
        'PROTOCOL_MISMATCH',
        `The server at ${this.#settings.url} speaks the store protocols ${protocol.oldest} to ${protocol.newest}, and this version ${OLDEST_PROTOCOL} to ${PROTOCOL}.`,
      )
    }
    // An admin's workers may have any ids.
    if (!you.roles.includes('admin')) this.#identity ??= you.name
  }

  async #read<Asked, Answered>(
    call: Call,
    codec: { readonly request: Codec<Asked>; readonly answer: Codec<Answered> },
    asked: Asked,
    tx?: Tx,
  ): Promise<Answered> {
    refuseTransaction(tx)
    return this.#call(call, codec, asked)
  }

  async #call<Asked, Answered>(
    call: Call,
    { request, answer }: { readonly request: Codec<Asked>; readonly answer: Codec<Answered> },
    asked: Asked,
  ): Promise<Answered> {
    this.#check()
    const body = request.encode(asked)
    const text = await this.#track(this.#calls.send({ method: 'POST', path: `${STORE_PATH}/${call}`, body }))
    return answer.decode(text)
  }

  async #track<T>(work: Promise<T>): Promise<T> {
    this.#working.add(work)
    try {
      return await work
    } finally {
      this.#working.delete(work)
    }
  }
}

/** A listener may throw without harm to others. */
function notify(listener: Listener, notice: Notice): void {
  try {
    listener(notice)
  } catch {
    // It is the caller's.
  }
}

function refuseTransaction(tx: Tx): void {
  if (tx === undefined) return
  throw new MillraceError(
    'INVALID_TRANSACTION',
    'A remote store cannot write in a transaction of this process. Leave `tx` out, or write through a store on the database itself.',
  )
}
