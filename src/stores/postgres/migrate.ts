// stores/postgres/migrate.ts: creates the schema, or migrates an older one to this version, one process at a time.
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import type { Driver } from './drivers/driver.js'
import { isMissing, isTransient } from './errors.js'
import { functions } from './functions/all.js'
import { OLDEST, schema as tables, steps, VERSION } from './schema.js'

/** The lock timeout of a try, which is also the pause after it, and the number of tries: about a minute in all. */
const LOCK_TIMEOUT: Millis = 1_000
const TRIES = 30

/** Quotes an SQL identifier. */
export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** The channel on which commits send notifications. */
export function channelOf(schema: string): string {
  return `millrace:${schema}`
}

/** Replaces the placeholders in SQL: the schema name, as an identifier, in literals and as a channel; and the version. */
export function withSchema(sql: string, schema: string): string {
  return sql
    .replaceAll("'{S}", `'${quoteIdentifier(schema).replaceAll("'", "''")}`)
    .replaceAll('{S}', quoteIdentifier(schema))
    .replaceAll("'{C}'", `'${channelOf(schema).replaceAll("'", "''")}'`)
    .replaceAll('{V}', `v${VERSION}`)
}

/** The SQL that drops the functions of versions below one: processes of those versions can then write nothing. */
export function dropFunctionsBelow(version: number, schema: string): string {
  return withSchema(
    `do $$
declare f regprocedure;
begin
  for f in select p.oid from pg_proc p
           where p.pronamespace = '{S}'::regnamespace and substring(p.proname from '_v(\\d+)$')::int < ${version} loop
    execute 'drop function ' || f;
  end loop;
end $$;
`,
    schema,
  )
}

/**
 * The SQL that creates the schema, or migrates one of version `from` to this version, for applications whose database role
 * may not do that: run it in one transaction as the owner, then open the store with `migrate: false`.
 * Defaults: schema `'millrace'`; `from` 0, which creates it.
 */
export function migrationSql(options: { readonly schema?: string; readonly from?: number } = {}): string {
  const { schema = 'millrace', from = 0 } = options
  if (from === 0) return withSchema(tables + functions, schema)
  const wanted = steps.filter((step) => step.from >= from).map(({ sql }) => sql)
  const version = `update {S}.meta set version = ${VERSION}, oldest = ${OLDEST};\n`
  return withSchema(wanted.join('') + functions + version, schema) + dropFunctionsBelow(OLDEST, schema)
}

/** The row of `meta`. */
export interface SchemaInfo {
  readonly version: number
  readonly oldest: number
  /** A unique id of this schema. */
  readonly id: string
  /** The first fence of new jobs, and the server's time, when this was read. */
  readonly fence: number
  readonly now: number
}

async function readInfo(driver: Driver, schema: string): Promise<SchemaInfo | undefined> {
  try {
    const text = await driver.call({
      name: '',
      text: `select json_build_object('version', version, 'oldest', oldest, 'id', id,
        'fence', (select last_value from ${quoteIdentifier(schema)}.fence), 'now', floor(extract(epoch from clock_timestamp()) * 1000))::text
        from ${quoteIdentifier(schema)}.meta`,
      values: [],
    })
    return text === null ? undefined : (JSON.parse(text) as SchemaInfo)
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/** Checks that the schema exists in this version, after migrating it if `migrate` is set; returns its row of `meta`. */
export async function prepare(
  driver: Driver,
  schema: string,
  migrate: boolean,
  pause: (delay: Millis) => Promise<void>,
): Promise<SchemaInfo> {
  let found = await readInfo(driver, schema)
  if ((found === undefined || found.version < VERSION) && migrate) {
    await runMigration(driver, schema, pause)
    found = await readInfo(driver, schema)
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
      `Schema '${schema}' has version ${found.version}, which works with versions of millrace from schema ${found.oldest} on; this one has schema ${VERSION}. Nothing was written. Update the package 'millrace' here.`,
    )
  }
  return found
}

/**
 * Creates or migrates the schema. The version is read again under the lock, so that a second process finds the work done.
 * The lock timeout is short, because all other transactions queue behind a waiting migration: it gives way, and tries again.
 */
async function runMigration(driver: Driver, schema: string, pause: (delay: Millis) => Promise<void>): Promise<void> {
  const lock = `select pg_advisory_xact_lock(hashtextextended('millrace:migrate:' || ${literal(schema)}, 0))`
  for (let tries = 1; ; tries++) {
    try {
      return await driver.script([`set local lock_timeout = '${LOCK_TIMEOUT}ms'`, lock, guarded(schema)])
    } catch (error) {
      if (!isTransient(error) || tries >= TRIES) throw error
      await pause(LOCK_TIMEOUT)
    }
  }
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`
}

/** The migration as a block that runs only the steps that the schema still needs. */
function guarded(schema: string): string {
  const creation = migrationSql({ schema })
  const cases = Array.from(
    { length: VERSION - 1 },
    (_, at) => `elsif found = ${at + 1} then execute ${literal(migrationSql({ schema, from: at + 1 }))};`,
  )
  return `do $migrate$
declare found int;
begin
  if to_regclass(${literal(`${quoteIdentifier(schema)}.meta`)}) is not null then
    execute ${literal(`select version from ${quoteIdentifier(schema)}.meta`)} into found;
  end if;
  if found is null then execute ${literal(creation)};
  ${cases.join('\n  ')}
  end if;
end $migrate$`
}
