// worker/operation-log.ts: writes one line about each bulk operation that a worker has ended.
import type { Logger } from '../queue/events/events.js'
import type { EndedOperation } from '../queue/operations/bulk/run.js'

/**
 * Returns what logs an operation: what it did, for whom and why. One that could not change all of its jobs is a warning,
 * because an operator has to look at the others.
 */
export function operationLog(logger: Pick<Logger, 'info' | 'warn'>): (operation: EndedOperation) => void {
  return ({ id, queue, do: action, reason, by, progress }) => {
    const { done, unchanged, refused } = progress
    const codes = Object.entries(refused).map(([code, count]) => `${count} ${code}`)
    const message = [
      `millrace: operation ${id} (${action}) of queue '${queue}'${by === undefined ? '' : ` by '${by}'`} has ended: ${done} changed`,
      ...(unchanged > 0 ? [`${unchanged} unchanged`] : []),
      ...(codes.length > 0 ? [`refused ${codes.join(', ')}`] : []),
    ].join(', ')
    const details = { id, queue, do: action, reason, by, done, unchanged, refused }
    if (codes.length > 0) logger.warn(details, message)
    else logger.info?.(details, message)
  }
}
