// conformance/driver.ts: one writer of a store, with short calls for what cases do.
import type { Change } from '../job/change.js'
import type { Edge, EdgePolicy, JobRecord, Millis, Time } from '../job/job.js'
import * as lifecycle from '../job/lifecycle.js'
import { cellKey } from '../store/settings.js'
import type { LimitCell, PauseCell } from '../job/limits.js'
import type {
  Ask,
  Batch,
  Cell,
  Group,
  Handled,
  JobDetails,
  Receipt,
  RefusedAsMoved,
  RefusedOtherwise,
  Renewal,
  Store,
} from '../store/store.js'
import type { Lifetime } from '../store/tally.js'
import type { Verdict, Why } from '../store/store.js'
import { derived, must, present, same } from './check.js'
import type { Harness } from './harness.js'
import { insert, put, QUEUE } from './changes.js'
import type { JobOptions } from './changes.js'

/** The default lease of claims. */
export const LEASE: Millis = 30_000

/** How often a group is sent while the store refuses it as `busy`. */
const BUSY_TRIES = 1_000

/** The parts of a batch; each is optional. */
export interface Parts {
  readonly groups?: readonly Group[]
  readonly renewals?: readonly Renewal[]
  readonly asks?: readonly Ask[]
}

/** Options of a claim, besides the number of jobs. */
export interface ClaimOptions {
  readonly queues?: readonly string[]
  /** Names, each with the lease below. Default: every name. */
  readonly names?: readonly string[]
  /** Names with their own versions and leases, in place of `names`. */
  readonly handles?: readonly Handled[]
  readonly lease?: Millis
  readonly ahead?: number
  readonly worker?: string
}

/** A worker's claim of up to `want` jobs. */
export function ask(want: number, options: ClaimOptions = {}): Ask {
  const lease = options.lease ?? LEASE
  return {
    worker: options.worker ?? 'miller',
    queues: options.queues ?? [QUEUE],
    handles: options.handles ?? options.names?.map((name) => ({ name, lease })) ?? [{ name: undefined, lease }],
    want,
    ahead: options.ahead ?? 0,
  }
}

/** An edge to a chain that has not ended. */
export function openEdge(dependent: string, chain: string, name: string, policy: EdgePolicy = 'fail'): Edge {
  return { dependent, chain, name, policy, state: 'open', result: undefined, error: undefined }
}

/** A renewal of the lease that a claim gave. */
export function renewal(job: JobRecord, lease: Millis = LEASE, started = false): Renewal {
  return { id: job.id, fence: job.fence, lease, started }
}

/** The refusal of a group for this reason. */
type RefusedFor<W extends Why> = W extends 'fence' ? RefusedAsMoved : RefusedOtherwise

/** One writer of one store. */
export class Driver {
  readonly store: Store
  readonly writer: string
  /** The last batch that was sent. */
  last: Batch
  /** The receipt of it. */
  receipt: Receipt
  #ids = 0
  #marks = 0
  #sending = false

  constructor(store: Store, writer: string) {
    this.store = store
    this.writer = writer
    this.last = { writer, seq: 0, groups: [], renewals: [], asks: [] }
    this.receipt = { writer, seq: 0, now: 0, groups: [], renewals: [], asks: [] }
  }

