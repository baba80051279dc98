// job/values/json.ts: checks that a value round-trips through JSON exactly; otherwise throws an error with the path of the
// flaw.

import { MillraceError, className, quote } from '../errors/errors.js'

/** A value that JSON holds exactly. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }

/**
 * What JSON can hold, as a type: undefined keys are absent. Interfaces are not part of it, because they may be
 * extended.
 */
type JsonShape =
  | null
  | boolean
  | number
  | string
  | undefined
  | readonly Exclude<JsonShape, undefined>[]
  | { readonly [key: string]: JsonShape }

/**
 * `T` where JSON can hold it, and `never` in the places where it cannot: dates, maps, functions, BigInts and the like.
 * Optional keys, interfaces, types of all JSON, `unknown` and `any` pass. Declare a parameter as `T & Jsonable<T>` to
 * check its argument.
 */
export type Jsonable<T> = T extends JsonShape | void
  ? T
  : T extends
        | ((...args: never[]) => unknown)
        | symbol
        | bigint
        | Date
        | ReadonlyMap<unknown, unknown>
        | ReadonlySet<unknown>
    ? never
    : T extends readonly unknown[]
      ? JsonableList<readonly T[number][] extends Readonly<T> ? Element<T[number]> : T[number]>
      : T extends object
        ? { [Key in keyof T]: Jsonable<T[Key]> }
        : T

/** JSON has no undefined elements in a list; a tuple may have optional ones. */
type Element<E> = unknown extends E ? E : Exclude<E, undefined>

/** An interface, because its elements are evaluated only where they are compared: a type may hold lists of itself. */
interface JsonableList<E> extends ReadonlyArray<Jsonable<E>> {}

/** A JSON value as text. */
export type JsonText = string

/** The most bytes of UTF-8 that a value may take as JSON. Default 1 MiB. */
export const DEFAULT_JSON_LIMIT = 1_048_576

/** The deepest nesting of arrays and objects. */
export const MAX_JSON_DEPTH = 500

/** What is wrong with a value, and the keys on the path to it, innermost first. */
type Flaw = { readonly problem: string; readonly trail: (string | number)[] }

/**
 * Returns the JSON text of a value, or undefined where the value is undefined (absent). Throws INVALID_DATA for values
 * that JSON would drop or change, and DATA_TOO_LARGE for more than `limit` bytes. `field` begins the path in the
 * message, as in `data.items[3].when`. Object keys that are set to undefined count as absent and are left out, as JSON
 * does and as optional fields in types suggest. Symbol keys and named properties of arrays are left out as well:
 * libraries attach their own data there.
 */
export function encodeJson(value: unknown, field: string, limit: number = DEFAULT_JSON_LIMIT): JsonText | undefined {
  if (value === undefined) return undefined
  check(value, field, limit, false)
  const text = JSON.stringify(value)
  // JSON.stringify escapes NUL and lone surrogates as \uXXXX, so strings need a second check only where it did.
  if (text.includes('\\u')) check(value, field, limit, true)
  if (text.length * 3 > limit) {
    const bytes = new TextEncoder().encode(text).length
    if (bytes > limit) throw tooLarge(field, limit, bytes, '')
  }
  return text
}

/** Parses a text that encodeJson wrote. */
export function decodeJson(text: JsonText): Json {
  const value: Json = JSON.parse(text)
  return value
}

function check(value: unknown, field: string, limit: number, strings: boolean): void {
  let left: number | Flaw
  try {
    left = inspect(value, 0, limit + 1, strings)
  } catch (cause) {
    throw new MillraceError('INVALID_DATA', `${field} has a getter that throws: send plain values`, { cause })
  }
  if (typeof left === 'number') {
    if (left < 0) throw tooLarge(field, limit, limit - left, 'at least ')
    return
  }
  const trail = left.trail.toReversed()
  const { keys, problem } = cycleAlong(value, trail, field) ?? { keys: trail, problem: left.problem }
  const path = pathOf(field, keys)
  throw new MillraceError('INVALID_DATA', `${path} ${problem}`, { details: { field, path } })
}

function tooLarge(field: string, limit: number, bytes: number, qualifier: string): MillraceError {
  const message = `${field} takes ${qualifier}${bytes} bytes as JSON, and the limit is ${limit}: keep the bulk elsewhere and send a reference to it, or raise the limit (maxDataBytes of the queue)`
  return new MillraceError('DATA_TOO_LARGE', message, { details: { field, limit, bytes } })
}

/**
 * Walks a value and returns what is left of the budget of bytes (below zero: too large), or the first flaw. Each value
 * costs its minimum length as JSON, with a comma; strings are checked only if `strings` is true.
 */
function inspect(value: unknown, depth: number, budget: number, strings: boolean): number | Flaw {
  if (typeof value === 'string') {
    return strings && unsafeText.test(value) ? flaw(textProblem(value)) : budget - value.length - 3
  }
  if (typeof value === 'number') {
    return Number.isFinite(value) && !Object.is(value, -0) ? budget - 2 : flaw(numberProblem(value))
  }
  if (typeof value === 'boolean' || value === null) return budget - 5
  if (typeof value !== 'object') return flaw(typeProblem(value))
  if (typeof (value as { toJSON?: unknown }).toJSON === 'function' && isPlain(value)) {
    return flaw('has a toJSON() method, which would replace it: send what that returns')
  }
  if (depth === MAX_JSON_DEPTH) return flaw(`is nested more than ${MAX_JSON_DEPTH} levels deep: flatten it`)
  return Array.isArray(value)
    ? inspectArray(value, depth, budget - 2, strings)
    : inspectObject(value, depth, budget - 2, strings)
}

