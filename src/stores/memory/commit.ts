// stores/memory/commit.ts: commits a batch to a table.
import type { JobRecord, Time } from '../../job/job.js'
import { copyOf } from '../../job/record.js'
import { Notices } from '../../engine/notices.js'
import type { JobKey, ReceiptReader } from '../../engine/receipts.js'
import { applyBatch } from '../../engine/reduce.js'
import type { Batch, Receipt } from '../../store/store.js'
import type { Table } from './table.js'
import { MemoryWorkspace } from './workspace.js'

/** The result of a batch. */
export interface Committed {
  readonly receipt: Receipt
  /** What to publish; undefined for a batch that was applied before. */
  readonly notices: Notices | undefined
}

/**
 * Commits a batch. It is deterministic for the same table, batch and time, so it can be replayed. A batch that was
 * applied before returns its receipt again; a batch older than its writer's last one throws.
 */
export function commit(table: Table, batch: Batch, now: Time, recording: boolean): Committed {
  const before = table.writers.replay(batch, readerOf(table))
  if (before !== undefined) return { receipt: before, notices: undefined }
  const { highestFence } = table
  const workspace = new MemoryWorkspace(table, now)
  const notices = new Notices(workspace, now, recording)
  const receipt = applyBatch({ workspace, now, notices }, batch)
  table.writers.remember(batch, receipt, highestFence)
  return { receipt, notices }
}

function readerOf({ rows }: Table): ReceiptReader {
  const record = (id: JobKey): JobRecord | undefined => {
    const row = rows.get(id as string)
    return row && copyOf(row.job)
  }
  return { record, header: record, claimed: record }
}
