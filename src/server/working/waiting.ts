// server/working/waiting.ts: claims that wait for a job. They stand in line, and a hint that there may be work wakes the first
// few: a thousand idle workers cost one claim and not a thousand.
import { MillraceError } from '../../job/errors/errors.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { settle } from '../../job/lifecycle.js'
import type { Batcher } from '../../store/batcher.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'
import type { Handled, Notice } from '../../store/store.js'

/** How many claims are sent together for one hint; more follow while each of them got jobs. */
const PORTION = 16
/** How often the first of a line claims without a hint, in case one was lost. */
const POLL_EVERY: Millis = 5_000
/** The shortest wait before a line claims again by itself. */
const MIN_AGAIN: Millis = 20
/** The wait before a claim without an answer is sent again. */
const RESEND_AFTER: Millis = 250

/** A claim of a client. */
export interface WaitingClaim {
  /** The worker, as the claimed jobs name it. */
  readonly worker: string
  readonly queues: readonly string[]
  readonly handles: readonly Handled[]
  readonly max: number
  /** How long it waits for the first job; 0: not at all. */
  readonly wait: Millis
  /** The token whose claim it is: each may have a number of them. */
  readonly token: string
  /** Aborts when the client has gone: what it would get is handed back. */
  readonly signal: AbortSignal
  /** Each ends the wait without jobs: the server closes, or the worker has something else to learn. */
  readonly until: readonly AbortSignal[]
  /** What it is sent with. Default: the other claims. */
  readonly batcher?: Batcher
}

/** How many claims may wait. */
interface WaitingBounds {
  readonly waiting: number
  readonly waitingPerToken: number
}

/** One claim in a line, or one that does not wait. */
class Waiter {
  readonly claim: WaitingClaim
  readonly answer: Promise<readonly JobRecord[]>
  #resolve!: (jobs: readonly JobRecord[]) => void
  #reject!: (error: unknown) => void
  /** It is part of a claim that is on its way. */
  asking = false
  /** Its wait is over: it leaves with whatever its claim on the way brings. */
  over = false
  /** It has its answer. */
  ended = false

