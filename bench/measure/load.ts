// The loads of the contenders, and how lost and doubled jobs are counted.

/** SQLite's `synchronous`. */
export type Mode = 'full' | 'normal'

/** How jobs are added: each call awaited, by 100 concurrent callers, or 1000 in a call. */
export type Way = 'awaited' | 'flight' | 'bulk'

/** The size of a job's data: about 100 bytes, or 2 KB. */
export type Weight = 'light' | 'heavy'

/** The number of concurrent callers. */
export const CALLERS = 100
/** The number of jobs that one call of a bulk adds. */
export const BULK = 1000
/** The number of jobs that a worker runs at a time. */
export const CONCURRENCY = 100
/** The queue and the name of all jobs that are to run. */
export const QUEUE = 'bench'
export const NAME = 'noop'
/** The name of jobs that must not run, because it is paused. */
export const PAUSED = 'paused'

/** A job's data; `n` identifies the job, from 0 up. */
export interface Payload {
  readonly n: number
  readonly to: string
  readonly template: string
  readonly locale: string
  readonly lines?: readonly unknown[]
}

const LINES = Array.from({ length: 20 }, (_, at) => ({
  sku: `MR-${1000 + at}`,
  title: `Oak cog for the lower wheel, size ${at}`,
  quantity: at + 1,
  price: 19.5 + at,
}))

/** The data of the job numbered `n`: about 90 bytes when light, about 2,050 when heavy. */
export function payload(n: number, weight: Weight): Payload {
  const light = { n, to: 'ann@example.com', template: 'welcome to the mill', locale: 'en' }
  return weight === 'light' ? light : { ...light, lines: LINES }
}

/** Records which jobs ran, by a number for each. The account is worked out after the measurement. */
export class Ledger {
  readonly #runs: Float64Array
  #count = 0

  /** `most` is an upper bound of runs, with those of jobs that run twice. Further runs are only counted. */
  constructor(most: number) {
    this.#runs = new Float64Array(most)
  }

  /** The job with that number is running. */
  ran(key: number): void {
    this.#runs[this.#count++] = key
  }

  /** The numbers of all runs. */
  keys(): Float64Array {
    return this.#runs.slice(0, this.#count)
  }

  /** How many jobs ran at all, and how many runs were superfluous. */
  count(): { readonly ran: number; readonly doubled: number } {
    const keys = this.#runs.subarray(0, this.#count).toSorted()
    let ran = 0
    for (let at = 0; at < keys.length; at++) if (at === 0 || keys[at] !== keys[at - 1]) ran++
    return { ran, doubled: this.#count - ran }
  }
}

/**
 * A number for a UUID: 52 of its random bits, which collide among a million jobs once in ten thousand times. Handlers
 * that do nothing do not read the job's data, which would have to be parsed for it.
 */
export function keyOf(id: string): number {
  return parseInt(id.slice(24), 16) + (id.charCodeAt(22) & 15) * 2 ** 48
}

/**
 * The account of a drain. `expected` jobs had to run; `finished` are recorded as finished by the store. Where a drain
 * stops before the end, the jobs that ran must be those that are finished.
 */
export function account(
  ledger: Ledger,
  expected: number,
  finished: number,
): { readonly lost: number; readonly doubled: number } {
  const { ran, doubled } = ledger.count()
  return { lost: Math.max(0, expected - ran) + Math.max(0, ran - finished), doubled }
}

/**
 * Compares the speed near the end of a drain with that near its start: a tenth of the jobs each, without the first and
 * the last hundredth, because jobs end in batches that the start and the end would cut.
 */
export class Tenths {
  readonly #marks: readonly number[]
  readonly #times: number[] = []
  #ended = 0

  constructor(jobs: number) {
    this.#marks = [0.01, 0.11, 0.89, 0.99].map((share) => Math.ceil(jobs * share))
  }

  /** Further jobs have ended. */
  ended(jobs: number): void {
    this.#ended += jobs
    while (this.#ended >= (this.#marks[this.#times.length] ?? Infinity)) this.#times.push(performance.now())
  }

  /** The speed near the end, divided by that near the start. */
  tail(): number {
    const [from = NaN, to = NaN, late = NaN, last = NaN] = this.#times
    return (to - from) / (last - late)
  }
}

/** Waits for a number of jobs to end, and rejects when nothing has ended for half a minute. */
export class Countdown {
  readonly done: Promise<void>
  #left: number
  #resolve!: () => void
  readonly #guard: NodeJS.Timeout

  constructor(jobs: number) {
    this.#left = jobs
    let before = jobs
    let reject: (error: Error) => void
    this.done = new Promise((resolve, refuse) => {
      this.#resolve = resolve
      reject = refuse
    })
    this.done.catch(() => {})
    this.#guard = setInterval(() => {
      if (this.#left === before) reject(new Error(`Nothing has ended for 30 s, with ${this.#left} jobs to go.`))
      before = this.#left
    }, 30_000)
    if (jobs === 0) this.#end()
  }

  /** One more job has ended. */
  tick(): void {
    if (--this.#left === 0) this.#end()
  }

  #end(): void {
    clearInterval(this.#guard)
    this.#resolve()
  }
}
