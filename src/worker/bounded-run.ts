// worker/bounded-run.ts: a run of a worker that ends: when its queues are drained, at a time, or after so many jobs.
import { MillraceError, quote } from '../job/errors/errors.js'
import type { Millis } from '../job/job.js'
import { refuseUnknown } from '../job/values/names.js'
import { invalid, mustBe, oneOf, whole } from '../job/values/options.js'
import { checkAbortSignal } from '../queue/operations/abort-signal.js'
import type { Stop } from '../store/runtime.js'
import type { Upkeep } from '../upkeep/upkeep.js'
import type { WorkerParts } from './parts.js'
import type { RunReport } from './run-tally.js'
import type { Runner } from './runner.js'

/** When a run of a worker ends: at the first of the conditions given. */
export interface WorkerRunOptions {
  /**
   * `'drained'`: when its queues have no job that can be claimed, and none of the names that it handles is running,
   * here or in another worker. A date: no job starts from then on. Default: neither ends the run.
   */
  readonly until?: 'drained' | Date
  /** How many jobs the run starts at most, retries included. Default: no limit. */
  readonly maxJobs?: number
  /** No job starts once this signal has aborted. Default: none. */
  readonly signal?: AbortSignal
}

/** How often a run that waits for the jobs of other workers looks whether these have ended. */
const LOOK_EVERY: Millis = 1_000

/** `WorkerRunOptions`, parsed. */
export interface RunRequest {
  readonly drained: boolean
  /** By the clock of this process. */
  readonly at: Date | undefined
  readonly maxJobs: number
  readonly signal: AbortSignal | undefined
}

/** Checks the options of a run. */
export function parseRun(options: WorkerRunOptions): RunRequest {
  const where = 'worker.run'
  refuseUnknown(options, ['until', 'maxJobs', 'signal'], where)
  const { until, maxJobs, signal } = options
  if (until === undefined && maxJobs === undefined && signal === undefined) {
    throw invalid(`${where}: give until, maxJobs or signal, or call run() without options to run until close().`)
  }
  if (until !== undefined && typeof until !== 'string' && !(until instanceof Date)) {
    throw mustBe(`${where}: until`, "'drained' or a Date", until)
  }
  if (until instanceof Date && Number.isNaN(until.getTime())) {
    throw new MillraceError('INVALID_DATE', `${where}: until must be 'drained' or a valid Date, not ${quote(until)}.`)
  }
  const isDate = until instanceof Date
  return {
    drained: until !== undefined && !isDate && oneOf(until, ['drained'], `${where}: until`) === 'drained',
    at: isDate ? until : undefined,
    maxJobs: maxJobs === undefined ? Infinity : whole(maxJobs, `${where}: maxJobs`, 1),
    signal: checkAbortSignal(signal, where),
  }
}

/** One run of a worker, from its first claim until nothing of it is left. */
export class BoundedRun {
  readonly #parts: WorkerParts
  readonly #runner: Runner
  readonly #upkeep: Upkeep
  readonly #request: RunRequest
  readonly #cleanups: Stop[] = []
  #end: (why: RunReport['ended']) => void = () => {}
  /** Resolves when no further job may start. */
  readonly ended: Promise<RunReport['ended']>

  constructor(parts: WorkerParts, runner: Runner, upkeep: Upkeep, request: RunRequest) {
    this.#parts = parts
    this.#runner = runner
    this.#upkeep = upkeep
    this.#request = request
    this.ended = new Promise((resolve) => (this.#end = resolve))
  }

  /** Sets the bounds, before the first claim. Returns false if the run is over before it has begun. */
  begin(): boolean {
    const { at, maxJobs, signal } = this.#request
    const { runtime } = this.#parts.connection
    this.#parts.run.begin(maxJobs, () => this.end('max-jobs'))
    const left = at === undefined ? Infinity : at.getTime() - runtime.now()
    if (signal?.aborted === true || left <= 0) {
      this.end(signal?.aborted === true ? 'signal' : 'date')
      return false
    }
    if (at !== undefined) this.#cleanups.push(runtime.timer(left, () => this.end('date')))
    if (signal !== undefined) {
      const abort = (): void => this.end('signal')
      signal.addEventListener('abort', abort, { once: true })
      this.#cleanups.push(() => signal.removeEventListener('abort', abort))
    }
    return true
  }

  /** No further job starts. */
  end(why: RunReport['ended']): void {
    this.#end(why)
  }

  /** Looks for the moment in which the queues are drained, if the run is to end then. Call it once the worker runs. */
  watch(): void {
    if (!this.#request.drained) return
    let over = false
    this.#cleanups.push(() => (over = true))
    void this.#drained(() => over).then(() => this.end('drained'))
  }

  /** What the run did; nothing is counted from now on. */
  report(why: RunReport['ended']): RunReport {
    for (const each of this.#cleanups) each()
    const report = this.#parts.run.report(why)
    this.#parts.run.end()
    return report
  }

  /** Nothing is running, claimed or being settled here, and the last claim found nothing. */
  get #isQuiet(): boolean {
    const { slots, claimer, unstarted } = this.#runner
    return slots.running.length === 0 && unstarted === 0 && claimer.isDry && !this.#parts.backpressure.hasOpen
  }

  /**
   * Resolves when the queues are drained. What is due is made claimable first, and only then a claim that finds nothing
   * counts.
   */
  async #drained(over: () => boolean): Promise<void> {
    const { run, errors } = this.#parts
    let last: string | undefined
    while (!over()) {
      if (!this.#isQuiet) {
        await run.nextChange()
        continue
      }
      const before = run.started
      await this.#upkeep.passNow()
      await this.#runner.claimer.claimNow()
      if (!this.#isQuiet || run.started !== before) continue
      try {
        const counts = await this.#counts()
        const isStable = counts.text === last
        last = counts.text
        if (!counts.active && isStable) return
        // A job that ended after the claim may have released others: they are claimed before these counts can count.
        if (!counts.active) continue
      } catch (error) {
        errors.report(error)
      }
      await this.#changeWithin(LOOK_EVERY)
    }
  }

  /** The jobs that this worker handles in its queues: whether some are running, and a text of all their counts. */
  async #counts(): Promise<{ readonly active: boolean; readonly text: string }> {
    const { connection, queues, settings } = this.#parts
    const handled = (await connection.store.tally(queues)).flatMap(({ queue, names }) =>
      Object.entries(names)
        .filter(([name]) => settings.names?.includes(name) !== false)
        .map(([name, states]) => ({ queue, name, states })),
    )
    return { active: handled.some(({ states }) => (states.active ?? 0) > 0), text: JSON.stringify(handled) }
  }

  async #changeWithin(delay: Millis): Promise<void> {
    let stop: Stop = () => {}
    const late = new Promise<void>((resolve) => (stop = this.#parts.connection.runtime.timer(delay, resolve)))
    this.#cleanups.push(stop)
    await Promise.race([late, this.#parts.run.nextChange(), this.ended])
    stop()
  }
}

/** The error of a second run. */
export function alreadyRuns(): MillraceError {
  return new MillraceError(
    'WORKER_RUNNING',
    'worker.run was called while this worker runs already. Await the run in progress; for runs that end, create the worker with autorun: false.',
  )
}
