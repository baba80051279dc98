// job/schedules/cron.ts: cron expressions in a time zone: checks them field by field, and finds the next moment.
import { Cron, CronPattern } from 'croner'
import { MillraceError, quote } from '../errors/errors.js'
import type { Time } from '../job.js'
import { nearest } from '../values/names.js'

interface Field {
  readonly name: string
  readonly takes: string
}

const fields: readonly Field[] = [
  { name: 'second', takes: '0 to 59' },
  { name: 'minute', takes: '0 to 59' },
  { name: 'hour', takes: '0 to 23' },
  { name: 'day of the month', takes: '1 to 31, L for the last or 15W for the weekday nearest to the 15th' },
  { name: 'month', takes: '1 to 12 or JAN to DEC' },
  { name: 'day of the week', takes: '0 to 7 (Sunday is 0 and 7) or SUN to SAT, FRI#2 for the second Friday' },
]

const nicknames: Readonly<Record<string, string>> = {
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
  '@monthly': '0 0 1 * *',
  '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@hourly': '0 * * * *',
}

/** Caches computed values by their inputs; drops the oldest entries first. */
class BoundedCache<T> {
  readonly #entries = new Map<string, T>()
  readonly #limit: number

  constructor(limit: number) {
    this.#limit = limit
  }

  get(key: string, work: () => T): T {
    const cached = this.#entries.get(key)
    if (cached !== undefined) return cached
    const found = work()
    if (this.#entries.size >= this.#limit) this.#entries.delete(this.#entries.keys().next().value!)
    this.#entries.set(key, found)
    return found
  }
}

/**
 * Caches of values that never change: parsing an expression and finding its next moment take longer than everything
 * else that a due schedule needs, and many schedules share theirs. A parsed expression takes 80 KB, so few are kept.
 */
const caches = {
  checked: new BoundedCache<string>(1000),
  zones: new BoundedCache<string>(1000),
  read: new BoundedCache<readonly Cron[]>(50),
  next: new BoundedCache<Time | undefined>(5000),
}

/** Throws for a bad schedule; `field` is the option that is wrong. */
export function badSchedule(field: string, message: string, details: Readonly<Record<string, unknown>> = {}): never {
  throw new MillraceError('INVALID_SCHEDULE', message, { details: { field, ...details } })
}

/**
 * Parses an expression of five fields, or six with seconds first, and returns it with single spaces and nicknames
 * expanded. Throws an error that names the wrong field; also for a date that never comes, such as 30 February.
 */
export function checkCron(value: unknown, where: string): string {
  if (typeof value !== 'string') {
    return badSchedule('cron', `${where}: cron must be text like '0 9 * * 1-5', not ${quote(value)}.`)
  }
  return caches.checked.get(value, () => readCron(value, where))
}

function readCron(value: string, where: string): string {
  const nickname = value.trim().toLowerCase()
  if (nickname.startsWith('@') && !Object.hasOwn(nicknames, nickname)) {
    const all = Object.keys(nicknames)
    const near = nearest(nickname, all)
    const hint = near === undefined ? `it knows ${all.join(', ')}` : `did you mean '${near}'?`
    return badSchedule('cron', `${where}: cron ${quote(value)} is no nickname that is known; ${hint}`)
  }
  const text = nicknames[nickname] ?? value.trim()
  const parts = text.split(/\s+/)
  if (parts.length !== 5 && parts.length !== 6) {
    const count = text === '' ? 0 : parts.length
    const meant = 'minute, hour, day of the month, month and day of the week, and before them seconds if you like'
    return badSchedule(
      'cron',
      `${where}: cron ${quote(value)} has ${count} ${count === 1 ? 'field' : 'fields'}; it takes 5 or 6: ${meant}.`,
    )
  }
  parts.forEach((part, at) => checkField(part, at, parts, where))
  const expression = parts.join(' ')
  if (nextByCron(expression, 'UTC', 0) === undefined) {
    const [day, month] = parts.slice(-3)
    const message = `${where}: cron ${quote(value)} never comes: no month ${quote(month)} has a day ${quote(day)}.`
    badSchedule('cron', `${message} Correct the day of the month or the month.`, { given: value })
  }
  return expression
}

function checkField(part: string, at: number, parts: readonly string[], where: string): void {
  const index = at + fields.length - parts.length
  if (isReadable(fields.map((_, each) => (each === index ? part : '*')).join(' '))) return
  const { name, takes } = fields[index]!
  const step = part.includes('-') ? null : /(\d+)\/(\d+)/.exec(part)
  const hint = step === null ? '' : ` A step from ${step[1]} on is written ${step[1]}-59/${step[2]}.`
  badSchedule(
    'cron',
    `${where}: the ${name} of cron '${parts.join(' ')}', which is field ${at + 1} of ${parts.length}, is '${part}'; it takes ` +
      `${takes}, or *, lists (1,2), ranges (1-5) and steps (*/15 or 0-30/5).${hint}`,
    { part: name, position: at + 1, given: part },
  )
}

function isReadable(expression: string): boolean {
  try {
    return new CronPattern(expression, undefined, { mode: '6-part' }).pattern !== ''
  } catch {
    return false
  }
}

/** Returns the zone, if this process's time zone database has it. */
export function checkZone(value: unknown, where: string): string {
  if (typeof value !== 'string' || value === '') {
    return badSchedule('tz', `${where}: tz must be a time zone such as 'Europe/Berlin', not ${quote(value)}.`)
  }
  return caches.zones.get(value, () => readZone(value, where))
}

function readZone(value: string, where: string): string {
  try {
    // Some versions of Node accept offsets and others do not, and offsets have no daylight saving.
    const { timeZone } = new Intl.DateTimeFormat('en', { timeZone: value }).resolvedOptions()
    if (!/^[+-]/.test(value) && timeZone !== '') return value
  } catch {
    // Throws below.
  }
  const near = nearest(value, Intl.supportedValuesOf('timeZone'))
  const hint = near === undefined ? "take one like 'Europe/Berlin' or 'UTC'." : `did you mean '${near}'?`
  return badSchedule('tz', `${where}: tz ${quote(value)} is no time zone that is known; ${hint}`, { given: value })
}

/** The first moment after another of an expression, in a zone; both were checked before. */
export function nextByCron(expression: string, tz: string, after: Time): Time | undefined {
  // All moments within one unit have the same next moment.
  const unit = expression.split(' ').length === 5 ? 60_000 : 1000
  const from = Math.floor(after / unit) * unit
  const key = `${tz} ${expression}`
  return caches.next.get(`${key} ${from}`, () => {
    try {
      const crons = caches.read.get(key, () => timesOfDay(expression).map((each) => cronOf(each, tz)))
      let first = Infinity
      for (const cron of crons) first = Math.min(first, cron.nextRun(new Date(from))?.getTime() ?? Infinity)
      return first === Infinity ? undefined : first
    } catch (cause) {
      // It was checked where it was scheduled, by a process with a newer time zone database.
      const message = `This process does not know when '${expression}' comes in the time zone '${tz}'; update Node here.`
      throw new MillraceError('INVALID_SCHEDULE', message, { cause, details: { field: 'tz', given: tz } })
    }
  })
}

function cronOf(expression: string, timezone: string): Cron {
  return new Cron(expression, { timezone, mode: '5-or-6-parts' })
}

/** The most fixed times of day; an expression with more counts as an interval. */
const TIMES_OF_DAY = 24

/**
 * Splits an expression into its fixed times of day. A fixed time of day that does not exist on one day runs after the
 * clock has jumped, and one that comes twice runs once; intervals follow the actual hours. `30 2,14 * * *` means two
 * times of day, and becomes two expressions, because a single one would be treated as an interval.
 */
function timesOfDay(expression: string): readonly string[] {
  const parts = expression.split(' ')
  const clock = parts.slice(0, -3).map((part) => (/^\d+(,\d+)*$/.test(part) ? [...new Set(part.split(','))] : []))
  const count = clock.reduce((product, list) => product * list.length, 1)
  if (count <= 1 || count > TIMES_OF_DAY) return [expression]
  const rest = parts.slice(-3).join(' ')
  const times = clock.reduce<readonly string[]>(
    (made, list) => made.flatMap((before) => list.map((each) => `${before}${each} `)),
    [''],
  )
  return times.map((time) => time + rest)
}
