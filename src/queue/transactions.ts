// queue/transactions.ts: how a call names its transaction, and `queue.transaction` itself.
import { MillraceError } from '../job/errors/errors.js'
import { refuseUnknown } from '../job/values/names.js'
import { invalid, isObject } from '../job/values/options.js'
import {
  OpenTransaction,
  joinedTransaction,
  openTransaction,
  requireTransactions,
  runAtPosition,
} from '../store/transaction-context.js'
import { connect } from '../store/connection.js'
import type { GivenBy, Store, TakenBy, Tx } from '../store/store.js'

/** The transaction that a call belongs to. */
export interface InTransaction<Taken = unknown> {
  /**
   * The transaction to read and write in; the caller ends it. Default: the one of `queue.transaction` or `ctx.complete`
   * that the calling code is inside of, else none.
   */
  readonly tx?: Taken
}

/** The last argument of calls that may join a transaction, on stores with transactions. */
export type TransactionArgument<S extends Store> = [TakenBy<S>] extends [never]
  ? []
  : [options?: InTransaction<TakenBy<S>>]

/** What `queue.transaction` takes: a function of the store's handle; `never` on stores without transactions. */
export type TransactionWork<S extends Store, T> = [GivenBy<S>] extends [never]
  ? [thisStoreHasNoTransactions: never]
  : [work: (tx: GivenBy<S>) => Promise<T>]

/** Options with `tx`, on stores with transactions. */
export type WithTransaction<S extends Store, Options> = [TakenBy<S>] extends [never]
  ? Options
  : Options & InTransaction<TakenBy<S>>

/** The transaction in the options of a call that has no other options. */
export function transactionIn(options: InTransaction | undefined, call: string): Tx {
  if (options === undefined) return undefined
  if (typeof options !== 'object' || options === null) throw invalid(`${call}: options must be an object like { tx }.`)
  refuseUnknown(options, ['tx'], call)
  return options.tx
}

/** Separates the transaction from the other options. */
export function splitTransaction<Options extends object>(
  options: Options & InTransaction,
  call: string,
): { readonly tx: Tx; readonly rest: Options } {
  if (!isObject(options)) throw invalid(`${call} must be an object, not ${String(options)}.`)
  if (!('tx' in options)) return { tx: undefined, rest: options }
  const { tx, ...rest } = options
  return { tx, rest: rest as unknown as Options }
}

/**
 * Throws for an asynchronous schema inside a given synchronous transaction: that transaction may end, or another one
 * begin, before the schema returns.
 */
export function refuseAsyncSchema(store: Store, tx: Tx, name: string): void {
  if (tx === undefined || store.can.synchronous !== true || openTransaction(store)?.tx === tx) return
  throw new MillraceError(
    'ASYNC_SCHEMA',
    `The schema of '${name}' is asynchronous, and the transaction given may be over before it answers. Use queue.transaction, which waits for it, or a schema that answers at once.`,
    { details: { name } },
  )
}

/** Runs work in a transaction on a store, or in a savepoint of the transaction that the calling code is inside of. */
export async function transactionOn<S extends Store, T>(
  store: S,
  check: () => void,
  work: (tx: GivenBy<S>) => Promise<T>,
): Promise<T> {
  check()
  if (typeof work !== 'function') {
    throw invalid('queue.transaction takes a function: queue.transaction(async (tx) => …).')
  }
  requireTransactions(store)
  let open: OpenTransaction | undefined
  const inside = (tx: Tx): Promise<T> => {
    const transaction = (open = new OpenTransaction(store, tx))
    return runAtPosition({ open: transaction }, async () => {
      try {
        return await work(tx)
      } finally {
        await transaction.over()
      }
    })
  }
  const outer = joinedTransaction(store)
  if (outer === undefined) await connect(store).ready()
  const result = await (outer === undefined ? store.transact!(inside) : outer.nest(inside))
  open?.committed()
  return result
}
