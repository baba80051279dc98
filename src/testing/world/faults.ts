// testing/world/faults.ts: the connection of a process to the store, with late, lost, doubled and busy calls, and outages.
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'
import type { Batch, Notice, Receipt, Store, Verdict, WatchOptions } from '../../store/store.js'
import type { History } from '../check/simulated-history.js'
import type { Process } from './process.js'
import type { Random } from './random.js'
import type { Recorder } from './recorder.js'
import type { Fault } from '../script/script.js'
import type { Timeline } from './virtual-timers.js'

/** Options of a faulty connection. */
export interface ConnectionOptions {
  readonly process: Process
  /** Serves reads and watches. */
  readonly store: Store
  /** Serves commits. */
  readonly recorder: Recorder
  readonly timeline: Timeline
  readonly history: History
  readonly random: Random
  /** The longest that a call takes in each direction. */
  readonly latency: Millis
  readonly faults: readonly Fault[]
  /** Whether no more faults are injected. */
  quiet(): boolean
}

type Kind = Fault['on']
type Deferred<T> = { resolve(value: T): void; reject(error: unknown): void }

/** How long a worker may take to claim again after store failures, given how long failures last at most in scripts. */
const RECONNECT: Millis = 10_000

const NO_HINTS = { work: [], due: [], revoked: [] } as const

/** Creates the store that a process uses. */
export function faultyConnection(options: ConnectionOptions): Store {
  return new FaultyConnection(options)
}

class FaultyConnection implements Store {
  readonly name = 'simulated'
  readonly can = { transactions: false, share: 'network' } as const
  readonly runtime
  readonly #options: ConnectionOptions
  readonly #faults = new Map<string, Fault>()
  readonly #calls: Record<Kind, number> = { commit: 0, read: 0, hint: 0 }
  /** Index of the group that was withheld as busy, by batch: a replay must get the same receipt. */
  readonly #withheld = new Map<string, number | undefined>()
  #closed = false

  constructor(options: ConnectionOptions) {
    this.#options = options
    this.runtime = options.process.runtime
    for (const fault of options.faults) this.#faults.set(`${fault.on} ${fault.nth}`, fault)
  }

  open(): Promise<void> {
    return this.#read(() => this.#options.store.open())
  }

  get: Store['get'] = (ids) => this.#read(() => this.#options.store.get(ids))
  find: Store['find'] = (query) => this.#read(() => this.#options.store.find(query))
  details: Store['details'] = (query) => this.#read(() => this.#options.store.details(query))
  tally: Store['tally'] = (queues, tx, options) => this.#read(() => this.#options.store.tally(queues, tx, options))
  due: Store['due'] = (query) => this.#read(() => this.#options.store.due(query))

  commit(batch: Batch): Promise<Receipt> {
    const { history } = this.#options
    const received = ({ asks }: Receipt): void => {
      const { writer, seq } = batch
      const jobs = asks.flat().map(({ id, fence }) => ({ id, fence }))
      history.add({ kind: 'received', time: history.time, writer, seq, jobs })
    }
    const commitWith = (fault: Fault | undefined, response: Deferred<Receipt>): void => {
      const send = (): Promise<Receipt> => this.#deliver(batch, fault)
      const later = (delay: Millis): void => {
        this.#after(delay, () => void send().catch(() => {}))
      }
      switch (fault?.on === 'commit' ? fault.kind : undefined) {
        case 'lost-before':
          return response.reject(lost())
        case 'straggler':
          later(fault!.delay)
          return response.reject(lost())
        case 'lost-after':
          send().then(() => response.reject(lost()), response.reject)
          return
        case 'cut-off':
          send().then(() => {
            this.#cutOff(fault!.delay)
            response.reject(lost())
          }, response.reject)
          return
        case 'late':
          return void this.#after(fault!.delay, () => send().then(response.resolve, response.reject))
        case 'slow':
          send().then(
            (receipt) => void this.#after(fault!.delay, () => response.resolve(receipt)),
            (error: unknown) => response.reject(error),
          )
          return
        case 'duplicated':
          later(fault!.delay)
          break
        default:
      }
      send().then(response.resolve, response.reject)
    }
    return this.#call<Receipt>('commit', commitWith, received)
  }

