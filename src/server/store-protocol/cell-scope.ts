// server/store-protocol/cell-scope.ts: which queue a cell is about, by its key.
import { pauseKey } from '../../job/holds.js'
import { WORKERS, cellKey } from '../../store/settings.js'
import { seriesKey } from '../../store/series/series-cells.js'
import type { WorkerCell } from '../../store/settings.js'
import type { Cell } from '../../store/store.js'
import type { Scope } from './scope.js'

const PREFIXES = [pauseKey(''), cellKey.limit(''), cellKey.retention('')]

/** The queue whose setting or whose counts a cell holds; undefined: it is not about one queue. */
export function queueOfCell(key: string): string | undefined {
  for (const prefix of PREFIXES) if (key.startsWith(prefix)) return key.slice(prefix.length)
  const found = /^series:(\d{1,4}):/.exec(key)
  if (found === null) return undefined
  const from = found[0].length
  const length = Number(found[1])
  return key[from + length] === ':' ? key.slice(from, from + length) : undefined
}

/** The queue to which a key adds new counts of one minute; undefined: it does not. */
export function queueOfFreshCounts(key: string): string | undefined {
  const queue = queueOfCell(key)
  return queue !== undefined && key.startsWith(seriesKey.allFresh(queue)) ? queue : undefined
}

/** The worker whose entry a key is; undefined: it is none. */
export function workerOfCell(key: string): string | undefined {
  return key.startsWith(WORKERS) ? key.slice(WORKERS.length) : undefined
}

/** Whether the caller may know of a cell: of one about a queue in scope, or of a worker that works on one. */
export function mayReadCell(scope: Scope, { key, value }: Cell): boolean {
  if (scope.everything) return true
  const queue = queueOfCell(key)
  if (queue !== undefined) return scope.holds(queue)
  return workerOfCell(key) !== undefined && queuesOf(value).some(scope.holds)
}

function queuesOf(value: string): readonly string[] {
  try {
    const { queues } = JSON.parse(value) as Partial<WorkerCell>
    return Array.isArray(queues) ? queues.filter((queue): queue is string => typeof queue === 'string') : []
  } catch {
    return []
  }
}
