// worker/claimer.ts: asks for jobs: one ask for all free slots, when there is reason to think that there are any.
import type { JobRecord, Millis } from '../job/job.js'
import { backoffDelay } from '../job/retry.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Handled } from '../store/store.js'
import type { Settings } from './options.js'
import { GroupRound } from './group-round.js'
import { Prefetch } from './slots.js'
import type { Slots } from './slots.js'

/** A claim without an answer is sent again at least so often, in intervals of renewal: for as long as one, reaping is held back after an outage. */
const RESENT_WITHIN = 1 / 2

/** What the intake needs of its worker. */
export interface ClaimerHost {
  readonly id: string
  readonly queues: readonly string[]
  readonly connection: Connection
  readonly settings: Settings
  readonly slots: Slots
  /** Whether it takes no more jobs for good. */
  closing(): boolean
  /** Whether what the last jobs came to is still to be written. */
  behind(): boolean
  /** Jobs were claimed; `asked` is when, by this process's clock. Of names that ran dry, the store has no more (undefined: of any). */
  claimed(jobs: readonly JobRecord[], asked: Millis, ranDry: readonly (string | undefined)[]): void
  /** The store failed. */
  failed(error: unknown): void
  /** The store has answered all that was asked for. */
  answered(): void
  /** An answer came late: much of the leases may be over. */
  late(): void
}

/** What is asked for at once: jobs of one name, or of any that is handled. */
interface Wish {
  readonly name: string | undefined
  readonly handles: readonly Handled[]
  readonly want: number
  readonly ahead: number
}

/** Woken by a push, by a slot that ended, or by the poll under them. */
export class Claimer {
  readonly #host: ClaimerHost
  readonly pace: Prefetch
  /** The shortest lease that is asked for. */
  readonly #shortest: Millis
  #open = false
  #asking: Promise<void> | undefined
  /** Something happened while we asked: ask again. */
  #again = false
  /** The last ask came back short, and nothing was heard since: asking again would be for nothing. */
  #dry = false
  /** The last ask was not met in full. */
  #short = false
  #failures = 0
  /** The error that the ask under way got instead of an answer, so far: it is sent again. */
  #unanswered: unknown
  /** Lets go of whoever waits for an answer. */
  #leave: () => void = () => {}
  #retry: Stop | undefined
  #poll: Stop | undefined
  /** A round may be leased ahead, so that whoever comes meanwhile does not wait for many turns of others. */
  readonly #rounds = new GroupRound()
  /** Until a rate lets more through. */
  #rate: Stop | undefined

  constructor(host: ClaimerHost) {
    this.#host = host
    this.#shortest = Math.min(...host.settings.handles.map(({ lease }) => lease))
    this.pace = new Prefetch(host.connection.runtime.elapsed)
  }

