// store/read-batcher.ts: reads by id that are asked for in one turn of the event loop leave as one call, as writes do.
import type { JobRecord } from '../job/job.js'
import { outside } from './transaction-context.js'
import { readDetails } from './read-pages.js'
import type { Runtime } from './runtime.js'
import { stepwise } from './maybe-sync.js'
import type { Details, DetailsPart, DetailsQuery, Store } from './store.js'

/** Ids in one call at most. */
const MOST = 500

/** The parts of details that are never cut within a job. */
const LIGHT: ReadonlySet<DetailsPart> = new Set<DetailsPart>(['edges', 'dependents', 'kin'])

interface Waiting<Found> {
  readonly id: string
  resolve(found: Found): void
  reject(error: unknown): void
}

/** The reads of one process on a store. */
export class ReadBatcher {
  readonly #jobs: Gathering<JobRecord | undefined>
  readonly #details = new Map<string, Gathering<Details>>()
  readonly #store: Pick<Store, 'get' | 'details'>
  readonly #runtime: Pick<Runtime, 'defer'>

  constructor(store: Pick<Store, 'get' | 'details'>, runtime: Pick<Runtime, 'defer'>) {
    this.#store = store
    this.#runtime = runtime
    this.#jobs = new Gathering(runtime, (ids) => store.get(ids))
  }

  /** The job of this id. */
  get(id: string): Promise<JobRecord | undefined> {
    return this.#jobs.read(id)
  }

  /** What lies beside jobs; together with others, where it is of one job and light. */
  details(query: DetailsQuery): Promise<Details> {
    const { jobs, parts, ...rest } = query
    const alone = jobs?.length !== 1 || parts === undefined || Object.keys(rest).length > 0
    if (alone || parts.includes('outcomes') || !parts.every((part) => LIGHT.has(part)))
      return this.#store.details(query)
    const key = parts.join()
    let gathering = this.#details.get(key)
    if (gathering === undefined) {
      gathering = new Gathering(this.#runtime, async (ids) => {
        const found = await stepwise(readDetails(this.#store, { jobs: ids, parts }))
        return found.map((each) => ({ jobs: [each], cells: [] }))
      })
      this.#details.set(key, gathering)
    }
    return gathering.read(jobs[0]!)
  }
}

/** Gathers the ids asked for in one turn. */
class Gathering<Found> {
  readonly #runtime: Pick<Runtime, 'defer'>
  readonly #read: (ids: readonly string[]) => Promise<readonly Found[]>
  #waiting: Waiting<Found>[] = []

  constructor(runtime: Pick<Runtime, 'defer'>, read: (ids: readonly string[]) => Promise<readonly Found[]>) {
    this.#runtime = runtime
    this.#read = read
  }

  read(id: string): Promise<Found> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject })
      if (this.#waiting.length > 1) return
      // It is for all who ask in this turn, so it is not inside the transaction of the first of them.
      outside(() => this.#runtime.defer(() => this.#send()))
    })
  }

  #send(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (let from = 0; from < waiting.length; from += MOST) void this.#answer(waiting.slice(from, from + MOST))
  }

  async #answer(some: readonly Waiting<Found>[]): Promise<void> {
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
