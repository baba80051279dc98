// stores/sqlite/put.ts: writes a versioned cell, and applies cells that bound claims: pauses and limits.
import type { Put } from '../../job/change.js'
import { cellKey } from '../../store/settings.js'
import type { Cell, Refused } from '../../store/store.js'
import type { SqlRow } from './driver.js'
import type { Transaction } from './transaction.js'

const BOUND_PREFIXES = [cellKey.pause(''), cellKey.limit('')]

/** The cell in a row. */
export function cellOf([key, value, version, at]: SqlRow): Cell {
  return { key: key as string, value: value as string, version: version as number, at: at as number }
}

/** Writes or removes a cell, or refuses and returns the current version. */
export function put(tx: Transaction, change: Put): Refused | undefined {
  const { sql, cache, notices, now } = tx
  const { key, value, version } = change
  const row = sql.cell.get(key)
  if (((row?.[2] as number | undefined) ?? 0) !== version) {
    return row === undefined
      ? { ok: false, change: 0, why: 'version', id: key }
      : { ok: false, change: 0, why: 'version', id: key, cell: cellOf(row) }
  }
  if (value === undefined) sql.dropCell.run(key)
  else sql.putCell.run(key, value, version + 1, now)

  const prefix = BOUND_PREFIXES.find((start) => key.startsWith(start))
  if (prefix !== undefined) {
    const queue = key.slice(prefix.length)
    cache.forgetBounds(queue)
    const id = cache.queue(queue)
    if (id !== undefined && !cache.bounds(queue).paused) {
      tx.counts.flush(sql)
      if (tx.hasWaiting(id)) notices.work.add(queue)
    }
  }
  for (const event of change.events) notices.addCellEvent(event)
  return undefined
}
