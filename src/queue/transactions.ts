// queue/transactions.ts: how a call names its transaction, and `queue.transaction` itself.
import { MillraceError } from '../job/errors.js'
import { refuseUnknown } from '../job/names.js'
import {
  OpenTransaction,
  joinedTransaction,
  openTransaction,
  refuseWithout,
  runInside,
} from '../store/transaction-context.js'
import { connect } from '../store/connection.js'
import type { GivenBy, Store, TakenBy, Tx } from '../store/store.js'

/** Which transaction a call belongs to. */
export interface InTransaction<Taken = unknown> {
  /**
   * The transaction to write and read in, which is the caller's to end. Default: the one of `queue.transaction` or
   * `ctx.complete` that the calling code is inside of, else none.
   */
  readonly tx?: Taken
}

/** The last argument of calls that may belong to a transaction, on stores that have them. */
export type TransactionArgument<S extends Store> = [TakenBy<S>] extends [never]
  ? []
  : [options?: InTransaction<TakenBy<S>>]

/** What `queue.transaction` takes: a function of what the store gives; nothing that there is where it has no transactions. */
export type TransactionWork<S extends Store, T> = [GivenBy<S>] extends [never]
  ? [thisStoreHasNoTransactions: never]
  : [work: (tx: GivenBy<S>) => Promise<T>]

/** Options that may name a transaction, on stores that have them. */
export type WithTransaction<S extends Store, Options> = [TakenBy<S>] extends [never]
  ? Options
  : Options & InTransaction<TakenBy<S>>

/** The transaction that options name, of a call that takes nothing else. */
export function transactionIn(options: InTransaction | undefined, call: string): Tx {
  if (options === undefined) return undefined
  if (typeof options !== 'object' || options === null) {
    throw new MillraceError('INVALID_OPTION', `${call}: options must be an object like { tx }.`)
  }
  refuseUnknown(options, ['tx'], call)
  return options.tx
}

/** The transaction that options name, and the options without it. */
export function splitTransaction<Options extends object>(
  options: Options & InTransaction,
  call: string,
): { readonly tx: Tx; readonly rest: Options } {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new MillraceError('INVALID_OPTION', `${call} must be an object, not ${String(options)}.`)
  }
  if (!('tx' in options)) return { tx: undefined, rest: options }
  const { tx, ...rest } = options
  return { tx, rest: rest as unknown as Options }
}

/** Refuses a schema that waits where the transaction may be over, or another one begun, when it answers. */
export function refuseLate(store: Store, tx: Tx, name: string): void {
  if (tx === undefined || store.can.synchronous !== true || openTransaction(store)?.tx === tx) return
  throw new MillraceError(
    'ASYNC_SCHEMA',
    `The schema of '${name}' is asynchronous, and the transaction given may be over before it answers. Use queue.transaction, which waits for it, or a schema that answers at once.`,
    { details: { name } },
  )
}

/** Runs work in a transaction on a store, or in a savepoint of the one that the calling code is inside of. */
export async function transactionOn<S extends Store, T>(
  store: S,
  check: () => void,
  work: (tx: GivenBy<S>) => Promise<T>,
): Promise<T> {
  check()
  if (typeof work !== 'function') {
    throw new MillraceError('INVALID_OPTION', 'queue.transaction takes a function: queue.transaction(async (tx) => …).')
  }
  refuseWithout(store)
  let open: OpenTransaction | undefined
  const inside = (tx: Tx): Promise<T> => {
    const own = (open = new OpenTransaction(store, tx))
    return runInside({ open: own }, async () => {
      try {
        return await work(tx)
      } finally {
        await own.over()
      }
    })
  }
  const outer = joinedTransaction(store)
  if (outer === undefined) await connect(store).ready()
  const answer = await (outer === undefined ? store.transact!(inside) : outer.nest(inside))
  open?.committed()
  return answer
}
