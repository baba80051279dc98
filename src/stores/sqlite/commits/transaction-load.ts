// stores/sqlite/commits/transaction-load.ts: which of the batches that wait go into one transaction, bounded in work and in bytes.
import { BATCH_BYTES, bytesOf, weightOf } from '../../../store/batch-size.js'
import type { Batch, Receipt } from '../../../store/store.js'
import { bytesOfReceipt } from '../../kept-receipts.js'
import type { Outcome } from '../connection.js'

/** Changes, renewals and claimed jobs of one transaction, about: as many as one full batch may hold with its claims. */
const MOST_WORK = 500

/** What a batch costs beside its changes, in changes: it is read, and its receipt is written. */
const BATCH_WORK = 3

/** The most jobs that a claim is expected to take; most take fewer than they want. */
const CLAIM_WORK = 250

/** The batches of one transaction: the first ones that wait, one of each writer, until the transaction is full. */
export class TransactionLoad {
  readonly #batches: readonly Batch[]
  /** A replay is answered from what its writer has committed, not from what it commits now. */
  readonly #writers = new Set<string>()
  #work = 0
  #bytes = 0
  #size = 0

  constructor(batches: readonly Batch[]) {
    this.#batches = batches
  }

  /** How many batches it holds so far. */
  get size(): number {
    return this.#size
  }

  /** The next batch; undefined if there is none, or none that fits. `outcome` is that of the one before. */
  next(outcome: Outcome | undefined): Batch | undefined {
    const before = this.#batches[this.#size - 1]
    if (before !== undefined)
      this.#add(before, outcome !== undefined && 'receipt' in outcome ? outcome.receipt : undefined)
    const batch = this.#batches[this.#size]
    if (batch === undefined || !this.#fits(batch)) return undefined
    this.#writers.add(batch.writer)
    this.#size++
    return batch
  }

  /** Adds what a batch came to. */
  #add(batch: Batch, answer: Receipt | undefined): void {
    const bytes = bytesOfBatch(batch)
    this.#bytes += answer === undefined ? bytes : Math.max(bytes, bytesOfReceipt(answer))
    this.#work += BATCH_WORK + workOf(batch)
    for (const jobs of answer?.asks ?? []) this.#work += jobs.length
  }

  #fits(batch: Batch): boolean {
    if (this.#size === 0) return true
    if (this.#writers.has(batch.writer)) return false
    let wanted = 0
    for (const { want, ahead } of batch.asks) wanted += want + ahead
    const work = this.#work + BATCH_WORK + workOf(batch) + Math.min(wanted, CLAIM_WORK)
    return work <= MOST_WORK && this.#bytes + bytesOfBatch(batch) <= BATCH_BYTES
  }
}

function workOf({ groups, renewals }: Batch): number {
  let work = renewals.length
  for (const group of groups) work += weightOf(group)
  return work
}

function bytesOfBatch({ groups }: Batch): number {
  let bytes = 0
  for (const group of groups) bytes += bytesOf(group)
  return bytes
}
