// stores/sqlite/writers.ts: the last receipt of every writer, so that a batch sent again is answered and not applied.
import { decodeReceipt, encodeReceipt } from '../../engine/receipts.js'
import type { ReceiptReader } from '../../engine/receipts.js'
import { IDLE_FOR, IDLE_FOR_LONG, writerBehind } from '../../engine/writers.js'
import type { Batch, Receipt } from '../../store/store.js'
import { KeptReceipts } from '../kept-receipts.js'
import { overwritten } from './file/errors.js'
import type { Cache } from './cache.js'
import type { SqliteWorkspace } from './workspace.js'

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
    if (batch.seq < last) throw writerBehind(batch, last)
    const kept = this.#receipts.of(batch)
    return kept ?? decodeReceipt(cache.sql.receipt.get(batch.writer)![0] as string, batch, readerOf(cache))
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

/** Claimed jobs are encoded by their insertion numbers: consecutive ones take one entry. */
function readerOf(cache: Cache): ReceiptReader {
  return {
    record: (id) => cache.byId(id)?.job,
    header: (id) => cache.lightById(id)?.job,
    claimed(seq) {
      const row = cache.sql.jobBySeq.get(seq)
      return row && cache.found(row).job
    },
  }
}

/** Writes the receipt of a writer's last batch. `fence` is the highest fence of any removed job before the batch. */
export function writeReceipt(workspace: SqliteWorkspace, batch: Batch, receipt: Receipt, fence: number): void {
  const { sql, now, claimedSeqs } = workspace
  const { writer, seq } = batch
  const text = encodeReceipt(batch, receipt, fence, claimedSeqs)
  if (Number(sql.setWriter.run(writer, seq, now, text).changes) > 0) return
  sql.addWriter.run(writer, seq, now, text)
  sql.forgetWriters.run(now - IDLE_FOR, now - IDLE_FOR_LONG)
}
