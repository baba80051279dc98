// job/values/options.ts: checks single options. A check returns the value, or throws an error that names the field.
import { parseDuration } from './duration.js'
import type { Duration, Millis } from './duration.js'
import { MillraceError, quote } from '../errors/errors.js'
import { nearest } from './names.js'

/** The error for an option that cannot be used. */
export function invalid(message: string, details?: Readonly<Record<string, unknown>>): MillraceError {
  return new MillraceError('INVALID_OPTION', message, details && { details })
}

/** The same, for a value of the wrong kind: "queue.retry: rate must be a number above 0, not 'fast'." */
export function mustBe(field: string, what: string, value: unknown): MillraceError {
  return invalid(`${field} must be ${what}, not ${quote(value)}.`)
}

/** Whether a value is an object with fields. */
export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Checks an option that is on or off. Default false. */
export function flag(value: unknown, field: string): boolean {
  if (value === undefined) return false
  if (typeof value === 'boolean') return value
  throw mustBe(field, 'true or false', value)
}

/** Checks a whole number between two bounds. */
export function whole(value: number, field: string, min: number, max = Number.MAX_SAFE_INTEGER): number {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return value
  const range = max === Number.MAX_SAFE_INTEGER ? `from ${min} up` : `from ${min} to ${max}`
  throw mustBe(field, `a whole number ${range}`, value)
}

/** Checks a value of a list; for any other, suggests the nearest of them. */
export function oneOf<T extends string>(value: string, known: readonly T[], field: string): T {
  const found = known.find((each) => each === value)
  if (found !== undefined) return found
  const near = nearest(String(value), known)
  const hint = near === undefined ? '.' : `; did you mean '${near}'?`
  const names = known.map((each) => `'${each}'`).join(', ')
  throw invalid(`${field} must be one of ${names}, not '${String(value)}'${hint}`)
}

/** Reads a duration above 0. */
export function positive(value: Duration, field: string): Millis {
  const millis = parseDuration(value, field)
  if (millis === 0) throw new MillraceError('INVALID_DURATION', `${field} must be longer than 0.`)
  return millis
}
