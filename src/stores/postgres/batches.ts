// stores/postgres/batches.ts: sends batches: by a fast path, over a predicted working set, or over the working set itself.
import type { JobRecord, Time } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Batch, Receipt, Tx } from '../../store/store.js'
import type { SettingsCache } from '../job-settings.js'
import type { FunctionName } from './calls.js'
import type { ClaimCursors } from './claim-cursors.js'
import { answerOf } from './decode.js'
import type { Value } from './drivers/driver.js'
import { commitByEngine, commitPredicted, NONE } from './engine/decide.js'
import type { Applied, EngineSource } from './engine/decide.js'
import { requestFor } from './engine/working-set.js'
import { encoded, isTransient, LANE_LOST, refuseTooLarge, sqlStateOf, writerBehind } from './errors.js'
import { claimBody } from './fast-claim.js'
import { LastSeen, predict } from './fast-commit.js'
import { FastPaths } from './fast-paths.js'
import type { FindNames, LaneIds } from './lane-ids.js'
import { LeasedJobs } from './leased-jobs.js'
import { lanesUsed, newLanes } from './lanes.js'
import type { LaneFinder } from './lanes.js'
import { OwnIds } from './own-ids.js'
import type { IsOwnId } from './own-ids.js'

/** How often a batch is sent at once before a lock timeout, a deadlock or a lost lane is reported. */
const TRIES = 3

/** What sending batches needs of the store. */
export interface BatchSource {
  /** The id of this process. */
  readonly origin: string
  readonly runtime: Runtime
  readonly lanes: LaneIds
  readonly claimCursors: ClaimCursors
  readonly settings: SettingsCache
  /** The clock in place of the server's, if the store was given one. */
  readonly clock: (() => Time) | undefined
  call(name: FunctionName, values: readonly Value[], tx?: Tx): Promise<string | null>
  /** Looks up the names of lanes, as a transaction sees them. */
  names(ids: Parameters<FindNames>[0], tx: Tx): ReturnType<FindNames>
  /** Calls `working_set` and `commit` in one transaction, as `EngineSource.exchange` does. */
  exchange: EngineSource['exchange']
}

/** Sends the batches of one process. */
export class Batches {
  readonly seen: LastSeen
  readonly #source: BatchSource
  readonly #fastPaths: FastPaths
  readonly #ownIds = new OwnIds()
  readonly #leased = new LeasedJobs()

  constructor(source: BatchSource) {
    this.#source = source
    this.#fastPaths = new FastPaths(source.origin, (ask) => source.claimCursors.of(ask))
    this.seen = new LastSeen(source.runtime, source.clock)
  }

  /** Remembers and returns a newly generated id. */
  keepId(id: string): string {
    return this.#ownIds.keep(id)
  }

  /** Remembers the jobs that a receipt leases to this process. */
  leased({ asks }: Pick<Receipt, 'asks'>): void {
    for (const jobs of asks) for (const job of jobs) this.#leased.add(job)
  }

  /** Sends a batch; retries it after a lock timeout, a deadlock or a lost lane. */
  async send(batch: Batch): Promise<Applied> {
    refuseTooLarge(batch.groups)
    const isOwnId = this.#ownIds.take(batch)
    for (let tries = 1; ; tries++) {
      try {
        const applied = await this.#apply(batch, isOwnId)
        this.#fastPaths.answered(batch)
        this.#leased.forgetMoved(batch)
        this.seen.answered(applied.answer.now)
        return applied
      } catch (error) {
        const { cause } = error as { cause?: unknown }
        if (sqlStateOf(cause ?? error) === 'MR004') throw writerBehind(batch, cause ?? error)
        if (tries >= TRIES) throw error
        if (sqlStateOf(cause ?? error) === LANE_LOST) {
          this.#forgetLanes()
          await this.#source.lanes.know(newLanes(batch))
        } else if (!isTransient(cause)) throw error
      }
    }
  }

  /** Sends the groups of a batch in a user transaction of the store with this id. */
  async sendWithin(batch: Batch, tx: Tx, store: string): Promise<Applied> {
    refuseTooLarge(batch.groups)
    const lanes = await this.#source.lanes.within(tx, newLanes(batch))
    const head = { tx: true, store, lanes: lanesUsed(batch, lanes), ...this.#time() }
    const request = requestFor(batch, lanes, this.#ownIds.take(batch), undefined)
    return commitByEngine(batch, request, head, [], this.#engineSource(lanes, tx)).catch((error: unknown) => {
      if (sqlStateOf(error) === LANE_LOST) this.#forgetLanes()
      throw error
    })
  }

  /** Applies a batch by a fast path, or else by the engine. */
  async #apply(batch: Batch, isOwnId: IsOwnId): Promise<Applied> {
    const lanes = this.#source.lanes.find
    const now = this.#source.clock?.() ?? null
    const fast = await this.#fastPaths.send(batch, { lanes, isOwnId, now }, ({ name, values }) =>
      this.#source.call(name, values),
    )
    if (typeof fast === 'string') return { answer: answerOf(fast), unread: NONE }
    const { writer, seq, groups, renewals, asks } = batch
    const head = { w: writer, q: seq, o: this.#source.origin, lanes: lanesUsed(batch, lanes), ...this.#time() }
    const claims = asks.map((ask) => claimBody(ask, this.#source.claimCursors.of(ask)))
    if (groups.length + renewals.length === 0) {
      return { answer: answerOf((await this.#call('commit', { ...head, a: claims }))!), unread: NONE }
    }
    const source = this.#engineSource(lanes)
    const mayPredict = fast === undefined
    const predicted = mayPredict ? predict(batch, { leased: this.#leased, lanes, isOwnId, seen: this.seen }) : undefined
    if (predicted !== undefined) {
      const applied = await this.#fastPaths.tryPredicted(() =>
        commitPredicted(batch, predicted, head, claims, source, (body) => this.#call('fast_commit', body)),
      )
      if (applied !== undefined) return applied
    }
    return commitByEngine(batch, requestFor(batch, lanes, isOwnId, source.leased), head, claims, source)
  }

  #time(): { readonly now?: Time } {
    const { clock } = this.#source
    return clock === undefined ? {} : { now: clock() }
  }

  #call(name: FunctionName, body: object, tx?: Tx): Promise<string | null> {
    return this.#source.call(name, [encoded(() => JSON.stringify(body))], tx)
  }

  /** What the engine needs, in a user transaction if one is given. */
  #engineSource(lanes: LaneFinder, tx?: Tx): EngineSource {
    const { settings, lanes: known, names, exchange } = this.#source
    const found = new Map<string, JobRecord>()
    return {
      ...{ lanes, settings, lane: known.lane },
      // What was found once stays known for this batch, although another batch may end the lease meanwhile.
      leased: (id, fence) => {
        const job = found.get(id) ?? this.#leased.find(id, fence)
        if (job !== undefined) found.set(id, job)
        return job
      },
      loaded: (set) => this.seen.loaded(set),
      recognise: (ids, find) => known.recognise(ids, find),
      exchange: async (body, decide) => {
        if (tx === undefined) return exchange(body, decide)
        const answer = (await this.#call('working_set', body, tx))!
        const decided = await decide(answer, (ids) => names(ids, tx))
        return decided === undefined ? answer : (await this.#call('commit', decided, tx))!
      },
    }
  }

  /** Clears what is cached about lanes, because some no longer exist: a failover has lost the last commits. */
  #forgetLanes(): void {
    this.#source.lanes.forget()
    this.#source.claimCursors.drop()
  }
}
