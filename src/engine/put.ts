// engine/put.ts: writes a versioned cell. Cells that bound claims, which are pauses and limits, may make work claimable.
import type { Put } from '../job/change.js'
import { cellKey } from '../store/settings.js'
import type { Refused } from '../store/store.js'
import type { Commit } from './workspace.js'

const BOUND_PREFIXES = [cellKey.pause(''), cellKey.limit('')]

/** The queue whose bounds a cell holds, if it does. */
export function boundedQueue(key: string): string | undefined {
  const prefix = BOUND_PREFIXES.find((start) => key.startsWith(start))
  return prefix === undefined ? undefined : key.slice(prefix.length)
}

/** Writes or removes a cell, or refuses and returns the current version. */
export function put({ workspace, now, notices }: Commit, change: Put): Refused | undefined {
  const { key, value, version } = change
  const before = workspace.cell(key)
  if ((before?.version ?? 0) !== version) {
    return before === undefined
      ? { ok: false, change: 0, why: 'version', id: key }
      : { ok: false, change: 0, why: 'version', id: key, cell: before }
  }
  workspace.putCell(key, value === undefined ? undefined : { key, value, version: version + 1, at: now })
  const queue = boundedQueue(key)
  if (queue !== undefined && !workspace.bounds(queue).paused && workspace.hasWaiting(queue)) notices.addWork(queue)
  for (const event of change.events) notices.addCellEvent(event)
  return undefined
}
