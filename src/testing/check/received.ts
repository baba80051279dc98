// testing/check/received.ts: claims whose answers were lost are found again, and cost no attempt.
import type { Move } from '../../job/change.js'
import type { JobRecord, Millis } from '../../job/job.js'
import type { Landing, Received } from './history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import type { Report } from './violation.js'

/** A claim that its worker does not know of. */
interface Unreceived {
  readonly process: string
  readonly writer: string
  readonly seq: number
  /** It was leased ahead, so that an expired lease costs nothing. */
  readonly ahead: boolean
  /** The batch whose answer its writer was given instead. */
  instead: number | undefined
}

/**
 * Follows claims from the commit that made them until their answer reaches the worker's process. A writer whose batch got no
 * answer sends it again before any other, so that no answer without the claimed jobs reaches it. Where one does, the resend was
 * left out or came back without them, and an attempt that is lost then was lost to that. A process that dies, or does not
 * reach the store before somebody reaps the job, is given no such answer; one that closes need not wait for it.
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

  /** An answer has reached its process. */
  received({ writer, seq, jobs }: Received): void {
    for (const { id, fence } of jobs) this.#claims.delete(keyOf(id, fence))
    for (const claim of this.#claims.values()) {
      if (claim.writer === writer && seq >= claim.seq && !this.#closing.has(claim.process)) claim.instead ??= seq
    }
  }

  /** Something happens to a process until then; one that is never well again closes. */
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
    const lost = `It lost attempt ${job.attempt} of ${job.attempts}, and no handler had been given it`
    const batch = instead === seq ? 'without it' : `to batch ${instead}`
    this.#report('received', time, job.id, `${lost}: ${process} (${writer}#${seq}) got an answer ${batch} instead.`)
  }
}

function keyOf(id: string, fence: number): string {
  return `${id}@${fence}`
}
