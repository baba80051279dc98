// store/looks.ts: how those who wait for jobs look at them: together, a portion at a time, so that large jobs do not pile up.
import type { JobRecord } from '../job/job.js'
import { outside } from './transaction-context.js'
import { bytesOfRecord } from './read-pages.js'
import type { Runtime } from './runtime.js'
import type { Store } from './store.js'

/** Jobs in a portion: at first, and at most where they are small. */
const FEW = 16
const MANY = 256

/** Bytes that come back with a portion, about: with more, the next ones are smaller. */
const MOST_BYTES = 2 ** 20

/** Portions that are read at the same time. */
const TOGETHER = 4

/** How many jobs are read at a time, by what was read before: a read by ids is not cut by bytes. */
export class Portion {
  #size = FEW

  get size(): number {
    return this.#size
  }

  /** Goes by what a portion has brought. */
  adapt(records: readonly (JobRecord | undefined)[]): void {
    let bytes = 0
    for (const record of records) if (record !== undefined) bytes += bytesOfRecord(record)
    if (bytes > MOST_BYTES) this.#size = Math.max(1, Math.floor(this.#size / 2))
    else if (bytes < MOST_BYTES / 4) this.#size = Math.min(MANY, this.#size * 2)
  }
}

interface Look {
  readonly id: string
  resolve(record: JobRecord | undefined): void
  reject(error: unknown): void
}

/** The looks of one process at a store. */
export class Looks {
  readonly #store: Pick<Store, 'get'>
  readonly #runtime: Pick<Runtime, 'defer'>
  readonly #portion = new Portion()
  #waiting: Look[] = []
  #reading = 0
  #deferred = false

  constructor(store: Pick<Store, 'get'>, runtime: Pick<Runtime, 'defer'>) {
    this.#store = store
    this.#runtime = runtime
  }

  /** The job as it stands; undefined where there is none. */
  look(id: string): Promise<JobRecord | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject })
      if (this.#deferred) return
      this.#deferred = true
      // It is for all who look in this turn, so it is not inside the transaction of the first of them.
      outside(() =>
        this.#runtime.defer(() => {
          this.#deferred = false
          this.#send()
        }),
      )
    })
  }

  #send(): void {
    let from = 0
    while (from < this.#waiting.length && this.#reading < TOGETHER) {
      const some = this.#waiting.slice(from, from + this.#portion.size)
      from += some.length
      this.#reading++
      void this.#read(some).finally(() => {
        this.#reading--
        this.#send()
      })
    }
    this.#waiting = this.#waiting.slice(from)
  }

  async #read(some: readonly Look[]): Promise<void> {
    const ids = [...new Set(some.map(({ id }) => id))]
    try {
      const records = await this.#store.get(ids)
      this.#portion.adapt(records)
      const byId = new Map(ids.map((id, at) => [id, records[at]]))
      for (const { id, resolve } of some) resolve(byId.get(id))
    } catch (error) {
      // It may be about one of them.
      if (ids.length === 1) for (const { reject } of some) reject(error)
      else await Promise.all(some.map((each) => this.#read([each])))
    }
  }
}
