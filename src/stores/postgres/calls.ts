// stores/postgres/calls.ts: statements that call the functions of the schema.
import type { Call, Value } from './drivers/driver.js'
import { quoted } from './migrate.js'

/** Writer and number, origin, queue and lane, the queue's name, what jobs alike share, their ids and data, the time. */
const added = [
  ...['text', 'bigint', 'text', 'int', 'int', 'text'],
  ...['bigint', 'boolean', 'bigint', 'text', 'text', 'text', 'bigint'],
]

/** The same with groups; the newest never goes first. */
const shared = [
  ...['text', 'bigint', 'text', 'int', 'int', 'text'],
  ...['bigint', 'bigint', 'text', 'text', 'text', 'text', 'bigint'],
]

/** What each function takes. */
const takes = {
  add_one_v1: added,
  add_shared_v1: shared,
  add_v2: added,
  claim_v2: [
    'text',
    'bigint',
    'text',
    'text',
    'text[]',
    'text[]',
    'text[]',
    'text[]',
    'bigint[]',
    'bigint',
    'int',
    'int',
    'jsonb',
    'bigint',
  ],
  claimed_v1: ['bigint'],
  commit_v1: ['jsonb'],
  details_v2: ['jsonb'],
  due_v2: ['jsonb', 'bigint'],
  events_v3: ['bigint', 'int', 'bigint', 'int', 'bigint'],
  find_v2: ['jsonb'],
  get_v1: ['jsonb'],
  get_v2: ['jsonb', 'bigint'],
  lane_v1: ['jsonb'],
  lanes_v1: ['jsonb', 'boolean'],
  revoked_v1: ['jsonb'],
  skip_v1: ['int', 'bigint'],
  tally_v1: ['jsonb'],
  tidy_v3: ['bigint', 'int', 'bigint'],
  under_way_v1: ['jsonb', 'int', 'bigint'],
  watch_v2: ['text', 'bigint', 'bigint', 'int', 'bigint', 'bigint'],
} as const satisfies Record<string, readonly string[]>

/** A function of the schema. */
export type FunctionName = keyof typeof takes

/** The statements that call functions, by schema: they are the same every time. */
const statements = new Map<string, Pick<Call, 'name' | 'text'>>()

/**
 * Calls a function with values in order. They travel as text whatever they are: of a parameter that is JSON, some drivers
 * would make JSON once more. The name holds the schema, since stores may share a pool, and with it prepared statements.
 */
export function callOf(schema: string, name: FunctionName, values: readonly Value[]): Call {
  return {
    ...statementOf(schema, name),
    values: values.map((value) => (typeof value === 'number' ? String(value) : value)),
  }
}

function statementOf(schema: string, name: FunctionName): Pick<Call, 'name' | 'text'> {
  const key = `${name}:${schema}`
  const known = statements.get(key)
  if (known !== undefined) return known
  const places = takes[name].map((type, at) => (type === 'text' ? `$${at + 1}` : `$${at + 1}::text::${type}`))
  const made = { name: key, text: `select ${quoted(schema)}.${name}(${places.join(', ')})::text` }
  statements.set(key, made)
  return made
}
