// upkeep/signals.ts: whether the jobs of due signals are still there.
import type { JobRecord } from '../job/job.js'
import { SIGNAL, readSignal } from '../job/signals.js'
import type { Store } from '../store/store.js'

const NONE: ReadonlySet<string> = new Set()

/** The ids of those signals among some rows whose jobs are in the store. */
export async function ownedSignals(store: Store, rows: readonly JobRecord[]): Promise<ReadonlySet<string>> {
  const signals = rows.filter(({ kind }) => kind === SIGNAL)
  if (signals.length === 0) return NONE
  const owners = await store.get(signals.map(({ parentId }) => parentId!))
  const owned = signals.filter((row, at) => owners[at]?.createdAt === readSignal(row).born)
  return new Set(owned.map(({ id }) => id))
}
