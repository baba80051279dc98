// worker/attempt/transaction/complete-given.ts: `ctx.complete({ tx }, work)`: settles a job in a user transaction.
import { MillraceError } from '../../../job/errors.js'
import type { JobRecord } from '../../../job/job.js'
import { lock, settle } from '../../../job/lifecycle.js'
import type { Returned } from '../../../job/lifecycle.js'
import { withOverflow } from '../../../queue/settings/overflow.js'
import { outOfOrder } from '../../../queue/flows/follow-ups.js'
import { OpenTransaction } from '../../../store/transaction-context.js'
import { connect } from '../../../store/connection.js'
import { runSteps } from '../../../store/maybe-sync.js'
import type { Group, Refused, Store, Tx, Verdict } from '../../../store/store.js'
import { reasonOf } from '../../leases.js'
import type { LostReason } from '../context.js'
import { withLastNote } from '../../phases/run.js'
import { tooLong } from './watchdog.js'

/** The attempt that is settled. */
type SettlingAttempt = Parameters<typeof withLastNote>[0] & {
  readonly record: JobRecord
  lostError(): MillraceError
}

/** What it needs of its worker. */
interface UserTransactionHost {
  /** Waits a moment; returns whether there is time for another try. */
  mayRetry(): Promise<boolean>
  renew(): Promise<unknown>
  lost(...why: LostReason): void
  /** Whether an earlier user transaction may have settled the job. */
  readonly settled: boolean
  refusal(verdict: Refused, group: Group): MillraceError | undefined
}

/**
 * Settles a job in a user transaction: locks the job's row first, then runs the work, and writes the settlement last.
 * Whether it is committed is known only when the user has ended the transaction.
 */
export async function completeInUserTransaction(
  store: Store,
  tx: Tx,
  attempt: SettlingAttempt,
  host: UserTransactionHost,
  work: (open: OpenTransaction) => Promise<Returned>,
): Promise<Returned> {
  const open = new OpenTransaction(store, tx, connect(store).outcomes)
  open.settles = attempt.record.id
  try {
    await lockJob(open, attempt, host)
    const outcome = await work(open)
    const group = withLastNote(attempt, outcome, settle(attempt.record, outcome))
    const conclude = (last: Group): Promise<Verdict> => writeLast(open, last, host)
    let verdict = await conclude(group)
    if (!verdict.ok && verdict.why === 'full') {
      const session = {
        commit: conclude,
        details: (query: Parameters<Store['details']>[0]) => store.details(query, tx),
      }
      verdict = await runSteps(withOverflow(session, group, verdict))
    }
    if (verdict.ok) return outcome
    const error = host.refusal(verdict, group)
    if (error !== undefined) throw error
    host.lost(...reasonOf(verdict))
    throw attempt.lostError()
  } finally {
    await open.over()
  }
}

/** Locks the job: until the end of the transaction, no other commit can change it. */
async function lockJob(open: OpenTransaction, attempt: SettlingAttempt, host: UserTransactionHost): Promise<void> {
  const { record } = attempt
  for (let renewed = false; ;) {
    const [verdict] = await open.commit([[lock(record, true)]])
    if (verdict!.ok) return
    if (verdict!.why === 'busy') {
      if (await host.mayRetry()) continue
      throw tooLong(record)
    }
    if (host.settled) throw outOfOrder('ctx.complete was called twice')
    const stillOurs = verdict!.job?.fence === record.fence && verdict!.job.state === 'active'
    if (!stillOurs || renewed) {
      host.lost(...reasonOf(verdict!))
      throw attempt.lostError()
    }
    renewed = true
    await host.renew() // the lease expired, and no other worker has taken the job
  }
}

/** Writes the last group; retries while another commit has one of its rows locked. */
async function writeLast(open: OpenTransaction, last: Group, host: UserTransactionHost): Promise<Verdict> {
  for (;;) {
    const verdict = await open.conclude(last)
    if (verdict.ok || verdict.why !== 'busy' || !(await host.mayRetry())) return verdict
  }
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
