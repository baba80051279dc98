// stores/kept-receipts.ts: the last receipts of this process, for batches that are sent again. What is not kept is read from the store.
import { bytesOfRecord } from '../store/read-pages.js'
import type { Batch, Receipt, Verdict } from '../store/store.js'

/** Bytes of the receipts that a store keeps as they are, about. */
const KEPT_BYTES = 8 * 2 ** 20

/** About how many bytes of text the jobs in a receipt have. */
export function bytesOfReceipt({ groups, renewals, asks }: Receipt): number {
  let bytes = 0
  for (const verdict of groups) bytes += bytesOfVerdict(verdict)
  for (const verdict of renewals) bytes += bytesOfVerdict(verdict)
  for (const jobs of asks) for (const job of jobs) bytes += bytesOfRecord(job)
  return bytes
}

function bytesOfVerdict(verdict: Verdict): number {
  if (!verdict.ok) return verdict.job === undefined ? 0 : bytesOfRecord(verdict.job)
  let bytes = 0
  for (const job of verdict.inserted) bytes += bytesOfRecord(job)
  return bytes
}

interface Kept {
  readonly seq: number
  readonly bytes: number
  /** Undefined: it was too large, or older than others that were. */
  readonly receipt: Receipt | undefined
}

/** The last receipt of each of some writers, the longest silent first; bounded in number and in bytes. */
export class KeptReceipts {
  readonly #most: number
  readonly #kept = new Map<string, Kept>()
  #bytes = 0

  constructor(most: number) {
    this.#most = most
  }

  /** About how many bytes are kept. */
  get bytes(): number {
    return this.#bytes
  }

  /** The number of the last batch of a writer, if it is known. */
  last(writer: string): number | undefined {
    return this.#kept.get(writer)?.seq
  }

  /** The answer that a batch was given before, if it is kept. */
  of({ writer, seq }: Batch): Receipt | undefined {
    const kept = this.#kept.get(writer)
    return kept?.seq === seq ? kept.receipt : undefined
  }

  /** Keeps an answer in place of the one to the writer's batch before; answers the writer that is forgotten for it, if any. */
  keep(receipt: Receipt): string | undefined {
    const { writer, seq } = receipt
    const bytes = bytesOfReceipt(receipt)
    this.#bytes += bytes - (this.#kept.get(writer)?.bytes ?? 0)
    this.#kept.delete(writer)
    this.#kept.set(writer, { seq, bytes, receipt })
    if (this.#bytes > KEPT_BYTES) this.#lighten()
    if (this.#kept.size <= this.#most) return undefined
    const [oldest] = this.#kept.keys()
    this.#bytes -= this.#kept.get(oldest!)!.bytes
    this.#kept.delete(oldest!)
    return oldest
  }

  /** Drops what the oldest hold, and keeps their numbers. */
  #lighten(): void {
    for (const [writer, { seq, bytes }] of this.#kept) {
      if (this.#bytes <= KEPT_BYTES) return
      this.#kept.set(writer, { seq, bytes: 0, receipt: undefined })
      this.#bytes -= bytes
    }
  }
}
