// queue/health/queue-health.ts: the methods of a queue that show how it does.
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis, Time } from '../../job/job.js'
import { mustBe } from '../../job/values/options.js'
import { boundsOf } from '../../job/limits.js'
import { storeTime } from '../../store/connection.js'
import { runSteps, step } from '../../store/maybe-sync.js'
import { readCells } from '../../store/read-pages.js'
import { markPut } from '../../store/series/series-cells.js'
import type { SeriesMark } from '../../store/series/series-cells.js'
import { WORKERS, cellKey } from '../../store/settings.js'
import type { Store } from '../../store/store.js'
import type { Lifetime } from '../../store/tally.js'
import { refuseInside } from '../../store/transaction-context.js'
import type { JobDefinitions, NameOf } from '../define.js'
import { QueueSettings } from '../settings/queue-settings.js'
import type { TransactionArgument } from '../transactions.js'
import { healthOf, readHealth, workersOf } from './health.js'
import type { QueueHealth, WorkerInfo } from './health.js'
import { checkMark, parseSeries, readSeries } from './series.js'
import type { Series, SeriesOptions } from './series.js'

/** What is paused in a queue. */
export interface Paused {
  /** Whether the whole queue is. */
  readonly queue: boolean
  /** Single names that are. */
  readonly names: readonly string[]
}

/** How the store answers. */
export interface Ping {
  /** The kind of store: `memory`, `sqlite`, `postgres`. */
  readonly store: string
  /** How long one read took, in milliseconds. */
  readonly took: Millis
  /** The store's time. */
  readonly at: Time
}

/** The part of a queue that shows how it does. */
export abstract class QueueWithHealth<Jobs extends JobDefinitions, S extends Store> extends QueueSettings<Jobs, S> {
  /**
   * How the queue and its names do: how late they are, what holds them back, who works on them, and what happened in the
   * last minute. Read from the heads of indexes and from counters, so that the cost does not depend on the number of
   * jobs.
   */
  async health(): Promise<QueueHealth<NameOf<Jobs>>> {
    const { connection, declared } = this.reading()
    const { series, runtime } = connection
    const scope = this.scope(undefined, 'queue.health')
    if (!scope.session.within) await series.flush()
    const about = { queue: scope.queue, declared, series: series.kept(scope.queue) !== false, now: runtime.now }
    return healthOf(await runSteps(readHealth(scope.session, about)))
  }

  /** The live workers that claim from the queue, in all processes, as they were when they last wrote their entries. */
  async workers(): Promise<readonly WorkerInfo[]> {
    const { connection } = this.reading()
    const { queue, session } = this.scope(undefined, 'queue.workers')
    const now = await storeTime(connection, session.within)
    return workersOf(await runSteps(readCells(session, WORKERS)), queue, now)
  }

  /** What is paused: the whole queue, or single names. */
  paused(...options: TransactionArgument<S>): Promise<Paused> {
    return this.run(options[0], 'queue.paused', function* ({ queue, session }) {
      const { cells } = yield* step(session.details({ cells: [cellKey.pause(queue)] }))
      const { paused, pausedNames } = boundsOf(cells[0]?.value, undefined)
      return { queue: paused, names: [...pausedNames] }
    })
  }

  /** How often each thing has happened since the queue was created. Removed jobs still count. */
  totals(...options: TransactionArgument<S>): Promise<Lifetime> {
    return this.run(options[0], 'queue.totals', function* ({ queue, session }) {
      const [tally] = yield* step(session.tally(queue))
      return tally?.lifetime ?? { added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0 }
    })
  }

  /**
   * Adds an index of the values in data and results, or drops it, while everything else goes on: with it, `list` with
   * `search` finds every job. Resolves when that is done. Every change of a job then writes this index as well. Only on
   * PostgreSQL, by the owner of its tables; on other stores: `NO_SEARCH_INDEX`.
   */
  async searchIndex(wanted: boolean): Promise<void> {
    const { connection } = this.reading()
    const { store } = connection
    if (typeof wanted !== 'boolean') throw mustBe('queue.searchIndex: the argument', 'true or false', wanted)
    refuseInside(store, 'queue.searchIndex()')
    const { queue } = this.scope(undefined, 'queue.searchIndex')
    if (store.indexValues === undefined) {
      throw new MillraceError(
        'NO_SEARCH_INDEX',
        `The store '${store.name}' has no index of values. A search reads job by job there, the newest 100,000; find jobs by tags, or store them in PostgreSQL.`,
      )
    }
    await connection.ready()
    await store.indexValues(queue, wanted)
  }

  /** Reads once from the store; rejects with its error if it does not answer. */
  async ping(): Promise<Ping> {
    const { connection } = this.reading()
    const { runtime, store } = connection
    refuseInside(store, 'queue.ping()')
    await connection.ready()
    const began = runtime.elapsed()
    await store.details({ cells: [cellKey.pause(this.scope(undefined, 'queue.ping').queue)] })
    const took = runtime.elapsed() - began
    return { store: store.name, took, at: await storeTime(connection, false) }
  }

  /**
   * What was counted over time: jobs added, completed, failed, retried, stalled and cancelled, and how long they waited
   * and ran. Default: the last hour by the minute.
   */
  async series(options: SeriesOptions = {}): Promise<Series> {
    const { connection } = this.reading()
    const { queue, session } = this.scope(undefined, 'queue.series')
    const now = await storeTime(connection, session.within)
    const range = parseSeries(options, now)
    if (!session.within) await connection.series.flush()
    return readSeries(session, queue, range)
  }

  /** Marks this moment on the time axis of `series`: `queue.mark('deploy 4f2')`. The newest 1,000 marks are kept. */
  async mark(text: string): Promise<SeriesMark> {
    const { connection } = this.reading()
    checkMark(text)
    const { queue, session, runtime } = this.scope(undefined, 'queue.mark')
    const at = await storeTime(connection, session.within)
    await session.commit([markPut(queue, at, runtime.id(), text)])
    return { at, text }
  }
}
