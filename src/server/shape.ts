// server/shape.ts: what the fields of a request may be: checks a value, and describes itself as JSON Schema.
import { MillraceError, quote } from '../job/errors/errors.js'
import { MAX_DURATION, parseDuration } from '../job/values/duration.js'
import { nearest } from '../job/values/names.js'
import type { Json } from '../job/values/json.js'

/** A JSON Schema, draft 2020-12. */
export type JsonSchema = { readonly [key: string]: Json }

/** What a value may be. */
export interface Shape<T> {
  /** As JSON Schema. */
  readonly schema: JsonSchema
  /** A value that it accepts, for the documentation and the tests. */
  readonly example: Json
  /** Returns the value, or throws INVALID_REQUEST with the path `at`. */
  read(value: unknown, at: string): T
  /** Reads the text of a query parameter. Default: as a string. */
  fromText?(text: string): unknown
}

/** A field that may be absent. */
export interface OptionalShape<T> extends Shape<T> {
  readonly optional: true
}

/** What a shape accepts. */
export type Accepted<S> = S extends Shape<infer T> ? T : never

/** The fields of an object. */
export type Fields = Readonly<Record<string, Shape<unknown> | OptionalShape<unknown>>>

/** The object that fields accept. */
export type Read<F extends Fields> = {
  readonly [Key in keyof F as F[Key] extends OptionalShape<unknown> ? never : Key]: Accepted<F[Key]>
} & {
  readonly [Key in keyof F as F[Key] extends OptionalShape<unknown> ? Key : never]?: Accepted<F[Key]>
}

/** The error for a value that a route does not take. */
export function refuse(at: string, mustBe: string, value: unknown): MillraceError {
  const message =
    value === undefined ? `${at} is missing: it must be ${mustBe}.` : `${at} must be ${mustBe}, not ${quote(value)}.`
  return new MillraceError('INVALID_REQUEST', message, { details: { at } })
}

/** Makes a field optional: absent or null. */
export function optional<T>(shape: Shape<T>): OptionalShape<T | undefined> {
  return {
    ...shape,
    optional: true,
    read: (value, at) => (value === undefined || value === null ? undefined : shape.read(value, at)),
  }
}

/** Adds a description to a shape, for the documentation. */
export function described<S extends Shape<unknown>>(shape: S, description: string, example?: Json): S {
  return { ...shape, schema: { ...shape.schema, description }, ...(example !== undefined && { example }) }
}

interface TextOptions {
  readonly min?: number
  readonly max: number
  /** Which texts are accepted, and in words. */
  readonly pattern?: readonly [RegExp, words: string]
  readonly example?: string
}

/** Text of a length. */
export function text({ min = 1, max, pattern, example = 'text' }: TextOptions): Shape<string> {
  const words = pattern?.[1] ?? `text of ${min} to ${max} characters`
  return {
    schema: { type: 'string', minLength: min, maxLength: max, ...(pattern && { pattern: pattern[0].source }) },
    example,
    read(value, at) {
      if (typeof value !== 'string' || value.length < min || value.length > max) throw refuse(at, words, value)
      if (pattern !== undefined && !pattern[0].test(value)) throw refuse(at, words, value)
      return value
    },
  }
}

/** Control characters and lone surrogates, which no name holds. */
const PRINTABLE = /^[^\p{Cc}\p{Cs}]*$/u

/** The name of a queue, a job, a group, a worker; or an id. */
export function name(example: string): Shape<string> {
  return text({ max: 255, pattern: [PRINTABLE, '1 to 255 printable characters'], example })
}

/** A whole number between two bounds. */
export function whole(minimum: number, maximum: number, example = minimum): Shape<number> {
  return {
    schema: { type: 'integer', minimum, maximum },
    example,
    fromText: (given) => (/^-?\d{1,16}$/.test(given) ? Number(given) : given),
    read(value, at) {
      if (Number.isSafeInteger(value) && (value as number) >= minimum && (value as number) <= maximum) {
        return value as number
      }
      throw refuse(at, `a whole number from ${minimum} to ${maximum}`, value)
    },
  }
}

/** True or false. */
export const flag: Shape<boolean> = {
  schema: { type: 'boolean' },
  example: true,
  fromText: (given) => given === '1' || given === 'true' || (given !== '0' && given !== 'false' && given),
  read(value, at) {
    if (typeof value === 'boolean') return value
    throw refuse(at, 'true or false', value)
  },
}

