// queue/settings/schedule-handle.ts: a handle of one schedule: reads it and its runs, pauses, resumes and removes it, runs
// it now, and runs it for times that have passed.
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { JobRecord, Time } from '../../job/job.js'
import type { Decision } from '../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { invalid, oneOf, whole } from '../../job/values/options.js'
import { SCHEDULE, chainsOf, readSpec, runId, scheduleId } from '../../job/schedules/schedule.js'
import {
  MAX_BACKFILL,
  backfillRuns,
  backfillTimes,
  pauseSchedule,
  resumeSchedule,
  triggerRun,
} from '../../job/schedules/schedule-requests.js'
import { overlaps } from '../../job/schedules/schedule-times.js'
import type { Overlap } from '../../job/schedules/schedule-times.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { portions } from '../../store/read-pages.js'
import type { Session } from '../../store/session.js'
import type { Store } from '../../store/store.js'
import { MAX_RACES, changeJob } from '../operations/decide.js'
import type { QueueScope } from '../operations/operations.js'
import { splitTransaction } from '../transactions.js'
import type { InTransaction, TransactionArgument, WithTransaction } from '../transactions.js'
import { LISTED_RUNS, MAX_LISTED_RUNS, lastRuns, unfinishedRuns } from './schedule-runs.js'
import type { ScheduleRun } from './schedule-runs.js'
import { dropSchedule, toSchedule } from './schedules.js'
import type { Schedule } from './schedules.js'

/** Options of `schedule(key).trigger`. */
export interface TriggerOptions {
  /** What becomes of the run if one before it has not finished. Default: as the schedule says. */
  readonly overlap?: Overlap
}

/** Options of `schedule(key).backfill`. */
export interface BackfillOptions {
  /** The first moment: a date or milliseconds since 1970. */
  readonly from: Date | number
  /** The last moment, not in the future. Default: now. */
  readonly to?: Date | number
  /**
   * `queue`: the runs go one after another, in the order of their times. `allow`: all at once. Default `allow` if the
   * schedule has it, else `queue`.
   */
  readonly overlap?: 'queue' | 'allow'
}

/** What a backfill did. */
export interface Backfill {
  /** How many runs it added. */
  readonly added: number
  /** How many of the times have a run already. */
  readonly existing: number
}

/** How a handle makes the calls of its queue. */
export interface ScheduleCalls {
  run<T>(options: InTransaction | undefined, call: string, work: (scope: QueueScope) => Steps<T>): Promise<T>
}

/** How many runs of a backfill are added at a time, and the most bytes of data in all of them. */
const PORTION = 100
const MAX_BACKFILL_BYTES = 64 * 2 ** 20

/** A schedule by its key. Cheap to create; reads and writes nothing until it is called. */
export class ScheduleHandle<Name extends string = string, S extends Store = Store> {
  /** The key of the schedule. */
  readonly key: string
  readonly #calls: ScheduleCalls

  /** @internal Use `queue.schedule(key)`. */
  constructor(calls: ScheduleCalls, key: string) {
    this.key = checkName(key, 'schedule key')
    this.#calls = calls
  }

