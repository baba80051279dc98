// store/connection.ts: what queues and workers of one process share on a store: its batchers, and opening it once.
import { Batcher } from './batcher.js'
import type { Committer } from './batcher.js'
import type { Time } from '../job/job.js'
import { SharedReads } from './shared-reads.js'
import { Outage } from './outage.js'
import { ReadBatcher } from './read-batcher.js'
import { SeriesRecorder } from './series/series.js'
import { TransactionOutcomes } from './transaction-outcomes.js'
import { systemRuntime } from './runtime.js'
import type { Runtime } from './runtime.js'
import type { Store } from './store.js'

/** A store as the queues and workers of one process use it. */
export interface Connection {
  readonly store: Store
  readonly runtime: Runtime
  /** Adds, settlements and notes. */
  readonly main: Batcher
  /**
   * Claims: in the batches of `main`, so that one round trip does both; in their own where a store works on batches in
   * parallel.
   */
  readonly claims: Batcher
  /** Lease renewals and worker heartbeats, so that a slow batch never costs a lease. */
  readonly renewals: Batcher
  /** Reports store failures that no caller sees, because the batch is retried. */
  readonly outage: Outage
  /** Reads by id, batched with others of the same turn of the event loop. */
  readonly reads: ReadBatcher
  /** Reads of jobs that callers wait for, in bounded portions. */
  readonly sharedReads: SharedReads
  /** Counts what this process does to jobs, over time. */
  readonly series: SeriesRecorder
  /** Finds out which user transactions were committed. */
  readonly outcomes: TransactionOutcomes
  /** The same for counts over time, which keep no process alive. */
  readonly counting: TransactionOutcomes
  /** Resolves when the store is open; the first call opens it. */
  ready(): Promise<void>
}

/**
 * The connections of this process, by store. A memo keyed by identity rather than state: callers with the same store
 * share the same batchers, so that calls of queues and workers leave as one batch.
 */
const connections = new WeakMap<Store, Connection>()

/** The connection of a store: always the same one for the same store. */
export function connect(store: Store): Connection {
  const known = connections.get(store)
  if (known !== undefined) return known
  const connection = create(store)
  connections.set(store, connection)
  return connection
}

function create(store: Store): Connection {
  const runtime = store.runtime ?? systemRuntime()
  const writer = runtime.id()
  let opening: Promise<void> | undefined
  const ready = (): Promise<void> => {
    opening ??= store.open().catch((error: unknown) => {
      opening = undefined // so that the next call tries again
      throw error
    })
    return opening
  }
  // A batch waits for the store to be open; after that, batches go to the store directly.
  let opened = false
  const committer: Committer = {
    name: store.name,
    commit: async (batch) => {
      if (!opened) {
        await ready()
        opened = true
      }
      const receipt = await store.commit(batch)
      for (const jobs of receipt.asks) {
        outcomes.claimed(jobs)
        counting.claimed(jobs)
      }
      series.committed(batch, receipt)
      return receipt
    },
  }
  const outcomes = new TransactionOutcomes(store, runtime)
  const counting = new TransactionOutcomes(store, runtime, true)
  const outage = new Outage(store)
  const { portion, tenure, parallel: eager = false } = store.can
  const shared = { outage, patient: store.can.retries === 'itself', ...(tenure !== undefined && { tenure }) }
  const main = new Batcher(committer, runtime, writer, {
    ...shared,
    eager,
    ...(portion !== undefined && { size: portion }),
  })
  const renewals = new Batcher(committer, runtime, `${writer}/renewals`, shared)
  const series = new SeriesRecorder(
    runtime,
    { details: (query) => store.details(query), commit: (group) => renewals.commit(group) },
    store.can.upkeep !== 'elsewhere',
  )
  return {
    store,
    runtime,
    main,
    claims: eager ? new Batcher(committer, runtime, `${writer}/asks`, shared) : main,
    renewals,
    outage,
    reads: new ReadBatcher(store, runtime),
    sharedReads: new SharedReads(store, runtime),
    series,
    outcomes,
    counting,
    ready,
  }
}

/**
 * The store's time, by which worker entries are judged: the clock of this process may differ from it. Inside a
 * transaction of a synchronous driver the store cannot be called beside it, but such a store uses this machine's clock
 * anyway.
 */
export async function storeTime({ store, runtime, ready }: Connection, within: boolean): Promise<Time> {
  if (within && store.can.synchronous === true) return runtime.now()
  await ready()
  return (await store.due({ queues: [], except: [], limit: 1 })).now
}