  /** Sends a batch to the store, without the withheld group if there is one. */
  async #deliver(batch: Batch, fault: Fault | undefined): Promise<Receipt> {
    const key = `${batch.writer}#${batch.seq}`
    if (!this.#withheld.has(key)) {
      const busy = fault?.kind === 'busy' && batch.groups.length > 0
      this.#withheld.set(key, busy ? fault.delay % batch.groups.length : undefined)
    }
    const { recorder, process } = this.#options
    const at = this.#withheld.get(key)
    if (at === undefined) return recorder.commit(process.name, batch)
    const receipt = await recorder.commit(process.name, { ...batch, groups: batch.groups.toSpliced(at, 1) })
    const verdict: Verdict = { ok: false, change: 0, why: 'busy', id: '' }
    return { ...receipt, groups: receipt.groups.toSpliced(at, 0, verdict) }
  }

  watch(what: WatchOptions, listener: (notice: Notice) => void): Stop {
    const { store, process } = this.#options
    let stopped = false
    let ready: Millis = 0
    const deliver = (notice: Notice): void => {
      process.enter('response', () => {
        if (!stopped) listener(notice)
      })
    }
    const stop = store.watch(what, (notice) => {
      if (!process.alive) return
      const { timeline } = this.#options
      const { fault, down } = this.#next('hint')
      // Events stay in order and wait until the connection is back; hints may be dropped.
      const dropped = down || fault?.kind === 'dropped'
      if (notice.events.length > 0 || notice.gap) {
        ready = Math.max(ready, timeline.time + this.#latency(), this.#downUntil())
        timeline.after(ready - timeline.time, () => deliver(dropped ? { ...notice, ...NO_HINTS } : notice))
      } else if (!dropped) {
        timeline.after(this.#latency() + (fault?.kind === 'late' ? fault.delay : 0), () => deliver(notice))
      }
      if (fault?.kind === 'doubled') timeline.after(fault.delay, () => deliver({ ...notice, events: [], gap: false }))
    })
    return () => {
      stopped = true
      stop()
    }
  }

  async close(): Promise<void> {
    this.#closed = true
  }

  #read<T>(work: () => Promise<T>): Promise<T> {
    return this.#call<T>('read', (fault, response) => {
      if (fault?.kind === 'lost') return response.reject(lost())
      const wait = fault?.kind === 'late' ? fault.delay : 0
      this.#after(wait, () => work().then(response.resolve, response.reject))
    })
  }

  /** Makes one call. Its result returns through the gate of the process, where `received` is called with it. */
  #call<T>(
    kind: Kind,
    work: (fault: Fault | undefined, response: Deferred<T>) => void,
    received?: (response: T) => void,
  ): Promise<T> {
    if (this.#closed) return Promise.reject(new MillraceError('STORE_CLOSED', 'The simulated store was closed.'))
    const { process } = this.#options
    return new Promise<T>((resolve, reject) => {
      const back = (settle: () => void): void =>
        void this.#after(this.#latency(), () => process.enter('response', settle))
      const response: Deferred<T> = {
        resolve: (value) =>
          back(() => {
            received?.(value)
            resolve(value)
          }),
        reject: (error) => back(() => reject(error)),
      }
      const { fault, down } = this.#next(kind)
      this.#after(this.#latency(), () => {
        if (down) response.reject(lost())
        else work(fault, response)
      })
    })
  }

  /** The fault of the next call of a kind, and whether the store is unreachable. */
  #next(kind: Kind): { readonly fault: Fault | undefined; readonly down: boolean } {
    const { process, timeline, history, quiet } = this.#options
    const nth = ++this.#calls[kind]
    if (quiet()) return { fault: undefined, down: false }
    if (process.outageUntil > timeline.time) {
      history.count(`outage:${kind}`)
      history.disturb(process.name, process.outageUntil - timeline.time + RECONNECT)
      return { fault: undefined, down: true }
    }
    const fault = this.#faults.get(`${kind} ${nth}`)
    if (fault !== undefined) {
      history.count(`${kind}:${fault.kind}`)
      history.disturb(process.name, fault.delay + RECONNECT)
      history.writeTrace(process.name, `fault: ${kind} ${nth} ${fault.kind} ${fault.delay} ms`)
    }
    return { fault, down: false }
  }

  #cutOff(lasts: Millis): void {
    const { process, timeline } = this.#options
    process.outageUntil = Math.max(process.outageUntil, timeline.time + lasts)
  }

  #downUntil(): Millis {
    return this.#options.quiet() ? 0 : this.#options.process.outageUntil
  }

  #latency(): Millis {
    // Eighths of a millisecond: calls interleave within a millisecond, and sums of times stay exact.
    return this.#options.random.between(0, this.#options.latency * 8) / 8
  }

  #after(delay: Millis, work: () => unknown): Stop {
    return this.#options.timeline.after(delay, () => void work())
  }
}

function lost(): Error {
  return new Error('the simulated connection was lost')
}
