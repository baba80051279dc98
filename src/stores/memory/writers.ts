// stores/memory/writers.ts: the last receipt of every writer, so that a batch sent again is answered and not applied.
import { decodeReceipt, encodeReceipt } from '../../engine/receipts.js'
import type { ReceiptReader } from '../../engine/receipts.js'
import { IDLE_FOR, IDLE_FOR_LONG, writerBehind } from '../../engine/writers.js'
import type { Time } from '../../job/job.js'
import type { Batch, Receipt } from '../../store/store.js'
import { bytesOfReceipt } from '../kept-receipts.js'

/** Writers beyond this number are forgotten sooner. */
const MAX_WRITERS = 1_000

/** Bytes of all receipts from which on writers that were idle for ten minutes are forgotten. */
const MAX_BYTES = 64 * 2 ** 20

/**
 * A receipt larger than this is encoded, without the payloads of its jobs, which would outlive them. More than the
 * receipt of a full batch of small jobs.
 */
const LARGE = 2 ** 20

interface Remembered {
  readonly seq: number
  /** When the batch was applied. */
  readonly at: Time
  /** Text: it is encoded. */
  readonly receipt: Receipt | string
  readonly bytes: number
}

/** All writers of a table, longest idle first. */
export class Writers {
  readonly #last = new Map<string, Remembered>()
  #bytes = 0

  /** The number of writers remembered. */
  get size(): number {
    return this.#last.size
  }

  /** About how many bytes their receipts have. */
  get bytes(): number {
    return this.#bytes
  }

  /** The receipt of a batch that was applied before. Throws for a batch that is older than the last one. */
  replay(batch: Batch, reader: ReceiptReader): Receipt | undefined {
    const last = this.#last.get(batch.writer)
    if (last === undefined || batch.seq > last.seq) return undefined
    if (batch.seq < last.seq) throw writerBehind(batch, last.seq)
    const { receipt } = last
    return typeof receipt === 'string' ? decodeReceipt(receipt, batch, reader) : receipt
  }

  /** Remembers the receipt of a writer's last batch. `fence` is the highest fence of any removed job before the batch. */
  remember(batch: Batch, receipt: Receipt, fence: number): void {
    const { writer, seq, now } = receipt
    this.#drop(writer)
    const remembered = this.#lightened(batch, receipt, fence)
    this.#last.set(writer, { seq, at: now, ...remembered })
    this.#bytes += remembered.bytes
    this.#forget(now)
  }

  #lightened(batch: Batch, receipt: Receipt, fence: number): Pick<Remembered, 'receipt' | 'bytes'> {
    const bytes = bytesOfReceipt(receipt)
    if (bytes <= LARGE && this.#bytes + bytes <= MAX_BYTES) return { receipt, bytes }
    const text = encodeReceipt(batch, receipt, fence)
    return { receipt: text, bytes: text.length }
  }

  #drop(writer: string): void {
    this.#bytes -= this.#last.get(writer)?.bytes ?? 0
    this.#last.delete(writer)
  }

  #forget(now: Time): void {
    for (const [writer, { at }] of this.#last) {
      const many = this.#last.size > MAX_WRITERS || this.#bytes > MAX_BYTES
      if (at >= now - (many ? IDLE_FOR : IDLE_FOR_LONG)) return
      this.#drop(writer)
    }
  }
}
