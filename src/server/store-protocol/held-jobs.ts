// server/store-protocol/held-jobs.ts: who holds which jobs, as far as this server leased them. A fence orders all owners of
// an id, so that what is remembered of one never becomes wrong.
import type { JobHeader, JobRecord } from '../../job/job.js'

/** What is remembered of a lease. */
export type HeldJob = Pick<
  JobHeader,
  'id' | 'kind' | 'queue' | 'name' | 'fence' | 'worker' | 'chainId' | 'parentId' | 'dedup' | 'keep'
>

/** The most leases that are remembered; those learned first are forgotten first. */
const REMEMBERED = 50_000

/** The leases that this server gave, by the ids of their jobs. */
export class HeldJobs {
  readonly #jobs = new Map<string, HeldJob>()

  /** Remembers a job that was claimed. */
  learn({ id, kind, queue, name, fence, worker, chainId, parentId, dedup, keep }: JobRecord): void {
    this.#jobs.delete(id)
    this.#jobs.set(id, { id, kind, queue, name, fence, worker, chainId, parentId, dedup, keep })
    if (this.#jobs.size > REMEMBERED) this.#jobs.delete(this.#jobs.keys().next().value!)
  }

  /** The job that had this fence, if it is remembered. */
  find(id: string, fence: number): HeldJob | undefined {
    const job = this.#jobs.get(id)
    return job?.fence === fence ? job : undefined
  }
}
