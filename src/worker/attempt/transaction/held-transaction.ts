// worker/attempt/transaction/held-transaction.ts: an open transaction that a later call ends, before it costs a lease.
import { MillraceError } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import { withOverflow } from '../../../queue/settings/overflow.js'
import { OpenTransaction, outside } from '../../../store/transaction-context.js'
import { runSteps } from '../../../store/maybe-sync.js'
import type { Runtime, Stop } from '../../../store/runtime.js'
import type { Group, Store, Tx, Verdict } from '../../../store/store.js'
import type { Leases } from '../../leases.js'
import type { Attempt } from '../attempt.js'

/** How a transaction ended. */
export type End =
  | { readonly kind: 'committed' }
  /** Its last group was refused, so it was rolled back. */
  | { readonly kind: 'refused'; readonly verdict: Verdict & { ok: false } }
  /** The store failed: it may or may not have been committed. */
  | { readonly kind: 'unknown'; readonly error: unknown }

/** How an open transaction is to end: `last` resolves to its last group, if any, or rejects to roll it back. */
interface Ending {
  readonly last: Promise<Group | undefined>
  commit(last: Group | undefined): void
  breakOff(reason: unknown): void
}

/** An open transaction. */
export class HeldTransaction {
  readonly open: OpenTransaction
  /** Rejects as soon as it is rolled back, with the reason. */
  readonly broken: Promise<never>
  readonly #ending: Ending
  readonly #ended: Promise<End>

  /**
   * Begins a transaction; waits for its turn if the store allows only one. `opened` is called at the moment it is open.
   */
  static begin(
    store: Store,
    mayRetry: () => Promise<boolean>,
    opened: (held: HeldTransaction) => void,
  ): Promise<HeldTransaction> {
    return new Promise((resolve, reject) => {
      let over = (_end: End): void => {}
      // A separate promise, because the work may begin before `transact` has returned.
      const ended = new Promise<End>((fulfil) => (over = fulfil))
      let verdict: Verdict | undefined
      const work = async (tx: Tx): Promise<void> => {
        const open = new OpenTransaction(store, tx)
        const ending = newEnding()
        const held = new HeldTransaction(open, ending, ended)
        opened(held)
        resolve(held)
        const last = await ending.last
        if (last !== undefined) verdict = await conclude(open, last, mayRetry)
        else await open.over()
        if (verdict?.ok === false) throw new Error('The last group was refused.')
      }
      outside(() => store.transact!(work)).then(
        () => over({ kind: 'committed' }),
        (error: unknown) => {
          over(verdict?.ok === false ? { kind: 'refused', verdict } : { kind: 'unknown', error })
          reject(error) // has an effect only if it never began
        },
      )
    })
  }

  private constructor(open: OpenTransaction, ending: Ending, ended: Promise<End>) {
    this.open = open
    this.#ending = ending
    this.#ended = ended
    this.broken = ending.last.then(() => new Promise<never>(() => {}))
    this.broken.catch(() => {})
  }

  /** Commits it, with a last group if one is given. If the store refuses that group, rolls it back instead. */
  commit(last: Group | undefined): Promise<End> {
    this.open.end() // nothing can join it any more
    this.#ending.commit(last)
    return this.#ended
  }

  /** Rolls it back, whatever is running in it; resolves when that is done. */
  async rollBack(reason: unknown): Promise<void> {
    this.open.end()
    this.#ending.breakOff(reason)
    await this.#ended
  }
}

/**
 * Writes the last group of a transaction; drops older jobs for those that it adds if a backlog is full. `mayRetry` waits
 * a moment and returns whether there is time for another try.
 */
export async function conclude(open: OpenTransaction, last: Group, mayRetry: () => Promise<boolean>): Promise<Verdict> {
  // `busy`: another commit has a dependent or a key locked for a moment. Nothing of the group was written.
  const commit = async (group: Group): Promise<Verdict> => {
    for (;;) {
      const verdict = await open.conclude(group)
      if (verdict.ok || verdict.why !== 'busy' || !(await mayRetry())) return verdict
    }
  }
  const verdict = await commit(last)
  if (verdict.ok || verdict.why !== 'full') return verdict
  return runSteps(withOverflow({ commit, details: (query) => open.store.details(query, open.tx) }, last, verdict))
}

function newEnding(): Ending {
  let commit: Ending['commit'] = () => {}
  let breakOff: Ending['breakOff'] = () => {}
  const last = new Promise<Group | undefined>((fulfil, fail) => {
    commit = fulfil
    breakOff = fail
  })
  return { last, commit, breakOff }
}

/** Calls `expired` when the transaction of an attempt has become so long that leases would expire because of it. */
export function watchTransaction(runtime: Runtime, leases: Leases, attempt: Attempt, expired: () => void): Stop {
  let stop: Stop
  const check = (): void => {
    const left = leases.mustEnd(attempt) - runtime.elapsed()
    if (left > 0) stop = runtime.timer(left, check)
    else expired()
  }
  stop = runtime.timer(leases.spare(attempt), check)
  return () => stop()
}

/** Waits, but not beyond the attempt's leases: a store that does not respond must not keep a slot for ever. */
export async function inTime<T>(runtime: Runtime, until: Millis, work: Promise<T>, late: T): Promise<T> {
  let stop: Stop = () => {}
  const timer = new Promise<T>((resolve) => {
    stop = runtime.timer(Math.max(0, until - runtime.elapsed()), () => resolve(late))
  })
  const first = await Promise.race([work, timer])
  stop()
  return first
}

/** The error of a transaction that was rolled back for its length. */
export function tooLong({ id, name }: { readonly id: string; readonly name: string }): MillraceError {
  return new MillraceError(
    'TRANSACTION_TOO_LONG',
    `The transaction of job ${id} ('${name}') was still open when a lease was about to run out, and was rolled back. ` +
      'Do slow work before ctx.complete, let the handler end soon after it, or lengthen the lease.',
    { details: { id } },
  )
}
