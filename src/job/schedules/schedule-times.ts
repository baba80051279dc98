// job/schedules/schedule-times.ts: when a schedule runs: checks its options, finds its next moment and the missed ones. Pure.
import { badSchedule, checkCron, checkZone, nextByCron } from './cron.js'
import { parseDuration } from '../values/duration.js'
import type { Duration } from '../values/duration.js'
import type { Millis, Time } from '../job.js'
import { nearest } from '../values/names.js'
import { quote } from '../errors/errors.js'

/** What to do about times that passed while no upkeep ran. */
export type CatchUp = 'none' | 'one' | 'all'

/** What becomes of a run whose predecessor has not finished. */
export type Overlap = 'skip' | 'allow' | 'queue' | 'cancel'

/** Every value of `overlap`. */
export const overlaps = ['skip', 'allow', 'queue', 'cancel'] as const satisfies readonly Overlap[]

/** Timing options of all schedules. */
export interface TimingOptions {
  /** The first moment at which it may run: a date or milliseconds since 1970; `every` counts from it. Default: from now on. */
  readonly start?: Date | number
  /** The last moment at which it may run: a date or milliseconds since 1970. Default: none. */
  readonly end?: Date | number
  /** How many runs it makes before it ends. Default: no limit. */
  readonly limit?: number
  /**
   * Times that passed while no upkeep ran: `none` skips them, `one` makes a single run, for the latest, and `all` makes
   * one for each. Default `one`.
   */
  readonly catchUp?: CatchUp
  /**
   * When the previous run has not finished: `skip` makes no run, `allow` makes it anyway, `queue` makes it wait until the
   * one before has ended (one waits at a time, ten with `catchUp: 'all'`; further times are missed), and `cancel` cancels
   * the one before. Default `skip`, and with `catchUp: 'all'`, whose runs would skip one another, `allow`.
   */
  readonly overlap?: Overlap
  /**
   * Starts each run up to this long after its time, each time by another part of it, so that many schedules of the same
   * time do not start at once. Shorter than `every`. Default: none.
   */
  readonly jitter?: Duration
}

/** By a cron expression. */
export interface CronOptions extends TimingOptions {
  /** Five fields, or six with seconds first: `0 9 * * 1-5`; or `@daily` and the like. */
  readonly cron: string
  /** The time zone of the expression, such as `Europe/Berlin`. Default `UTC`. */
  readonly tz?: string
  /** Not with `cron`. Default: none. */
  readonly every?: never
}

/** At equal intervals. */
export interface EveryOptions extends TimingOptions {
  /** The interval, counted from `start`, or else from when it was first scheduled; it does not drift. */
  readonly every: Duration
  /** Not with `every`. Default: none. */
  readonly cron?: never
  /** Only with `cron`. Default: none. */
  readonly tz?: never
}

/** When something runs repeatedly: by `cron`, or at the interval `every`. */
export type ScheduleTimes = CronOptions | EveryOptions

/** The options of `ScheduleTimes`. */
export const timeOptionNames = [
  'cron',
  'every',
  'tz',
  'start',
  'end',
  'limit',
  'catchUp',
  'overlap',
  'jitter',
] as const satisfies readonly (keyof CronOptions | keyof EveryOptions)[]

/** `ScheduleTimes`, checked and with its defaults. What is not given is absent. */
export interface Timing {
  /** The expression, in single spaces. */
  readonly cron?: string
  /** The zone of the expression. */
  readonly tz?: string
  /** The interval, in milliseconds. */
  readonly every?: Millis
  /** The first moment at which it may run. */
  readonly start?: Time
  /** The last moment at which it may run. */
  readonly end?: Time
  /** How many runs it makes. */
  readonly limit?: number
  /** What to do about missed times. */
  readonly catchUp: CatchUp
  /** What becomes of a run whose predecessor has not finished. */
  readonly overlap: Overlap
  /** Runs start up to this long after their times, in milliseconds. */
  readonly jitter?: Millis
}

/** Checks the options of a schedule's times. Equal options always result in equal JSON text. */
export function parseTimes(options: ScheduleTimes, where: string): Timing {
  const { cron, every, tz, limit, catchUp = 'one' } = options
  if ((cron === undefined) === (every === undefined)) {
    badSchedule('cron', `${where}: give ${cron === undefined ? 'cron or every' : 'either cron or every, not both'}.`)
  }
  if (every !== undefined && tz !== undefined) {
    badSchedule('tz', `${where}: every counts milliseconds, which are alike in all zones; tz goes with cron.`)
  }
  if (limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 1)) {
    badSchedule('limit', `${where}: limit must be a whole number from 1 up, not ${quote(limit)}.`)
  }
  oneOf(catchUp, ['none', 'one', 'all'], 'catchUp', where)
  const overlap = options.overlap ?? (catchUp === 'all' ? 'allow' : 'skip')
  oneOf(overlap, overlaps, 'overlap', where)
  const start = moment(options.start, 'start', where)
  const end = moment(options.end, 'end', where)
  if (start !== undefined && end !== undefined && end < start) {
    badSchedule('end', `${where}: end (${date(end)}) is before start (${date(start)}).`)
  }
  return {
    ...(cron !== undefined && { cron: checkCron(cron, where), tz: checkZone(tz ?? 'UTC', where) }),
    ...(every !== undefined && { every: intervalOf(every, where) }),
    ...(start !== undefined && { start }),
    ...(end !== undefined && { end }),
    ...(limit !== undefined && { limit }),
    catchUp,
    overlap,
    ...(options.jitter !== undefined && { jitter: jitterOf(options.jitter, every, where) }),
  }
}

