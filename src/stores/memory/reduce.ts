// stores/memory/reduce.ts: applies one batch to a table: groups in order, then renewals, then claims.
import type { Change } from '../../job/change.js'
import type { JobRecord, Time } from '../../job/job.js'
import type { Batch, Group, Receipt, Refused, Verdict } from '../../store/store.js'
import { mayRollBack } from '../../job/apply.js'
import { claim } from './claim.js'
import { insert } from './insert.js'
import { move } from './move.js'
import { Notices } from './notices.js'
import { note } from './note.js'
import { put } from './put.js'
import { release } from './release.js'
import { renew } from './renew.js'
import { copyOf } from '../../job/record.js'
import type { Row } from './row.js'
import type { Table } from './table.js'
import { LANDED, refusedAt } from '../verdicts.js'

/** The result of a batch. */
export interface Reduced {
  readonly receipt: Receipt
  /** What to publish once the batch is durable; undefined for a batch that was applied before. */
  readonly news: Notices | undefined
}

/**
 * Applies a batch. It is deterministic for the same table, batch and time, so it can be replayed. A batch that was
 * applied before returns its receipt again; a batch older than its writer's last one throws.
 */
export function reduce(table: Table, batch: Batch, now: Time, recording: boolean): Reduced {
  const before = table.writers.replay(batch, (id) => table.rows.get(id)?.job)
  if (before !== undefined) return { receipt: before, news: undefined }
  const notices = new Notices(now, recording, table.journal)
  for (let expired = table.orphans.expire(now); expired !== undefined; expired = table.orphans.expire(now)) {
    notices.leaseEnded(expired.name.queue)
  }
  table.keys.sweep(now)
  const groups = batch.groups.map((group) => applyGroup(table, group, notices))
  const renewals = batch.renewals.map((renewal) => renew(table, renewal, notices))
  let again = Infinity
  const asks = batch.asks.map((ask) => {
    const result = claim(table, ask, notices)
    if (result.again !== undefined && result.again < again) again = result.again
    return result.jobs
  })
  const { writer, seq } = batch
  const receipt: Receipt = { writer, seq, now, groups, renewals, asks, ...(again !== Infinity && { again }) }
  notices.addDrained()
  table.writers.remember(receipt)
  return { receipt, news: notices }
}

function applyGroup(table: Table, group: Group, notices: Notices): Verdict {
  const { journal: undoLog } = table
  const events = notices.events.length
  const revoked = notices.revoked.length
  let first: Row | undefined
  let others: Row[] | undefined
  undoLog.open = mayRollBack(group)
  for (const [at, change] of group.entries()) {
    const done = apply(table, change, notices)
    if (done === undefined) continue
    if ('why' in done) {
      undoLog.rollback()
      notices.truncate(events, revoked)
      return refusedAt(at, done)
    }
    if (first === undefined) first = done
    else if (others === undefined) others = [done]
    else others.push(done)
  }
  undoLog.keep()
  if (first === undefined) return LANDED
  if (others === undefined) return { ok: true, inserted: [copyOf(first.job)] }
  return { ok: true, inserted: [first, ...others].map(recordOf) }
}

const recordOf = (row: Row): JobRecord => copyOf(row.job)

/** Applies one change, whole or not at all. Returns the row of an insert, or why the change was refused. */
function apply(table: Table, change: Change, notices: Notices): Row | Refused | undefined {
  switch (change.kind) {
    case 'insert':
      return insert(table, change, notices)
    case 'move':
      return move(table, change, notices)
    case 'note':
      return note(table, change, notices)
    case 'release':
      release(table, change, notices)
      return undefined
    case 'put':
      return put(table, change, notices)
  }
}