  /** The schedule as stored; undefined if there is none. */
  get(...options: TransactionArgument<S>): Promise<Schedule<Name> | undefined> {
    return this.#run(options[0], 'get', function* ({ session }, id) {
      const row = yield* step(session.get(id))
      return row?.kind === SCHEDULE ? (toSchedule(row) as Schedule<Name>) : undefined
    })
  }

  /** Its last runs, the newest first: ten, or `limit`, at most 100. Without those that retention has removed. */
  runs(options: WithTransaction<S, { readonly limit?: number }> = {}): Promise<readonly ScheduleRun[]> {
    return this.#with<{ readonly limit?: number }, readonly ScheduleRun[]>(
      options,
      ['limit'],
      'runs',
      function* ({ session }, id, rest) {
        const { limit = LISTED_RUNS } = rest
        return yield* lastRuns(session, id, whole(limit, 'schedule.runs: limit', 1, MAX_LISTED_RUNS))
      },
    )
  }

  /**
   * Pauses it: its times pass, and no run is made for them (`schedule-missed`). False if it was paused already. A new
   * definition of the schedule keeps the pause.
   */
  pause(...options: TransactionArgument<S>): Promise<boolean> {
    return this.#change(options[0], 'pause', pauseSchedule)
  }

  /** Resumes it, from its next time on. False if it was not paused. */
  resume(...options: TransactionArgument<S>): Promise<boolean> {
    return this.#change(options[0], 'resume', resumeSchedule)
  }

  /** Removes it; false if there was none. Its runs stay. */
  remove(...options: TransactionArgument<S>): Promise<boolean> {
    const { key } = this
    return this.#run(options[0], 'remove', (scope) => dropSchedule(scope, key))
  }

  /**
   * Adds a run now, beside its times, also while it is paused or has ended; returns its id. Listed under the schedule, and
   * not counted towards its `limit`. Throws `SCHEDULE_OVERLAP` where `overlap` allows no run: `skip`, while another has not
   * finished, and `queue`, while another waits. That holds as well among calls at the same moment, of any process.
   */
  trigger(options: WithTransaction<S, TriggerOptions> = {}): Promise<string> {
    const { key } = this
    return this.#with<TriggerOptions, string>(options, ['overlap'], 'trigger', function* (scope, id, rest) {
      const { overlap } = rest
      if (overlap !== undefined) oneOf(overlap, overlaps, 'schedule.trigger: overlap')
      return yield* trigger(scope, yield* readRow(scope.session, id, key), key, overlap)
    })
  }

  /**
   * Adds a run for each of its times from `from` to `to` that has none; repeating it adds none twice, as long as the runs
   * are kept. At most 1,000 times and 64 MiB of data: more are refused with `BACKFILL_TOO_LARGE`, and nothing is added.
   * The runs are beside those of the schedule's own times, and count towards no `limit`.
   */
  backfill(options: WithTransaction<S, BackfillOptions>): Promise<Backfill> {
    const { key } = this
    return this.#with<BackfillOptions, Backfill>(
      options,
      ['from', 'to', 'overlap'],
      'backfill',
      function* (scope, id, rest) {
        const now = scope.runtime.now()
        const from = moment(rest.from, 'from')
        const to = rest.to === undefined ? now : moment(rest.to, 'to')
        if (to < from) throw badRange(`to (${date(to)}) is before from (${date(from)})`)
        if (to > now) throw badRange(`to (${date(to)}) is in the future, and the schedule runs for those times itself`)
        const { overlap } = rest
        if (overlap !== undefined) oneOf(overlap, ['queue', 'allow'], 'schedule.backfill: overlap')
        return yield* backfill(scope.session, yield* readRow(scope.session, id, key), { from, to, overlap })
      },
    )
  }

  #change(
    options: InTransaction | undefined,
    call: string,
    decide: (row: JobRecord, now: Time) => Decision,
  ): Promise<boolean> {
    const { key } = this
    return this.#run(options, call, function* ({ session, runtime }, id) {
      return (yield* changeJob(session, yield* readRow(session, id, key), (row) => decide(row, runtime.now()))).done
    })
  }

  #with<Options extends object, T>(
    options: Options & InTransaction,
    known: readonly string[],
    call: string,
    work: (scope: QueueScope, id: string, options: Options) => Steps<T>,
  ): Promise<T> {
    try {
      const where = `schedule.${call}`
      const { tx, rest } = splitTransaction<Options>(options, where)
      refuseUnknown(rest, known, where)
      return this.#run({ tx }, call, (scope, id) => work(scope, id, rest))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #run<T>(
    options: InTransaction | undefined,
    call: string,
    work: (scope: QueueScope, id: string) => Steps<T>,
  ): Promise<T> {
    return this.#calls.run(options, `schedule.${call}`, (scope) => work(scope, scheduleId(scope.queue, this.key)))
  }
}

function* readRow(session: Session, id: string, key: string): Steps<JobRecord> {
  const row = yield* step(session.get(id))
  if (row?.kind === SCHEDULE) return row
  throw new MillraceError('SCHEDULE_NOT_FOUND', `There is no schedule '${key}': it was never made, or was removed.`, {
    details: { key },
  })
}

