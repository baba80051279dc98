// stores/sqlite/commits/commit-queue.ts: group commit across writers: batches that wait at the same time land in one transaction.
import type { Millis } from '../../../job/job.js'
import type { Runtime } from '../../../store/runtime.js'
import type { Batch, Receipt } from '../../../store/store.js'
import type { Connection, NextBatch, Outcome } from '../connection.js'
import { lockedFor, retryWhileBusy } from '../file/busy-retry.js'
import { isBusy, toStoreError } from '../file/errors.js'
import { TransactionLoad } from './transaction-load.js'

/** What the queue needs of its store. */
export interface CommitSource {
  readonly runtime: Runtime
  /** How long a batch waits while another program has the file locked. */
  readonly patience: Millis
  /** The connection, if it is open. */
  connection(): Connection | undefined
  /** Opens the connection. Rejects where the store is closed. */
  open(): Promise<Connection>
  /** Prepares a commit. Throws where the store is closed. */
  prepare(connection: Connection): void
  /** Commits one batch. */
  commit(connection: Connection, batch: Batch): Receipt
  /** Commits batches in one transaction. */
  commitTogether(connection: Connection, next: NextBatch): readonly Outcome[]
  /** Resolves when the transaction of this process that has the file locked has ended; undefined if there is none. */
  ownTransaction(): Promise<void> | undefined
}

/** A batch that waits for its transaction. */
interface Waiting {
  readonly batch: Batch
  resolve(receipt: Receipt): void
  reject(error: unknown): void
  /** Since when another program has had the file locked while this batch waited. */
  lockedSince: Millis | undefined
}

/**
 * The batches on their way into the file, in the order in which they came. A batch is committed at once while its writer
 * is the only one. Where several write, it waits for one turn of the event loop, so that those of the same turn leave
 * together. What comes while the file is locked leaves together as well. There are no timers.
 */
export class CommitQueue {
  readonly #source: CommitSource
  readonly #waiting: Waiting[] = []
  /** Set while what waits leaves by itself, until nothing is left. */
  #departure: object | undefined
  /** The first writer of the last transaction, and whether there were others in it. */
  #lastWriter: string | undefined
  #several = false
  /** How many batches at the front are committed one by one, because their joint transaction failed. */
  #apart = 0

  constructor(source: CommitSource) {
    this.#source = source
  }

  /** Commits a batch, in one transaction with others that wait. */
  commit(batch: Batch): Promise<Receipt> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ batch, resolve, reject, lockedSince: undefined })
      if (this.#departure !== undefined) return
      const connection = this.#source.connection()
      if (connection === undefined || connection.shouldYield) void this.#leave()
      else if (!this.#leavesAtOnce(batch, connection)) void this.#leave(this.#nextTurn())
      else if (!this.#landed(connection)) void this.#leave()
    })
  }

  /** Commits what waits, as far as it can without waiting. */
  flush(): void {
    const connection = this.#source.connection()
    if (connection === undefined) return
    while (this.#waiting.length > 0) if (!this.#landed(connection)) return
  }

  /** Whether its writer is alone, or waiting would save nothing: in memory, a transaction costs no sync. */
  #leavesAtOnce({ writer }: Batch, { path }: Connection): boolean {
    return path === undefined || (!this.#several && (this.#lastWriter ?? writer) === writer)
  }

  #nextTurn(): Promise<void> {
    return new Promise((resolve) => this.#source.runtime.defer(resolve))
  }

  /** Commits what waits, and what comes meanwhile, in as few transactions as it takes. */
  async #leave(begin?: Promise<void>): Promise<void> {
    const departure = (this.#departure = {})
    await begin
    while (this.#departure === departure) {
      await this.#leaveOnce()
      // Other work has its turn between two transactions.
      if (this.#departure === departure) await this.#nextTurn()
    }
  }

  async #leaveOnce(): Promise<void> {
    const { runtime, ownTransaction } = this.#source
    try {
      const connection = this.#source.connection() ?? (await this.#source.open())
      if (connection.shouldYield) await connection.yieldToOthers()
      const land = (): void => {
        try {
          this.#land(connection)
        } catch (error) {
          if (isBusy(error) && this.#isGivenUp(error, connection.path)) return
          throw error
        }
      }
      await retryWhileBusy(runtime, connection.path, land, Infinity, ownTransaction)
    } catch (error) {
      this.#rejectAll(error)
    }
  }

  /** Tries once. Returns false if the file is locked. */
  #landed(connection: Connection): boolean {
    try {
      this.#land(connection)
      return true
    } catch (error) {
      if (isBusy(error)) return false
      this.#rejectAll(toStoreError(error, connection.path))
      return true
    }
  }

  /** Takes the first ones out. */
  #take(count: number): readonly Waiting[] {
    const taken = this.#waiting.splice(0, count)
    if (this.#waiting.length === 0) this.#departure = undefined
    return taken
  }

  #rejectAll(error: unknown): void {
    for (const { reject } of this.#take(this.#waiting.length)) reject(error)
  }

  /** Rejects what has waited for too long while another program had the file locked. Returns whether nothing is left. */
  #isGivenUp(cause: unknown, path: string | undefined): boolean {
    const { runtime, patience } = this.#source
    if (this.#source.ownTransaction() !== undefined) {
      for (const each of this.#waiting) each.lockedSince = undefined // its end is awaited, however long it takes
      return false
    }
    const now = runtime.elapsed()
    for (const each of this.#waiting) each.lockedSince ??= now
    // In the order of their coming, so that those that give up are the first ones.
    const stay = this.#waiting.findIndex(({ lockedSince = now }) => now - lockedSince < patience)
    for (const { reject, lockedSince = now } of this.#take(stay === -1 ? this.#waiting.length : stay)) {
      reject(lockedFor(now - lockedSince, path, cause))
    }
    return this.#waiting.length === 0
  }

  /**
   * Commits the batch that has waited longest, and those after it that fit into its transaction. Throws where the file
   * is locked or the store is closed, and then nothing has left.
   */
  #land(connection: Connection): void {
    const waiting = this.#waiting
    const [first] = waiting
    if (first === undefined) return
    const source = this.#source
    source.prepare(connection)
    const together = waiting.length > 1 && this.#apart === 0
    const load = new TransactionLoad(together ? waiting.map(({ batch }) => batch) : [first.batch])
    let outcomes: readonly Outcome[]
    try {
      outcomes = together
        ? source.commitTogether(connection, (before) => load.next(before))
        : [{ receipt: source.commit(connection, first.batch) }]
    } catch (error) {
      if (isBusy(error)) throw error
      if (together) {
        // Where not even the transaction began, each batch fails by itself.
        this.#apart = load.size === 0 ? waiting.length : load.size
        return
      }
      outcomes = [{ error }]
    }
    if (this.#apart > 0) this.#apart--
    this.#several = outcomes.length > 1
    this.#lastWriter = first.batch.writer
    const left = this.#take(outcomes.length)
    for (const [at, outcome] of outcomes.entries()) {
      if ('receipt' in outcome) left[at]!.resolve(outcome.receipt)
      else left[at]!.reject(toStoreError(outcome.error, connection.path))
    }
  }
}
