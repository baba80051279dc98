// stores/memory/put.ts: writes a versioned cell, and applies cells that bound claims: pauses and limits.
import type { Put } from '../../job/change.js'
import type { JsonText } from '../../job/json.js'
import { cellKey } from '../../store/settings.js'
import type { Cell, Refused } from '../../store/store.js'
import { boundsOf } from '../../job/limits.js'
import type { Notices } from './notices.js'
import type { QueueRow } from './row.js'
import { queueOf } from './table.js'
import type { Table } from './table.js'

const PAUSE = cellKey.pause('')
const LIMIT = cellKey.limit('')

/** Writes or removes a cell, or refuses and returns the current version. */
export function put(table: Table, change: Put, notices: Notices): Refused | undefined {
  const { key, value } = change
  const before = table.cells.get(key)
  if ((before?.version ?? 0) !== change.version) {
    return before === undefined
      ? { ok: false, change: 0, why: 'version', id: key }
      : { ok: false, change: 0, why: 'version', id: key, cell: before }
  }
  write(table, key, value === undefined ? undefined : { key, value, version: change.version + 1, at: notices.now })
  if (table.journal.open) table.journal.add(() => write(table, key, before))
  const queue = boundedQueue(table, key)
  if (queue !== undefined && queue.ready.size > 0 && !queue.paused) notices.addWork(queue)
  for (const event of change.events) notices.addCellEvent(event)
  return undefined
}

function write(table: Table, key: string, cell: Cell | undefined): void {
  if (cell === undefined) table.cells.delete(key)
  else table.cells.set(key, cell)
  const queue = boundedQueue(table, key)
  if (queue === undefined) return
  if (key.startsWith(PAUSE)) applyPause(queue, cell?.value)
  else applyLimit(queue, cell?.value)
}

/** The queue that a cell bounds, if it does. */
function boundedQueue(table: Table, key: string): QueueRow | undefined {
  if (key.startsWith(PAUSE)) return queueOf(table, key.slice(PAUSE.length))
  return key.startsWith(LIMIT) ? queueOf(table, key.slice(LIMIT.length)) : undefined
}

function applyPause(queue: QueueRow, value: JsonText | undefined): void {
  const { paused, pausedNames } = boundsOf(value, undefined)
  queue.paused = paused
  queue.pausedNames = pausedNames
  for (const name of queue.names.values()) name.paused = pausedNames.has(name.name)
}

function applyLimit(queue: QueueRow, value: JsonText | undefined): void {
  const bounds = boundsOf(undefined, value)
  queue.bounds = bounds
  queue.limit = bounds.limit
  queue.backlogLimit = bounds.backlog
  for (const name of queue.names.values()) name.limit = bounds.limitedNames.get(name.name) ?? Infinity
}
