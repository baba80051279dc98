// server/live/sampler.ts: what /v1/live sends: sampled once a second for all readers together, and not at all without any.
// It reads counters and heads of indexes, and watches no events, so that a dashboard costs production nothing.
import { describeError } from '../../job/errors/failure.js'
import type { JobState, Millis, Time } from '../../job/job.js'
import { boundsOf, readCell } from '../../job/limits.js'
import type { PauseCell } from '../../job/limits.js'
import { isReserved } from '../../job/values/names.js'
import type { Logger } from '../../queue/events/events.js'
import { healthOf, workersOf } from '../../queue/health/health.js'
import type { QueueHealth } from '../../queue/health/health.js'
import { liveEntries } from '../../queue/explain.js'
import { readHolds } from '../../queue/settings/holds.js'
import { runSteps } from '../../store/maybe-sync.js'
import { readCells } from '../../store/read-pages.js'
import { sessionFor } from '../../store/session.js'
import { WORKERS, cellKey } from '../../store/settings.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'
import type { Lifetime, QueueTally } from '../../store/tally.js'
import type { ServedQueues } from '../queues.js'
import { attentionOf } from './attention.js'
import type { Attention } from './attention.js'

/** A queue in a sample. */
export interface LiveQueue {
  readonly queue: string
  /** Jobs by state; states without jobs are left out. */
  readonly counts: Readonly<Partial<Record<JobState, number>>>
  /** Jobs added a second. */
  readonly in: number
  /** Jobs that ended a second. */
  readonly out: number
  /** Attempts that failed a second. */
  readonly failing: number
  readonly paused: boolean
  /** How long the oldest waiting job has waited, in milliseconds; absent: none waits, or that is not read of so many queues. */
  readonly oldestWaiting?: Millis
  /** Live workers, and the handlers that they run at a time. */
  readonly workers: number
  readonly slots: number
}

/** A worker in a sample: what changes of it. */
export interface LiveWorker {
  readonly id: string
  readonly queues: readonly string[]
  readonly state: 'running' | 'paused' | 'stopping'
  readonly slots: number
  readonly running: number
}

/** What was sampled at one moment. */
export interface Sample {
  /** By the store's clock, as it was when heads were last read. */
  readonly at: Time
  /** Its number: those after it are newer. */
  readonly number: number
  readonly queues: readonly LiveQueue[]
  readonly workers: readonly LiveWorker[]
  readonly attention: readonly Attention[]
}

const EVERY: Millis = 1_000
/** Heads, pauses and workers are read with every so many samples. */
const HEADS_EVERY = 5
/** The most queues whose heads are read. */
const MOST_HEADS = 500
/** Over how many samples rates are averaged. */
const AVERAGED = 5
/** How often, and for how long, failures are remembered. */
const FAILURES_EVERY: Millis = 30_000
const FAILURES_KEPT: Millis = 600_000

interface Counted {
  readonly at: Millis
  readonly lifetimes: ReadonlyMap<string, Lifetime>
}

type Listener = (sample: Sample) => void

/** Samples all queues while anybody listens. */
export class LiveSampler {
  readonly #connection: Connection
  readonly #queues: Pick<ServedQueues, 'names'>
  readonly #logger: Logger
  readonly #listeners = new Set<Listener>()
  #timer: Stop | undefined
  #sampling = false
  #number = 0
  #last: Sample | undefined
  /** The last samples, the oldest first, for rates; and some of the last minutes, for failures. */
  #counted: Counted[] = []
  #failures: Counted[] = []
  #health: ReadonlyMap<string, QueueHealth> = new Map()
  #workers: readonly LiveWorker[] = []

  constructor(connection: Connection, queues: Pick<ServedQueues, 'names'>, logger: Logger) {
    this.#connection = connection
    this.#queues = queues
    this.#logger = logger
  }

  /** How many listen. */
  get readers(): number {
    return this.#listeners.size
  }

  /** How many samples were taken. */
  get samples(): number {
    return this.#number
  }

  /** Calls the listener with each sample, the last one at once; until it is stopped. */
  listen(listener: Listener): Stop {
    this.#listeners.add(listener)
    if (this.#listeners.size === 1) void this.#sample()
    else if (this.#last !== undefined) listener(this.#last)
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size > 0) return
      this.#timer?.()
      this.#timer = undefined
      // What was sampled before a pause of unknown length says nothing about rates after it.
      this.#last = undefined
      this.#counted = []
      this.#failures = []
    }
  }

  /** The last sample, or a new one where there is none. */
  async current(): Promise<Sample> {
    return this.#last ?? this.#read()
  }

