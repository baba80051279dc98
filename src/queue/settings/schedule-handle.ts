// queue/settings/schedule-handle.ts: a handle of one schedule: reads it and its runs, pauses, resumes and removes it, runs
// it now, and runs it for times that have passed.
import { MillraceError, quote } from '../../job/errors/errors.js'
import { isFinished } from '../../job/job.js'
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
import { storeTime } from '../../store/connection.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Session } from '../../store/session.js'
import type { Store } from '../../store/store.js'
import { MAX_RACES, changeJob } from '../operations/decide.js'
import type { QueueScope } from '../operations/operations.js'
import { splitTransaction } from '../transactions.js'
import type { InTransaction, TransactionArgument, WithTransaction } from '../transactions.js'
import { fireDueSchedule } from './schedule-firing.js'
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

/** How many runs of a backfill one commit adds, about how many bytes of data, and the most bytes in all of them. */
const PORTION = 100
const PORTION_BYTES = 2 * 2 ** 20
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
   * The runs are beside those of the schedule's own times, and count towards no `limit`. Where the range
   * reaches its next time, because no worker was there, it first makes its own runs, as `catchUp` says.
   */
  backfill(options: WithTransaction<S, BackfillOptions>): Promise<Backfill> {
    const { key } = this
    return this.#with<BackfillOptions, Backfill>(
      options,
      ['from', 'to', 'overlap'],
      'backfill',
      function* (scope, id, rest) {
        const now = yield* step(storeTime(scope.connection, scope.session.within))
        const from = moment(rest.from, 'from')
        const to = rest.to === undefined ? now : moment(rest.to, 'to')
        if (to < from) {
          throw new MillraceError(
            'INVALID_RANGE',
            `schedule.backfill: to (${date(to)}) is before from (${date(from)}). Exchange them.`,
          )
        }
        if (to > now) throw badRange(`to (${date(to)}) is in the future, and the schedule runs for those times itself`)
        const { overlap } = rest
        if (overlap !== undefined) oneOf(overlap, ['queue', 'allow'], 'schedule.backfill: overlap')
        return yield* backfill(scope.session, yield* readRow(scope.session, id, key), { from, to, now, overlap })
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
  /** The store's time. */
  readonly now: Time
  readonly overlap: 'queue' | 'allow' | undefined
}

function* backfill(session: Session, first: JobRecord, { from, to, now, overlap: given }: Range): Steps<Backfill> {
  const { key, timing, run } = readSpec(first)
  const times = backfillTimes(first, from, to)
  const bytes = times.length * (run.data?.length ?? 0)
  if (times.length > MAX_BACKFILL || bytes > MAX_BACKFILL_BYTES) {
    const what = times.length > MAX_BACKFILL ? `more than ${MAX_BACKFILL} times` : `${bytes} bytes of data`
    const message = `Schedule '${key}' has ${what} from ${date(from)} to ${date(to)}; ${MAX_BACKFILL} times and ${MAX_BACKFILL_BYTES} bytes are the most. Backfill shorter ranges, one after the other.`
    throw new MillraceError('BACKFILL_TOO_LARGE', message, { details: { key, times: times.length, bytes } })
  }
  const overlap = given ?? (timing.overlap === 'allow' ? 'allow' : 'queue')
  let row = yield* caughtUp(session, first, key, { to, now })
  let left = times
  let size = Math.max(1, Math.min(PORTION, Math.floor(PORTION_BYTES / ((run.data?.length ?? 0) + 1))))
  /** The run that it added last, for which the next one waits. */
  let before: string | undefined
  let added = 0
  for (let races = 0; left.length > 0;) {
    const portion = left.slice(0, size)
    const runs = yield* step(session.getAll(portion.map((time) => runId(row.queue, key, time))))
    const missing = portion.filter((_, at) => runs[at] === undefined)
    if (missing.length > 0) {
      const waits = overlap === 'queue' && before === undefined
      const after = waits ? chainsOf(yield* unfinishedRuns(session, row.id)) : []
      const group = backfillRuns(row, missing, overlap, before === undefined ? after : [before])
      const verdict = yield* step(session.commit(group))
      row = yield* readRow(session, row.id, key)
      if (!verdict.ok && verdict.why === 'full') {
        if (missing.length === 1) throw backlogFull(row.queue, key, added)
        size = Math.floor(missing.length / 2)
        continue
      }
      if (row.data !== first.data || (!verdict.ok && ++races === MAX_RACES)) throw backfillBusy(key, added)
      // The schedule made a run meanwhile, or a run that one of these would wait for was removed.
      before = verdict.ok && overlap === 'queue' ? runId(row.queue, key, missing.at(-1)!) : undefined
      if (!verdict.ok) continue
      races = 0
      added += missing.length
    }
    left = left.slice(portion.length)
  }
  return { added, existing: times.length - added }
}

/**
 * The row of a schedule once it has made the runs that it is due for, if the range goes as far: from its next time on, none
 * is left to a backfill. A run that both made would run twice where the first is not kept.
 */
function* caughtUp(
  session: Session,
  first: JobRecord,
  key: string,
  { to, now }: Pick<Range, 'to' | 'now'>,
): Steps<JobRecord> {
  let row = first
  for (let firings = 0; !isFinished(row.state) && (row.dueAt ?? Infinity) <= to; firings++) {
    if (firings === MAX_RACES) throw backfillBusy(key, 0)
    yield* fireDueSchedule(row, now, session)
    row = yield* readRow(session, row.id, key)
  }
  return row
}

function backfillBusy(key: string, added: number): MillraceError {
  const message = `Schedule '${key}' is being changed by others: the backfill added ${added} runs. Repeat it: it adds the others.`
  return new MillraceError('STORE_BUSY', message, { details: { key, added } })
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
  throw new MillraceError(
    'INVALID_DATE',
    `schedule.backfill: ${field} must be a valid Date or milliseconds since 1970, not ${quote(value)}.`,
  )
}

function date(time: Time): string {
  return new Date(time).toISOString()
}
