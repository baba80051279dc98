// worker/seed-limits.ts: seeds the concurrency limit of queues from a worker's option.
import { cellKey } from '../store/settings.js'
import type { LimitCell } from '../job/limits.js'
import type { Connection } from '../store/connection.js'

/** Writes the limit unless one was set on the queue. Of several workers, the last to start wins. */
export async function seedLimits(
  connection: Connection,
  queues: readonly string[],
  concurrency: number,
): Promise<void> {
  for (const queue of queues) {
    const key = cellKey.limit(queue)
    let [cell] = (await connection.store.details({ cells: [key] })).cells
    for (;;) {
      const now = cell === undefined ? undefined : (JSON.parse(cell.value) as LimitCell)
      if (now !== undefined && (now.by === 'queue' || now.concurrency === concurrency)) break
      const value: LimitCell = { ...now, concurrency, by: 'worker' }
      const verdict = await connection.main.commit([
        { kind: 'put', key, value: JSON.stringify(value), version: cell?.version ?? 0, events: [] },
      ])
      if (verdict.ok) break
      cell = verdict.cell
    }
  }
}