  async #sample(): Promise<void> {
    if (this.#sampling) return
    this.#sampling = true
    try {
      const sample = await this.#read()
      this.#last = sample
      for (const listener of [...this.#listeners]) listener(sample)
    } catch (error) {
      this.#logger.warn({ error: describeError(error) }, 'The queues could not be sampled; trying again.')
    } finally {
      this.#sampling = false
      if (this.#listeners.size > 0) {
        this.#timer?.()
        this.#timer = this.#connection.runtime.timer(EVERY, () => void this.#sample(), true)
      }
    }
  }

  async #read(): Promise<Sample> {
    const { store, ready, runtime } = this.#connection
    await ready()
    const tallies = (await store.tally(this.#queues.names)).filter(({ queue }) => !isReserved(queue))
    const number = ++this.#number
    if (this.#last === undefined || number % HEADS_EVERY === 0) await this.#readHeads(tallies)
    const now: Counted = {
      at: runtime.elapsed(),
      lifetimes: new Map(tallies.map(({ queue, lifetime }) => [queue, lifetime])),
    }
    this.#counted = [...this.#counted.slice(-AVERAGED), now]
    const kept = this.#failures.filter(({ at }) => now.at - at <= FAILURES_KEPT)
    const newest = kept.at(-1)
    this.#failures = newest === undefined || now.at - newest.at >= FAILURES_EVERY ? [...kept, now] : kept
    return {
      at: runtime.now(),
      number,
      queues: tallies.map((tally) => this.#queueOf(tally, now)),
      workers: this.#workers,
      attention: [...this.#health.values()].flatMap((health) => attentionOf(health, this.#failed(health.queue, now))),
    }
  }

  /** Reads what stands first in the indexes, pauses, limits and workers. */
  async #readHeads(tallies: readonly QueueTally[]): Promise<void> {
    const { store, runtime } = this.#connection
    const names = tallies.slice(0, MOST_HEADS).map(({ queue }) => queue)
    if (names.length === 0) return
    const keys = names.flatMap((queue) => [cellKey.pause(queue), cellKey.limit(queue)])
    const [withHeads, cells] = await Promise.all([
      store.tally(names, undefined, { heads: true }),
      runSteps(readCells(sessionFor(this.#connection)(), WORKERS, { cells: keys })),
    ])
    const values = new Map(cells.map(({ key, value }) => [key, value]))
    const now = withHeads.find(({ heads }) => heads !== undefined)?.heads?.now ?? runtime.now()
    this.#health = new Map(
      withHeads.map((tally) => {
        const { queue } = tally
        const pause = values.get(cellKey.pause(queue))
        const bounds = boundsOf(pause, values.get(cellKey.limit(queue)))
        const holds = readHolds(readCell<PauseCell>(pause), now)
        const workers = workersOf(cells, queue, now)
        return [queue, healthOf({ queue, declared: [], now, tally, bounds, holds, workers, lastMinute: undefined })]
      }),
    )
    const entries = liveEntries(
      cells.filter(({ key }) => key.startsWith(WORKERS)),
      now,
    )
    this.#workers = entries.map(({ worker: { id, queues, state, slots = 0, running = 0 } }) => {
      return { id, queues, state, slots, running }
    })
  }

  #queueOf({ queue, names, lifetime }: QueueTally, now: Counted): LiveQueue {
    const counts: Partial<Record<JobState, number>> = {}
    for (const states of Object.values(names)) {
      for (const [state, count] of Object.entries(states) as [JobState, number][]) {
        if (count > 0) counts[state] = (counts[state] ?? 0) + count
      }
    }
    const health = this.#health.get(queue)
    const first = this.#counted[0]!
    const before = first.lifetimes.get(queue)
    const seconds = (now.at - first.at) / 1000
    const rate = (of: (lifetime: Lifetime) => number): number => {
      return before === undefined || seconds <= 0 ? 0 : Math.round(((of(lifetime) - of(before)) / seconds) * 10) / 10
    }
    return {
      queue,
      counts,
      in: rate(({ added }) => added),
      out: rate(({ completed, failed, cancelled }) => completed + failed + cancelled),
      failing: rate(({ failed, retried }) => failed + retried),
      paused: health?.paused ?? false,
      ...(health?.oldestWaiting !== undefined && { oldestWaiting: health.oldestWaiting }),
      workers: health?.workers ?? 0,
      slots: health?.slots ?? 0,
    }
  }

  #failed(queue: string, now: Counted): { readonly failed: number; readonly within: Millis } | undefined {
    const first = this.#failures[0]
    const before = first?.lifetimes.get(queue)
    const after = now.lifetimes.get(queue)
    if (first === undefined || before === undefined || after === undefined) return undefined
    return { failed: after.failed - before.failed, within: Math.max(1_000, now.at - first.at) }
  }
}
