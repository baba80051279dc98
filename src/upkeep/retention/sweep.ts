// upkeep/retention/sweep.ts: finds and removes old finished jobs that carry no retention rule.
import { finishedStates } from '../../job/job.js'
import type { FinishedState, JobRecord, KeepByState, Millis, Time } from '../../job/job.js'
import { expired, isUnstamped } from '../../job/retention.js'
import type { Connection } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import { expireSeries, foldSeries } from '../../store/series/series-cells.js'
import { pages } from '../../store/read-pages.js'
import { poll } from '../../store/runtime.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreClock } from '../store-clock.js'
import type { Retention } from './retention.js'

/** The shortest and the longest time between two sweeps. The more workers there are, the less often each one sweeps. */
const MIN_INTERVAL: Millis = 60_000
const MAX_INTERVAL: Millis = 600_000

/** The parts of upkeep that a sweep uses. */
export interface SweepParts {
  readonly connection: Connection
  readonly queues: readonly string[]
  readonly registry: { readonly others: number }
  readonly errors: { report(error: unknown): void }
}

/**
 * Reads the oldest finished jobs from time to time. The store returns jobs in the order in which they were added, and
 * no job finishes before it is added, so the first one that is too young ends the sweep. The cost is proportional to
 * the jobs removed, and jobs pay nothing when they are added, run or settled.
 */
export class Sweep {
  readonly #parts: SweepParts
  readonly #retention: Retention
  readonly #clock: StoreClock
  #timer: Stop | undefined
  #working: Promise<void> | undefined
  #stopped = false

  constructor(parts: SweepParts, retention: Retention, clock: StoreClock) {
    this.#parts = parts
    this.#retention = retention
    this.#clock = clock
  }

  /** Schedules the first sweep after a while, so that short-lived workers never sweep. */
  start(): void {
    this.#schedule(0)
  }

  /** Stops sweeping; resolves when no sweep is in progress. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#timer?.()
    this.#timer = undefined
    await this.#working
  }

  #schedule(wait: Millis): void {
    if (this.#stopped) return
    const { connection, registry } = this.#parts
    const least =
      Math.min(MAX_INTERVAL, MIN_INTERVAL * (1 + registry.others)) * (0.75 + connection.runtime.random() / 2)
    const needed = Math.max(least, wait)
    const delay = Math.min(MAX_INTERVAL, needed)
    const sweep = (): void => {
      this.#working = this.#sweep().finally(() => (this.#working = undefined))
    }
    this.#timer = poll(connection.runtime, delay, sweep, () => needed - delay)
  }

  async #sweep(): Promise<void> {
    let next = Infinity
    try {
      for (const queue of this.#parts.queues) {
        await this.#sweepSeries(queue)
        next = Math.min(next, await this.#sweepQueue(queue))
      }
    } catch (error) {
      if (!this.#stopped) this.#parts.errors.report(error)
    }
    this.#schedule(next - this.#clock.now())
  }

  /** Folds counts that processes have left behind, and removes old rows. */
  async #sweepSeries(queue: string): Promise<void> {
    const { store, series, renewals } = this.#parts.connection
    const keep = series.kept(queue)
    if (keep === false) return
    const cells = {
      details: store.details.bind(store),
      commit: renewals.commit.bind(renewals),
    }
    await foldSeries(cells, queue)
    await expireSeries(cells, queue, keep, this.#clock.now())
  }

  /** Returns when the next job may be old enough. */
  async #sweepQueue(queue: string): Promise<Time> {
    const rule = await this.#retention.rule(queue)
    let next = Infinity
    for (const state of finishedStates) {
      const age = rule?.[state]?.deleteAfter
      if (rule !== undefined && age !== undefined)
        next = Math.min(next, await this.#sweepState(queue, state, age, rule))
    }
    return next
  }

  async #sweepState(queue: string, state: FinishedState, age: Millis, rule: KeepByState): Promise<Time> {
    const { connection } = this.#parts
    const now = this.#clock.now()
    const query = { queue, states: [state], kind: 'job', order: 'oldest' } as const
    const oldest: JobRecord | undefined = (await connection.store.find({ ...query, limit: 1 })).items[0]
    if (oldest === undefined || oldest.createdAt + age > now) return (oldest?.createdAt ?? now) + age
    let last: JobRecord | undefined
    for (const page of pages(connection.store, query)) {
      if (last !== undefined && last.createdAt + age > now) return last.createdAt + age
      if (this.#stopped) return Infinity
      const jobs = await runSteps(page)
      const old = jobs.filter((job) => isUnstamped(job) && expired(job, rule, now))
      if (old.length > 0) await this.#retention.removeUnstamped(old, now, () => this.#stopped)
      last = jobs.at(-1)
    }
    return now + age
  }
}