function jitterOf(jitter: Duration, every: Duration | undefined, where: string): Millis {
  const millis = parseDuration(jitter, `${where}: jitter`)
  if (millis === 0) badSchedule('jitter', `${where}: jitter must be longer than 0.`)
  if (every === undefined || millis < parseDuration(every, `${where}: every`)) return millis
  return badSchedule('jitter', `${where}: jitter must be shorter than every, or runs would pass each other.`)
}

function intervalOf(every: Duration, where: string): Millis {
  const millis = parseDuration(every, `${where}: every`)
  return millis > 0 ? millis : badSchedule('every', `${where}: every must be longer than 0.`)
}

function moment(value: Date | number | undefined, field: string, where: string): Time | undefined {
  if (value === undefined) return undefined
  const time = value instanceof Date ? value.getTime() : value
  if (typeof time === 'number' && Math.abs(time) <= 8.64e15) return Math.ceil(time)
  return badSchedule(
    field,
    `${where}: ${field} must be a valid Date or milliseconds since 1970, not ${quote(value)}${value instanceof Date ? ' that is none' : ''}.`,
  )
}

function oneOf(value: string, known: readonly string[], field: string, where: string): void {
  if (known.includes(value)) return
  const near = nearest(String(value), known)
  const hint = near === undefined ? '.' : `; did you mean '${near}'?`
  badSchedule(field, `${where}: ${field} must be one of '${known.join("', '")}', not ${quote(value)}${hint}`)
}

function date(time: Time): string {
  return new Date(time).toISOString()
}

/**
 * The first moment after another at which it runs. `anchor` is one of the moments of an `every` that has no `start`, or
 * the moment from which the first is counted.
 */
export function nextTime(timing: Timing, after: Time, anchor: Time): Time | undefined {
  const { cron, tz = 'UTC', every, start, end } = timing
  const from = start === undefined ? after : Math.max(after, start - 1)
  let next: Time | undefined
  if (cron !== undefined) next = nextByCron(cron, tz, from)
  else if (every !== undefined) {
    const origin = start ?? anchor
    next = origin + Math.max(0, Math.floor((from - origin) / every) + 1) * every
    if (next > MAX_TIME) next = undefined
  }
  return next !== undefined && end !== undefined && next > end ? undefined : next
}

/** The last moment that a Date can hold. */
const MAX_TIME: Time = 8.64e15

/** The next few moments, starting with `first`. */
export function timesFrom(timing: Timing, first: Time | undefined, count: number): readonly Time[] {
  const times: Time[] = []
  for (let each = first; each !== undefined && times.length < count; each = nextTime(timing, each, each)) {
    times.push(each)
  }
  return times
}

/** The latest moment that has passed, given an earlier one. A binary search, because there may be very many in between. */
export function latestTime(timing: Timing, first: Time, now: Time): Time {
  let latest = first
  let next = nextTime(timing, latest, first)
  for (let until = now; next !== undefined && next <= now;) {
    latest = next
    next = nextTime(timing, latest, first)
    if (next === undefined || next > now) break
    let middle = latest + Math.floor((until - latest) / 2)
    for (let found: Time | undefined; middle > latest; middle = latest + Math.floor((until - latest) / 2)) {
      found = nextTime(timing, middle, first)
      if (found !== undefined && found <= now) {
        next = found
        break
      }
      until = middle
    }
  }
  return latest
}

/** A time is missed when it is later than this, or than a quarter of the interval to the next. */
const LATE: Millis = 60_000

/** Whether a time that has passed was missed: running upkeep would not have been so late. */
export function isMissed(timing: Timing, time: Time, now: Time): boolean {
  const next = nextTime(timing, time, time)
  return now - time > Math.min(LATE, next === undefined ? LATE : (next - time) / 4)
}

/** The times of a schedule in a range, both ends included, and at most so many; `anchor` is one of its times. */
export function timesWithin(timing: Timing, from: Time, to: Time, anchor: Time, most: number): readonly Time[] {
  const { every } = timing
  // An interval is counted from its anchor, also backwards.
  const origin = every === undefined || anchor <= from ? anchor : anchor - Math.ceil((anchor - from) / every) * every
  const times: Time[] = []
  for (let time = nextTime(timing, from - 1, origin); time !== undefined && time <= to && times.length < most;) {
    times.push(time)
    time = nextTime(timing, time, origin)
  }
  return times
}
