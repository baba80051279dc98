// Makes values that a JSON Schema does not accept: a field missing, of a wrong type, or beyond its bound.
import type { JsonSchema } from '../../../src/server/shape.js'

/** A request that is wrong in one place. */
export interface Wrong {
  /** What is wrong, for the title of the test. */
  readonly what: string
  readonly value: unknown
}

interface Node extends Record<string, unknown> {
  readonly type?: string | readonly string[]
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: readonly string[]
  readonly items?: JsonSchema
  readonly enum?: readonly unknown[]
  readonly minLength?: number
  readonly maxLength?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly maxItems?: number
  readonly minItems?: number
  readonly additionalProperties?: unknown
}

/** How deep fields of fields are looked at: shapes may hold themselves. */
const MAX_DEPTH = 4

/** All that can be wrong with a value that fits the schema. */
export function wrongValues(schema: JsonSchema, value: unknown, at = 'body', depth = 0): readonly Wrong[] {
  const node = schema as Node
  const wrong: Wrong[] = wrongScalars(node).map(([what, each]) => ({ what: `${at} ${what}`, value: each }))
  if (node.properties !== undefined && depth < MAX_DEPTH) {
    const whole = (value ?? {}) as Readonly<Record<string, unknown>>
    for (const key of node.required ?? []) {
      const { [key]: _left, ...rest } = whole
      wrong.push({ what: `${at}.${key} missing`, value: rest })
    }
    if (node.additionalProperties === false) {
      wrong.push({ what: `${at} with an unknown field`, value: { ...whole, unknownField: 1 } })
    }
    for (const [key, field] of Object.entries(node.properties)) {
      for (const each of wrongValues(field, whole[key], `${at}.${key}`, depth + 1)) {
        wrong.push({ what: each.what, value: { ...whole, [key]: each.value } })
      }
    }
  }
  if (node.items !== undefined && depth < MAX_DEPTH && Array.isArray(value) && value.length > 0) {
    for (const each of wrongValues(node.items, value[0], `${at}[0]`, depth + 1)) {
      wrong.push({ what: each.what, value: [each.value, ...value.slice(1)] })
    }
  }
  return wrong
}

function wrongScalars(node: Node): readonly (readonly [what: string, value: unknown])[] {
  const wrong: (readonly [string, unknown])[] = []
  const { type, minLength, maxLength, minimum, maximum, minItems, maxItems, items } = node
  if (node.enum !== undefined) wrong.push(['of no known value', 'no-such-value'], ['of a wrong type', 7])
  if (type === undefined) return wrong
  const types = Array.isArray(type) ? (type as readonly string[]) : [type as string]
  const others: Readonly<Record<string, unknown>> = {
    string: 'text?',
    integer: 7.5,
    boolean: true,
    object: [],
    array: {},
  }
  const takesText = types.includes('string')
  const other = types.includes('object') ? 'text' : types.includes('array') ? others['array'] : { an: 'object' }
  wrong.push(['of a wrong type', other])
  if (types.includes('integer') && !takesText) wrong.push(['not whole', 7.5])
  if (takesText && types.length === 1) wrong.push(['a number', 7])
  if (types.includes('array')) wrong.push(['an object', {}])
  if (minLength !== undefined && minLength > 0) wrong.push(['too short', 'x'.repeat(minLength - 1)])
  if (maxLength !== undefined) wrong.push(['too long', 'x'.repeat(maxLength + 1)])
  if (minimum !== undefined) wrong.push(['too small', minimum - 1])
  if (maximum !== undefined) wrong.push(['too large', maximum + 1])
  if (minItems !== undefined && minItems > 0) wrong.push(['with too few entries', []])
  if (maxItems !== undefined && items !== undefined && maxItems <= 10_000) {
    wrong.push(['with too many entries', Array.from({ length: maxItems + 1 }, () => 'x')])
  }
  return wrong
}
