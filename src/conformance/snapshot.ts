// conformance/snapshot.ts: reads everything from a store, in a form in which two stores can be compared.
import { readHistory } from '../job/history.js'
import type { JobRecord, JobState, Time } from '../job/job.js'
import { jobStates } from '../job/job.js'
import { Driver, ids } from './driver.js'
import type { Harness } from './harness.js'
import { Listener } from './listener.js'
import { MINUTE } from './resolve.js'
import { brokenInvariants } from './invariants.js'
import { walkQueues } from './walk.js'
import { readCells } from '../store/read-pages.js'
import { runSteps } from '../store/maybe-sync.js'
import type { Cell, Query, Receipt, Store } from '../store/store.js'
import type { StoreEvent } from '../job/events.js'
import type { QueueTally } from '../store/tally.js'

const times = new Set(
  'now at next runAt expiresAt leaseUntil brokenAt staleAt deleteAt dueAt createdAt startedAt finishedAt until'.split(
    ' ',
  ),
)
/** Fields whose values each store chooses itself. */
const ownFields = new Set(['ord', 'cursor', 'writer', 'again'])

/** A store on which a walk runs. */
export class Walker {
  readonly harness: Harness
  readonly drivers: readonly [Driver, Driver]
  readonly began: Time
  readonly listener: Listener
  /** Writes markers, so that the writers of the walk send nothing else. */
  readonly #marker: Driver
  #eventsRead = 0

  private constructor(harness: Harness, drivers: readonly [Driver, Driver], began: Time) {
    this.harness = harness
    this.drivers = drivers
    this.began = began
    this.listener = new Listener(harness.store, { events: true })
    this.#marker = new Driver(harness.store, 'marker')
  }

  /** Starts a walk on a new store. */
  static async begin(harness: Harness): Promise<Walker> {
    const drivers = [new Driver(harness.store, 'walker-0'), new Driver(await harness.peer(), 'walker-1')] as const
    const { now } = await drivers[0].commit({})
    await drivers[1].commit({})
    const walker = new Walker(harness, drivers, now)
    await walker.#events() // from here on every handle knows that there is a watcher
    return walker
  }

  get store(): Store {
    return this.harness.store
  }

  async end(): Promise<void> {
    this.listener.stop()
    await this.harness.dispose()
  }

  /** All jobs, in the order of insertion. */
  jobs(): Promise<readonly JobRecord[]> {
    return findAll(this.store, {})
  }

  /** All cells that the walk wrote. */
  async cells(): Promise<readonly Cell[]> {
    const cells = await runSteps(readCells(this.store, ''))
    return cells.filter(({ key }) => !key.startsWith('mark:'))
  }

  /** The invariants that the store breaks. */
  async contradictions(): Promise<readonly string[]> {
    const jobs = await this.jobs()
    const { jobs: details } = await this.store.details({ jobs: ids(jobs) })
    return brokenInvariants({ jobs, details, tallies: await this.store.tally() })
  }

  /** A receipt and, if `jobs` is true, all jobs. */
  async readBrief(receipt: Receipt | undefined, jobs: boolean): Promise<Readonly<Record<string, unknown>>> {
    const brief = { receipt: this.#normalize(receipt) }
    return jobs ? { ...brief, 'find of everything': this.#normalize(await this.jobs()) } : brief
  }

  /** Everything that can be read, by name. `seen` holds all ids that the walk ever used. */
  async look(receipt: Receipt | undefined, seen: readonly string[]): Promise<Readonly<Record<string, unknown>>> {
    const { store } = this
    const jobs = await this.jobs()
    const due = await store.due({ queues: walkQueues, except: [], limit: 10_000 })
    const { jobs: details } = await store.details({ jobs: seen })
    const events = await this.#events()
    const views: Record<string, unknown> = {
      receipt,
      'find of everything': jobs,
      get: await store.get(seen),
      'find, newest first': ids(await findAll(store, { order: 'newest', limit: 7 })),
      'find by state': await byState(store),
      'find by queue and name': ids(await findAll(store, { queue: 'q1', names: ['a', 'c'], limit: 5 })),
      tally: (await store.tally())
        .filter(({ queue }) => walkQueues.includes(queue))
        .map(withoutZeros)
        .toSorted(byQueue),
      due: { ...due, jobs: due.jobs.toSorted((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0) || (a.id < b.id ? -1 : 1)) },
      details: details.map(({ id, edges, dependents, logs, steps }) => ({
        id,
        edges,
        dependents: dependents.toSorted(byDependent),
        logs,
        steps,
      })),
      cells: (await this.cells()).toSorted((a, b) => (a.key < b.key ? -1 : 1)),
      events,
    }
    return Object.fromEntries(Object.entries(views).map(([name, view]) => [name, this.#normalize(view)]))
  }

  /** The events of the last step, by job: within a commit, stores must keep only the order of each job's own events. */
  async #events(): Promise<unknown> {
    await this.listener.received(this.#marker)
    const { all } = this.listener
    const fresh = all.slice(this.#eventsRead).filter(({ queue }) => queue === '' || walkQueues.includes(queue))
    this.#eventsRead = all.length
    const key = ({ id, queue }: StoreEvent): string => (id === '' ? ` ${queue}` : id) // events of a queue have no job
    return fresh.toSorted((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0))
  }

  /** Makes times relative to the start of the walk, and drops the values that a store chooses itself. */
  #normalize(value: unknown, key = ''): unknown {
    if (typeof value === 'number' && times.has(key)) {
      const unit = this.harness.ticks === true ? MINUTE : 1
      return Math.round((value - this.began) / unit)
    }
    if (key === 'history' && typeof value === 'string') return this.#normalize(readHistory(value))
    // The value of a cell of pauses, whose holds have times.
    if (typeof value === 'string' && value.startsWith('{"all":')) return this.#normalize(JSON.parse(value))
    if (Array.isArray(value)) return value.map((item) => this.#normalize(item, key))
    if (typeof value !== 'object' || value === null) return value
    const normalized: Record<string, unknown> = {}
    for (const [field, inner] of Object.entries(value)) {
      if (inner !== undefined && !ownFields.has(field)) normalized[field] = this.#normalize(inner, field)
    }
    return normalized
  }
}

async function findAll(store: Store, query: Query): Promise<readonly JobRecord[]> {
  const found: JobRecord[] = []
  let cursor: string | undefined
  do {
    const page = await store.find({ ...query, ...(cursor !== undefined && { cursor }) })
    found.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  return found
}

async function byState(store: Store): Promise<Readonly<Partial<Record<JobState, readonly string[]>>>> {
  const found: Partial<Record<JobState, readonly string[]>> = {}
  for (const state of jobStates) found[state] = ids(await findAll(store, { states: [state], limit: 9 }))
  return found
}

/** A tally without zero counts, which stores may omit. */
function withoutZeros(tally: QueueTally): QueueTally {
  const names: Record<string, Partial<Record<JobState, number>>> = {}
  for (const [name, states] of Object.entries(tally.names)) {
    const counted = Object.entries(states).filter(([, count]) => count !== 0)
    if (counted.length > 0) names[name] = Object.fromEntries(counted)
  }
  return { ...tally, names }
}

function byQueue(a: QueueTally, b: QueueTally): number {
  return a.queue < b.queue ? -1 : 1
}

function byDependent(a: { readonly dependent: string }, b: { readonly dependent: string }): number {
  return a.dependent < b.dependent ? -1 : 1
}
