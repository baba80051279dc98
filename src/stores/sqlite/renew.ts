// stores/sqlite/renew.ts: extends leases, and gives up those whose job was taken away.
import type { Renewal, Verdict } from '../../store/store.js'
import { fenced, LANDED, missing } from '../verdicts.js'
import type { Transaction } from './transaction.js'

/** Renews a lease. One that has run out can be renewed until somebody moves its job. */
export function renew(tx: Transaction, { id, fence, lease, started }: Renewal): Verdict {
  const { sql, ground, now } = tx
  if (lease === 0 && ground.orphans) {
    const orphan = sql.orphan.get(id, fence)
    if (orphan !== undefined) {
      endOrphan(tx, id, fence, orphan[0] as number)
      if (tx.held.get(id)?.job.fence === fence) tx.held.delete(id)
      return LANDED
    }
  }
  const held = tx.held.get(id)
  const seq = held?.job.fence === fence ? held.seq : (sql.seqOf.get(id)?.[0] as number | undefined)
  if (seq === undefined) return missing(id)
  if (Number(sql.renew.run(now + lease, Number(started), seq, fence).changes) > 0) return LANDED
  tx.held.delete(id)
  const found = ground.lightById(id)
  return found === undefined ? missing(id) : fenced(found.job)
}

/** Ends the leases without a job that are over. */
export function expireOrphans(tx: Transaction): void {
  if (!tx.ground.orphans) return
  for (const [id, fence, lane] of tx.sql.orphansOver.all(tx.now) as [string, number, number][]) {
    endOrphan(tx, id, fence, lane)
  }
}

function endOrphan(tx: Transaction, id: string, fence: number, lane: number): void {
  tx.sql.dropOrphan.run(id, fence)
  tx.counts.lane(lane, 'orphaned', -1)
  tx.credited(tx.ground.lane(lane))
  tx.ground.orphans = undefined
}
