// store/read-batcher.ts: reads by id made in one turn of the event loop leave as one call, as writes do.
import type { JobRecord } from '../job/job.js'
import { outside } from './transaction-context.js'
import { PAGE_SIZE, portions, readDetails } from './read-pages.js'
import type { Runtime } from './runtime.js'
import { runSteps } from './maybe-sync.js'
import type { Details, DetailsPart, DetailsQuery, Store } from './store.js'

/** The parts of details that a store never cuts within a job. */
const LIGHT: ReadonlySet<DetailsPart> = new Set<DetailsPart>(['edges', 'dependents', 'related'])

interface PendingRead<Found> {
  readonly id: string
  resolve(found: Found): void
  reject(error: unknown): void
}

/** The reads of one process on a store. */
export class ReadBatcher {
  readonly #jobs: PendingReads<JobRecord | undefined>
  readonly #details = new Map<string, PendingReads<Details>>()
  readonly #store: Pick<Store, 'get' | 'details'>
  readonly #runtime: Pick<Runtime, 'defer'>

  constructor(store: Pick<Store, 'get' | 'details'>, runtime: Pick<Runtime, 'defer'>) {
    this.#store = store
    this.#runtime = runtime
    this.#jobs = new PendingReads(runtime, (ids) => store.get(ids))
  }

  /** The job of this id. */
  get(id: string): Promise<JobRecord | undefined> {
    return this.#jobs.read(id)
  }

  /** Reads details of jobs; batched, where the query is for one job and for light parts only. */
  details(query: DetailsQuery): Promise<Details> {
    const { jobs, parts, ...rest } = query
    const alone = jobs?.length !== 1 || parts === undefined || Object.keys(rest).length > 0
    if (alone || parts.includes('outcomes') || !parts.every((part) => LIGHT.has(part)))
      return this.#store.details(query)
    const key = parts.join()
    let reads = this.#details.get(key)
    if (reads === undefined) {
      reads = new PendingReads(this.#runtime, async (ids) => {
        const found = await runSteps(readDetails(this.#store, { jobs: ids, parts }))
        return found.map((each) => ({ jobs: [each], cells: [] }))
      })
      this.#details.set(key, reads)
    }
    return reads.read(jobs[0]!)
  }
}

/** Collects the ids requested in one turn of the event loop. */
class PendingReads<Found> {
  readonly #runtime: Pick<Runtime, 'defer'>
  readonly #read: (ids: readonly string[]) => Promise<readonly Found[]>
  #pending: PendingRead<Found>[] = []

  constructor(runtime: Pick<Runtime, 'defer'>, read: (ids: readonly string[]) => Promise<readonly Found[]>) {
    this.#runtime = runtime
    this.#read = read
  }

  read(id: string): Promise<Found> {
    return new Promise((resolve, reject) => {
      this.#pending.push({ id, resolve, reject })
      if (this.#pending.length > 1) return
      // The read serves all callers of this turn, so it does not run inside the transaction of the first of them.
      outside(() => this.#runtime.defer(() => this.#send()))
    })
  }

  #send(): void {
    const pending = this.#pending
    this.#pending = []
    for (const some of portions(pending, PAGE_SIZE)) void this.#readSome(some)
  }

  async #readSome(some: readonly PendingRead<Found>[]): Promise<void> {
    const ids = [...new Set(some.map(({ id }) => id))]
    try {
      const found = await this.#read(ids)
      const byId = new Map(ids.map((id, at) => [id, found[at]!]))
      for (const { id, resolve } of some) resolve(byId.get(id) as Found)
    } catch (error) {
      for (const { reject } of some) reject(error)
    }
  }
}
