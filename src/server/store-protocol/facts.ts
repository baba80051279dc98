// server/store-protocol/facts.ts: what a group demands of the store, and what the store says to it.
import type { JobRecord } from '../../job/job.js'
import type { LimitCell } from '../../job/limits.js'
import { readCell } from '../../job/limits.js'
import { cellKey } from '../../store/settings.js'
import type { Store } from '../../store/store.js'
import type { HeldJob, HeldJobs } from './held-jobs.js'

/** What must be true of the store for a change to be let through. */
export interface Demand {
  /** The change, by its index in the group. */
  readonly change: number
  /** How it is refused if this is not so, and which job is named. */
  readonly why: 'fence' | 'missing'
  readonly id: string
  /** The ids of jobs that must be read, and the queues whose limits must be. */
  readonly jobs: readonly string[]
  readonly limits?: readonly string[]
  /** Whether it is true. */
  test(facts: Facts): boolean
}

/** The jobs and limits that the demands of a batch are about. */
export class Facts {
  readonly #jobs: ReadonlyMap<string, JobRecord>
  readonly #limits: ReadonlyMap<string, Partial<LimitCell>>
  readonly #held: HeldJobs

  private constructor(
    jobs: ReadonlyMap<string, JobRecord>,
    limits: ReadonlyMap<string, Partial<LimitCell>>,
    held: HeldJobs,
  ) {
    this.#jobs = jobs
    this.#limits = limits
    this.#held = held
  }

  /** Reads what the demands need. Leases that the server remembers are not read. */
  static async read(store: Store, held: HeldJobs, demands: readonly Demand[]): Promise<Facts> {
    const ids = [...new Set(demands.flatMap(({ jobs }) => jobs))]
    const queues = [...new Set(demands.flatMap(({ limits = [] }) => limits))]
    const jobs = ids.length === 0 ? [] : await store.get(ids)
    const { cells } =
      queues.length === 0 ? { cells: [] } : await store.details({ cells: queues.map((queue) => cellKey.limit(queue)) })
    const limits = new Map(cells.map(({ key, value }) => [key, readCell<LimitCell>(value)]))
    return new Facts(new Map(jobs.flatMap((job) => (job === undefined ? [] : [[job.id, job]]))), limits, held)
  }

  /** The job as it is now. */
  job(id: string): JobRecord | undefined {
    return this.#jobs.get(id)
  }

  /** The job, if it has this fence, or had it. */
  fenced(id: string, fence: number): HeldJob | undefined {
    const job = this.#jobs.get(id)
    return job?.fence === fence ? job : this.#held.find(id, fence)
  }

  /** The limits of a queue. */
  limits(queue: string): Partial<LimitCell> {
    return this.#limits.get(cellKey.limit(queue)) ?? {}
  }
}
