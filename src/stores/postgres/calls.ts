// stores/postgres/calls.ts: builds the statements that call the SQL functions of the schema.
import type { Call, Value } from './drivers/driver.js'
import { quoteIdentifier } from './migrate.js'

/** Writer and sequence number, origin, queue and lane, queue name, the shared values of the jobs, ids, data, time. */
const addParameters = [
  ...['text', 'bigint', 'text', 'int', 'int', 'text'],
  ...['bigint', 'boolean', 'bigint', 'text', 'text', 'text', 'bigint'],
]

/** The same for jobs with groups, which have no last-in-first-out order. */
const addSharedParameters = [
  ...['text', 'bigint', 'text', 'int', 'int', 'text'],
  ...['bigint', 'bigint', 'text', 'text', 'text', 'text', 'bigint'],
]

/** The parameter types of each function. */
const parameterTypes = {
  add_one_v1: addParameters,
  add_shared_v1: addSharedParameters,
  add_v2: addParameters,
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

/** The name of an SQL function of the schema. */
export type FunctionName = keyof typeof parameterTypes

/** The statement of each function and schema: its text never changes, so it is built once. */
const statements = new Map<string, Pick<Call, 'name' | 'text'>>()

/**
 * Returns the call of a function with its arguments in order. All arguments are sent as text, because some drivers encode a
 * JSON parameter a second time. The name contains the schema, because stores may share a pool and its prepared statements.
 */
export function callOf(schema: string, name: FunctionName, values: readonly Value[]): Call {
  return {
    ...statementOf(schema, name),
    values: values.map((value) => (typeof value === 'number' ? String(value) : value)),
  }
}

function statementOf(schema: string, name: FunctionName): Pick<Call, 'name' | 'text'> {
  const key = `${name}:${schema}`
  const cached = statements.get(key)
  if (cached !== undefined) return cached
  const parameters = parameterTypes[name].map((type, at) =>
    type === 'text' ? `$${at + 1}` : `$${at + 1}::text::${type}`,
  )
  const statement = { name: key, text: `select ${quoteIdentifier(schema)}.${name}(${parameters.join(', ')})::text` }
  statements.set(key, statement)
  return statement
}