  /** Sends a batch with the next sequence number of the writer. */
  async commit(parts: Parts): Promise<Receipt> {
    const { groups = [], renewals = [], asks = [] } = parts
    must(!this.#sending, 'a case sends the batches of one writer one after another')
    this.last = { writer: this.writer, seq: this.last.seq + 1, groups, renewals, asks }
    this.#sending = true
    const receipt = await this.store.commit(this.last).finally(() => (this.#sending = false))
    this.receipt = receipt
    const sizes = [receipt.groups.length, receipt.renewals.length, receipt.asks.length]
    same(
      sizes,
      [groups.length, renewals.length, asks.length],
      'a receipt has an entry for every group, renewal and claim',
    )
    for (const job of receipt.asks.flat()) derived(job)
    for (const verdict of receipt.groups) if (verdict.ok) verdict.inserted.forEach(derived)
    return receipt
  }

  /** Sends the last batch again, as after a lost receipt. */
  replay(): Promise<Receipt> {
    return this.store.commit(this.last)
  }

  /** Sends one group and returns its verdict. Sends it again while an open transaction makes it `busy`, as callers do. */
  async send(group: Group): Promise<Verdict> {
    for (let tries = 1; ; tries++) {
      const receipt = await this.commit({ groups: [group] })
      const verdict = present(receipt.groups[0], 'a receipt holds a verdict for each group')
      if (verdict.ok || verdict.why !== 'busy' || tries === BUSY_TRIES) return verdict
    }
  }

  /** Sends one group that must be applied; returns the jobs it inserted. */
  async land(...changes: readonly (Change | Group)[]): Promise<readonly JobRecord[]> {
    const verdict = await this.send(changes.flat())
    if (!verdict.ok) must(false, `a group that should land was refused: ${verdict.why}, over ${verdict.id}`)
    return verdict.inserted
  }

  /** Sends one group that must be refused for this reason. */
  async refuse<W extends Why>(why: W, duty: string, ...changes: readonly (Change | Group)[]): Promise<RefusedFor<W>> {
    const verdict = await this.send(changes.flat())
    if (verdict.ok) must(false, `${duty}: the group landed`)
    same(verdict.why, why, duty)
    return verdict as RefusedFor<W>
  }

  /** A new id. */
  id(): string {
    return `${this.writer}-${++this.#ids}`
  }

  /** A new key for a marker. */
  mark(): string {
    return `mark:${this.writer}-${++this.#marks}`
  }

  /** Adds a job, which must succeed. */
  async add(name: string, options: JobOptions = {}): Promise<JobRecord> {
    const [job] = await this.land(insert(this.id(), name, options))
    return present(job, 'a group that inserted a job returns that job')
  }

  /** Adds `count` jobs in one batch, one group each. */
  async addMany(count: number, name: string, options: JobOptions = {}): Promise<readonly JobRecord[]> {
    const groups = Array.from({ length: count }, () => [insert(this.id(), name, options)])
    const receipt = await this.commit({ groups })
    return receipt.groups.flatMap((verdict) => {
      must(verdict.ok, 'a plain job can always be added')
      return verdict.inserted
    })
  }

  /** Claims up to `want` jobs. */
  async claim(want: number, options: ClaimOptions = {}): Promise<readonly JobRecord[]> {
    const receipt = await this.commit({ asks: [ask(want, options)] })
    return present(receipt.asks[0], 'a receipt has a list of jobs for each claim')
  }

  /** Claims one job; one must be waiting. */
  async claimOne(options: ClaimOptions = {}): Promise<JobRecord> {
    const [job] = await this.claim(1, options)
    return present(job, 'a waiting job is given to a worker that asks for it')
  }

  /** Adds a job and claims it. */
  async running(name: string, options: JobOptions = {}): Promise<JobRecord> {
    const added = await this.add(name, options)
    const job = await this.claimOne({ names: [name], queues: [added.queue] })
    same(job.id, added.id, 'the only waiting job of its name is the one claimed')
    return job
  }

  /** Renews one lease and returns the verdict. */
  async renew(job: JobRecord, lease: Millis = LEASE, started = false): Promise<Verdict> {
    const receipt = await this.commit({ renewals: [renewal(job, lease, started)] })
    return present(receipt.renewals[0], 'a receipt holds a verdict for each renewal')
  }

  /** The stored job; it must exist. */
  async job(jobOrId: string | JobRecord): Promise<JobRecord> {
    const id = typeof jobOrId === 'string' ? jobOrId : jobOrId.id
    const [job] = await this.store.get([id])
    return derived(present(job, `job ${id} is stored`))
  }

  /** Whether the job is stored. */
  async exists(id: string): Promise<boolean> {
    const [job] = await this.store.get([id])
    return job !== undefined
  }

  /** The details of the job. */
  async details(jobOrId: string | JobRecord): Promise<JobDetails> {
    const { jobs } = await this.store.details({ jobs: [typeof jobOrId === 'string' ? jobOrId : jobOrId.id] })
    return present(jobs[0], 'details has an entry for every requested job')
  }

  /** The edges to what a job depends on. */
  async edges(jobOrId: string | JobRecord): Promise<readonly Edge[]> {
    return (await this.details(jobOrId)).edges
  }

  /** The stored cell. */
  async cell(key: string): Promise<Cell | undefined> {
    const { cells } = await this.store.details({ cells: [key] })
    return cells[0]
  }

  /** Writes a cell, whatever its version. */
  async put(key: string, value: unknown): Promise<void> {
    const cell = await this.cell(key)
    await this.land(put(key, value, cell?.version ?? 0))
  }

  /** Sets what is paused in a queue. */
  pause(what: Partial<PauseCell>, queue: string = QUEUE): Promise<void> {
    return this.put(cellKey.pause(queue), { all: false, names: [], ...what } satisfies PauseCell)
  }

  /** Sets the limits of a queue. */
  limit(limits: Omit<LimitCell, 'by'>, queue: string = QUEUE): Promise<void> {
    return this.put(cellKey.limit(queue), { ...limits, by: 'queue' } satisfies LimitCell)
  }

  /** The lifetime counters of a queue. */
  async lifetime(queue: string = QUEUE): Promise<Lifetime> {
    const [tally] = await this.store.tally([queue])
    return present(tally, 'a queue that was used has a tally').lifetime
  }

  /** The counts of a queue by name and state, without zeros. */
  async counts(queue: string = QUEUE): Promise<Record<string, Record<string, number>>> {
    const [tally] = await this.store.tally([queue])
    const counts: Record<string, Record<string, number>> = {}
    for (const [name, states] of Object.entries(tally?.names ?? {})) {
      const kept = Object.entries(states).filter(([, count]) => count !== 0)
      if (kept.length > 0) counts[name] = Object.fromEntries(kept)
    }
    return counts
  }

  /** Runs upkeep once: handles what is due, and returns the ids of those jobs. */
  async upkeep(queues: readonly string[] = [QUEUE]): Promise<readonly string[]> {
    const { now, jobs } = await this.due(queues)
    const details = await this.store.details({ jobs: ids(jobs) })
    const groups = jobs.map((job, index) => lifecycle.due(derived(job), now, details.jobs[index]?.edges))
    if (groups.length > 0) await this.commit({ groups })
    return ids(jobs)
  }

  /** The jobs that are due, with their payloads. */
  async due(queues: readonly string[] = [QUEUE]): Promise<{ readonly now: Time; readonly jobs: readonly JobRecord[] }> {
    const { now, jobs } = await this.store.due({ queues, except: [], limit: 100 })
    const records = await this.store.get(ids(jobs))
    return { now, jobs: records.map((job) => present(job, 'a job that is due is stored')) }
  }
}

/** The first writer of a case, on the harness's own handle. */
export function first(harness: Harness): Driver {
  return new Driver(harness.store, 'first')
}

/** A second writer, on another handle. */
export async function second(harness: Harness): Promise<Driver> {
  return new Driver(await harness.peer(), 'second')
}

/** The ids of jobs, in their order. */
export function ids(jobs: readonly Pick<JobRecord, 'id'>[]): readonly string[] {
  return jobs.map(({ id }) => id)
}
