// queue/telemetry.ts: what queues and workers tell of what they do, to whoever measures it and to the log.
import type { ErrorInfo, JobRecord } from '../job/job.js'
import { openTransaction } from '../store/ambient.js'
import type { OpenTransaction } from '../store/ambient.js'
import type { Stop } from '../store/runtime.js'
import type { Store, Tx } from '../store/store.js'
import type { Logger } from './events.js'
import type { Job } from './job.js'

/** How the processing of a job ended, once that is durable. */
export interface Processed {
  /** What became of the job. */
  readonly outcome: 'completed' | 'failed' | 'retrying' | 'snoozed' | 'waiting-children' | 'interrupted'
  /** What it failed with, where it failed. */
  readonly error?: ErrorInfo
}

/** One run of a handler, as it is measured. */
export interface Processing {
  /** Runs the handler inside what is measured. */
  run<T>(work: () => T): T
  /** The handler has ended. */
  handled(): void
  /** What it came to is durable. */
  ended(end: Processed): void
  /** The job is no longer this worker's: what it came to counts for nothing. */
  lost(reason: string): void
}

/** Who measures queues and workers. Made by `telemetry()`, and given to them as `telemetry`. */
export interface Telemetry {
  /** The trace that the calling code is part of, as W3C's `traceparent`; undefined: none. */
  trace(): string | undefined
  /** @internal Measures an add; what it added is counted now, or when the transaction that it is part of was committed. */
  send<T extends Job | readonly Job[]>(
    about: { readonly queue: string; readonly count: number; readonly within: OpenTransaction | undefined },
    work: () => Promise<T>,
  ): Promise<T>
  /** @internal Measures a run of a handler, from now on. */
  process(job: JobRecord): Processing
  /** @internal Measures how many jobs there are in a store, until it is stopped. */
  observe(store: Store): Stop
}

/** Tells of what a queue adds. Made only where somebody wants to know. */
export class Teller {
  readonly #queue: string
  readonly #store: Store
  readonly #telemetry: Telemetry | undefined
  readonly #debug: Logger['debug']

  constructor(queue: string, store: Store, telemetry: Telemetry | undefined, debug: Logger['debug']) {
    this.#queue = queue
    this.#store = store
    this.#telemetry = telemetry
    this.#debug = debug
  }

  /** Adds jobs, and tells of it once it is durable: of nothing that was rolled back. */
  sending<T extends Job | readonly Job[]>(count: number, tx: Tx, work: () => Promise<T>): Promise<T> {
    const open = openTransaction(this.#store)
    const within = tx === undefined || open?.tx === tx ? open : undefined
    const about = { queue: this.#queue, count, within }
    const sent = this.#telemetry === undefined ? work() : this.#telemetry.send(about, work)
    return this.#debug === undefined ? sent : sent.then((added) => this.#log(added, within))
  }

  #log<T extends Job | readonly Job[]>(added: T, within: OpenTransaction | undefined): T {
    const jobs: readonly Job[] = Array.isArray(added) ? added : [added as Job]
    const write = (): void => {
      for (const { id, name, queue, duplicate } of jobs) {
        this.#debug?.({ id, name, queue }, duplicate ? 'job stands already' : 'job added')
      }
    }
    if (within === undefined) write()
    else within.afterCommit(write)
    return added
  }
}