function* trigger(
  { session, runtime }: QueueScope,
  first: JobRecord,
  key: string,
  overlap: Overlap | undefined,
): Steps<string> {
  const run = runtime.id()
  let row = first
  for (let races = 0; races < MAX_RACES; races++) {
    const group = triggerRun(row, run, overlap, yield* unfinishedRuns(session, row.id))
    if ('denied' in group) throw overlapping(key, group.denied, group.run)
    const verdict = yield* step(session.commit(group))
    if (verdict.ok) return run
    if (verdict.why === 'duplicate') throw overlapping(key, 'has a run that has not finished', verdict.id)
    if (verdict.why === 'full') {
      throw new MillraceError('QUEUE_FULL', `Queue '${row.queue}' is at the limit of its backlog; trigger it later.`)
    }
    // The schedule made a run meanwhile, another caller triggered it, or one of its runs has ended.
    row = yield* readRow(session, row.id, key)
  }
  throw new MillraceError('STORE_BUSY', `The runs of schedule '${key}' are being changed by others; try again.`)
}

function overlapping(key: string, why: string, run?: string): MillraceError {
  const message = `Schedule '${key}' ${why}${run === undefined ? '' : `: ${run}`}. Wait for it, or trigger it with { overlap: 'allow' }.`
  return new MillraceError('SCHEDULE_OVERLAP', message, { details: { key, ...(run !== undefined && { run }) } })
}

interface Range {
  readonly from: Time
  readonly to: Time
  readonly overlap: 'queue' | 'allow' | undefined
}

function* backfill(session: Session, row: JobRecord, { from, to, overlap: given }: Range): Steps<Backfill> {
  const { key, timing, run } = readSpec(row)
  const times = backfillTimes(row, from, to)
  const bytes = times.length * (run.data?.length ?? 0)
  if (times.length > MAX_BACKFILL || bytes > MAX_BACKFILL_BYTES) {
    const what = times.length > MAX_BACKFILL ? `more than ${MAX_BACKFILL} times` : `${bytes} bytes of data`
    const message = `Schedule '${key}' has ${what} from ${date(from)} to ${date(to)}; ${MAX_BACKFILL} times and ${MAX_BACKFILL_BYTES} bytes are the most. Backfill shorter ranges, one after the other.`
    throw new MillraceError('BACKFILL_TOO_LARGE', message, { details: { key, times: times.length, bytes } })
  }
  const overlap = given ?? (timing.overlap === 'allow' ? 'allow' : 'queue')
  const after = overlap === 'queue' ? chainsOf(yield* unfinishedRuns(session, row.id)) : []
  // Each waits for the one before it: those that exist already are left out, so that they are one line.
  const existing = new Set<string>()
  for (const ids of portions(
    times.map((time) => runId(row.queue, key, time)),
    PORTION,
  )) {
    for (const run of yield* step(session.getAll(ids))) if (run !== undefined) existing.add(run.id)
  }
  const missing = times.filter((time) => !existing.has(runId(row.queue, key, time)))
  let added = 0
  for (const portion of portions(backfillRuns(row, missing, overlap, after), PORTION)) {
    let left = portion
    for (let races = 0; left.length > 0 && races < MAX_RACES; races++) {
      const verdicts = yield* step(session.commitAll(left.map((insert) => [insert])))
      added += verdicts.filter(({ ok }) => ok).length
      // A run that one of these would wait for was removed meanwhile: it waits for nothing.
      left = left.flatMap((insert, at) => {
        const verdict = verdicts[at]!
        if (!verdict.ok && verdict.why === 'full') throw backlogFull(row.queue, key, added)
        return verdict.ok || verdict.why === 'duplicate' ? [] : [{ ...insert, edges: [] }]
      })
    }
  }
  return { added, existing: times.length - added }
}

function backlogFull(queue: string, key: string, added: number): MillraceError {
  const message = `Queue '${queue}' is at the limit of its backlog: the backfill of schedule '${key}' added ${added} runs. Repeat it later: it adds the others.`
  return new MillraceError('QUEUE_FULL', message, { details: { queue, key, added } })
}

function badRange(why: string): MillraceError {
  return invalid(`schedule.backfill: ${why}.`)
}

function moment(value: Date | number, field: string): Time {
  const time = value instanceof Date ? value.getTime() : value
  if (typeof time === 'number' && Math.abs(time) <= 8.64e15) return Math.ceil(time)
  throw invalid(`schedule.backfill: ${field} must be a valid Date or milliseconds since 1970, not ${quote(value)}.`)
}

function date(time: Time): string {
  return new Date(time).toISOString()
}
