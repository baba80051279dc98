// upkeep/retention/keep-last.ts: keeps the newest finished jobs of a name, where `removeOnComplete` or `removeOnFail` of
// its jobs gives a count, and removes the others.
import type { FinishedState, JobHeader, JobRecord, Millis } from '../../job/job.js'
import { isContinuation } from '../../job/moves.js'
import { countOf, mayMakeRoom, removeFamily } from '../../job/retention.js'
import { endsChain } from '../../queue/flows/chain-ends.js'
import type { Connection } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import { PAGE_SIZE } from '../../store/read-pages.js'
import type { Stop } from '../../store/runtime.js'
import { linksOf } from './families.js'

/** The wait before a round, so that one round serves many jobs. */
const ROUND_AFTER: Millis = 1_000
/** The most pages of one name that a round reads. The next round continues. */
const MAX_PAGES = 10
/** How long it is remembered that the oldest jobs of a name have no such rule, and are not looked at again. */
const REMEMBER: Millis = 3_600_000

/** The finished jobs of one queue, name and state, of which `count` are kept. */
interface Lane {
  readonly queue: string
  readonly name: string
  readonly state: FinishedState
  count: number
  /** The jobs up to here have no such rule; so many they were. */
  cursor: string | undefined
  passed: number
  since: Millis
  /** Where the last round stopped although there was more; the next one continues there. */
  stopped: Position | undefined
}

/** What is read of a job that has ended. */
type LaneJob = Pick<JobHeader, 'queue' | 'name' | 'keep'>

/** A place among the finished jobs of a lane, and how many jobs that stay are before it. */
interface Position {
  readonly cursor: string | undefined
  readonly passed: number
}

/**
 * Removes the oldest finished jobs of a name when there are more than its newest job allows. The settlement of such a job
 * notes its lane, and a round compares the store's count of that lane with the rule: it reads only jobs that are too
 * many, oldest first, and a name without such jobs costs nothing.
 */
export class KeepLast {
  readonly #connection: Connection
  readonly #failed: (error: unknown) => void
  readonly #lanes = new Map<string, Lane>()
  /** The lanes in which a job ended since the last round. */
  #noted = new Set<Lane>()
  #timer: Stop | undefined
  #working: Promise<void> | undefined
  #stopped = false

  /** `failed` is called if the store fails. */
  constructor(connection: Connection, failed: (error: unknown) => void) {
    this.#connection = connection
    this.#failed = failed
  }

  /** A job has ended. */
  ended(job: LaneJob, state: FinishedState): void {
    if (this.#connection.store.can.upkeep === 'elsewhere') return
    const count = countOf(job, state)
    if (count === undefined) return
    const { queue, name } = job
    const key = JSON.stringify([queue, name, state])
    let lane = this.#lanes.get(key)
    if (lane === undefined) {
      lane = {
        queue,
        name,
        state,
        count,
        cursor: undefined,
        passed: 0,
        since: this.#connection.runtime.elapsed(),
        stopped: undefined,
      }
      this.#lanes.set(key, lane)
    }
    lane.count = count
    this.#note(lane)
  }

  /** Ends with a last round, if one is pending: a worker that runs for a short time must not leave it to others. */
  async stop(): Promise<void> {
    if (this.#stopped) return this.#working
    this.#stopped = true
    const pending = this.#timer !== undefined
    this.#timer?.()
    await this.#working
    if (pending) await this.#round()
  }

  #note(lane: Lane): void {
    this.#noted.add(lane)
    if (this.#timer !== undefined || this.#working !== undefined || this.#stopped) return
    this.#timer = this.#connection.runtime.timer(ROUND_AFTER, () => {
      this.#timer = undefined
      this.#working = this.#round().finally(() => {
        this.#working = undefined
        const [next] = this.#noted
        if (next !== undefined) this.#note(next)
      })
    })
  }

  async #round(): Promise<void> {
    const lanes = [...this.#noted]
    this.#noted = new Set()
    for (const lane of lanes) {
      try {
        if (await this.#trim(lane)) this.#noted.add(lane)
      } catch (error) {
        this.#noted.add(lane)
        if (!this.#stopped) this.#failed(error)
      }
    }
  }

  /** Removes the jobs of a lane that are too many, oldest first; returns whether there may be more. */
  async #trim(lane: Lane): Promise<boolean> {
    const { store, runtime } = this.#connection
    const { queue, name, state } = lane
    const query = { queue, names: [name], states: [state], kind: 'job', order: 'oldest' } as const
    let excess = await this.#excess(lane)
    if (excess < lane.passed || runtime.elapsed() - lane.since > REMEMBER) {
      Object.assign(lane, { cursor: undefined, passed: 0, since: runtime.elapsed(), stopped: undefined })
    }
    let { cursor, passed }: Position = lane.stopped ?? lane
    let leading = lane.stopped === undefined
    lane.stopped = undefined
    for (let page = 0; excess > passed; page++) {
      if (page === MAX_PAGES) {
        lane.stopped = { cursor, passed }
        return true
      }
      const limit = Math.min(excess - passed, PAGE_SIZE)
      const found = await store.find({ ...query, ...(cursor !== undefined && { cursor }), limit })
      // Counted after the jobs were read: if other workers removed some meanwhile, fewer are too many, and none is
      // removed in place of those.
      excess = await this.#excess(lane)
      const oldest = found.items.slice(0, Math.max(0, excess - passed))
      const removed = await this.#remove(oldest)
      passed += oldest.length - removed
      excess -= removed
      cursor = found.cursor
      if (cursor === undefined || oldest.length < found.items.length) return false
      leading &&= oldest.every((job) => countOf(job, state) === undefined)
      if (leading) Object.assign(lane, { cursor, passed })
    }
    return false
  }

  /** How many more finished jobs there are than are kept. */
  async #excess({ queue, name, state, count }: Lane): Promise<number> {
    const [tally] = await this.#connection.store.tally([queue])
    return (tally?.names[name]?.[state] ?? 0) - count
  }

  /** Removes those that have such a rule themselves; returns how many are gone. */
  async #remove(jobs: readonly JobRecord[]): Promise<number> {
    const { store, main, runtime } = this.#connection
    const now = runtime.now()
    const going = jobs.filter((job) => mayMakeRoom(job, now))
    const later = going.filter(isContinuation)
    const linked = later.length === 0 ? undefined : (await linksOf(store, later)).linked
    const removed = await Promise.all(
      going.map(async (job) => {
        if (linked?.has(job.id) === true && (await runSteps(endsChain(store, job)))) return false
        const verdict = await main.tryCommit(removeFamily([job]))
        return verdict.ok || verdict.why === 'missing'
      }),
    )
    return removed.filter(Boolean).length
  }
}
