// stores/sqlite/writers.ts: the last batch of every writer, so that a batch sent again is answered and not applied.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Batch, Receipt } from '../../store/store.js'
import { KeptReceipts } from '../kept-receipts.js'
import { overwritten } from './errors.js'
import type { Cache } from './cache.js'
import { read } from './receipts.js'
import type { Transaction } from './transaction.js'

/** A writer silent for longer than this may be forgotten when there are many, and one silent for a day in any case. */
const SILENT_FOR: Millis = 600_000
const SILENT_FOR_LONG: Millis = 86_400_000

/** Writers whose receipts a connection keeps as they are, beside what is in the file. */
const KEPT = 100

/** The writers as one connection knows them. */
export class Writers {
  readonly #receipts = new KeptReceipts(KEPT)
  /** Writers of whom nobody else can have written a later batch. */
  readonly #sure = new Set<string>()

  readonly #path: string | undefined

  constructor(path: string | undefined) {
    this.#path = path
  }

  /** The receipt of a batch that was applied before; refuses one that is older than the last. */
  replay(ground: Cache, batch: Batch): Receipt | undefined {
    const known = this.#receipts.last(batch.writer)
    if (known !== undefined && batch.seq === known + 1 && this.#sure.has(batch.writer)) return undefined
    const last = ground.sql.writer.get(batch.writer)?.[0] as number | undefined
    if (known !== undefined && last !== undefined && last < known) throw overwritten(this.#path)
    if (last === undefined || batch.seq > last) return undefined
    if (batch.seq < last) {
      const message = `Writer ${batch.writer} sent batch ${batch.seq} after batch ${last} was applied; it was not applied.`
      throw new MillraceError('WRITER_BEHIND', message, {
        details: { writer: batch.writer, seq: batch.seq, last },
      })
    }
    return this.#receipts.of(batch) ?? read(ground, batch, ground.sql.receipt.get(batch.writer)![0] as string)
  }

  /** Others have written, and may have sent a batch of one of these writers. */
  suspect(): void {
    this.#sure.clear()
  }

  /** Keeps an answer that is durable. */
  keep(receipt: Receipt): void {
    this.#sure.add(receipt.writer)
    const forgotten = this.#receipts.keep(receipt)
    if (forgotten !== undefined) this.#sure.delete(forgotten)
  }
}

/** Writes a writer's last batch and its answer. */
export function remember({ sql, now }: Transaction, { writer, seq }: Batch, receipt: string): void {
  if (Number(sql.setWriter.run(writer, seq, now, receipt).changes) > 0) return
  sql.addWriter.run(writer, seq, now, receipt)
  sql.forgetWriters.run(now - SILENT_FOR, now - SILENT_FOR_LONG)
}