function inspectArray(array: readonly unknown[], depth: number, budget: number, strings: boolean): number | Flaw {
  if (!isPlain(array)) return flaw(classProblem(array))
  let left = budget
  for (let index = 0; index < array.length; index++) {
    const after = inspect(array[index], depth + 1, left, strings)
    if (typeof after !== 'number') {
      const found = Object.hasOwn(array, index) ? after : flaw('is a hole in a sparse array: send null in its place')
      found.trail.push(index)
      return found
    }
    if (after < 0) return after
    left = after
  }
  return left
}

function inspectObject(object: object, depth: number, budget: number, strings: boolean): number | Flaw {
  if (!isPlain(object)) return flaw(classProblem(object))
  let left = budget
  for (const key in object) {
    if (!Object.hasOwn(object, key)) continue // Object.prototype was extended; JSON leaves such keys out as well
    const value = (object as Readonly<Record<string, unknown>>)[key]
    if (value === undefined) continue
    if (key === '__proto__') return flaw('is a key that plain assignment does not bring back: rename it', key)
    if (strings && unsafeText.test(key)) return flaw(`has the key ${quote(key)}, which ${textProblem(key)}`)
    const after = inspect(value, depth + 1, left - key.length - 3, strings)
    if (typeof after !== 'number') {
      after.trail.push(key)
      return after
    }
    if (after < 0) return after
    left = after
  }
  return left
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (Array.isArray(value)) return prototype === Array.prototype || className(value) === 'Array'
  return prototype === Object.prototype || prototype === null || isObjectPrototype(prototype)
}

/** The Object.prototype of another realm: objects made in a vm context are plain as well. */
function isObjectPrototype(prototype: unknown): boolean {
  return (
    typeof prototype === 'object' &&
    prototype !== null &&
    Object.getPrototypeOf(prototype) === null &&
    Object.hasOwn(prototype, 'isPrototypeOf')
  )
}

function flaw(problem: string, ...trail: string[]): Flaw {
  return { problem, trail }
}

/** NUL, which PostgreSQL cannot store, and lone surrogates (with the `u` flag, only lone ones match). */
const unsafeText = new RegExp('[\\0\\p{Cs}]', 'u')

function textProblem(text: string): string {
  return text.includes('\0')
    ? 'holds a NUL character, which databases refuse: remove it, or send base64'
    : 'holds half of a surrogate pair, which is not valid Unicode: use toWellFormed(), or send base64'
}

function numberProblem(value: number): string {
  return value === 0
    ? 'is -0, which JSON turns into 0: send 0'
    : `is ${value}, which JSON turns into null: send null, or text`
}

function typeProblem(value: unknown): string {
  if (value === undefined) return 'is undefined, which JSON turns into null: send null, or leave it out'
  if (typeof value === 'bigint') return 'is a BigInt, which JSON cannot hold: send it as a string'
  return `is ${quote(value)}, which JSON cannot hold: leave it out`
}

function classProblem(value: object): string {
  if (value instanceof Date) return 'is a Date, which JSON turns into text: send its toISOString()'
  if (value instanceof Map) return 'is a Map, which JSON empties: send Object.fromEntries(map), or an array of entries'
  if (value instanceof Set) return 'is a Set, which JSON empties: send an array'
  if (value instanceof Promise) return 'is a Promise: await it first'
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return 'is binary: send base64, or an array of numbers'
  const name = className(value) ?? 'a class'
  return typeof (value as { toJSON?: unknown }).toJSON === 'function'
    ? `is an instance of ${name} with a toJSON() method, which would replace it: send what that returns`
    : `is an instance of ${name}, and would come back as something else: send a plain object`
}

/** Finds a value on the path to a flaw that contains itself: what looked too deep is then a cycle. */
function cycleAlong(
  root: unknown,
  trail: readonly (string | number)[],
  field: string,
): { keys: readonly (string | number)[]; problem: string } | undefined {
  if (trail.length < MAX_JSON_DEPTH) return undefined
  const seen = new Map<unknown, number>([[root, 0]])
  let value = root
  for (const [index, key] of trail.entries()) {
    value = Reflect.get(Object(value), key)
    const first = seen.get(value)
    if (first !== undefined && typeof value === 'object') {
      const problem = `refers back to ${pathOf(field, trail.slice(0, first))}, a cycle: send an id in its place`
      return { keys: trail.slice(0, index + 1), problem }
    }
    seen.set(value, index + 1)
  }
  return undefined
}

function pathOf(field: string, keys: readonly (string | number)[]): string {
  return keys.reduce<string>((path, key) => {
    if (typeof key === 'number') return `${path}[${key}]`
    return /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(key) ? `${path}.${key}` : `${path}[${quote(key)}]`
  }, field)
}
