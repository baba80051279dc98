// stores/memory/renew.ts: extends leases, and gives up those whose job was taken away.
import type { Renewal, Verdict } from '../../store/store.js'
import type { Notices } from './notices.js'
import { copyOf } from '../../job/record.js'
import { replace } from './table.js'
import type { Table } from './table.js'
import { fenced, LANDED, missing } from '../verdicts.js'

/** Renews a lease. One that has run out can be renewed until somebody moves its job. */
export function renew(table: Table, renewal: Renewal, news: Notices): Verdict {
  if (renewal.lease === 0) {
    const orphan = table.orphans.giveUp(renewal.id, renewal.fence)
    if (orphan !== undefined) {
      news.credited(orphan.name.queue)
      return LANDED
    }
  }
  const row = table.rows.get(renewal.id)
  if (row === undefined) return missing(renewal.id)
  const before = row.job
  if (before.state !== 'active' || before.fence !== renewal.fence) return fenced(before)
  const job = copyOf(before)
  job.leaseUntil = job.dueAt = news.now + renewal.lease
  if (renewal.started) job.ahead = false
  replace(table, row, job)
  return LANDED
}
