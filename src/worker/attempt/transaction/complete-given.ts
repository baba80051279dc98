// worker/attempt/transaction/complete-given.ts: `ctx.complete({ tx }, work)`: settles a job in a user transaction.
import { MillraceError } from '../../../job/errors/errors.js'
import type { JobRecord } from '../../../job/job.js'
import { lock, settle } from '../../../job/lifecycle.js'
import type { Returned } from '../../../job/lifecycle.js'
import { cannotContinue, outOfOrder } from '../../../queue/flows/follow-ups.js'
import { OpenTransaction } from '../../../store/transaction-context.js'
import type { Group, Refused, Tx } from '../../../store/store.js'
import { reasonOf } from '../../leases.js'
import type { Leases } from '../../leases.js'
import type { Attempt, Settled } from '../attempt.js'
import { conclude, tooLong } from './held-transaction.js'

/**
 * Settles a job in a user transaction: locks the job's row first, then runs the work, and writes the settlement last.
 * Whether it is committed is known only when the user has ended the transaction. `mayRetry` waits a moment and returns
 * whether there is time for another try.
 */
export async function completeInUserTransaction(
  attempt: Attempt,
  leases: Leases,
  tx: Tx,
  mayRetry: () => Promise<boolean>,
  work: (open: OpenTransaction) => Promise<Returned>,
): Promise<Settled> {
  const { record } = attempt
  const { store, outcomes } = attempt.parts.connection
  const open = new OpenTransaction(store, tx, outcomes)
  open.settles = record.id
  try {
    await lockJob(open, attempt, leases, mayRetry)
    const outcome = await work(open)
    const group = attempt.settlement(outcome, settle(record, outcome))
    const verdict = await conclude(open, group, mayRetry)
    if (verdict.ok) return { outcome, group }
    const error = refusalOf(record, verdict, group)
    if (error !== undefined) throw error
    leases.lose(attempt, ...reasonOf(verdict))
    throw attempt.lostError()
  } finally {
    await open.over()
  }
}

/** Locks the job: until the end of the transaction, no other commit can change it. */
async function lockJob(
  open: OpenTransaction,
  attempt: Attempt,
  leases: Leases,
  mayRetry: () => Promise<boolean>,
): Promise<void> {
  const { record, transactions } = attempt
  for (let renewed = false; ;) {
    const [verdict] = await open.commit([[lock(record, true)]])
    if (verdict!.ok) return
    if (verdict!.why === 'busy') {
      if (await mayRetry()) continue
      throw tooLong(record)
    }
    // An earlier user transaction may have settled the job.
    if (transactions?.userSettlement !== undefined) throw outOfOrder('ctx.complete was called twice')
    const stillOurs = verdict!.job?.fence === record.fence && verdict!.job.state === 'active'
    if (!stillOurs || renewed) {
      leases.lose(attempt, ...reasonOf(verdict!))
      throw attempt.lostError()
    }
    renewed = true
    await leases.renew(attempt) // the lease expired, and no other worker has taken the job
  }
}

/** The error of an attempt whose settlement in a transaction was refused; undefined if the lease is lost. */
export function refusalOf(record: JobRecord, verdict: Refused, group: Group): MillraceError | undefined {
  const refused = group[verdict.change]
  // All other jobs were added earlier in the transaction: the only insert left is the continuation.
  if (refused?.kind === 'insert' && verdict.why !== 'busy') return cannotContinue(record, refused, verdict)
  const stillOurs = verdict.why === 'busy' || (verdict.job?.fence === record.fence && verdict.job.state === 'active')
  return stillOurs ? tooLong(record) : undefined
}

/** The error of a call without a transaction. */
export function noTransaction(): MillraceError {
  return new MillraceError(
    'INVALID_TRANSACTION',
    'ctx.complete({ tx }, work) was given no transaction. Pass the one that you have open, or leave the first argument out.',
  )
}

/**
 * The error of an attempt whose handler returned while the call was pending, and nothing awaited it. The transaction has
 * ended before the settlement, or will end after the attempt. A driver may never answer what is asked of it then.
 */
export function notAwaitedInTransaction({ id }: JobRecord): MillraceError {
  return new MillraceError(
    'NOT_AWAITED',
    `ctx.complete({ tx }) of job ${id} was not awaited, and its handler returned before it had settled the job. Await it inside your transaction, and commit after it.`,
    { details: { id } },
  )
}

/** The error of an attempt whose handler returned although the transaction that settled it was not committed. */
export function notCommitted({ id }: JobRecord): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    `The transaction that was given to ctx.complete for job ${id} was not committed. Commit it before the handler returns, right after ctx.complete.`,
    { details: { id } },
  )
}