/** Milliseconds, or text such as '30s'; between two bounds. */
export function duration(example: string, minimum = 0, maximum: number = MAX_DURATION): Shape<number> {
  return {
    schema: { type: ['integer', 'string'], minimum, maximum, description: "milliseconds, or text such as '30s'" },
    example,
    fromText: (given) => (/^\d+$/.test(given) ? Number(given) : given),
    read(value, at) {
      if (typeof value !== 'string' && typeof value !== 'number') throw refuse(at, 'a duration such as 30s', value)
      if (typeof value === 'string' && value.length > 100) throw refuse(at, 'a duration such as 30s', value)
      const millis = millisOf(value, at)
      if (millis !== undefined && millis >= minimum && millis <= maximum) return millis
      throw refuse(at, `a duration of ${minimum} ms to ${maximum} ms, such as 30s`, value)
    },
  }
}

function millisOf(value: string | number, at: string): number | undefined {
  try {
    return parseDuration(value, at)
  } catch {
    return undefined // the caller says what it must be
  }
}

/** One of some texts. */
export function oneOf<const T extends string>(...known: readonly T[]): Shape<T> {
  return {
    schema: { enum: known },
    example: known[0]!,
    read(value, at) {
      const found = known.find((each) => each === value)
      if (found !== undefined) return found
      const near = typeof value === 'string' ? nearest(value, known) : undefined
      const hint = near === undefined ? '' : ` Did you mean '${near}'?`
      const error = refuse(at, `one of ${known.join(', ')}`, value)
      throw hint === '' ? error : new MillraceError('INVALID_REQUEST', error.message + hint, { details: { at } })
    },
  }
}

/** A list with a most number of entries. As a query parameter: separated by commas. */
export function list<T>(entry: Shape<T>, bounds: { readonly min?: number; readonly max: number }): Shape<readonly T[]> {
  const { min = 0, max } = bounds
  return {
    schema: { type: 'array', items: entry.schema, minItems: min, maxItems: max },
    example: [entry.example],
    fromText: (given) => given.split(',').map((each) => entry.fromText?.(each) ?? each),
    read(value, at) {
      if (!Array.isArray(value) || value.length < min || value.length > max) {
        throw refuse(at, `a list of ${min} to ${max}`, value)
      }
      return value.map((each, index) => entry.read(each, `${at}[${index}]`))
    },
  }
}

/** Any JSON. Whether it is too large or too deep is found when it is encoded. */
export const json: Shape<unknown> = {
  schema: {},
  example: { any: 'JSON' },
  read: (value) => value,
}

/** An object whose fields are checked by who uses it: options of the library, which names its fields in its errors. */
export function options(description: string, example: Json = {}): Shape<Readonly<Record<string, unknown>>> {
  return {
    schema: { type: 'object', description },
    example,
    read(value, at) {
      if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
        return value as Readonly<Record<string, unknown>>
      }
      throw refuse(at, 'an object', value)
    },
  }
}

/** An object of known fields; others are refused by name. */
export function object<F extends Fields>(fields: F): Shape<Read<F>> & { readonly fields: F } {
  const names = Object.keys(fields)
  const isOptional = (key: string): boolean => 'optional' in fields[key]!
  const required = names.filter((key) => !isOptional(key))
  return {
    fields,
    schema: {
      type: 'object',
      properties: Object.fromEntries(names.map((key) => [key, fields[key]!.schema])),
      ...(required.length > 0 && { required }),
      additionalProperties: false,
    },
    example: Object.fromEntries(required.map((key) => [key, fields[key]!.example])),
    read(value, at) {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) throw refuse(at, 'an object', value)
      const given = value as Readonly<Record<string, unknown>>
      for (const key of Object.keys(given)) {
        if (Object.hasOwn(fields, key)) continue
        const near = nearest(key, names)
        const hint = near === undefined ? `it knows ${names.join(', ') || 'none'}` : `did you mean '${near}'?`
        throw new MillraceError('INVALID_REQUEST', `${at} has an unknown field ${quote(key)}; ${hint}`, {
          details: { at: `${at}.${key}` },
        })
      }
      const read: Record<string, unknown> = {}
      for (const key of names) {
        const field = fields[key]!.read(Object.hasOwn(given, key) ? given[key] : undefined, `${at}.${key}`)
        if (field !== undefined) read[key] = field
      }
      return read as Read<F>
    },
  }
}

/** Reads query parameters by their shapes; unknown and repeated ones are refused. */
export function readQuery<F extends Fields>(params: URLSearchParams, fields: F): Read<F> {
  const given: Record<string, unknown> = {}
  for (const [key, value] of params) {
    if (Object.hasOwn(given, key)) throw refuse(`query.${key}`, 'given once', value)
    const shape = Object.hasOwn(fields, key) ? fields[key] : undefined
    Object.defineProperty(given, key, { value: shape?.fromText?.(value) ?? value, enumerable: true })
  }
  return object(fields).read(given, 'query')
}
