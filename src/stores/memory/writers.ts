// stores/memory/writers.ts: the last batch of every writer, so that a batch sent again is answered and not applied.
import { MillraceError } from '../../job/errors.js'
import type { Millis, Time } from '../../job/job.js'
import type { Batch, Receipt } from '../../store/store.js'

/** Writers that are remembered for long. */
const REMEMBERED = 1_000

/** A writer silent for longer than this may be forgotten when there are more, and one silent for a day in any case. */
const SILENT_FOR: Millis = 600_000
const SILENT_FOR_LONG: Millis = 86_400_000

/** All writers of a table, the longest silent first. */
export class Writers {
  readonly #last = new Map<string, Receipt>()

  /** How many are remembered. */
  get size(): number {
    return this.#last.size
  }

  /** The receipt of a batch that was applied before; refuses one that is older than the last. */
  replay(batch: Batch): Receipt | undefined {
    const last = this.#last.get(batch.writer)
    if (last === undefined || batch.seq > last.seq) return undefined
    if (batch.seq === last.seq) return last
    const message = `Writer ${batch.writer} sent batch ${batch.seq} after batch ${last.seq} was applied; it was not applied.`
    throw new MillraceError('WRITER_BEHIND', message, {
      details: { writer: batch.writer, seq: batch.seq, last: last.seq },
    })
  }

  /** Remembers the answer to a writer's batch. */
  remember(receipt: Receipt): void {
    this.#last.delete(receipt.writer)
    this.#last.set(receipt.writer, receipt)
    this.#forget(receipt.now)
  }

  #forget(now: Time): void {
    for (const [writer, receipt] of this.#last) {
      const longest = this.#last.size > REMEMBERED ? SILENT_FOR : SILENT_FOR_LONG
      if (receipt.now >= now - longest) return
      this.#last.delete(writer)
    }
  }
}
