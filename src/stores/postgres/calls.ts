// stores/postgres/calls.ts: builds the statements that call the SQL functions of the schema.
import type { Call, Value } from './drivers/driver.js'
import { quoteIdentifier } from './migrate.js'
import { VERSION } from './schema.js'

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

/** The functions that the store calls, with the types of their parameters. Other functions are called by these alone. */
export const parameterTypes = {
  add_one: addParameters,
  add_shared: addSharedParameters,
  add_many: addParameters,
  fast_claim: [
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
  claimed: ['bigint'],
  commit: ['jsonb'],
  fast_complete: ['text', 'bigint', 'text', 'text', 'text', 'text', 'bigint'],
  details: ['jsonb'],
  due: ['jsonb', 'bigint'],
  events: ['bigint', 'int', 'bigint', 'int', 'bigint'],
  fast_commit: ['jsonb'],
  find: ['jsonb'],
  failures: ['jsonb'],
  get_one: ['jsonb'],
  get_many: ['jsonb', 'bigint'],
  heads: ['jsonb', 'bigint'],
  lane_names: ['jsonb'],
  lane_ids: ['jsonb', 'boolean'],
  revoked: ['jsonb'],
  search_index: ['text', 'boolean'],
  skip: ['int', 'bigint'],
  tally: ['jsonb'],
  tidy: ['bigint', 'int', 'bigint'],
  commits: ['jsonb', 'int', 'bigint'],
  watch: ['text', 'bigint', 'bigint', 'int', 'bigint', 'bigint'],
  working_set: ['jsonb'],
} as const satisfies Record<string, readonly string[]>

/** The name of an SQL function of the schema, without the version in which it ends. */
export type FunctionName = keyof typeof parameterTypes

/** The statement of each function and schema: its text never changes, so it is built once. */
const statements = new Map<string, Pick<Call, 'name' | 'text'>>()

/**
 * Returns the call of a function with its arguments in order. All arguments are sent as text, because some drivers encode a
 * JSON parameter a second time. The name contains the version and the schema, because stores may share a pool and its
 * prepared statements.
 */
export function callOf(schema: string, name: FunctionName, values: readonly Value[]): Call {
  return {
    ...statementOf(schema, name),
    values: values.map((value) => (typeof value === 'number' ? String(value) : value)),
  }
}

function statementOf(schema: string, name: FunctionName): Pick<Call, 'name' | 'text'> {
  const key = `${name}${VERSION}:${schema}` // PostgreSQL reads 63 characters of it
  const cached = statements.get(key)
  if (cached !== undefined) return cached
  const parameters = parameterTypes[name].map((type, at) =>
    type === 'text' ? `$${at + 1}` : `$${at + 1}::text::${type}`,
  )
  const statement = {
    name: key,
    text: `select ${quoteIdentifier(schema)}.${name}_v${VERSION}(${parameters.join(', ')})::text`,
  }
  statements.set(key, statement)
  return statement
}
