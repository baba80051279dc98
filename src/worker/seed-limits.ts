// worker/seed-limits.ts: seeds the concurrency limit of queues from a worker's option.
import { readCell } from '../job/limits.js'
import type { LimitCell } from '../job/limits.js'
import type { Connection } from '../store/connection.js'
import { runSteps } from '../store/maybe-sync.js'
import { cellKey, updateCell } from '../store/settings.js'
import type { CellSession } from '../store/settings.js'

/** Writes the limit unless one was set on the queue. Of several workers, the last to start wins. */
export async function seedLimits(
  { store, main }: Connection,
  queues: readonly string[],
  concurrency: number,
): Promise<void> {
  const session: CellSession = { details: (query) => store.details(query), commit: (group) => main.commit(group) }
  for (const queue of queues) {
    await runSteps(
      updateCell(session, cellKey.limit(queue), (before) => {
        const now = readCell<LimitCell>(before)
        if (now.by === 'queue' || now.concurrency === concurrency) return undefined
        return { value: JSON.stringify({ ...now, concurrency, by: 'worker' } satisfies LimitCell) }
      }),
    )
  }
}
