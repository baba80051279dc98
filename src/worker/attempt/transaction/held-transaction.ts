// worker/attempt/transaction/held-transaction.ts: a transaction that stays open until it is told how to end.
import { withOverflow } from '../../../queue/settings/overflow.js'
import type { OverflowSession } from '../../../queue/settings/overflow.js'
import { OpenTransaction, outside } from '../../../store/transaction-context.js'
import { stepwise } from '../../../store/maybe-sync.js'
import type { Group, Store, Tx, Verdict } from '../../../store/store.js'

/** How a transaction ended. */
export type End =
  | { readonly kind: 'committed' }
  /** Its last group was refused, so that it was rolled back. */
  | { readonly kind: 'refused'; readonly verdict: Verdict & { ok: false } }
  /** The store failed: it may have been committed, or not. */
  | { readonly kind: 'unknown'; readonly error: unknown }

/** What a transaction waits for: its last group, if any. */
interface Orders {
  readonly told: Promise<Group | undefined>
  commit(last: Group | undefined): void
  breakOff(reason: unknown): void
}

/** A transaction between its beginning and its end. */
export class HeldTransaction {
  readonly open: OpenTransaction
  /** Rejects as soon as it is rolled back, with the reason. */
  readonly broken: Promise<never>
  readonly #orders: Orders
  readonly #ended: Promise<End>

  /** Begins one; waits for its turn where only one can be open. `opened` is called in the very moment in which it is. */
  static begin(
    store: Store,
    again: () => Promise<boolean>,
    opened: (held: HeldTransaction) => void,
  ): Promise<HeldTransaction> {
    return new Promise((resolve, reject) => {
      let over = (_end: End): void => {}
      // A promise of its own, since the work may begin before `transact` has returned.
      const ended = new Promise<End>((fulfil) => (over = fulfil))
      let verdict: Verdict | undefined
      const work = async (tx: Tx): Promise<void> => {
        const open = new OpenTransaction(store, tx)
        const orders = takeOrders()
        const held = new HeldTransaction(open, orders, ended)
        opened(held)
        resolve(held)
        const last = await orders.told
        // `busy`: somebody else's commit holds a dependent or a key for a moment. Nothing of the group was written.
        const conclude = async (group: Group): Promise<Verdict> => {
          for (;;) {
            const said = await open.conclude(group)
            if (said.ok || said.why !== 'busy' || !(await again())) return said
          }
        }
        if (last !== undefined) {
          verdict = await conclude(last)
          if (!verdict.ok && verdict.why === 'full') {
            const way: OverflowSession = { commit: conclude, details: (query) => store.details(query, tx) }
            verdict = await stepwise(withOverflow(way, last, verdict))
          }
        } else await open.over()
        if (verdict?.ok === false) throw new Error('The last group was refused.')
      }
      outside(() => store.transact!(work)).then(
        () => over({ kind: 'committed' }),
        (error: unknown) => {
          over(verdict?.ok === false ? { kind: 'refused', verdict } : { kind: 'unknown', error })
          reject(error) // heard only if it never began
        },
      )
    })
  }

  private constructor(open: OpenTransaction, orders: Orders, ended: Promise<End>) {
    this.open = open
    this.#orders = orders
    this.#ended = ended
    this.broken = orders.told.then(() => new Promise<never>(() => {}))
    this.broken.catch(() => {})
  }

  /** Commits it, with a last group if one is given: if that is refused, it is rolled back instead. */
  commit(last: Group | undefined): Promise<End> {
    this.open.end() // nothing joins it any more
    this.#orders.commit(last)
    return this.#ended
  }

  /** Rolls it back, whatever is under way in it; resolves when that is done. */
  async rollBack(reason: unknown): Promise<void> {
    this.open.end()
    this.#orders.breakOff(reason)
    await this.#ended
  }
}

function takeOrders(): Orders {
  let commit: Orders['commit'] = () => {}
  let breakOff: Orders['breakOff'] = () => {}
  const told = new Promise<Group | undefined>((fulfil, fail) => {
    commit = fulfil
    breakOff = fail
  })
  return { told, commit, breakOff }
}
