// A store that reports every batch that was answered, and passes everything on to another store.
import type { Batch, Receipt, Store } from '../src/store/store.js'

/**
 * Passes everything on to a store; calls `onCommit` with every batch and its answer, before the caller gets the answer.
 */
export function observed<Given, Taken>(
  store: Store<Given, Taken>,
  observe: (batch: Batch, receipt: Receipt) => void,
): Store<Given, Taken> {
  return {
    name: store.name,
    can: store.can,
    ...(store.runtime !== undefined && { runtime: store.runtime }),
    open: () => store.open(),
    commit: async (batch, tx) => {
      const receipt = await store.commit(batch, tx)
      if (tx === undefined) observe(batch, receipt) // what a transaction comes to is not known yet
      return receipt
    },
    get: (ids, tx) => store.get(ids, tx),
    find: (query, tx) => store.find(query, tx),
    details: (query, tx) => store.details(query, tx),
    tally: (queues, tx, options) => store.tally(queues, tx, options),
    due: (query) => store.due(query),
    watch: (options, listener) => store.watch(options, listener),
    ...(store.transact && { transact: (work, within) => store.transact!(work, within) }),
    close: () => store.close(),
  }
}
