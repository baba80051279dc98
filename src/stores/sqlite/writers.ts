// stores/sqlite/writers.ts: the last receipt of every writer, so that a batch sent again is answered and not applied.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Batch, Receipt } from '../../store/store.js'
import { KeptReceipts } from '../kept-receipts.js'
import { overwritten } from './file/errors.js'
import type { Cache } from './cache.js'
import { decode } from './receipts.js'
import type { SqliteWorkspace } from './workspace.js'

/** How long a writer may be idle before it is forgotten, if there are many, and in any case. In milliseconds. */
const IDLE_FOR: Millis = 600_000
const IDLE_FOR_LONG: Millis = 86_400_000

/** Writers whose receipts a connection keeps in memory, beside those in the file. */
const MAX_RECEIPTS = 100

/** The writers as one connection knows them. */
export class Writers {
  readonly #receipts = new KeptReceipts(MAX_RECEIPTS)
  /** Writers of which no other connection can have written a later batch. */
  readonly #upToDate = new Set<string>()

  readonly #path: string | undefined

  constructor(path: string | undefined) {
    this.#path = path
  }

  /** The receipt of a batch that was applied before. Throws for a batch that is older than the last one. */
  replay(cache: Cache, batch: Batch): Receipt | undefined {
    const known = this.#receipts.last(batch.writer)
    if (known !== undefined && batch.seq === known + 1 && this.#upToDate.has(batch.writer)) return undefined
    const last = cache.sql.writer.get(batch.writer)?.[0] as number | undefined
    if (known !== undefined && last !== undefined && last < known) throw overwritten(this.#path)
    if (last === undefined || batch.seq > last) return undefined
    if (batch.seq < last) {
      const message = `Writer ${batch.writer} sent batch ${batch.seq} after batch ${last} was applied; it was not applied.`
      throw new MillraceError('WRITER_BEHIND', message, {
        details: { writer: batch.writer, seq: batch.seq, last },
      })
    }
    return this.#receipts.of(batch) ?? decode(cache, batch, cache.sql.receipt.get(batch.writer)![0] as string)
  }

  /** Call when other connections have written, and may have written a batch of one of these writers. */
  invalidate(): void {
    this.#upToDate.clear()
  }

  /** Keeps a receipt that is durable. */
  keep(receipt: Receipt): void {
    this.#upToDate.add(receipt.writer)
    const forgotten = this.#receipts.keep(receipt)
    if (forgotten !== undefined) this.#upToDate.delete(forgotten)
  }
}

/** Writes the receipt of a writer's last batch. */
export function writeReceipt({ sql, now }: SqliteWorkspace, { writer, seq }: Batch, receipt: string): void {
  if (Number(sql.setWriter.run(writer, seq, now, receipt).changes) > 0) return
  sql.addWriter.run(writer, seq, now, receipt)
  sql.forgetWriters.run(now - IDLE_FOR, now - IDLE_FOR_LONG)
}
