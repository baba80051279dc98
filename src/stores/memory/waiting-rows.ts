// stores/memory/waiting-rows.ts: waiting jobs in claim order, and how far claims have found none but expired ones.
import type { JobRecord, Time } from '../../job/job.js'
import { hasExpired } from '../../job/lifecycle.js'
import { BTree } from './btree.js'

/** A position in claim order. */
interface Position {
  readonly seq: number
  readonly job: { readonly priority: number; readonly ord: number }
}

/** Claim order. Fair orders may be equal, so that insertion decides. */
function byClaimOrder(a: Position, b: Position): number {
  return a.job.priority - b.job.priority || a.job.ord - b.job.ord || a.seq - b.seq
}

/** What is read of a row: its position, and whether it has expired. */
interface WaitingRow extends Position {
  readonly job: Pick<JobRecord, 'priority' | 'ord' | 'attempt' | 'expiresAt'>
}

/** Waiting jobs in claim order. */
export class WaitingRows<Row extends WaitingRow> extends BTree<Row> {
  /** All rows up to this position had expired at this time, so that claims need not look at them again. */
  #passed: { readonly to: Position; readonly at: Time } | undefined

  constructor() {
    super(byClaimOrder)
  }

  override insert(row: Row): void {
    this.recheck(row)
    super.insert(row)
  }

  /** Call when a row was added, or may no longer have expired. */
  recheck(row: Row): void {
    if (this.#passed !== undefined && byClaimOrder(row, this.#passed.to) <= 0) this.#passed = undefined
  }

  /** The first job that has not expired. */
  firstUnexpired(now: Time): Row | undefined {
    const { min } = this
    if (min === undefined || !hasExpired(min.job, now)) return min
    const passed = this.#passed !== undefined && this.#passed.at <= now ? this.#passed.to : undefined
    let last: Row | undefined
    let first: Row | undefined
    for (const row of this.ascend(passed && ((each) => byClaimOrder(each, passed) <= 0))) {
      if (!hasExpired(row.job, now)) {
        first = row
        break
      }
      last = row
    }
    if (last !== undefined) {
      const { seq, job } = last
      this.#passed = { to: { seq, job: { priority: job.priority, ord: job.ord } }, at: now }
    }
    return first
  }
}
