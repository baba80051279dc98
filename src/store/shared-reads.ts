// store/shared-reads.ts: reads jobs by id for all waiting callers of a process together, in pages that adapt to their size.
import type { JobRecord } from '../job/job.js'
import { outside } from './transaction-context.js'
import { bytesOfRecord } from './read-pages.js'
import type { Runtime } from './runtime.js'
import type { Store } from './store.js'

/** Jobs in a page: at first, and at most where they are small. */
const FIRST_SIZE = 16
const LARGEST_SIZE = 256

/** About how many bytes a page may return: after a larger one, the next are smaller. */
const PAGE_BYTES = 2 ** 20

/** Pages that are read at the same time. */
const PARALLEL_PAGES = 4

/** The number of jobs to read at a time. It adapts to their size, because `get` is not cut by bytes. */
export class PageSize {
  #size = FIRST_SIZE

  get size(): number {
    return this.#size
  }

  /** Adapts to the jobs of the last page. */
  adapt(records: readonly (JobRecord | undefined)[]): void {
    let bytes = 0
    for (const record of records) if (record !== undefined) bytes += bytesOfRecord(record)
    if (bytes > PAGE_BYTES) this.#size = Math.max(1, Math.floor(this.#size / 2))
    else if (bytes < PAGE_BYTES / 4) this.#size = Math.min(LARGEST_SIZE, this.#size * 2)
  }
}

interface PendingRead {
  readonly id: string
  resolve(record: JobRecord | undefined): void
  reject(error: unknown): void
}

/** The reads by id of one process. */
export class SharedReads {
  readonly #store: Pick<Store, 'get'>
  readonly #runtime: Pick<Runtime, 'defer'>
  readonly #pageSize = new PageSize()
  #waiting: PendingRead[] = []
  #reading = 0
  #deferred = false

  constructor(store: Pick<Store, 'get'>, runtime: Pick<Runtime, 'defer'>) {
    this.#store = store
    this.#runtime = runtime
  }

  /** The current record of a job; undefined if there is none. */
  read(id: string): Promise<JobRecord | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject })
      if (this.#deferred) return
      this.#deferred = true
      // The read is shared by all callers of this turn, so it does not join the transaction of the first one.
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
    while (from < this.#waiting.length && this.#reading < PARALLEL_PAGES) {
      const some = this.#waiting.slice(from, from + this.#pageSize.size)
      from += some.length
      this.#reading++
      void this.#readPage(some).finally(() => {
        this.#reading--
        this.#send()
      })
    }
    this.#waiting = this.#waiting.slice(from)
  }

  async #readPage(some: readonly PendingRead[]): Promise<void> {
    const ids = [...new Set(some.map(({ id }) => id))]
    try {
      const records = await this.#store.get(ids)
      this.#pageSize.adapt(records)
      const byId = new Map(ids.map((id, at) => [id, records[at]]))
      for (const { id, resolve } of some) resolve(byId.get(id))
    } catch (error) {
      // The error may concern a single job.
      if (ids.length === 1) for (const { reject } of some) reject(error)
      else await Promise.all(some.map((each) => this.#readPage([each])))
    }
  }
}
