// stores/sqlite/put.ts: writes a versioned cell, and heeds those that bound claims: pauses and limits.
import type { Put } from '../../job/change.js'
import { cellKey } from '../../store/settings.js'
import type { Cell, Refused } from '../../store/store.js'
import type { SqlRow } from './driver.js'
import type { Transaction } from './transaction.js'

const BOUNDING = [cellKey.pause(''), cellKey.limit('')]

/** The cell in a row. */
export function cellOf([key, value, version, at]: SqlRow): Cell {
  return { key: key as string, value: value as string, version: version as number, at: at as number }
}

/** Writes or removes a cell, or says which version stands. */
export function put(tx: Transaction, change: Put): Refused | undefined {
  const { sql, ground, news, now } = tx
  const { key, value, version } = change
  const row = sql.cell.get(key)
  if (((row?.[2] as number | undefined) ?? 0) !== version) {
    return row === undefined
      ? { ok: false, why: 'version', id: key }
      : { ok: false, why: 'version', id: key, cell: cellOf(row) }
  }
  if (value === undefined) sql.dropCell.run(key)
  else sql.putCell.run(key, value, version + 1, now)

  const prefix = BOUNDING.find((start) => key.startsWith(start))
  if (prefix !== undefined) {
    const queue = key.slice(prefix.length)
    ground.forgetBounds(queue)
    const id = ground.queue(queue)
    if (id !== undefined && !ground.bounds(queue).paused) {
      tx.counts.flush(sql)
      if (tx.hasWaiting(id)) news.work.add(queue)
    }
  }
  for (const event of change.events) news.tellCell(event)
  return undefined
}
