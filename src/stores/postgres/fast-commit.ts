// stores/postgres/fast-commit.ts: predicts the working set of a batch from what this process knows, for `fast_commit`, which
// checks the prediction.
import type { Change, Insert } from '../../job/change.js'
import type { JobRecord, Time } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Batch } from '../../store/store.js'
import type { WorkingSet } from './engine/working-set.js'
import type { IsOwnId } from './own-ids.js'
import { UNPLACED } from './functions/job-columns.js'
import type { LaneFinder } from './lanes.js'
import type { LeasedJobs } from './leased-jobs.js'

/** The most order numbers of one batch: the server takes one block of them. */
const MOST_ORDERS = 1_024

/** What is assumed about the rows of a batch; absent lists are empty. */
interface Known {
  readonly fence: number
  readonly recording: boolean
  /** Names of queues without limit and pause. */
  readonly queues: readonly string[]
  /** Leased jobs, by id and fence. */
  readonly held?: readonly (readonly [id: string, fence: number])[]
  /** Chains that no job waits for. */
  readonly ended?: readonly string[]
  /** Ids and dedup keys that are free. */
  readonly ids?: readonly string[]
  readonly keys?: readonly string[]
}

/** A predicted working set, and what was assumed. */
export interface Prediction {
  readonly set: WorkingSet
  readonly known: Known
}

/** The state of a database as this process saw it last. */
export class LastSeen {
  readonly #runtime: Runtime
  readonly #clock: (() => Time) | undefined
  #state: { readonly fence: number; readonly recording: boolean } | undefined
  #now = -Infinity
  #at = 0

  constructor(runtime: Runtime, clock: (() => Time) | undefined) {
    this.#runtime = runtime
    this.#clock = clock
  }

  get state(): { readonly fence: number; readonly recording: boolean } | undefined {
    return this.#state
  }

  /** The server's time, or a little less. */
  get now(): Time {
    if (this.#clock !== undefined) return this.#clock()
    return Math.floor(this.#now + this.#runtime.elapsed() - this.#at)
  }

  /** The store was opened. That no process watches is a guess. */
  opened({ fence, now }: { readonly fence: number; readonly now: Time }): void {
    this.#state = { fence, recording: false }
    this.#setClock(now)
  }

  /** A working set was read. */
  loaded({ now, fixed, extra }: WorkingSet): void {
    this.#state = { fence: extra.fence, recording: fixed.recording }
    this.#setClock(now)
  }

  /** The server answered with its time. */
  answered(now: Time): void {
    if (this.#clock === undefined && now > this.now) this.#setClock(now)
  }

  #setClock(now: Time): void {
    this.#now = now
    this.#at = this.#runtime.elapsed()
  }
}

/** What a prediction is made of. */
interface Source {
  readonly leased: LeasedJobs
  readonly lanes: LaneFinder
  readonly isOwnId: IsOwnId
  readonly seen: LastSeen
}

/**
 * Predicts the working set of a batch, if it depends on no stored row but those of leased jobs: lease holders settle, note and
 * renew them; jobs are added that wait for none or for each other. Undefined for any other batch.
 */
export function predict(batch: Batch, source: Source): Prediction | undefined {
  const { state } = source.seen
  if (state === undefined) return undefined
  const rows = new PredictedRows(source)
  for (const group of batch.groups) for (const change of group) if (!rows.foresee(change)) return undefined
  for (const { id, fence, lease } of batch.renewals) if (lease === 0 || !rows.isHeld(id, fence)) return undefined
  const { held, ended, ids, keys, queues } = rows
  if (rows.orders > MOST_ORDERS) return undefined
  const { fence, recording } = state
  const fixed = {
    ...{ edges: [], edgesOf: [], ends: [], reachable: [], taken: [], cells: [], bounds: [], backlogs: [] },
    ...{ groupBacklogs: [], orphans: [], busy: [], recording },
    keys: [...held.values()].flatMap(({ id, dedup }) => (dedup === undefined ? [] : [[dedup.key, id, null] as const])),
  }
  return {
    set: {
      now: source.seen.now,
      fixed,
      rows: { rows: [], leased: [], dependents: [] },
      extra: { fence, orders: [UNPLACED], turns: [], shared: [], waiting: [] },
      held: [...held.values()],
    },
    known: {
      ...{ fence, recording, queues: [...queues] },
      ...(held.size > 0 && { held: [...held.values()].map((job) => [job.id, job.fence] as const) }),
      ...(ended.size > 0 && { ended: [...ended] }),
      ...(ids.size > 0 && { ids: [...ids] }),
      ...(keys.size > 0 && { keys: [...keys] }),
    },
  }
}

/** The rows that the changes of a batch need, as far as they are known. */
class PredictedRows {
  readonly held = new Map<string, JobRecord>()
  readonly ended = new Set<string>()
  readonly ids = new Set<string>()
  readonly keys = new Set<string>()
  readonly queues = new Set<string>()
  orders = 0
  readonly #source: Source
  readonly #chains = new Set<string>()
  readonly #added = new Set<string>()

  constructor(source: Source) {
    this.#source = source
  }

  /** Whether a job is leased by this process under this fence. */
  isHeld(id: string, fence: number): boolean {
    if (this.held.has(id)) return true // the engine checks its fence
    const job = this.#source.leased.find(id, fence)
    // An order number as large as those that the server has yet to choose could not be distinguished from them.
    if (job === undefined || job.ord >= UNPLACED || job.ord < -UNPLACED) return false
    if (this.#source.lanes(job) === undefined) return false
    this.held.set(id, job)
    this.queues.add(job.queue)
    this.#chains.add(job.chainId)
    return true
  }

  /** Whether a change can be decided without its working set. */
  foresee(change: Change): boolean {
    switch (change.kind) {
      case 'insert':
        return this.#foreseeInsert(change)
      case 'move': {
        if (change.waitsFor !== undefined || change.reopens || change.closesBroken || change.reaps) return false
        if (!change.held && !this.held.has(change.id)) return false
        if (!this.isHeld(change.id, change.fence)) return false
        this.orders++
        return this.held.get(change.id)!.group === undefined || change.to === 'delayed' || change.to === 'completed'
      }
      case 'note':
        return (change.held || this.held.has(change.id)) && this.isHeld(change.id, change.fence)
      case 'release':
        if (!this.#chains.has(change.chain)) return false
        this.ended.add(change.chain)
        // A parent mostly waits for the chains of its children.
        return [...this.held.values()].every((job) => job.chainId !== change.chain || job.parentId === undefined)
      case 'put':
        return false
    }
  }

  #foreseeInsert({ job, edges }: Insert): boolean {
    if (job.group !== undefined || this.#source.lanes(job) === undefined) return false
    if (!edges.every(({ on }) => this.#added.has(on))) return false
    if (job.chainId !== job.id && !this.#chains.has(job.chainId)) return false
    if (!this.#source.isOwnId(job.id)) this.ids.add(job.id)
    if (job.dedup !== undefined) {
      if (this.keys.has(job.dedup.key)) return false
      this.keys.add(job.dedup.key)
    }
    this.orders++
    this.queues.add(job.queue)
    this.#added.add(job.id)
    this.#chains.add(job.chainId)
    return true
  }
}
