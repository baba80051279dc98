// server/working/held-jobs.ts: the jobs that clients hold, as calls about them use them: each call is bound to the fence
// that it gives.
import { isMillraceError } from '../../job/errors/errors.js'
import { settledAttempt } from '../../job/history.js'
import type { Settled } from '../../job/history.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { hasPhases } from '../../job/phases.js'
import { Job } from '../../queue/job.js'
import { jobNotFound } from '../../queue/operations/decide.js'
import { JobOperations } from '../../queue/operations/job-operations.js'
import { jobRemoved } from '../../queue/operations/result.js'
import type { Queue } from '../../queue/queue.js'
import type { Connection } from '../../store/connection.js'
import type { KeepLast } from '../../upkeep/retention/keep-last.js'
import { ClaimedJob, lostLease } from '../../worker/claims/claimed-job.js'
import type { ClaimHost } from '../../worker/claims/host.js'
import { reasonOf } from '../../worker/leases.js'
import { inScope } from '../principal.js'
import type { Principal } from '../principal.js'
import type { ServedQueues } from '../queues.js'
import { isOwnWorker } from './remote-workers.js'
import type { RemoteWorkers } from './remote-workers.js'

/** The lease of a job of which nobody knows how long it was claimed for. */
export const DEFAULT_LEASE: Millis = 30_000

/** How many claimed jobs a server remembers, without their payloads, so that their settlements need not read them. */
const MAX_REMEMBERED = 20_000

/** A claimed job as it is remembered. */
interface Remembered {
  readonly record: JobRecord
  readonly lease: Millis
}

/** A job that a caller holds: its calls, and its record without its payload. */
export interface HeldJob {
  readonly claimed: ClaimedJob
  readonly record: JobRecord
  readonly lease: Millis
}

/** What the jobs of a server are found by. */
interface HeldJobsParts {
  readonly connection: Connection
  readonly queues: ServedQueues
  readonly workers: RemoteWorkers
  readonly keepLast: KeepLast
}

/** The jobs that clients hold. */
export class HeldJobs {
  readonly #parts: HeldJobsParts
  readonly #hosts = new WeakMap<Queue, ClaimHost>()
  /** By id, the one claimed first first. */
  readonly #remembered = new Map<string, Remembered>()

  /** Work about one job that is in progress, by id. */
  readonly #busy = new Map<string, Promise<void>>()

  constructor(parts: HeldJobsParts) {
    this.#parts = parts
  }

  /** What claimed jobs of a queue use. */
  host(queue: Queue): ClaimHost {
    let host = this.#hosts.get(queue)
    if (host === undefined) {
      const { connection, keepLast } = this.#parts
      const { jobs, adder } = queue
      const operations = new JobOperations(connection, jobs, adder.maxBytes)
      host = { connection, operations, adder, jobs, keepLast, refuseClosed: () => {}, seen: () => {} }
      this.#hosts.set(queue, host)
    }
    return host
  }

  /** A job was claimed here, for that long. */
  remember(record: JobRecord, lease: Millis): void {
    this.#remembered.delete(record.id)
    this.#remembered.set(record.id, { record: withoutPayload(record), lease })
    if (this.#remembered.size > MAX_REMEMBERED) this.#remembered.delete(this.#remembered.keys().next().value!)
  }

  /** Runs work about one job after the work about it that is in progress here. */
  async oneAtATime<T>(id: string, work: () => Promise<T>): Promise<T> {
    const before = this.#busy.get(id)
    const done = (before ?? Promise.resolve()).then(work)
    const ended: Promise<void> = done.then(
      () => {},
      () => {},
    )
    this.#busy.set(id, ended)
    try {
      return await done
    } finally {
      if (this.#busy.get(id) === ended) this.#busy.delete(id)
    }
  }

  /** A job was settled here. */
  forget(id: string, fence: number): void {
    if (this.#remembered.get(id)?.record.fence === fence) this.#remembered.delete(id)
  }

  /** The queue and fence of a job that was claimed here and not settled since. */
  remembered(id: string, fence: number): Remembered | undefined {
    const found = this.#remembered.get(id)
    return found?.record.fence === fence ? found : undefined
  }

  /**
   * The job that a caller holds with this fence. Throws JOB_NOT_FOUND where the caller may not know of it, JOB_REMOVED
   * where there is none, and LEASE_LOST where another fence counts, or the job is another caller's.
   */
  async find(principal: Principal, id: string, fence: number): Promise<HeldJob> {
    const known = this.remembered(id, fence)
    const record = known?.record ?? (await this.#read(id))
    this.#check(principal, record)
    if (record.state !== 'active' || record.fence !== fence) {
      throw lostLease(record, reasonOf({ ok: false, why: 'fence', change: 0, id, job: record }))
    }
    if (!isOwnWorker(principal, record.worker)) throw lostLease(record, ['lease-lost'])
    const { workers, queues } = this.#parts
    const lease = known?.lease ?? (await workers.leaseOf(record.worker!)) ?? DEFAULT_LEASE
    const host = this.host(queues.get(record.queue))
    workers.called(record.worker!)
    const claimed = new ClaimedJob(host, record, new Job(host.operations, record), { lease, custom: {} })
    return { claimed, record, lease }
  }

  /** Makes a call about a job that a caller holds. Throws as `find`; JOB_REMOVED also where it is removed meanwhile. */
  async use<T>(
    principal: Principal,
    { id, fence }: { readonly id: string; readonly fence: number },
    call: (held: HeldJob) => Promise<T>,
  ): Promise<T> {
    try {
      return await call(await this.find(principal, id, fence))
    } catch (error) {
      if (isMillraceError(error, 'LEASE_LOST')) {
        this.forget(id, fence)
        if (error.details['reason'] === 'removed') throw jobRemoved(id)
      }
      throw error
    }
  }

  /**
   * How the caller settled the attempt with this fence itself, after a call about it was refused; undefined if it did
   * not. So a settlement that is said again, because its answer was lost, is no loss.
   */
  async settledBefore(
    principal: Principal,
    { id, fence }: { readonly id: string; readonly fence: number },
    refusal: unknown,
  ): Promise<Settled | undefined> {
    if (!isMillraceError(refusal, 'LEASE_LOST')) return undefined
    this.forget(id, fence)
    const record = await this.#read(id)
    this.#check(principal, record)
    const settled = settledAttempt(record, fence)
    return settled !== undefined && isOwnWorker(principal, settled.worker) ? settled : undefined
  }

  async #read(id: string): Promise<JobRecord> {
    const { connection } = this.#parts
    await connection.ready()
    const record = await connection.reads.get(id)
    if (record === undefined) throw jobRemoved(id)
    return record
  }

  #check(principal: Principal, { id, queue, kind }: JobRecord): void {
    if (kind !== 'job' || !inScope(principal, queue) || !this.#parts.queues.serves(queue)) throw jobNotFound(id)
  }
}

/** A record without what can be large: settlements are decided without it. */
function withoutPayload(record: JobRecord): JobRecord {
  return {
    ...record,
    data: undefined,
    progress: undefined,
    result: undefined,
    error: undefined,
    errors: [],
    history: undefined,
    memo: hasPhases(record) ? record.memo : undefined,
  }
}
