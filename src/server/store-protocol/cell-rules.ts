// server/store-protocol/cell-rules.ts: which cells a caller may write.
import type { Group } from '../../store/batch.js'
import type { Put } from '../../job/change.js'
import { pauseKey } from '../../job/holds.js'
import { decodeCounts } from '../../job/series.js'
import { cellKey } from '../../store/settings.js'
import type { WorkerCell } from '../../store/settings.js'
import { queueOfCell, queueOfFreshCounts, workerOfCell } from './cell-scope.js'
import type { Scope } from './scope.js'

/** Why a caller may not write a cell; undefined: it may. */
export function whyNoPut(scope: Scope, put: Put, group: Group): string | undefined {
  if (put.events.some(({ queue }) => !scope.holds(queue))) return 'publish events of a queue outside of its scope'
  const { key } = put
  const queue = queueOfCell(key)
  const worker = workerOfCell(key)
  if (queue !== undefined && !scope.holds(queue)) return `write settings of the queue '${queue}'`
  if (worker !== undefined) return whyNoEntry(scope, put, worker)
  if (queueOfFreshCounts(key) !== undefined) return isCounts(put) ? undefined : 'write counts that are none'
  if (scope.admin) return queue !== undefined || scope.everything ? undefined : 'write a cell that is not of a queue'
  if (!scope.works || queue === undefined) return 'write settings'
  if (put.hold !== undefined) {
    const settles = group.some((change) => change.kind === 'move' && change.held)
    return key === pauseKey(queue) && settles && put.value === undefined && put.events.length === 0
      ? undefined
      : 'hold a queue but with a job that it hands back'
  }
  return key === cellKey.limit(queue) && isSeed(put) ? undefined : 'write settings'
}

/** The entry of a worker: of the caller's own alone, in queues in scope. */
function whyNoEntry(scope: Scope, { value, hold, events }: Put, worker: string): string | undefined {
  if (scope.everything && scope.admin) return undefined
  if (!scope.works) return 'write entries of workers'
  if (!worker.startsWith(scope.prefix))
    return `write the entry of a worker whose id does not begin with '${scope.prefix}'`
  const about = 'write the entry of a worker about anything else'
  if (hold !== undefined) return about
  if (events.some((event) => event.worker !== worker || !event.type.startsWith('worker-'))) return about
  if (value === undefined) return undefined
  const { id, queues } = (JSON.parse(value) ?? {}) as Partial<WorkerCell>
  const inScope = Array.isArray(queues) && queues.every((queue) => typeof queue === 'string' && scope.holds(queue))
  return id === worker && inScope ? undefined : about
}

/** New counts, which nobody can have written before. */
function isCounts({ value, version, events, hold }: Put): boolean {
  if (value === undefined || version !== 0 || events.length > 0 || hold !== undefined) return false
  try {
    decodeCounts(value)
    return true
  } catch {
    return false
  }
}

/** The first limit of a queue, as the option of a worker sets it. */
function isSeed({ value, version, events }: Put): boolean {
  if (value === undefined || version !== 0 || events.length > 0) return false
  const { concurrency, by, ...rest } = (JSON.parse(value) ?? {}) as Record<string, unknown>
  return by === 'worker' && Number.isSafeInteger(concurrency) && Object.keys(rest).length === 0
}
