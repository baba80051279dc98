// stores/sqlite/renew.ts: renews leases, and ends leases whose job was moved by another caller.
import type { Renewal, Verdict } from '../../store/store.js'
import { fenced, LANDED, missing } from '../../engine/verdicts.js'
import type { Transaction } from './transaction.js'

/** Renews a lease. An expired lease can be renewed until its job is moved. */
export function renew(tx: Transaction, { id, fence, lease, started }: Renewal): Verdict {
  const { sql, cache, now } = tx
  if (lease === 0 && cache.orphans) {
    const orphan = sql.orphan.get(id, fence)
    if (orphan !== undefined) {
      endOrphan(tx, id, fence, orphan[0] as number)
      if (tx.leased.get(id)?.job.fence === fence) tx.leased.delete(id)
      return LANDED
    }
  }
  const leased = tx.leased.get(id)
  const seq = leased?.job.fence === fence ? leased.seq : (sql.seqOf.get(id)?.[0] as number | undefined)
  if (seq === undefined) return missing(id)
  if (Number(sql.renew.run(now + lease, Number(started), seq, fence).changes) > 0) return LANDED
  tx.leased.delete(id)
  const found = cache.lightById(id)
  return found === undefined ? missing(id) : fenced(found.job)
}

/** Ends the orphaned leases that have expired. */
export function expireOrphans(tx: Transaction): void {
  if (!tx.cache.orphans) return
  for (const [id, fence, lane] of tx.sql.orphansOver.all(tx.now) as [string, number, number][]) {
    endOrphan(tx, id, fence, lane)
  }
}

function endOrphan(tx: Transaction, id: string, fence: number, lane: number): void {
  tx.sql.dropOrphan.run(id, fence)
  tx.counts.lane(lane, 'orphaned', -1)
  tx.leaseEnded(tx.cache.lane(lane))
  tx.cache.orphans = undefined
}
