// engine/renew.ts: renews leases, and ends leases whose job was moved by another caller.
import type { Renewal, Verdict } from '../store/store.js'
import { fenced, LANDED, missing } from './verdicts.js'
import type { Commit } from './workspace.js'

/** Renews a lease. An expired lease can be renewed until its job is moved. */
export function renew({ workspace, now, notices }: Commit, { id, fence, lease, started }: Renewal): Verdict {
  if (lease === 0) {
    const queue = workspace.endOrphan(id, fence)
    if (queue !== undefined) {
      notices.leaseEnded(queue)
      return LANDED
    }
  }
  if (workspace.renew(id, fence, now + lease, started)) return LANDED
  const row = workspace.find(id)
  return row === undefined ? missing(id) : fenced(row.job)
}
