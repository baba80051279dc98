// stores/memory.ts: the reference store. A commit is `reduce`, nothing more.
import { MillraceError } from '../job/errors.js'
import { refuseUnknown } from '../job/names.js'
import { systemRuntime } from '../store/runtime.js'
import type { Runtime } from '../store/runtime.js'
import type { Store } from '../store/store.js'
import { find } from './table/find.js'
import { details, due, tally } from './table/read.js'
import { copyOf } from '../job/record.js'
import { reduce } from './table/reduce.js'
import { createTable } from './table/table.js'
import { Watchers } from './table/watchers.js'

/** Settings of a memory store. */
export interface MemoryOptions {
  /** The world it lives in. Default: the system's. */
  readonly runtime?: Runtime
  /** How many events are kept for watchers that resume. Default 10,000. */
  readonly ring?: number
}

/** A store in the memory of this process: for tests, and for work that need not outlive the process. */
export function memory(options: MemoryOptions = {}): Store<never> {
  refuseUnknown(options, ['runtime', 'ring'], 'memory options')
  const { runtime = systemRuntime(), ring = 10_000 } = options
  if (!Number.isSafeInteger(ring) || ring < 1) {
    throw new MillraceError('INVALID_OPTION', `memory: ring must be a whole number from 1 up, not ${String(ring)}.`)
  }
  const table = createTable()
  const watchers = new Watchers(ring, () => runtime.now())
  let closed = false

  const check = (): void => {
    if (closed)
      throw new MillraceError(
        'STORE_CLOSED',
        'The memory store was used after it was closed. Close workers and queues first; shutdown([...]) does.',
      )
  }

  return {
    name: 'memory',
    can: { transactions: false, share: 'process' },
    runtime,

    async open() {
      check()
    },

    async commit(batch) {
      check()
      const now = runtime.now()
      const { receipt, news } = reduce(table, batch, now, watchers.recording(now))
      if (news !== undefined) watchers.publish(news)
      return receipt
    },

    async get(ids) {
      check()
      return ids.map((id) => {
        const row = table.rows.get(id)
        return row && copyOf(row.job)
      })
    },

    async find(query) {
      check()
      return find(table, query)
    },

    async details(query) {
      check()
      return details(table, query)
    },

    async tally(queues) {
      check()
      return tally(table, queues)
    },

    async due(query) {
      check()
      return due(table, query, runtime.now())
    },

    watch(what, listener) {
      check()
      return watchers.watch(what, listener)
    },

    async close() {
      closed = true
      watchers.close()
    },
  }
}
