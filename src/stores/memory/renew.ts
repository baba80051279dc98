// stores/memory/renew.ts: renews leases, and ends leases whose job was moved by another caller.
import type { Renewal, Verdict } from '../../store/store.js'
import type { Notices } from './notices.js'
import { copyOf } from '../../job/record.js'
import { replace } from './table.js'
import type { Table } from './table.js'
import { fenced, LANDED, missing } from '../verdicts.js'

/** Renews a lease. An expired lease can be renewed until its job is moved. */
export function renew(table: Table, renewal: Renewal, notices: Notices): Verdict {
  if (renewal.lease === 0) {
    const orphan = table.orphans.end(renewal.id, renewal.fence)
    if (orphan !== undefined) {
      notices.leaseEnded(orphan.name.queue)
      return LANDED
    }
  }
  const row = table.rows.get(renewal.id)
  if (row === undefined) return missing(renewal.id)
  const before = row.job
  if (before.state !== 'active' || before.fence !== renewal.fence) return fenced(before)
  const job = copyOf(before)
  job.leaseUntil = job.dueAt = notices.now + renewal.lease
  if (renewal.started) job.ahead = false
  replace(table, row, job)
  return LANDED
}
