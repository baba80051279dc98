// upkeep/retention/sweep.ts: finds finished jobs of which nobody said how long they are kept, and has them removed when they are old.
import type { FinishedState, JobRecord, KeepByState, Millis, Time } from '../../job/job.js'
import { expired, isUnstamped } from '../../job/retention.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'
import type { Page } from '../../store/store.js'
import type { Retention } from './retention.js'

/** Jobs looked at in one read, and removed with it. */
const PAGE = 500
/** The least and the most between two looks. The more workers there are, the less often each looks. */
const LEAST: Millis = 60_000
const MOST: Millis = 600_000

const states: readonly FinishedState[] = ['completed', 'failed', 'cancelled']

/** What a sweep needs to know of its host. */
export interface SweepOptions {
  readonly connection: Connection
  readonly queues: readonly string[]
  readonly retention: Retention
  /** The store's time. */
  now(): Time
  others(): number
  failed(error: unknown): void
}

/**
 * Looks at the oldest finished jobs now and then. Jobs are found in the order in which they were added, and none has
 * finished before it was added: the first one too young ends the look. So it costs what there is to remove, and nothing
 * while jobs are added, run and end.
 */
export class Sweep {
  readonly #options: SweepOptions
  #timer: Stop | undefined
  #working: Promise<void> | undefined
  #stopped = false

  constructor(options: SweepOptions) {
    this.#options = options
  }

  /** Looks for the first time after a while, so that those who come and go do not. */
  start(): void {
    this.#schedule(0)
  }

  /** Looks no more; resolves when nothing is under way. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#timer?.()
    this.#timer = undefined
    await this.#working
  }

  #schedule(wait: Millis): void {
    if (this.#stopped) return
    const { connection, others } = this.#options
    const least = Math.min(MOST, LEAST * (1 + others())) * (0.75 + connection.runtime.random() / 2)
    this.#timer = connection.runtime.timer(Math.min(MOST, Math.max(least, wait)), () => {
      this.#working = this.#work().finally(() => (this.#working = undefined))
    })
  }

  async #work(): Promise<void> {
    let next = Infinity
    try {
      for (const queue of this.#options.queues) next = Math.min(next, await this.#queue(queue))
    } catch (error) {
      if (!this.#stopped) this.#options.failed(error)
    }
    this.#schedule(next - this.#options.now())
  }

  /** Answers when the next one may be old enough. */
  async #queue(queue: string): Promise<Time> {
    const rule = await this.#options.retention.rule(queue)
    let next = Infinity
    for (const state of states) {
      const age = rule?.[state]?.deleteAfter
      if (rule !== undefined && age !== undefined) next = Math.min(next, await this.#state(queue, state, age, rule))
    }
    return next
  }

  async #state(queue: string, state: FinishedState, age: Millis, rule: KeepByState): Promise<Time> {
    const { connection, retention } = this.#options
    const now = this.#options.now()
    const query = { queue, states: [state], kind: 'job', order: 'oldest' } as const
    const oldest: JobRecord | undefined = (await connection.store.find({ ...query, limit: 1 })).items[0]
    if (oldest === undefined || oldest.createdAt + age > now) return (oldest?.createdAt ?? now) + age
    for (let cursor: string | undefined; !this.#stopped;) {
      const from = cursor === undefined ? {} : { cursor }
      const page: Page<JobRecord> = await connection.store.find({ ...query, limit: PAGE, ...from })
      const old = page.items.filter((job) => isUnstamped(job) && expired(job, rule, now))
      if (old.length > 0) await retention.take(old, now, () => this.#stopped)
      cursor = page.cursor
      const last = page.items.at(-1)
      if (cursor === undefined || last === undefined) return now + age
      if (last.createdAt + age > now) return last.createdAt + age
    }
    return Infinity
  }
}
