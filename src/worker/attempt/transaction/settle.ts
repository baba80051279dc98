// worker/attempt/transaction/settle.ts: ends the transactions of an attempt: settles it in the open one, or rolls back.
import { settle } from '../../../job/lifecycle.js'
import type { Outcome, Returned } from '../../../job/lifecycle.js'
import { reasonOf } from '../../leases.js'
import type { Leases } from '../../leases.js'
import type { HandlerAttempt } from '../handler-attempt.js'
import { lateFailure } from '../outcome.js'
import type { AttemptOutcome } from '../outcome.js'
import type { AttemptTransactions } from './attempt-transactions.js'
import { notCommitted, refusalOf } from './complete-given.js'

/**
 * Ends the transactions of an attempt whose handler has ended, and returns its outcome: the same, unless a transaction
 * could not be committed. If the settlement was committed, `attempt.committed` is set.
 */
export function endTransactions(
  attempt: HandlerAttempt,
  leases: Leases,
  transactions: AttemptTransactions,
  ended: Outcome,
): AttemptOutcome | Promise<AttemptOutcome> {
  const { userSettlement } = transactions
  let outcome = ended
  if (userSettlement !== undefined) {
    // Whether the user transaction was committed is unknown. If it was, the fence refuses what is sent now, and the
    // settlement of that transaction counts.
    attempt.unsure = true
    attempt.maybeCommitted = userSettlement
    if (ended.kind === 'returned') outcome = lateFailure(attempt, notCommitted(attempt.record))
  }
  if (outcome.kind !== 'returned') return transactions.rollBack(new Error('The handler failed.')).then(() => outcome)
  return transactions.isOpen ? settleInTransaction(attempt, leases, transactions, outcome) : outcome
}

/** Settles in the open transaction. If that fails, the transaction is rolled back and the attempt fails. */
async function settleInTransaction(
  attempt: HandlerAttempt,
  leases: Leases,
  transactions: AttemptTransactions,
  outcome: Returned,
): Promise<AttemptOutcome> {
  const also = attempt.children?.own.also ?? []
  try {
    if (also.length > 0) await transactions.send(also)
  } catch (error) {
    await transactions.rollBack(error)
    return lateFailure(attempt, error)
  }
  const group = attempt.settlement(outcome, settle(attempt.record, outcome))
  const end = await transactions.settle(group)
  switch (end.kind) {
    case 'committed':
      attempt.committed = { outcome, group }
      return outcome
    case 'unknown':
      attempt.unsure = true
      attempt.maybeCommitted = { outcome, group }
      return lateFailure(attempt, end.error)
    case 'refused': {
      const error = refusalOf(attempt.record, end.verdict, group)
      if (error !== undefined) return lateFailure(attempt, error)
      leases.lose(attempt, ...reasonOf(end.verdict))
      return undefined
    }
  }
}
