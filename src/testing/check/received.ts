// testing/check/received.ts: checks that claims whose receipt was lost are recovered by a replay, and cost no attempt.
import type { Move } from '../../job/change.js'
import type { JobRecord, Millis } from '../../job/job.js'
import type { Landing, Received } from './simulated-history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import type { Report } from './violation.js'

/** A claim whose receipt has not reached its worker. */
interface Unreceived {
  readonly process: string
  readonly writer: string
  readonly seq: number
  /** It was leased ahead, so its expiry costs no attempt. */
  readonly ahead: boolean
  /** The batch whose receipt its writer received instead. */
  instead: number | undefined
}

/**
 * Tracks claims from their commit until the receipt reaches the worker's process. A writer that got no receipt for a batch
 * sends it again before any other, so it never receives another receipt without the claimed jobs. If it does, the replay was
 * skipped or came back without them, and that caused the loss of the attempt. A process that dies, or does not reach the
 * store before the job is reaped, receives no such receipt. A process that closes need not wait for the replay.
 */
export class ReceivedChecks implements LedgerListener {
  readonly #report: Report
  readonly #claims = new Map<string, Unreceived>()
  readonly #closing = new Set<string>()

  constructor(report: Report) {
    this.#report = report
  }

  claimed(job: Tracked, { fence, ahead }: JobRecord, { process, batch }: Landing): void {
    const { writer, seq } = batch
    this.#claims.set(keyOf(job.id, fence), { process, writer, seq, ahead, instead: undefined })
  }

  /** A receipt reached its process. */
  received({ writer, seq, jobs }: Received): void {
    for (const { id, fence } of jobs) this.#claims.delete(keyOf(id, fence))
    for (const claim of this.#claims.values()) {
      if (claim.writer === writer && seq >= claim.seq && !this.#closing.has(claim.process)) claim.instead ??= seq
    }
  }

  /** A process has a fault until then; Infinity: it is closing. */
  disturbed(process: string, until: Millis): void {
    if (until === Infinity) this.#closing.add(process)
  }

  moving(job: Tracked, move: Move, { time }: Landing): void {
    const key = keyOf(job.id, move.fence)
    const claim = this.#claims.get(key)
    if (claim === undefined) return
    this.#claims.delete(key)
    const { process, writer, seq, ahead, instead } = claim
    const isReaped = move.why === 'stalled' || move.set.error?.code === 'JOB_EXHAUSTED'
    if (!isReaped || ahead || instead === undefined) return
    const lost = `It lost attempt ${job.attempt} of ${job.attempts}, but no handler ran`
    const batch = instead === seq ? 'without it' : `of batch ${instead}`
    this.#report(
      'received',
      time,
      job.id,
      `${lost}: ${process} (${writer}#${seq}) received a receipt ${batch} instead.`,
    )
  }
}

function keyOf(id: string, fence: number): string {
  return `${id}@${fence}`
}
