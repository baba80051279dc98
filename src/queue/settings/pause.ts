// queue/settings/pause.ts: pauses and resumes a queue or a name, as a versioned cell that claims read.
import type { CellEvent } from '../../job/change.js'
import { cellKey, updateCell } from '../../store/settings.js'
import type { PauseCell } from '../../job/limits.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Session } from '../../store/session.js'

/** Pauses or resumes a queue, or one name in it; writes and publishes nothing if nothing changes. */
export function* setPause(session: Session, queue: string, name: string | undefined, paused: boolean): Steps<void> {
  const event: CellEvent = { type: paused ? 'paused' : 'resumed', queue, ...(name !== undefined && { name }) }
  yield* updateCell(session, cellKey.pause(queue), (value) => {
    const current = value === undefined ? NOT_PAUSED : (JSON.parse(value) as PauseCell)
    const next = change(current, name, paused)
    return next === current ? undefined : { value: JSON.stringify(next), events: [event] }
  })
}

const NOT_PAUSED: PauseCell = { all: false, names: [] }

function change(cell: PauseCell, name: string | undefined, paused: boolean): PauseCell {
  if (name === undefined) return cell.all === paused ? cell : { ...cell, all: paused }
  if (cell.names.includes(name) === paused) return cell
  return { ...cell, names: paused ? [...cell.names, name] : cell.names.filter((each) => each !== name) }
}