  /** Begins to ask. */
  start(): void {
    if (this.#open) return
    this.#open = true
    this.#dry = false
    this.#armPoll()
    this.wake()
  }

  /** Stops asking; resolves when no answer is outstanding any more, but for one that the store owes since it failed. */
  async stop(): Promise<void> {
    this.#open = false
    this.#poll?.()
    this.#retry?.()
    this.#rate?.()
    this.#poll = this.#retry = this.#rate = undefined
    if (this.#unanswered !== undefined) return
    await Promise.race([this.#asking, new Promise<void>((resolve) => (this.#leave = resolve))])
  }

  /** Whether jobs may have been claimed for this worker of which it does not know yet. */
  get asking(): boolean {
    return this.#asking !== undefined
  }

  /** There may be new work. */
  wake(): void {
    this.#dry = false
    this.#host.slots.ranDry(false)
    this.slotFree()
  }

  /** There may be room for more. */
  slotFree(): void {
    if (!this.#open || this.#retry !== undefined) return
    if (this.#asking !== undefined) {
      this.#again = true
      return
    }
    if (this.#host.behind()) return
    const wishes = this.#wishes()
    if (wishes.length === 0) return
    this.#asking = this.#ask(wishes).finally(() => {
      this.#asking = undefined
      if (!this.#again && !this.#hasRoom()) return
      this.#again = false
      this.slotFree()
    })
  }

  /** Jobs that go together leave slots free that were asked for, and room in batches. */
  #hasRoom(): boolean {
    const { slots } = this.#host
    return slots.gathering.length > 0 || (!this.#dry && slots.free > 0)
  }

  /**
   * One wish for all free slots. Where only batches of one name are run, it is for as many as fit; else a job for each slot,
   * and then more for batches that have found one, by their names, so that no more is leased than there are slots for.
   */
  #wishes(): readonly Wish[] {
    const { slots, settings } = this.#host
    const { handles, only } = settings
    const { gathering } = slots
    const wishes: Wish[] = []
    if (!this.#dry) {
      const room = only === undefined ? 0 : gathering.reduce((sum, batch) => sum + batch.room, 0)
      const want = slots.free * (only ?? 1) + room
      const ahead = this.#ahead()
      if (want + ahead > 0) wishes.push({ name: undefined, handles, want, ahead })
    }
    if (only !== undefined) return wishes
    for (const { name, room } of gathering) {
      const handled = handles.find((each) => each.name === name) ?? { ...handles[0]!, name }
      wishes.push({ name, handles: [handled], want: room, ahead: 0 })
    }
    return wishes
  }

  /** Asked for in portions of at least half of what is to be held, so that asks stay few. */
  #ahead(): number {
    const { slots, connection } = this.#host
    const { portion = Infinity, parallel } = connection.store.can
    const { ahead } = slots
    // Where asks go beside the rest, there is another portion under way at any moment.
    const most = Math.min(this.pace.target(connection.asks.trip), parallel === true ? 2 * portion : portion)
    const target = Math.min(most, this.#rounds.size)
    // Others' free slots come first: nothing is leased ahead once the queue has run short.
    return this.#short || ahead > target / 2 ? 0 : Math.min(target - ahead, portion)
  }

  async #ask(wishes: readonly Wish[]): Promise<void> {
    const { connection, id, queues, settings, claimed, failed } = this.#host
    const asked = connection.runtime.elapsed()
    const answers = await Promise.allSettled(
      wishes.map(({ handles, want, ahead }) =>
        connection.asks.ask({ worker: id, queues, handles, want, ahead }, (error, over) =>
          this.#heardNothing(error, over),
        ),
      ),
    )
    const late = this.#unanswered !== undefined
    this.#unanswered = undefined
    const jobs: JobRecord[] = []
    const ranDry: (string | undefined)[] = []
    let failure: PromiseRejectedResult | undefined
    let wait: Millis | undefined
    for (const [at, { name, want, ahead }] of wishes.entries()) {
      const answer = answers[at]!
      if (answer.status === 'rejected') {
        failure = answer
        ranDry.push(undefined) // batches go with what they have
        continue
      }
      const { jobs: given, again } = answer.value
      jobs.push(...given)
      if (again !== undefined) wait = Math.min(wait ?? Infinity, again)
      if (given.length < want + ahead) ranDry.push(name)
      if (name !== undefined) continue
      this.#rounds.claimed(given)
      this.#short = given.length < want + ahead
      this.#dry = given.length < want && !this.#again
    }
    if (failure === undefined) {
      this.#failures = 0
      this.#host.answered()
    } else this.#later(backoffDelay(settings.reconnect, ++this.#failures, connection.runtime.random))
    this.#wakeIn(wait)
    if (jobs.length > 0 && connection.runtime.elapsed() >= asked + this.#shortest) await this.#claimedLate(jobs, ranDry)
    else {
      claimed(jobs, asked, ranDry)
      if (late && jobs.length > 0) this.#host.late()
    }
    if (failure !== undefined) failed(failure.reason)
  }

  /** The answer came when the leases were over: takes in those jobs that can still be renewed, for nobody has reaped them. */
  async #claimedLate(jobs: readonly JobRecord[], ranDry: readonly (string | undefined)[]): Promise<void> {
    const { connection, settings, claimed, failed } = this.#host
    const sent = connection.runtime.elapsed()
    const renewals = jobs.map((job) => {
      return { id: job.id, fence: job.fence, lease: settings.handlerOf(job)!.lease, started: false }
    })
    try {
      const verdicts = await connection.renewals.renew(renewals)
      const ours = jobs.filter((_, at) => verdicts[at]!.ok)
      claimed(ours, sent, ranDry)
    } catch (error) {
      claimed([], sent, ranDry)
      failed(error)
    }
  }

  /**
   * The store gave no answer, and jobs may have been claimed: the ask is sent again, often enough to be there before anybody
   * reaps them when the store is back. A worker that closes gives it up when the leases are over.
   */
  #heardNothing(error: unknown, over: boolean): Millis | undefined {
    if (over && this.#host.closing()) return undefined
    const { connection, settings, claimed, failed } = this.#host
    if (error !== this.#unanswered) {
      this.#unanswered = error
      this.#failures++
      claimed([], 0, [undefined]) // batches go with what they have
      failed(error)
      this.#leave()
    }
    return Math.min(
      backoffDelay(settings.reconnect, this.#failures, connection.runtime.random),
      settings.renewEvery * RESENT_WITHIN,
    )
  }

  /** A rate held something back: it will be asked for when there is some of it again. */
  #wakeIn(delay: Millis | undefined): void {
    this.#rate?.()
    this.#rate = undefined
    if (delay === undefined || !this.#open) return
    this.#rate = this.#host.connection.runtime.timer(delay, () => {
      this.#rate = undefined
      this.wake()
    })
  }

  #later(delay: Millis): void {
    if (!this.#open) return
    this.#retry = this.#host.connection.runtime.timer(delay, () => {
      this.#retry = undefined
      this.wake()
    })
  }

  #armPoll(): void {
    const { connection, settings } = this.#host
    this.#poll = connection.runtime.timer(settings.pollEvery, () => {
      this.#armPoll()
      this.wake()
    })
  }
}
