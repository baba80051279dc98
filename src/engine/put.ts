// engine/put.ts: writes a versioned cell. Cells that bound claims, which are pauses (with holds) and
// limits, may make work claimable.
import type { Put } from '../job/change.js'
import { addHold, withHolds } from '../job/holds.js'
import type { NewHold } from '../job/holds.js'
import { readCell } from '../job/limits.js'
import type { PauseCell } from '../job/limits.js'
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
export function put(commit: Commit, change: Put): Refused | undefined {
  const { workspace, now, notices } = commit
  const { key, value, version } = change
  if (change.hold !== undefined) return hold(commit, key, change.hold)
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

/** Adds a hold to a cell of pauses. Claims that come after this commit heed it; workers receive a notice. */
function hold({ workspace, now, notices }: Commit, key: string, added: NewHold): Refused | undefined {
  const before = workspace.cell(key)
  const cell: PauseCell = { all: false, names: [], ...readCell<PauseCell>(before?.value) }
  const after = addHold(cell.holds, added, now)
  if (after === 'full') return { ok: false, change: 0, why: 'full', id: key }
  if (after === undefined) return undefined
  workspace.putCell(key, { key, value: withHolds(cell, after.holds), version: (before?.version ?? 0) + 1, at: now })
  const queue = boundedQueue(key)
  if (queue === undefined) return undefined
  const { name, group } = added
  notices.addHeld({
    queue,
    ...(name !== undefined && { name }),
    ...(group !== undefined && { group }),
    until: after.until,
  })
  return undefined
}
