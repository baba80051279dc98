// worker/attempt/transaction/settle.ts: settles an attempt in the transaction that its handler has open.
import type { JobRecord } from '../../../job/job.js'
import { settle } from '../../../job/lifecycle.js'
import type { Outcome, Returned } from '../../../job/lifecycle.js'
import type { Prepared } from '../../../queue/add.js'
import type { AttemptHost } from '../attempt-host.js'
import { reasonOf } from '../../leases.js'
import { withLastNote } from '../../phases/run.js'
import type { AttemptTransactions } from './attempt-transactions.js'

/** The attempt that is settled. */
interface SettlingAttempt {
  readonly record: JobRecord
  outcome: Outcome | undefined
  unsure: boolean
  maybeCommitted: Returned | undefined
  failedWith(error: unknown): Outcome
}

/** Settles in the open transaction. If that fails, the transaction is rolled back and the attempt fails. */
export async function settleInTransaction<Attempt extends SettlingAttempt & Parameters<typeof withLastNote>[0]>(
  attempt: Attempt,
  host: Pick<AttemptHost<Attempt>, 'committed' | 'ended' | 'lost' | 'endedLost'>,
  transactions: AttemptTransactions,
  outcome: Returned,
  also: readonly Prepared[],
): Promise<void> {
  const failed = (error: unknown): void => host.ended(attempt, (attempt.outcome = attempt.failedWith(error)))
  try {
    if (also.length > 0) await transactions.send(also)
  } catch (error) {
    await transactions.rollBack(error)
    return failed(error)
  }
  const group = withLastNote(attempt, outcome, settle(attempt.record, outcome))
  const end = await transactions.settle(group)
  switch (end.kind) {
    case 'committed':
      return host.committed(attempt, outcome)
    case 'unknown':
      attempt.unsure = true
      attempt.maybeCommitted = outcome
      return failed(end.error)
    case 'refused': {
      const error = transactions.refusal(end.verdict, group)
      if (error !== undefined) return failed(error)
      host.lost(attempt, ...reasonOf(end.verdict))
      host.endedLost(attempt)
    }
  }
}
