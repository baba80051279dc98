// job/cron.ts: cron expressions in a time zone: checked field by field, and the moment that comes next.
import { Cron, CronPattern } from 'croner'
import { MillraceError } from './errors.js'
import type { Time } from './job.js'
import { nearest } from './names.js'
import { quote } from './quote.js'

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

/** What was worked out before, by what it was worked out from; the oldest give way. */
class Memo<T> {
  readonly #known = new Map<string, T>()
  readonly #most: number

  constructor(most: number) {
    this.#most = most
  }

  get(key: string, work: () => T): T {
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const found = work()
    if (this.#known.size >= this.#most) this.#known.delete(this.#known.keys().next().value!)
    this.#known.set(key, found)
    return found
  }
}

/**
 * Of things that never change, since to read an expression and to find its next moment take longer than all else that a due
 * schedule asks for, and many schedules share theirs. An expression that was read takes 80 KB, so few are kept.
 */
const memos = {
  checked: new Memo<string>(1000),
  zones: new Memo<string>(1000),
  read: new Memo<readonly Cron[]>(50),
  next: new Memo<Time | undefined>(5000),
}

/** Refuses what a schedule says about its times; `field` is where it is wrong. */
export function badSchedule(field: string, message: string, details: Readonly<Record<string, unknown>> = {}): never {
  throw new MillraceError('INVALID_SCHEDULE', message, { details: { field, ...details } })
}

/**
 * Reads an expression of five fields, or six with seconds first, and answers it with single spaces and nicknames spelled
 * out. What is wrong is refused with the field that is; what never comes, such as 30 February, as well.
 */
export function checkCron(value: unknown, where: string): string {
  if (typeof value !== 'string') {
    return badSchedule('cron', `${where}: cron must be text like '0 9 * * 1-5', not ${quote(value)}.`)
  }
  return memos.checked.get(value, () => readCron(value, where))
}

function readCron(value: string, where: string): string {
  const known = value.trim().toLowerCase()
  if (known.startsWith('@') && !Object.hasOwn(nicknames, known)) {
    const all = Object.keys(nicknames)
    const near = nearest(known, all)
    const hint = near === undefined ? `it knows ${all.join(', ')}` : `did you mean '${near}'?`
    return badSchedule('cron', `${where}: cron ${quote(value)} is no nickname that is known; ${hint}`)
  }
  const text = nicknames[known] ?? value.trim()
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
  const place = at + fields.length - parts.length
  if (isReadable(fields.map((_, each) => (each === place ? part : '*')).join(' '))) return
  const { name, takes } = fields[place]!
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

/** The zone, if it is one of the time zone database that this process knows. */
export function checkZone(value: unknown, where: string): string {
  if (typeof value !== 'string' || value === '') {
    return badSchedule('tz', `${where}: tz must be a time zone such as 'Europe/Berlin', not ${quote(value)}.`)
  }
  return memos.zones.get(value, () => readZone(value, where))
}

function readZone(value: string, where: string): string {
  try {
    // Offsets are taken by some versions of Node and not by others, and know no daylight saving.
    const { timeZone } = new Intl.DateTimeFormat('en', { timeZone: value }).resolvedOptions()
    if (!/^[+-]/.test(value) && timeZone !== '') return value
  } catch {
    // Refused below.
  }
  const near = nearest(value, Intl.supportedValuesOf('timeZone'))
  const hint = near === undefined ? "take one like 'Europe/Berlin' or 'UTC'." : `did you mean '${near}'?`
  return badSchedule('tz', `${where}: tz ${quote(value)} is no time zone that is known; ${hint}`, { given: value })
}

/** The first moment after another of an expression, in a zone, both of which were checked. */
export function nextByCron(expression: string, tz: string, after: Time): Time | undefined {
  // Between two of the moments that it may name, all others are alike.
  const unit = expression.split(' ').length === 5 ? 60_000 : 1000
  const from = Math.floor(after / unit) * unit
  const key = `${tz} ${expression}`
  return memos.next.get(`${key} ${from}`, () => {
    try {
      const crons = memos.read.get(key, () => timesOfDay(expression).map((each) => cronOf(each, tz)))
      let first = Infinity
      for (const cron of crons) first = Math.min(first, cron.nextRun(new Date(from))?.getTime() ?? Infinity)
      return first === Infinity ? undefined : first
    } catch (cause) {
      // It was checked where it was scheduled, by a process that knew more.
      const message = `This process cannot tell when '${expression}' comes in the time zone '${tz}'; update Node here.`
      throw new MillraceError('INVALID_SCHEDULE', message, { cause, details: { field: 'tz', given: tz } })
    }
  })
}

function cronOf(expression: string, timezone: string): Cron {
  return new Cron(expression, { timezone, mode: '5-or-6-parts' })
}

/** The most times of day that are told apart; an expression with more is an interval. */
const TIMES_OF_DAY = 24

/**
 * A fixed time of day that does not exist on one day is made up for when the clock has jumped, and one that comes twice is
 * taken once; what runs at intervals follows the hours that there are. `30 2,14 * * *` means two times of day, and is
 * asked for as two expressions, because in one it would be taken for an interval.
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
