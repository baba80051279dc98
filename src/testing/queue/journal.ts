// testing/queue/journal.ts: a memory store that records which jobs were added, which run, and what each run came to.
import type { Change, Move } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Ask, Batch, DisposableStore, Receipt } from '../../store/store.js'
import { memory } from '../../stores/memory/store.js'
import { addedJob } from './added.js'
import type { AddedJob } from './added.js'
import { endOf } from './runs.js'
import type { EndedRun } from './runs.js'

/** A store without transactions. */
export type MemoryStore = DisposableStore<never>

/** The one job that may be claimed, and its own priority, which was lowered so that it is next. */
interface Only {
  readonly id: string
  readonly name: string
  readonly priority: number
}

/** What happened to the jobs of a store. */
export class Journal {
  readonly store: MemoryStore
  readonly added: { readonly queue: string; readonly job: AddedJob }[] = []
  readonly ended: EndedRun[] = []
  /** The jobs that are leased, by id. */
  readonly running = new Map<string, JobRecord>()
  /** No further jobs are claimed once this many runs have ended. */
  maxEnded = Infinity
  #only: (Only & { readonly from: number }) | undefined
  #waiters: (() => void)[] = []

  constructor(runtime: Runtime) {
    const inner = memory({ runtime })
    this.store = { ...inner, commit: (batch) => this.#commit(inner, batch) }
  }

  /** Resolves when the next run begins or ends. */
  changed(): Promise<void> {
    return new Promise((resolve) => void this.#waiters.push(resolve))
  }

  /** Whether so many runs have ended that no further jobs are claimed. */
  get isFull(): boolean {
    return this.ended.length >= this.maxEnded
  }

  /** Lets one job alone be claimed, and once, while `work` runs. */
  async only<T>(only: Only, work: () => Promise<T>): Promise<T> {
    this.#only = { ...only, from: this.ended.length }
    try {
      return await work()
    } finally {
      this.#only = undefined
    }
  }

  async #commit(inner: MemoryStore, batch: Batch): Promise<Receipt> {
    const only = this.#only
    const groups =
      only === undefined ? batch.groups : batch.groups.map((group) => group.map((each) => restore(each, only)))
    const asks = batch.asks.map((ask) => this.#allowed(ask))
    const receipt = await inner.commit({ ...batch, groups, asks })
    for (const [at, verdict] of receipt.groups.entries()) {
      if (!verdict.ok) continue
      for (const job of verdict.inserted)
        if (job.kind === 'job') this.added.push({ queue: job.queue, job: addedJob(job) })
      for (const change of groups[at]!) if (change.kind === 'move') this.#moved(change, receipt)
    }
    const claimed = receipt.asks.map((jobs) => jobs.map((job) => this.#claimed(job)))
    if (receipt.asks.some((jobs) => jobs.length > 0)) this.#notify()
    return { ...receipt, asks: claimed }
  }

  #allowed(ask: Ask): Ask {
    if (this.isFull) return { ...ask, want: 0, ahead: 0 }
    const only = this.#only
    if (only === undefined) return ask
    const done = this.running.has(only.id) || this.ended.length > only.from
    const handles = ask.handles
      .filter(({ name }) => name === undefined || name === only.name)
      .map((handled) => ({ ...handled, name: only.name }))
    return { ...ask, handles, want: done ? 0 : Math.min(1, ask.want), ahead: 0 }
  }

  #claimed(job: JobRecord): JobRecord {
    const only = this.#only
    const claimed = only?.id === job.id ? { ...job, priority: only.priority } : job
    this.running.set(job.id, claimed)
    return claimed
  }

  #moved(move: Move, { now }: Receipt): void {
    const record = this.running.get(move.id)
    if (record === undefined || move.fence !== record.fence) return
    this.running.delete(move.id)
    const end = endOf(move, now)
    if (end !== undefined) this.ended.push({ record, end })
    this.#notify()
  }

  #notify(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const resolve of waiters) resolve()
  }
}

/** Gives the job its own priority back with the move that ends its run. */
function restore(change: Change, { id, priority }: Only): Change {
  if (change.kind !== 'move' || change.id !== id || !change.held) return change
  return { ...change, set: { ...change.set, priority } }
}
