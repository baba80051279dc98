// stores/memory/reduce.ts: applies one batch to a table: groups in order, then renewals, then asks.
import type { Change } from '../../job/change.js'
import type { JobRecord, Time } from '../../job/job.js'
import type { Batch, Group, Receipt, Refused, Verdict } from '../../store/store.js'
import { mayRollBack } from '../apply.js'
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
import { LANDED } from '../verdicts.js'

/** What a batch came to. */
export interface Reduced {
  readonly receipt: Receipt
  /** What there is to tell, once it is durable; nothing for a batch that was applied before. */
  readonly news: Notices | undefined
}

/**
 * Applies a batch. Given the same table, batch and time it does the same, so it can be replayed. A batch applied before
 * is answered again, and one older than its writer's last is refused by an error.
 */
export function reduce(table: Table, batch: Batch, now: Time, recording: boolean): Reduced {
  const before = table.writers.replay(batch, (id) => table.rows.get(id)?.job)
  if (before !== undefined) return { receipt: before, news: undefined }
  const news = new Notices(now, recording, table.journal)
  for (let over = table.orphans.expire(now); over !== undefined; over = table.orphans.expire(now)) {
    news.credited(over.name.queue)
  }
  table.keys.sweep(now)
  const groups = batch.groups.map((group) => applyGroup(table, group, news))
  const renewals = batch.renewals.map((renewal) => renew(table, renewal, news))
  let again = Infinity
  const asks = batch.asks.map((ask) => {
    const answer = claim(table, ask, news)
    if (answer.again !== undefined && answer.again < again) again = answer.again
    return answer.jobs
  })
  const { writer, seq } = batch
  const receipt: Receipt = { writer, seq, now, groups, renewals, asks, ...(again !== Infinity && { again }) }
  news.drained()
  table.writers.remember(receipt)
  return { receipt, news }
}

function applyGroup(table: Table, group: Group, news: Notices): Verdict {
  const { journal } = table
  const told = news.events.length
  const revoked = news.revoked.length
  let first: Row | undefined
  let others: Row[] | undefined
  journal.open = mayRollBack(group)
  for (const change of group) {
    const done = apply(table, change, news)
    if (done === undefined) continue
    if ('why' in done) {
      journal.rollback()
      news.truncate(told, revoked)
      return done
    }
    if (first === undefined) first = done
    else if (others === undefined) others = [done]
    else others.push(done)
  }
  journal.keep()
  if (first === undefined) return LANDED
  if (others === undefined) return { ok: true, inserted: [copyOf(first.job)] }
  return { ok: true, inserted: [first, ...others].map(recordOf) }
}

const recordOf = (row: Row): JobRecord => copyOf(row.job)

/** Applies one change, whole or not at all. Answers the row of an insert, or why it was refused. */
function apply(table: Table, change: Change, news: Notices): Row | Refused | undefined {
  switch (change.kind) {
    case 'insert':
      return insert(table, change, news)
    case 'move':
      return move(table, change, news)
    case 'note':
      return note(table, change, news)
    case 'release':
      release(table, change, news)
      return undefined
    case 'put':
      return put(table, change, news)
  }
}
