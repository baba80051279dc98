// A toy store with transactions, made of memory stores, so that the cases about transactions have run before a database does.
import type { Change } from '../../src/job/change.js'
import type { Harness } from '../../src/conformance/harness.js'
import { MillraceError } from '../../src/job/errors/errors.js'
import type { Batch, Receipt, Store, Tx, Verdict } from '../../src/store/store.js'
import { memory } from '../../src/stores/memory/store.js'
import { RING, stoppedClock } from './clock.js'

/** An open transaction: a copy of the store that it alone sees, and what it would add. */
interface Open {
  copy: Store
  batches: Batch[]
}

/** What a change touches. */
function idOf(change: Change): string {
  if (change.kind === 'insert') return change.job.id
  if (change.kind === 'put') return change.key
  return change.kind === 'release' ? change.chain : change.id
}

/** Transactions lock rows (`rows`), or make everybody else wait (`store`), as the databases do. */
export async function transactingHarness(locks: 'rows' | 'store'): Promise<Harness> {
  const { runtime, advance } = stoppedClock()
  const main = memory({ runtime, ring: RING })
  const landed: { readonly batch: Batch; readonly at: number }[] = []
  const open = new Set<Open>()
  const known = new Set<unknown>()
  let written = 0
  let turn: Promise<unknown> = Promise.resolve()
  let closed = false

  const apply = async (batch: Batch): Promise<Receipt> => {
    const receipt = await main.commit(batch)
    landed.push({ batch, at: receipt.now })
    return receipt
  }

  const copied = async (batches: readonly Batch[] = []): Promise<Store> => {
    let past: number | undefined = 0
    const copy = memory({ runtime: { ...runtime, now: () => past ?? runtime.now() } })
    for (const { batch, at } of landed) {
      past = at
      await copy.commit(batch)
    }
    past = undefined
    for (const batch of batches) await copy.commit(batch)
    return copy
  }

  /** The transaction, if it is one and open. */
  const opened = (tx: Tx): Open => {
    if (!known.has(tx)) throw new MillraceError('INVALID_TRANSACTION', 'That is no transaction of the toy store.')
    if (!open.has(tx as Open)) throw new MillraceError('TRANSACTION_ENDED', 'That transaction has ended.')
    return tx as Open
  }

  /** Leaves out the groups that meet a locked row, and returns them as busy. */
  const applyUnlocked = async (batch: Batch): Promise<Receipt> => {
    const locked = new Set([...open].flatMap(({ batches }) => batches.flatMap(({ groups }) => groups.flat().map(idOf))))
    const isFree = batch.groups.map((group) => !group.some((change) => locked.has(idOf(change))))
    const receipt = await apply({ ...batch, groups: batch.groups.filter((_, index) => isFree[index]) })
    const verdicts = receipt.groups.values()
    const groups = batch.groups.map((group, index): Verdict => {
      const first = group[0]
      if (isFree[index] || first === undefined) return verdicts.next().value ?? { ok: true, inserted: [] }
      return { ok: false, change: 0, why: 'busy', id: idOf(first) }
    })
    return { ...receipt, groups }
  }

  const savepoint = async <T>(work: (tx: Tx) => Promise<T>, tx: Open): Promise<T> => {
    const before = [...tx.batches]
    try {
      return await work(tx)
    } catch (error) {
      tx.batches = before
      tx.copy = await copied(before)
      throw error
    }
  }

  const transact = async <T>(work: (tx: Tx) => Promise<T>, within?: Tx): Promise<T> => {
    if (closed) throw new MillraceError('STORE_CLOSED', 'The toy store was used after it was closed.')
    if (within !== undefined) return savepoint(work, opened(within))
    const tx: Open = { copy: await copied(), batches: [] }
    open.add(tx)
    known.add(tx)
    const answer = work(tx).finally(() => open.delete(tx))
    turn = answer.catch(() => {})
    const result = await answer
    for (const batch of tx.batches) await apply(batch)
    return result
  }

  const store: Store = {
    ...main,
    name: 'toy',
    can: { transactions: true, share: 'process' },
    commit: async (batch, tx) => {
      if (tx !== undefined) {
        const { copy, batches } = opened(tx)
        const own = { ...batch, writer: `toy ${++written}` }
        batches.push(own)
        return copy.commit(own)
      }
      if (locks === 'rows') return applyUnlocked(batch)
      await turn
      await Promise.resolve() // the transaction that ended lands first
      return apply(batch)
    },
    get: async (ids, tx) => (tx === undefined ? main : opened(tx).copy).get(ids),
    find: async (query, tx) => (tx === undefined ? main : opened(tx).copy).find(query),
    details: async (query, tx) => (tx === undefined ? main : opened(tx).copy).details(query),
    tally: async (queues, tx, options) => (tx === undefined ? main : opened(tx).copy).tally(queues, undefined, options),
    transact,
    close: async () => {
      closed = true
      await main.close()
    },
  }
  return { store, peer: async () => store, advance, dispose: () => store.close(), rowLocks: locks === 'rows' }
}
