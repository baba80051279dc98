// worker/attempt/transaction/complete-given.ts: `ctx.complete({ tx }, work)`: settles a job in a transaction that the user has open.
import { MillraceError } from '../../../job/errors.js'
import type { JobRecord } from '../../../job/job.js'
import { lock, settle } from '../../../job/lifecycle.js'
import type { Returned } from '../../../job/lifecycle.js'
import { withOverflow } from '../../../queue/settings/overflow.js'
import { outOfOrder } from '../../../queue/flows/follow-ups.js'
import { OpenTransaction } from '../../../store/transaction-context.js'
import { connect } from '../../../store/connection.js'
import { stepwise } from '../../../store/maybe-sync.js'
import type { Group, Store, Tx, Verdict } from '../../../store/store.js'
import { reasonOf } from '../../leases.js'
import type { Why } from '../context.js'
import { withLastNote } from '../../phases/run.js'
import { tooLong } from './watchdog.js'

/** The attempt that is settled. */
type Settling = Parameters<typeof withLastNote>[0] & {
  readonly record: JobRecord
  notOurs(): MillraceError
}

/** What it needs of its worker. */
interface GivenHost {
  /** Waits a moment; answers whether there is time for another try. */
  again(): Promise<boolean>
  renew(): Promise<unknown>
  lost(...why: Why): void
  /** Whether a transaction given before may have settled the job. */
  readonly settled: boolean
  refusal(verdict: Verdict & { ok: false }, outcome: Returned): MillraceError | undefined
}

/**
 * Settles a job in a transaction that is the user's to end: the row of the job is locked first, then the work runs, and the
 * settlement is written last. Whether it stands is known when the user has ended the transaction.
 */
export async function completeGiven(
  store: Store,
  tx: Tx,
  attempt: Settling,
  host: GivenHost,
  work: (open: OpenTransaction) => Promise<Returned>,
): Promise<Returned> {
  const open = new OpenTransaction(store, tx, connect(store).outcomes)
  open.settles = attempt.record.id
  try {
    await hold(open, attempt, host)
    const outcome = await work(open)
    const group = withLastNote(attempt, outcome, settle(attempt.record, outcome))
    const conclude = (last: Group): Promise<Verdict> => concluded(open, last, host)
    let verdict = await conclude(group)
    if (!verdict.ok && verdict.why === 'full') {
      const way = { commit: conclude, details: (query: Parameters<Store['details']>[0]) => store.details(query, tx) }
      verdict = await stepwise(withOverflow(way, group, verdict))
    }
    if (verdict.ok) return outcome
    const error = host.refusal(verdict, outcome)
    if (error !== undefined) throw error
    host.lost(...reasonOf(verdict))
    throw attempt.notOurs()
  } finally {
    await open.over()
  }
}

/** Locks the job: from here on, nobody else can touch it until the transaction ends. */
async function hold(open: OpenTransaction, attempt: Settling, host: GivenHost): Promise<void> {
  const { record } = attempt
  for (let renewed = false; ;) {
    const [verdict] = await open.commit([[lock(record, true)]])
    if (verdict!.ok) return
    if (verdict!.why === 'busy') {
      if (await host.again()) continue
      throw tooLong(record)
    }
    if (host.settled) throw outOfOrder('ctx.complete was called twice')
    const stillOurs = verdict!.job?.fence === record.fence && verdict!.job.state === 'active'
    if (!stillOurs || renewed) {
      host.lost(...reasonOf(verdict!))
      throw attempt.notOurs()
    }
    renewed = true
    await host.renew() // the lease ran out, and nobody has taken the job
  }
}

/** Writes the last group; one that meets a row which somebody else's commit holds is sent again. */
async function concluded(open: OpenTransaction, last: Group, host: GivenHost): Promise<Verdict> {
  for (;;) {
    const verdict = await open.conclude(last)
    if (verdict.ok || verdict.why !== 'busy' || !(await host.again())) return verdict
  }
}

/** The error of an attempt whose handler returned, while the transaction in which it settled was not committed. */
export function notCommitted({ id }: JobRecord): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    `The transaction that was given to ctx.complete for job ${id} was not committed. Commit it before the handler returns, right after ctx.complete.`,
    { details: { id } },
  )
}
