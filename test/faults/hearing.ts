// A store that is listened to: it passes everything on to another, and tells of every batch that was answered.
import type { Batch, Receipt, Store } from '../../src/store/store.js'

/** Passes everything on to a store; `heard` is called with every batch and its answer, before anybody else gets that. */
export function hearing(store: Store, heard: (batch: Batch, receipt: Receipt) => void): Store {
  return {
    name: store.name,
    can: store.can,
    ...(store.runtime !== undefined && { runtime: store.runtime }),
    open: () => store.open(),
    commit: async (batch) => {
      const receipt = await store.commit(batch)
      heard(batch, receipt)
      return receipt
    },
    get: (ids) => store.get(ids),
    find: (query) => store.find(query),
    details: (query) => store.details(query),
    tally: (queues) => store.tally(queues),
    due: (query) => store.due(query),
    watch: (options, listener) => store.watch(options, listener),
    close: () => store.close(),
  }
}
