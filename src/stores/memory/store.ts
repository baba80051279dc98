// stores/memory/store.ts: the reference store. A commit is a call of the engine, and nothing more.
import { MillraceError } from '../../job/errors/errors.js'
import { refuseUnknown } from '../../job/values/names.js'
import { systemRuntime } from '../../store/runtime.js'
import type { Runtime } from '../../store/runtime.js'
import type { DisposableStore } from '../../store/store.js'
import { checkRing, RING_BYTES, RING_EVENTS } from '../event-pages.js'
import { commit } from './commit.js'
import { find } from './find.js'
import { details, due, tally } from './read.js'
import { copyOf } from '../../job/record.js'
import { Ring } from './ring.js'
import { createTable } from './table.js'
import { Watchers } from './watchers.js'

/** Settings of a memory store. */
export interface MemoryOptions {
  /** Time, timers, randomness and ids. Default: the system's. */
  readonly runtime?: Runtime
  /** How many events are kept for watchers that resume. Default 10,000. */
  readonly ring?: number
  /** Approximate number of bytes that these events may take; the oldest are dropped first. Default 64 MiB. */
  readonly ringBytes?: number
}

/** A store in the memory of this process: for tests, and for work that need not outlive the process. */
export function memory(options: MemoryOptions = {}): DisposableStore<never> {
  refuseUnknown(options, ['runtime', 'ring', 'ringBytes'], 'memory options')
  const { runtime = systemRuntime(), ring = RING_EVENTS, ringBytes = RING_BYTES } = options
  checkRing('memory', { ring, ringBytes })
  const table = createTable()
  const watchers = new Watchers(new Ring(ring, ringBytes), runtime)
  let closed = false

  const check = (): void => {
    if (closed)
      throw new MillraceError(
        'STORE_CLOSED',
        'The memory store was used after it was closed. Close workers and queues first; shutdown([...]) does.',
      )
  }

  const close = async (): Promise<void> => {
    closed = true
    watchers.close()
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
      const { receipt, notices } = commit(table, batch, now, watchers.recording(now))
      if (notices !== undefined) watchers.publish(notices)
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

    async tally(queues, _tx, { heads = false } = {}) {
      check()
      return tally(table, queues, heads ? runtime.now() : undefined)
    },

    async due(query) {
      check()
      return due(table, query, runtime.now())
    },

    watch(what, listener) {
      check()
      return watchers.watch(what, listener)
    },

    close,
    [Symbol.asyncDispose]: close,
  }
}
