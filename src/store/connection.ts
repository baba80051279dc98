// store/connection.ts: what queues and workers of one process share on a store: its lanes and its opening.
import { Batcher } from './batcher.js'
import type { Committer } from './batcher.js'
import type { Time } from '../job/job.js'
import { Looks } from './looks.js'
import { Outage } from './outage.js'
import { ReadBatcher } from './read-batcher.js'
import { TransactionOutcomes } from './transaction-outcomes.js'
import { systemRuntime } from './runtime.js'
import type { Runtime } from './runtime.js'
import type { Store } from './store.js'

/** One process's end of a store. */
export interface Connection {
  readonly store: Store
  readonly runtime: Runtime
  /** Adds, settlements and notes. */
  readonly main: Batcher
  /** Asks: with the rest, so that one round trip does both; by themselves where a store works on several batches at once. */
  readonly asks: Batcher
  /** Renewals and signs of life, so that a slow batch never costs a lease. */
  readonly renewals: Batcher
  /** Tells that the store has failed where nobody else is told, because what was sent is sent again. */
  readonly outage: Outage
  /** ReadBatcher by id, together with others of the same turn. */
  readonly reads: ReadBatcher
  /** How those who wait for jobs look at them. */
  readonly looks: Looks
  /** Which of the users' own transactions were committed. */
  readonly outcomes: TransactionOutcomes
  /** Resolves when the store is open; opens it the first time. */
  ready(): Promise<void>
}

/**
 * The connections of this process, by store. A memo keyed by identity rather than state: whoever holds the same store
 * shares the same lanes, which is what lets calls of queues and workers leave as one batch.
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
  // A batch waits for the store to be open; after that, nothing stands between a lane and the store.
  let opened = false
  const gate: Committer = {
    name: store.name,
    commit: async (batch) => {
      if (!opened) {
        await ready()
        opened = true
      }
      return store.commit(batch)
    },
  }
  const outage = new Outage(store)
  const { portion, tenure, parallel: eager = false } = store.can
  const shared = { outage, ...(tenure !== undefined && { tenure }) }
  const main = new Batcher(gate, runtime, writer, { ...shared, eager, ...(portion !== undefined && { size: portion }) })
  return {
    store,
    runtime,
    main,
    asks: eager ? new Batcher(gate, runtime, `${writer}/asks`, shared) : main,
    renewals: new Batcher(gate, runtime, `${writer}/renewals`, shared),
    outage,
    reads: new ReadBatcher(store, runtime),
    looks: new Looks(store, runtime),
    outcomes: new TransactionOutcomes(store, runtime),
    ready,
  }
}

/**
 * The store's time, by which entries of workers are judged: the clock of this process may differ from it. Inside a transaction
 * of a synchronous driver the store cannot be asked beside it, and lives by this machine's clock anyway.
 */
export async function storeTime({ store, runtime, ready }: Connection, within: boolean): Promise<Time> {
  if (within && store.can.synchronous === true) return runtime.now()
  await ready()
  return (await store.due({ queues: [], except: [], limit: 1 })).now
}
