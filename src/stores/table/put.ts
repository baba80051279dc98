// stores/table/put.ts: writes a versioned cell, and heeds those that bound claims: pauses and limits.
import type { Put } from '../../job/change.js'
import type { JsonText } from '../../job/json.js'
import { cellKey } from '../../store/cells.js'
import type { LimitCell, PauseCell } from '../../store/cells.js'
import type { Cell, Refused } from '../../store/store.js'
import type { News } from './news.js'
import type { Queued } from './row.js'
import { queueOf } from './table.js'
import type { Table } from './table.js'

const PAUSE = cellKey.pause('')
const LIMIT = cellKey.limit('')

/** Writes or removes a cell, or says which version stands. */
export function put(table: Table, change: Put, news: News): Refused | undefined {
  const { key, value } = change
  const before = table.cells.get(key)
  if ((before?.version ?? 0) !== change.version) {
    return before === undefined
      ? { ok: false, why: 'version', id: key }
      : { ok: false, why: 'version', id: key, cell: before }
  }
  write(table, key, value === undefined ? undefined : { key, value, version: change.version + 1, at: news.now })
  if (table.journal.open) table.journal.add(() => write(table, key, before))
  const queue = heeded(table, key)
  if (queue !== undefined && queue.ready.size > 0 && !queue.paused) news.work(queue)
  for (const event of change.events) news.tellCell(event)
  return undefined
}

function write(table: Table, key: string, cell: Cell | undefined): void {
  if (cell === undefined) table.cells.delete(key)
  else table.cells.set(key, cell)
  const queue = heeded(table, key)
  if (queue === undefined) return
  if (key.startsWith(PAUSE)) pause(queue, cell?.value)
  else limit(queue, cell?.value)
}

/** The queue whose claims depend on a cell. */
function heeded(table: Table, key: string): Queued | undefined {
  if (key.startsWith(PAUSE)) return queueOf(table, key.slice(PAUSE.length))
  return key.startsWith(LIMIT) ? queueOf(table, key.slice(LIMIT.length)) : undefined
}

function pause(queue: Queued, value: JsonText | undefined): void {
  const cell = read<PauseCell>(value)
  queue.paused = cell.all === true
  queue.pausedNames.clear()
  for (const name of cell.names ?? []) queue.pausedNames.add(name)
  for (const name of queue.names.values()) name.paused = queue.pausedNames.has(name.name)
}

function limit(queue: Queued, value: JsonText | undefined): void {
  const cell = read<LimitCell>(value)
  queue.limit = cell.concurrency ?? Infinity
  queue.backlogLimit = cell.backlog ?? Infinity
  queue.limitedNames.clear()
  for (const [name, { concurrency }] of Object.entries(cell.names ?? {})) {
    if (concurrency !== undefined) queue.limitedNames.set(name, concurrency)
  }
  for (const name of queue.names.values()) name.limit = queue.limitedNames.get(name.name) ?? Infinity
  queue.limited = queue.limit !== Infinity || queue.limitedNames.size > 0
}

/** What a cell says; nothing, where it is not there or is not an object, for a commit must not fail over a setting. */
function read<T>(value: JsonText | undefined): Partial<T> {
  if (value === undefined) return {}
  try {
    const parsed: unknown = JSON.parse(value)
    return typeof parsed === 'object' && parsed !== null ? parsed : {}
  } catch {
    return {}
  }
}
