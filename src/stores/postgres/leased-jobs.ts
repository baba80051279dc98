// stores/postgres/leased-jobs.ts: the jobs that this process has claimed, as they were claimed: while the fence of such a job is
// the same, it differs in its lease and its notes alone, so that its holder's changes need not read it.
import type { JobRecord } from '../../job/job.js'
import { copyOf } from '../../job/record.js'
import type { Batch } from '../../store/store.js'

/** Maximum number of leased jobs to remember; more than any worker leases. */
const MAX_LEASED = 20_000

/** Data of up to this length is kept with its job: most jobs then need no copy. */
const LIGHT = 500

function isLight({ data, memo, progress, errors }: JobRecord): boolean {
  return (data?.length ?? 0) <= LIGHT && (memo ?? progress) === undefined && errors.length === 0
}

function withoutPayload(claimed: JobRecord): JobRecord {
  const job = copyOf(claimed)
  job.data = job.memo = job.progress = undefined
  job.errors = []
  return job
}

/** Leased jobs without large payloads, which a settlement does not need. */
export class LeasedJobs {
  readonly #byId = new Map<string, JobRecord>()

  /** Remembers a claimed job. */
  add(claimed: JobRecord): void {
    const job = isLight(claimed) ? claimed : withoutPayload(claimed)
    if (this.#byId.size >= MAX_LEASED) {
      for (const oldest of this.#byId.keys()) {
        this.#byId.delete(oldest)
        break
      }
    }
    this.#byId.set(job.id, job)
  }

  /** The job of this id, if its lease has this fence. */
  find(id: string, fence: number): JobRecord | undefined {
    const job = this.#byId.get(id)
    return job?.fence === fence ? job : undefined
  }

  /** Forgets the jobs that a batch moves. */
  forgetMoved({ groups }: Pick<Batch, 'groups'>): void {
    if (this.#byId.size === 0) return
    for (const group of groups) for (const change of group) if (change.kind === 'move') this.#byId.delete(change.id)
  }
}
