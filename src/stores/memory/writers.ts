// stores/memory/writers.ts: the last receipt of every writer, so that a batch sent again is answered and not applied.
import { MillraceError } from '../../job/errors.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { Batch, Receipt, Verdict } from '../../store/store.js'
import { bytesOfReceipt } from '../kept-receipts.js'

/** Writers beyond this number are forgotten sooner. */
const MAX_WRITERS = 1_000

/**
 * How long a writer may be idle before it is forgotten, if there are more than `MAX_WRITERS`, and in any case. In
 * milliseconds.
 */
const IDLE_FOR: Millis = 600_000
const IDLE_FOR_LONG: Millis = 86_400_000

/** Bytes of all receipts from which on writers that were idle for ten minutes are forgotten. */
const MAX_BYTES = 64 * 2 ** 20

/**
 * A receipt larger than this is remembered without the payloads of its jobs, which would outlive them; they are read
 * again. More than the receipt of a full batch of small jobs: leaving payloads out copies every job.
 */
const LARGE = 2 ** 20

interface Remembered {
  readonly receipt: Receipt
  readonly bytes: number
  /** Its jobs have no payloads. */
  readonly short: boolean
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

  /**
   * The receipt of a batch that was applied before, with payloads read by `find`. Throws for a batch that is older than the
   * last one.
   */
  replay(batch: Batch, find: (id: string) => JobRecord | undefined): Receipt | undefined {
    const last = this.#last.get(batch.writer)
    if (last === undefined || batch.seq > last.receipt.seq) return undefined
    const { receipt, short } = last
    if (batch.seq === receipt.seq) return short ? atLength(receipt, batch, find) : receipt
    const message = `Writer ${batch.writer} sent batch ${batch.seq} after batch ${receipt.seq} was applied; it was not applied.`
    throw new MillraceError('WRITER_BEHIND', message, {
      details: { writer: batch.writer, seq: batch.seq, last: receipt.seq },
    })
  }

  /** Remembers the receipt of a writer's last batch. */
  remember(receipt: Receipt): void {
    this.#drop(receipt.writer)
    const bytes = bytesOfReceipt(receipt)
    const kept = bytes > LARGE || this.#bytes + bytes > MAX_BYTES ? shortly(receipt) : receipt
    const remembered = {
      receipt: kept,
      bytes: kept === receipt ? bytes : bytesOfReceipt(kept),
      short: kept !== receipt,
    }
    this.#last.set(receipt.writer, remembered)
    this.#bytes += remembered.bytes
    this.#forget(receipt.now)
  }

  #drop(writer: string): void {
    this.#bytes -= this.#last.get(writer)?.bytes ?? 0
    this.#last.delete(writer)
  }

  #forget(now: Time): void {
    for (const [writer, { receipt }] of this.#last) {
      const many = this.#last.size > MAX_WRITERS || this.#bytes > MAX_BYTES
      if (receipt.now >= now - (many ? IDLE_FOR : IDLE_FOR_LONG)) return
      this.#drop(writer)
    }
  }
}

/** A receipt without the payloads of its jobs. */
function shortly(receipt: Receipt): Receipt {
  const verdict = (each: Verdict): Verdict => {
    if (each.ok) return each.inserted.length === 0 ? each : { ok: true, inserted: each.inserted.map(bare) }
    return each.job === undefined || each.why === 'fence' ? each : { ...each, job: bare(each.job) }
  }
  const { groups, renewals, asks } = receipt
  return {
    ...receipt,
    groups: groups.map(verdict),
    renewals: renewals.map(verdict),
    asks: asks.map((jobs) => jobs.map(bare)),
  }
}

function bare(job: JobRecord): JobRecord {
  return { ...job, ...NO_PAYLOAD }
}

const NO_PAYLOAD = {
  data: undefined,
  memo: undefined,
  progress: undefined,
  result: undefined,
  error: undefined,
  errors: Object.freeze([]),
} as const satisfies Partial<JobRecord>

/**
 * A receipt with the payloads of its jobs as they stand now. A new job that is gone has what it was added with; a claimed one
 * that is gone is left out, for nobody could settle it.
 */
function atLength(receipt: Receipt, batch: Batch, find: (id: string) => JobRecord | undefined): Receipt {
  const again = (job: JobRecord): JobRecord | undefined => {
    const standing = find(job.id)
    return standing && filled(job, standing)
  }
  const verdict = (each: Verdict, at: number): Verdict => {
    if (!each.ok) {
      return each.job === undefined || each.why === 'fence' ? each : { ...each, job: again(each.job) ?? each.job }
    }
    const inserts = (batch.groups[at] ?? []).filter((change) => change.kind === 'insert')
    const inserted = each.inserted.map((job, n) => again(job) ?? { ...job, data: inserts[n]?.job.data })
    return inserted.length === 0 ? each : { ok: true, inserted }
  }
  const { groups, renewals, asks } = receipt
  return {
    ...receipt,
    groups: groups.map(verdict),
    renewals: renewals.map((each) => verdict(each, -1)),
    asks: asks.map((jobs) => jobs.flatMap((job) => again(job) ?? [])),
  }
}

/** A job as it was, with the payload of what it is now: what that has come to since is taken off again. */
function filled(job: JobRecord, { data, memo, progress, result, error, errors, fence }: JobRecord): JobRecord {
  if (fence === job.fence) return { ...job, data, memo, progress, result, error, errors }
  return { ...job, data, memo, progress, errors: errors.filter((each) => each.fence < job.fence) }
}
