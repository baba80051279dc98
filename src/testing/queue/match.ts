// testing/queue/match.ts: partial matches of data, as `toMatchObject` of test frameworks does them.
import { isObject } from '../../job/values/options.js'

/**
 * What a value must match: a part of an object, a list of the same length, or a function that decides. Matchers of test
 * frameworks, as `expect.any(String)`, may stand in any place.
 */
export type Match<Value> =
  | ((value: Value) => boolean)
  | (Value extends readonly (infer Item)[]
      ? readonly Match<Item>[]
      : Value extends object
        ? { readonly [Key in keyof Value]?: Match<Value[Key]> }
        : Value)

/** Whether a value matches. */
export function matches(value: unknown, expected: unknown): boolean {
  if (typeof expected === 'function') return (expected as (value: unknown) => unknown)(value) === true
  if (isAsymmetric(expected)) return expected.asymmetricMatch(value)
  if (Array.isArray(expected)) {
    return (
      Array.isArray(value) && value.length === expected.length && expected.every((each, at) => matches(value[at], each))
    )
  }
  if (!isObject(expected)) return Object.is(value, expected)
  if (!isObject(value)) return false
  return Object.entries(expected).every(([key, each]) => matches((value as Record<string, unknown>)[key], each))
}

/** A matcher as `expect.any(String)` returns it, in vitest and in jest. */
interface Asymmetric {
  asymmetricMatch(value: unknown): boolean
}

function isAsymmetric(value: unknown): value is Asymmetric {
  return typeof (value as Partial<Asymmetric> | null | undefined)?.asymmetricMatch === 'function'
}
