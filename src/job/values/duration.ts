// job/values/duration.ts: converts durations as people write them to whole milliseconds and back.

import { MillraceError, quote } from '../errors/errors.js'

/** A length of time in milliseconds. */
export type Millis = number

/** A length of time as users write it: milliseconds, or text with units such as '30s', '1h 30m' or '5 minutes'. */
export type Duration = number | string

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const WEEK = 7 * DAY

/** The longest duration: 100 years of 365.25 days. It keeps every sum of a date and a duration a valid date. */
export const MAX_DURATION: Millis = 36_525 * DAY

const units: ReadonlyMap<string, Millis> = new Map([
  ...['ms', 'msec', 'msecs', 'millisecond', 'milliseconds'].map((unit) => [unit, 1] as const),
  ...['s', 'sec', 'secs', 'second', 'seconds'].map((unit) => [unit, SECOND] as const),
  ...['m', 'min', 'mins', 'minute', 'minutes'].map((unit) => [unit, MINUTE] as const),
  ...['h', 'hr', 'hrs', 'hour', 'hours'].map((unit) => [unit, HOUR] as const),
  ...['d', 'day', 'days'].map((unit) => [unit, DAY] as const),
  ...['w', 'week', 'weeks'].map((unit) => [unit, WEEK] as const),
])

const uneven = /^(mo|mos|mon|months?|y|yrs?|years?)$/

/**
 * Reads a duration as whole milliseconds; a fraction of one is rounded up. Units are in descending order, each at most
 * once, in any case; a leading 'in' is allowed. `field` names the value in the error.
 */
export function parseDuration(value: Duration, field: string): Millis {
  if (typeof value !== 'number' && typeof value !== 'string') throw refusal(value, field, 'it is neither')
  const millis = typeof value === 'number' ? value : readText(value, field)
  if (Number.isNaN(millis)) throw refusal(value, field, 'it is not a number')
  if (millis < 0) throw refusal(value, field, 'it is negative')
  if (millis > MAX_DURATION) throw refusal(value, field, 'it is over 100 years')
  return wholeMillis(millis)
}

/** Rounds up, but ignores the noise of binary fractions: '1.1h' is 3960000.0000000005 before rounding. */
function wholeMillis(millis: number): Millis {
  const rounded = Math.abs(Math.round(millis)) // abs: -0 is 0
  return Math.abs(millis - rounded) < 0.001 ? rounded : Math.ceil(millis)
}

function readText(text: string, field: string): number {
  const rest = text
    .trim()
    .toLowerCase()
    .replace(/^in\s+/, '')
  if (rest === '') throw refusal(text, field, 'it is empty')
  if (rest.startsWith('-')) throw refusal(text, field, 'it is negative')
  if (/^[\d.]+$/.test(rest)) throw refusal(text, field, 'it has no unit')

  const part = /(\d+(?:\.\d+)?|\.\d+)\s*([a-z]+)\s*/y
  let total = 0
  let smallest = Infinity
  while (part.lastIndex < rest.length) {
    const [, amount, unit] = part.exec(rest) ?? []
    if (amount === undefined || unit === undefined) throw refusal(text, field, 'it cannot be read')
    const size = units.get(unit)
    if (size === undefined) throw refusal(text, field, unknownUnit(unit))
    if (size >= smallest) throw refusal(text, field, 'its units must go from large to small, each at most once')
    total += Number(amount) * size
    smallest = size
  }
  return total
}

function unknownUnit(unit: string): string {
  return uneven.test(unit)
    ? 'months and years differ in length, so count in days or weeks'
    : `its unit ${quote(unit)} is unknown; units are ms, s, m, h, d and w, or their full names`
}

function refusal(value: unknown, field: string, reason: string): MillraceError {
  const usage = "milliseconds as a number, or text such as '30s', '1h 30m' or '5 minutes'"
  return new MillraceError(
    'INVALID_DURATION',
    `${field} must be a duration (${usage}), not ${quote(value)}: ${reason}`,
    {
      details: { field, value },
    },
  )
}

const written = [
  ['d', DAY],
  ['h', HOUR],
  ['m', MINUTE],
  ['s', SECOND],
  ['ms', 1],
] as const

/** Writes milliseconds for people, rounded to whole ones: '1h 30m', '250ms', '90d'. parseDuration reads it back. */
export function formatDuration(millis: Millis): string {
  if (!Number.isFinite(millis)) return String(millis)
  let rest = Math.round(Math.abs(millis))
  const parts: string[] = []
  for (const [unit, size] of written) {
    const count = Math.floor(rest / size)
    if (count > 0) parts.push(`${count}${unit}`)
    rest -= count * size
  }
  if (parts.length === 0) return '0ms'
  return (millis < 0 ? '-' : '') + parts.join(' ')
}
