// queue/pauses.ts: pausing and resuming, as a versioned cell that claims read.
import { cellKey } from '../store/cells.js'
import type { PauseCell } from '../store/cells.js'
import type { Connection } from '../store/connection.js'

/** Pauses or resumes a queue, or one name in it; changes and announces nothing where it is so already. */
export async function setPause(
  connection: Connection,
  queue: string,
  name: string | undefined,
  paused: boolean,
): Promise<void> {
  await connection.ready()
  const key = cellKey.pause(queue)
  const type = paused ? 'paused' : 'resumed'
  let [cell] = (await connection.store.details({ cells: [key] })).cells
  for (;;) {
    const now = cell === undefined ? NOTHING : (JSON.parse(cell.value) as PauseCell)
    const next = change(now, name, paused)
    if (next === now) return
    const verdict = await connection.main.commit([
      {
        kind: 'put',
        key,
        value: JSON.stringify(next),
        version: cell?.version ?? 0,
        events: [name === undefined ? { type, queue } : { type, queue, name }],
      },
    ])
    if (verdict.ok) return
    cell = verdict.cell
  }
}

const NOTHING: PauseCell = { all: false, names: [] }

function change(cell: PauseCell, name: string | undefined, paused: boolean): PauseCell {
  if (name === undefined) return cell.all === paused ? cell : { ...cell, all: paused }
  if (cell.names.includes(name) === paused) return cell
  return { ...cell, names: paused ? [...cell.names, name] : cell.names.filter((each) => each !== name) }
}
