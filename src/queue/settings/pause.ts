// queue/settings/pause.ts: pauses and resumes a queue or a name, as a versioned cell that claims read.
import { cellKey } from '../../store/settings.js'
import type { PauseCell } from '../../job/limits.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Verdict } from '../../store/store.js'
import type { Session } from '../../store/session.js'

/** Pauses or resumes a queue, or one name in it; writes and publishes nothing if nothing changes. */
export function* setPause(session: Session, queue: string, name: string | undefined, paused: boolean): Steps<void> {
  const key = cellKey.pause(queue)
  const type = paused ? 'paused' : 'resumed'
  let [cell] = (yield* step(session.details({ cells: [key] }))).cells
  for (;;) {
    const current = cell === undefined ? NOT_PAUSED : (JSON.parse(cell.value) as PauseCell)
    const next = change(current, name, paused)
    if (next === current) return
    const verdict: Verdict = yield* step(
      session.commit([
        {
          kind: 'put',
          key,
          value: JSON.stringify(next),
          version: cell?.version ?? 0,
          events: [name === undefined ? { type, queue } : { type, queue, name }],
        },
      ]),
    )
    if (verdict.ok) return
    cell = verdict.cell
  }
}

const NOT_PAUSED: PauseCell = { all: false, names: [] }

function change(cell: PauseCell, name: string | undefined, paused: boolean): PauseCell {
  if (name === undefined) return cell.all === paused ? cell : { ...cell, all: paused }
  if (cell.names.includes(name) === paused) return cell
  return { ...cell, names: paused ? [...cell.names, name] : cell.names.filter((each) => each !== name) }
}
