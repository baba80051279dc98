// server/live/open-streams.ts: how many streams of events each caller has open, and their end when it may no longer read.
import { MillraceError } from '../../job/errors/errors.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Principal } from '../principal.js'

/** How often it is judged whether a caller may go on reading, and how long that may take. */
const JUDGED_EVERY = 15_000

/** The request that opens a stream. */
interface Opening {
  readonly principal: Principal
  /** Whether the caller may make it still. */
  mayGoOn(): Promise<boolean>
}

/** A stream that is open. */
interface OpenStream {
  /** Aborts when its caller may no longer read: its token expired, was taken back, or has other roles or queues now. */
  readonly over: AbortSignal
  /** Says that it has ended. */
  close(): void
}

/** Counts the open streams of each caller, and judges their callers again and again. */
export class OpenStreams {
  readonly #most: number
  readonly #runtime: Pick<Runtime, 'timer'>
  readonly #open = new Map<string, number>()

  constructor(most: number, runtime: Pick<Runtime, 'timer'>) {
    this.#most = most
    this.#runtime = runtime
  }

  /** Opens one. Throws RATE_LIMITED where the caller has too many. */
  open(opening: Opening): OpenStream {
    const { name } = opening.principal
    const count = this.#open.get(name) ?? 0
    if (count >= this.#most) {
      const message = `'${name}' has ${count} streams open, and ${this.#most} is the most. Close one first.`
      throw new MillraceError('RATE_LIMITED', message, { details: { retryAfter: 1_000 } })
    }
    this.#open.set(name, count + 1)
    const over = new AbortController()
    const stopJudging = this.#judge(opening, () => over.abort())
    let closed = false
    const close = (): void => {
      if (closed) return
      closed = true
      stopJudging()
      const left = this.#open.get(name)! - 1
      if (left === 0) this.#open.delete(name)
      else this.#open.set(name, left)
    }
    return { over: over.signal, close }
  }

  /** Calls `end` where a caller may not go on, or where that is not known in time. */
  #judge(opening: Opening, end: () => void): Stop {
    let stopped = false
    let stopTimer: Stop = () => {}
    const wait = (): void => {
      stopTimer = this.#runtime.timer(JUDGED_EVERY, () => void judge(), true)
    }
    const judge = async (): Promise<void> => {
      stopTimer = this.#runtime.timer(JUDGED_EVERY, end, true)
      const goesOn = await opening.mayGoOn().catch(() => false)
      stopTimer()
      if (stopped) return
      if (goesOn) wait()
      else end()
    }
    wait()
    return () => {
      stopped = true
      stopTimer()
    }
  }
}
