// stores/postgres/lane-ids.ts: caches the ids of lanes, which never change. A failover may lose lanes; then a commit
// fails with LANE_LOST, and the cache is cleared.
import type { Millis } from '../../job/job.js'
import type { Tx } from '../../store/store.js'
import { BoundedCache } from '../bounded-cache.js'
import { isSameLane } from './lanes.js'
import type { LaneFinder, LaneRef, LaneFields } from './lanes.js'
import type { Lane } from './rows.js'

/** What identifies a lane; `shared` lanes are for jobs with a group. */
type LaneKey = readonly [queue: string, name: string, version: number, shared: boolean]

/** What the cache needs of the database. */
export interface LaneSource {
  /** The ids of lanes and their queues, created if missing; `null` for a lane that another transaction is creating. */
  make(lanes: readonly LaneKey[]): Promise<readonly (readonly [number, number] | null)[]>
  /** The ids of lanes that exist, as a transaction sees them. */
  look(lanes: readonly LaneKey[], tx: Tx): Promise<readonly (readonly [number, number] | null)[]>
  pause(delay: Millis): Promise<void>
  names(ids: readonly number[]): Promise<readonly LaneName[]>
}

/** A lane by its id: its queue, name and version, the id of its queue, and whether it is for jobs with a group. */
export type LaneName = readonly [
  id: number,
  queue: string,
  name: string,
  version: number,
  queueId: number,
  shared: boolean,
]

/** Looks up lanes by their ids. */
export type FindNames = LaneSource['names']

/** How often to request a lane that another process may be creating; more often in a user transaction: no one retries it. */
const TRIES = 2
const TRIES_WITHIN = 8

/** The lanes that this process knows; those used last. */
export class LaneIds {
  readonly #source: LaneSource
  readonly #refs = new BoundedCache<string, LaneRef>()
  readonly #lanes = new BoundedCache<number, Lane>()
  /** The lane found last: many jobs of one lane are mostly added together. */
  #recent: (LaneFields & { readonly ref: LaneRef }) | undefined
  /** The last `#make` call that was started: they run one after another, so that this process does not block itself. */
  #making: Promise<void> = Promise.resolve()
  readonly #queues = new BoundedCache<string, true>()

  constructor(source: LaneSource) {
    this.#source = source
  }

  /** The queues that this process uses. */
  get queues(): readonly string[] {
    return this.#queues.keys()
  }

  /** Notes that this process uses these queues. */
  useQueues(queues: readonly string[]): void {
    this.#queues.trim()
    for (const queue of queues) this.#queues.set(queue, true)
  }

  /** Looks up the lanes of jobs that are not cached yet; does not wait for a transaction that is creating one. */
  async know(jobs: readonly LaneFields[]): Promise<void> {
    for (let tries = 0; tries < TRIES && this.#unknown(jobs).length > 0; tries++) {
      const made = this.#making.then(() => this.#make(this.#unknown(jobs)))
      this.#making = made.catch(() => {})
      await made
    }
  }

  async #make(wanted: readonly LaneFields[]): Promise<void> {
    if (wanted.length === 0) return
    this.#trim()
    const made = await this.#source.make(wanted.map(laneKeyOf))
    for (const [at, job] of wanted.entries()) {
      const { queue, name, version } = job
      const ids = made[at]
      if (ids === null || ids === undefined) continue
      this.#refs.set(keyOf(job), { lane: ids[0], queue: ids[1] })
      this.#keep({ id: ids[0], queue, name, version })
    }
  }

  #unknown(jobs: readonly LaneFields[]): readonly LaneFields[] {
    const unknown = new Map<string, LaneFields>()
    for (const job of jobs) if (this.#refs.get(keyOf(job)) === undefined) unknown.set(keyOf(job), job)
    return [...unknown.values()]
  }

  /** Finds lanes as a transaction sees them. A lane that the transaction has created is not cached yet. */
  async within(tx: Tx, jobs: readonly LaneFields[]): Promise<LaneFinder> {
    const own = new Map<string, LaneRef>()
    for (let tries = 0; tries < TRIES_WITHIN; tries++) {
      await this.know(jobs)
      const unknown = this.#unknown(jobs)
      if (unknown.length === 0) return this.find
      const seen = await this.#source.look(unknown.map(laneKeyOf), tx)
      for (const [at, job] of unknown.entries()) {
        const ids = seen[at]
        if (ids) own.set(keyOf(job), { lane: ids[0], queue: ids[1] })
      }
      if (unknown.every((job) => own.has(keyOf(job)))) break
      await this.#source.pause(2 ** tries)
    }
    return (job) => this.find(job) ?? own.get(keyOf(job))
  }

  /** Looks up the names of lanes that are not cached yet; by `names`, as a transaction sees them: it may have created some. */
  async recognise(ids: ReadonlySet<number>, names?: FindNames): Promise<void> {
    const unknown = [...ids].filter((id) => this.#lanes.get(id) === undefined)
    if (unknown.length === 0) return
    this.#trim()
    for (const [id, queue, name, version, queueId, shared] of await (names ?? this.#source.names)(unknown)) {
      this.#keep({ id, queue, name, version })
      if (names !== undefined) continue
      this.#refs.set(keyOf({ queue, name, version, group: shared ? '' : undefined }), { lane: id, queue: queueId })
    }
  }

  /** Clears the cached ids, because some lanes no longer exist. The names by id are kept, since no id is assigned twice. */
  forget(): void {
    this.#refs.clear()
    this.#recent = undefined
  }

  /** The ids of a job's lane, if it is cached. */
  readonly find = (job: LaneFields): LaneRef | undefined => {
    const recent = this.#recent
    if (recent !== undefined && isSameLane(recent, job)) return recent.ref
    const ref = this.#refs.get(keyOf(job))
    if (ref !== undefined) this.#recent = { ...pick(job), ref }
    return ref
  }

  /** The lane of a cached id. */
  readonly lane = (id: number): Lane => this.#lanes.get(id)!

  #keep(lane: Lane): void {
    this.#lanes.set(lane.id, lane)
    this.#queues.set(lane.queue, true)
  }

  /** Before a look-up and not after it, so that the lanes of one batch are all kept, however many they are. */
  #trim(): void {
    this.#refs.trim()
    this.#lanes.trim()
    this.#queues.trim()
  }
}

function laneKeyOf({ queue, name, version, group }: LaneFields): LaneKey {
  return [queue, name, version, group !== undefined]
}

function pick({ queue, name, version, group }: LaneFields): LaneFields {
  return { queue, name, version, group }
}

function keyOf({ queue, name, version, group }: LaneFields): string {
  return `${version} ${group === undefined ? '' : '+'}${queue.length} ${queue}${name}`
}
