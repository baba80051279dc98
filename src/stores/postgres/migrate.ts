// stores/postgres/migrate.ts: creates the schema, or leads an older one here, one process at a time.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Driver } from './drivers/driver.js'
import { isMissing, isPassing } from './errors.js'
import { functions } from './functions/all.js'
import { OLDEST, schema as tables, steps, VERSION } from './schema.js'

/** How long a step waits for somebody's lock, and lets others pass between; and how often it tries: for about a minute. */
const WAIT: Millis = 1_000
const TRIES = 30

/** A name as SQL writes it. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** The channel on which commits are told. */
export function channelOf(schema: string): string {
  return `millrace:${schema}`
}

/** Puts the name of the schema into SQL: as an identifier, inside texts, and as a channel. */
function named(sql: string, schema: string): string {
  return sql
    .replaceAll("'{S}", `'${quoted(schema).replaceAll("'", "''")}`)
    .replaceAll('{S}', quoted(schema))
    .replaceAll("'{C}'", `'${channelOf(schema).replaceAll("'", "''")}'`)
}

/**
 * The SQL that creates the schema, or leads one of version `from` to this version, for those whose programs may not do so
 * themselves: run it in one transaction as the owner, then open the store with `migrate: false`.
 */
export function migrationSql(options: { readonly schema?: string; readonly from?: number } = {}): string {
  const { schema = 'millrace', from = 0 } = options
  if (from === 0) return named(tables + functions, schema)
  const wanted = steps.filter((step) => step.from >= from).map(({ sql }) => sql)
  return named(`${wanted.join('')}${functions}update {S}.meta set version = ${VERSION}, oldest = ${OLDEST};\n`, schema)
}

/** What stands in the database. */
export interface Standing {
  readonly version: number
  readonly oldest: number
  /** The name of this store among all. */
  readonly id: string
}

async function standing(driver: Driver, schema: string): Promise<Standing | undefined> {
  try {
    const text = await driver.call({
      name: '',
      text: `select json_build_object('version', version, 'oldest', oldest, 'id', id)::text from ${quoted(schema)}.meta`,
      values: [],
    })
    return text === null ? undefined : (JSON.parse(text) as Standing)
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/** Makes sure that the schema is there and of this version; answers what stands there. */
export async function prepare(
  driver: Driver,
  schema: string,
  migrate: boolean,
  pause: (delay: Millis) => Promise<void>,
): Promise<Standing> {
  let found = await standing(driver, schema)
  if ((found === undefined || found.version < VERSION) && migrate) {
    await lead(driver, schema, pause)
    found = await standing(driver, schema)
  }
  if (found === undefined) {
    throw new MillraceError(
      'SCHEMA_MISSING',
      `Schema '${schema}' is not there. Run the SQL of migrationSql({ schema: '${schema}' }) as its owner, or leave 'migrate' on.`,
    )
  }
  if (found.version < VERSION) {
    throw new MillraceError(
      'SCHEMA_MISSING',
      `Schema '${schema}' has version ${found.version}, this Millrace needs ${VERSION}. Run the SQL of migrationSql({ schema: '${schema}', from: ${found.version} }), or leave 'migrate' on.`,
    )
  }
  if (found.oldest > VERSION) {
    throw new MillraceError(
      'SCHEMA_TOO_NEW',
      `Schema '${schema}' has version ${found.version} and serves Millrace of schema ${found.oldest} and later; this one is of ${VERSION}. Update the package 'millrace'.`,
    )
  }
  return found
}

/**
 * Makes the schema, or leads it here. Whoever comes second finds the work done: it is looked at again once the lock is had.
 * Behind somebody's open transaction it does not wait long, since all others would have to wait behind it: it lets them pass, and tries again.
 */
async function lead(driver: Driver, schema: string, pause: (delay: Millis) => Promise<void>): Promise<void> {
  const lock = `select pg_advisory_xact_lock(hashtextextended('millrace:migrate:' || ${literal(schema)}, 0))`
  for (let tries = 1; ; tries++) {
    try {
      return await driver.script([`set local lock_timeout = '${WAIT}ms'`, lock, guarded(schema)])
    } catch (error) {
      if (!isPassing(error) || tries >= TRIES) throw error
      await pause(WAIT)
    }
  }
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`
}

/** The migration, run only where it is still wanted. */
function guarded(schema: string): string {
  const whole = migrationSql({ schema })
  const cases = Array.from(
    { length: VERSION - 1 },
    (_, at) => `elsif found = ${at + 1} then execute ${literal(migrationSql({ schema, from: at + 1 }))};`,
  )
  return `do $migrate$
declare found int;
begin
  if to_regclass(${literal(`${quoted(schema)}.meta`)}) is not null then
    execute ${literal(`select version from ${quoted(schema)}.meta`)} into found;
  end if;
  if found is null then execute ${literal(whole)};
  ${cases.join('\n  ')}
  end if;
end $migrate$`
}
