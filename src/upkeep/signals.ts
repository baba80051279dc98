// upkeep/signals.ts: finds out whether the jobs of due signals still exist.
import type { JobRecord } from '../job/job.js'
import { SIGNAL, readSignal } from '../job/signals.js'
import type { Store } from '../store/store.js'
import { recordsOf } from './due-records.js'

/** The ids of those signals among the rows whose jobs are in the store. */
export async function ownedSignals(store: Store, rows: readonly JobRecord[]): Promise<ReadonlySet<string>> {
  const signals = rows.filter(({ kind }) => kind === SIGNAL)
  const createdAtById = new Map<string, number>()
  for await (const owners of recordsOf(store, [...new Set(signals.map(({ parentId }) => parentId!))])) {
    for (const { id, createdAt } of owners) createdAtById.set(id, createdAt)
  }
  return new Set(signals.filter((row) => createdAtById.get(row.parentId!) === readSignal(row).born).map(({ id }) => id))
}
