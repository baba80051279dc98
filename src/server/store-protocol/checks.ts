// server/store-protocol/checks.ts: what a value of the store protocol may be. A check returns what is wrong, and costs little
// where nothing is: it runs for every field of every change.
import { MillraceError, quote } from '../../job/errors/errors.js'
import { MAX_JSON_DEPTH } from '../../job/values/json.js'
import { MAX_NAME_LENGTH, nearest } from '../../job/values/names.js'
import { depthOf } from '../body.js'

/** What is wrong with a value, and the keys on the path to it, innermost first. */
interface Flaw {
  readonly words: string
  readonly trail: (string | number)[]
}

/** Returns what is wrong with a value. */
export type Check = ((value: unknown) => Flaw | undefined) & { readonly optional?: true }

/** The fields of an object, by name. */
type FieldChecks<T> = { readonly [Key in keyof T]-?: Check }

/** Throws INVALID_REQUEST, with the path, unless the value passes. */
export function require(check: Check, value: unknown, at: string): void {
  const flaw = check(value)
  if (flaw !== undefined) throw invalidAt(flaw, at)
}

function invalidAt({ words, trail }: Flaw, at: string): MillraceError {
  let path = at
  for (const key of trail.toReversed()) path += typeof key === 'number' ? `[${key}]` : `.${key.slice(0, 60)}`
  return new MillraceError('INVALID_REQUEST', `${path} ${words}.`, { details: { at: path } })
}

function flaw(mustBe: string, value: unknown): Flaw {
  const words = value === undefined ? `is missing: it must be ${mustBe}` : `must be ${mustBe}, not ${quote(value)}`
  return { words, trail: [] }
}

/** A value that passes a test, in words. */
export function that(test: (value: unknown) => boolean, words: string): Check {
  return (value) => (test(value) ? undefined : flaw(words, value))
}

/** Absent, or undefined, or what the check takes. */
export function maybe(check: Check): Check {
  return Object.assign((value: unknown) => (value === undefined ? undefined : check(value)), {
    optional: true as const,
  })
}

/** The same, or null: set to nothing. */
export function emptied(check: Check): Check {
  return maybe((value) => (value === null ? undefined : check(value)))
}

/** One of some values. */
export function oneOf(...known: readonly (string | number | boolean)[]): Check {
  const words = known.length === 1 ? String(known[0]) : `one of ${known.join(', ')}`
  return that((value) => known.includes(value as string), words)
}

/** True or false. */
export const flag: Check = that((value) => typeof value === 'boolean', 'true or false')

/** A whole number from one to another. */
export function whole(least: number, most: number = Number.MAX_SAFE_INTEGER): Check {
  const words =
    most === Number.MAX_SAFE_INTEGER ? `a whole number from ${least}` : `a whole number from ${least} to ${most}`
  return that((value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most, words)
}

/** A number from one to another. */
export function number(least: number, most: number): Check {
  return that(
    (value) => typeof value === 'number' && value >= least && value <= most,
    `a number from ${least} to ${most}`,
  )
}

/** The latest moment of a `Date`. */
const LATEST = 8.64e15
/** The longest duration, in milliseconds: 100 years, as durations of the library have. */
const LONGEST = 3_155_760_000_000

/** A moment. */
export const time: Check = number(-LATEST, LATEST)

/** A length of time. */
export const duration: Check = number(0, LONGEST)

const UNPRINTABLE = /[\p{Cc}\p{Cs}]/u
/** Lone surrogates, which no UTF-8 holds. */
const LONE = /\p{Cs}/u

/** A name or an id. */
export function named(longest = MAX_NAME_LENGTH): Check {
  return that(
    (value) => typeof value === 'string' && value !== '' && value.length <= longest && !UNPRINTABLE.test(value),
    `1 to ${longest} printable characters`,
  )
}

/** A name or an id of the usual length. */
export const name: Check = named()

/** Any text of a length: what users and errors say. */
export function text(longest: number): Check {
  return that(
    (value) => typeof value === 'string' && value.length <= longest && !LONE.test(value),
    `text of at most ${longest} characters`,
  )
}

/** The text of a JSON value, no deeper than what a job may hold. */
export const jsonText: Check = that((value) => {
  if (typeof value !== 'string' || LONE.test(value) || depthOf(value) > MAX_JSON_DEPTH) return false
  try {
    JSON.parse(value)
    return true
  } catch {
    return false
  }
}, `the text of a JSON value, at most ${MAX_JSON_DEPTH} levels deep`)

/** A list with a most number of entries. */
export function list(entry: Check, most: number, least = 0): Check {
  return (value) => {
    if (!Array.isArray(value) || value.length > most || value.length < least) {
      return flaw(`a list of ${least} to ${most}`, value)
    }
    for (let at = 0; at < value.length; at++) {
      const found = entry(value[at])
      if (found !== undefined) {
        found.trail.push(at)
        return found
      }
    }
    return undefined
  }
}

/** An object of known fields; others are refused by name. */
export function object<T extends object>(fields: FieldChecks<T>): Check {
  const names = Object.keys(fields)
  const checks = names.map((key) => fields[key as keyof T])
  return (value) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return flaw('an object', value)
    for (const key in value) {
      if (Object.hasOwn(fields, key) || !Object.hasOwn(value, key)) continue
      const near = nearest(key.slice(0, 60), names)
      const hint = near === undefined ? `it knows ${names.join(', ')}` : `did you mean '${near}'?`
      return { words: `has an unknown field ${quote(key)}; ${hint}`, trail: [] }
    }
    for (let at = 0; at < names.length; at++) {
      const key = names[at]!
      const found = checks[at]!(Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined)
      if (found !== undefined) {
        found.trail.push(key)
        return found
      }
    }
    return undefined
  }
}

/** The first check that fits the value of a field decides. */
export function byField(field: string, checks: Readonly<Record<string, Check>>): Check {
  return (value) => {
    const kind = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[field] : undefined
    if (typeof kind === 'string' && Object.hasOwn(checks, kind)) return checks[kind]!(value)
    const found = flaw(`one of ${Object.keys(checks).join(', ')}`, kind)
    found.trail.push(field)
    return found
  }
}
