// worker/failure-log.ts: prints the failures of a worker's jobs for people, one line each, at a bounded rate.
import { isAbsolute, relative } from 'node:path'
import { placeOf } from '../job/errors/failure.js'
import type { ErrorInfo, JobHeader, Millis, Time } from '../job/job.js'
import { failureIn } from '../job/moves.js'
import type { Failure } from '../job/moves.js'
import { workerNameIn } from '../job/values/names.js'
import type { Logger } from '../queue/events/events.js'
import type { Runtime } from '../store/runtime.js'
import type { Group } from '../store/store.js'

/** The interval that the bounds below are for. */
const WINDOW: Millis = 60_000

/** Maximum number of lines about jobs of one name that failed for good, in each window. */
const MAX_FAILED = 100

/** Maximum number of names that are counted apart; the names beyond that share one count. */
const MAX_NAMES = 1000

/** The most characters printed of an error's message. */
const MAX_MESSAGE = 300

/** The job that a line is about. */
type Failing = Pick<JobHeader, 'id' | 'name' | 'queue' | 'attempt' | 'attempts' | 'worker'>

/** What was printed about one name since a time. */
interface Window {
  readonly since: Millis
  failed: number
  retried: boolean
}

/** The failures of the jobs of one worker, as lines. */
export class FailureLog {
  readonly #logger: Pick<Logger, 'warn' | 'error'>
  readonly #runtime: Pick<Runtime, 'now' | 'elapsed'>
  /** By queue and name, the oldest first. */
  readonly #windows = new Map<string, Window>()

  /** Prints jobs that failed for good by `error`, and the first retry of a name in each minute by `warn`. */
  constructor(logger: Pick<Logger, 'warn' | 'error'>, runtime: Pick<Runtime, 'now' | 'elapsed'>) {
    this.#logger = logger
    this.#runtime = runtime
  }

  /** How many names are counted apart now. */
  get names(): number {
    return this.#windows.size
  }

  /** Changes of a job are durable: prints the failure among them, if there is one and it is due a line. */
  applied(job: Failing, group: Group): void {
    const failure = failureIn(job, group)
    if (failure === undefined) return
    const window = this.#windowOf(job)
    const { id, name, queue, attempt, worker } = job
    const details = { id, name, queue, attempt, worker, ...('error' in failure && { err: failure.error }) }
    if (failure.kind === 'failed') {
      if (window.failed === MAX_FAILED) return
      const last = ++window.failed === MAX_FAILED ? '; no more lines about this name for up to a minute' : ''
      this.#logger.error(details, `${this.#describe(job, failure)}${last}`)
    } else if (!window.retried) {
      window.retried = true
      this.#logger.warn(details, this.#describe(job, failure))
    }
  }

  #describe({ id, name, queue, attempt, attempts, worker }: Failing, failure: Failure): string {
    const counted = attempt === 0 ? 'before its first attempt' : `in attempt ${attempt}${ofAttempts(attempts)}`
    const by = worker === undefined ? undefined : workerNameIn(worker)
    const about = `millrace: job '${name}' ${id} in queue '${queue}'${by === undefined ? '' : ` on worker '${by}'`}`
    switch (failure.kind) {
      case 'failed':
        return `${about} failed for good ${counted}: ${describeError(failure.error)}`
      case 'retrying': {
        const runAt = formatTime(this.#runtime.now() + failure.in)
        return `${about} failed ${counted} and runs again ${runAt}: ${describeError(failure.error)}`
      }
      case 'stalled':
        return `${about} stalled ${counted} and runs again at once: worker ${worker} did not renew its lease`
    }
  }

  /** The current window of a job's name. Forgets windows that are over. */
  #windowOf({ queue, name }: Failing): Window {
    const now = this.#runtime.elapsed()
    for (const [key, { since }] of this.#windows) {
      if (now - since < WINDOW) break
      this.#windows.delete(key)
    }
    const own = `${queue}\n${name}` // no name contains a line break
    const key = this.#windows.size < MAX_NAMES || this.#windows.has(own) ? own : OTHERS
    let window = this.#windows.get(key)
    if (window === undefined) this.#windows.set(key, (window = { since: now, failed: 0, retried: false }))
    return window
  }
}

/** The key of the names beyond the maximum. */
const OTHERS = '\n'

function ofAttempts(attempts: number): string {
  return attempts === Infinity ? '' : ` of ${attempts}`
}

/** An error in one line: its type, its message, and where in the program's own code it was made. */
function describeError(error: ErrorInfo): string {
  const { name, message, code } = error
  const type = name === 'Error' ? '' : `${name === 'MillraceError' ? (code ?? name) : name}: `
  const line = message.replaceAll(/[\p{Cc}\s]+/gu, ' ').trim()
  const text = line.length > MAX_MESSAGE ? `${line.slice(0, MAX_MESSAGE)}…` : line
  const place = placeOf(error)
  return `${type}${text}${place === undefined ? '' : ` (${shortened(place)})`}`
}

/** The last time that a date can hold. */
const END_OF_TIME = 8.64e15

function formatTime(time: Time): string {
  return time <= END_OF_TIME ? `at ${new Date(time).toISOString()}` : 'in the far future'
}

/** A path from the working directory on, if it is inside. */
function shortened(path: string): string {
  try {
    const inside = relative(process.cwd(), path)
    return inside.startsWith('..') || isAbsolute(inside) ? path : inside
  } catch {
    return path // the working directory is gone
  }
}
