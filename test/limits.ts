// Sets the limits of a queue, as its workers would.
import type { Store } from 'millrace'
import { cellKey } from '../src/store/settings.js'
import type { LimitCell } from '../src/job/limits.js'

/** Writes the limits of a queue that has none. */
export async function limitsOf(store: Store, queue: string, cell: LimitCell): Promise<void> {
  const put = { kind: 'put', key: cellKey.limit(queue), value: JSON.stringify(cell), version: 0, events: [] } as const
  await store.commit({ writer: 'limits', seq: 1, groups: [[put]], renewals: [], asks: [] })
}