  constructor(claim: WaitingClaim) {
    this.claim = claim
    this.answer = new Promise((resolve, reject) => ([this.#resolve, this.#reject] = [resolve, reject]))
    this.answer.catch(() => {})
  }

  end(jobs: readonly JobRecord[]): void {
    this.ended = true
    this.#resolve(jobs)
  }

  fail(error: unknown): void {
    this.ended = true
    this.#reject(error)
  }
}

/** Claims for the same jobs, first come, first served. */
interface Line {
  readonly key: string
  readonly queues: ReadonlySet<string>
  readonly waiters: Set<Waiter>
  /** Claims are on their way. */
  asking: boolean
  /** There may be more since they were sent. */
  again: boolean
  /** Its last claim found nothing, and there was no hint since: who joins need not ask. */
  quiet: boolean
  /** Claims again at this time without a hint. */
  timer: Stop
}

/** The claims that wait, of all clients of a server. */
export class WaitingClaims {
  readonly #connection: Connection
  readonly #bounds: WaitingBounds
  readonly #lines = new Map<string, Line>()
  readonly #byToken = new Map<string, number>()
  /** Claims without an answer, by worker. */
  readonly #unanswered = new Map<string, number>()
  readonly #releasing = new Set<Promise<void>>()
  #waiting = 0

  constructor(connection: Connection, bounds: WaitingBounds) {
    this.#connection = connection
    this.#bounds = bounds
  }

  /** Whether a claim of this worker is on its way, so that jobs may be leased to it of which it does not know. */
  isClaimingFor(worker: string): boolean {
    return this.#unanswered.has(worker)
  }

  /** Wakes the lines for which there may be work. */
  notice({ work, missed }: Pick<Notice, 'work' | 'missed'>): void {
    if (work.length === 0 && missed !== true) return
    for (const line of this.#lines.values()) {
      if (missed !== true && !work.some((queue) => line.queues.has(queue))) continue
      line.quiet = false
      void this.#pump(line)
    }
  }

  /** Claims jobs, and waits for the first of them. Throws SERVER_BUSY where too many wait. */
  async claim(claim: WaitingClaim): Promise<readonly JobRecord[]> {
    const waiter = new Waiter(claim)
    if (claim.wait === 0) {
      await this.#ask(waiter)
      if (!waiter.ended) waiter.end([])
      return waiter.answer
    }
    const leave = this.enter(claim.token)
    const { runtime } = this.#connection
    const line = this.#join(waiter)
    const over = (): void => {
      waiter.over = true
      if (!waiter.asking && !waiter.ended) waiter.end([])
    }
    const stop = runtime.timer(claim.wait, over)
    const ends = [claim.signal, ...claim.until]
    for (const each of ends) each.addEventListener('abort', over, { once: true })
    if (ends.some(({ aborted }) => aborted)) over()
    else if (!line.quiet) void this.#pump(line)
    try {
      return await waiter.answer
    } finally {
      stop()
      for (const each of ends) each.removeEventListener('abort', over)
      leave()
      this.#leave(line, waiter)
    }
  }

  /**
   * Counts a request that waits, for a job or for something else. Throws SERVER_BUSY where too many do; returns the
   * function that ends its wait.
   */
  enter(token: string): () => void {
    const own = this.#byToken.get(token) ?? 0
    const { waiting, waitingPerToken } = this.#bounds
    if (this.#waiting >= waiting || own >= waitingPerToken) {
      const most =
        own >= waitingPerToken ? `${waitingPerToken} requests of '${token}' wait` : `${waiting} requests wait`
      throw new MillraceError(
        'SERVER_BUSY',
        `${most}, and no more may. Send it without \`wait\`, or fewer at a time.`,
        {
          details: { retryAfter: 5_000 },
        },
      )
    }
    this.#waiting++
    this.#byToken.set(token, own + 1)
    return () => {
      this.#waiting--
      const left = this.#byToken.get(token)! - 1
      if (left === 0) this.#byToken.delete(token)
      else this.#byToken.set(token, left)
    }
  }

  /** Resolves when what clients left behind has been handed back. */
  async close(): Promise<void> {
    for (const line of this.#lines.values()) line.timer()
    await Promise.all(this.#releasing)
  }

  #join(waiter: Waiter): Line {
    const { queues, handles } = waiter.claim
    const names = handles.map(({ name, versions }) => [name ?? null, versions ?? null])
    const key = JSON.stringify([[...queues].toSorted(), names])
    let line = this.#lines.get(key)
    if (line === undefined) {
      line = {
        ...{ key, queues: new Set(queues), waiters: new Set<Waiter>() },
        ...{ asking: false, again: false, quiet: false, timer: () => {} },
      }
      this.#lines.set(key, line)
    }
    line.waiters.add(waiter)
    return line
  }

  #leave(line: Line, waiter: Waiter): void {
    line.waiters.delete(waiter)
    if (line.waiters.size > 0) return
    line.timer()
    if (this.#lines.get(line.key) === line) this.#lines.delete(line.key)
  }

  /** Claims for the first of a line, and for more of them as long as each got jobs. */
  async #pump(line: Line, first = PORTION): Promise<void> {
    if (line.asking) {
      line.again = true
      return
    }
    line.asking = true
    line.timer()
    let size = first
    let wait: Millis | undefined
    do {
      line.again = false
      const portion = portionOf(line, size)
      if (portion.length === 0) break
      const answers = await Promise.all(portion.map((waiter) => this.#ask(waiter)))
      for (const waiter of portion) if (waiter.ended) line.waiters.delete(waiter)
      const waits = answers.flatMap((answer) => (answer === undefined ? [] : [answer]))
      wait = waits.length === 0 ? undefined : Math.min(...waits)
      line.quiet = portion.some((waiter) => !waiter.ended)
      size = PORTION
    } while (line.again || !line.quiet)
    line.asking = false
    if (line.waiters.size === 0) return
    line.timer = this.#connection.runtime.timer(Math.max(MIN_AGAIN, Math.min(wait ?? Infinity, POLL_EVERY)), () => {
      void this.#pump(line, 1)
    })
  }

  /** Sends the claim of one waiter; ends it if there are jobs. Returns when to claim again, if the store says so. */
  async #ask(waiter: Waiter): Promise<Millis | undefined> {
    const { worker, queues, handles, max, signal, batcher = this.#connection.claims } = waiter.claim
    const { runtime } = this.#connection
    waiter.asking = true
    this.#count(worker, 1)
    const sentAt = runtime.elapsed()
    // One without an answer may have taken jobs: it is sent again until their leases are over, and what it took is
    // handed back if nobody waits for it by then.
    const unanswered = (error: unknown, over: boolean): Millis | undefined => {
      if ((waiter.over || waiter.claim.wait === 0) && !waiter.ended) waiter.fail(error)
      return over ? undefined : RESEND_AFTER
    }
    try {
      const { jobs, again } = await batcher.claim({ worker, queues, handles, want: max, ahead: 0 }, unanswered)
      const held = await this.#stillHeld(jobs, handles, sentAt)
      if (waiter.ended || signal.aborted) this.#handBack(held)
      else if (held.length > 0) waiter.end(held)
      if (!waiter.ended && (waiter.over || signal.aborted)) waiter.end([])
      return again
    } catch (error) {
      if (!waiter.ended) waiter.fail(error)
      return undefined
    } finally {
      waiter.asking = false
      this.#count(worker, -1)
    }
  }

  /** The jobs of a late answer whose leases can still be renewed. */
  async #stillHeld(
    jobs: readonly JobRecord[],
    handles: readonly Handled[],
    sentAt: Millis,
  ): Promise<readonly JobRecord[]> {
    const { renewals, runtime } = this.#connection
    const shortest = Math.min(...handles.map(({ lease }) => lease))
    if (jobs.length === 0 || runtime.elapsed() < sentAt + shortest) return jobs
    const verdicts = await renewals.renew(jobs.map(({ id, fence }) => ({ id, fence, lease: shortest, started: true })))
    return jobs.filter((_, at) => verdicts[at]!.ok)
  }

  /** Returns jobs to their queue, with their attempts. Those that cannot be returned are left to their leases. */
  #handBack(jobs: readonly JobRecord[]): void {
    if (jobs.length === 0) return
    const { main } = this.#connection
    const back = Promise.allSettled(jobs.map((job) => main.commit(settle(job, { kind: 'interrupted' }))))
    const done = back.then(() => void this.#releasing.delete(done))
    this.#releasing.add(done)
  }

  #count(worker: string, by: number): void {
    const left = (this.#unanswered.get(worker) ?? 0) + by
    if (left === 0) this.#unanswered.delete(worker)
    else this.#unanswered.set(worker, left)
  }
}

/** The first of a line that wait. */
function portionOf({ waiters }: Line, size: number): readonly Waiter[] {
  const portion: Waiter[] = []
  for (const waiter of waiters) {
    if (waiter.ended || waiter.over) continue
    portion.push(waiter)
    if (portion.length === size) break
  }
  return portion
}
