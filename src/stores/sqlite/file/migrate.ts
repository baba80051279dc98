// stores/sqlite/file/migrate.ts: migrates the tables of a file to the schema of this version, forwards only.
import { MillraceError } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import type { Runtime } from '../../../store/runtime.js'
import type { Database, SqlRow } from './driver.js'
import { busyHere, nameOf } from './errors.js'
import { retryWhileBusy } from './busy-retry.js'

/** The schema to migrate to. */
export interface Schema {
  /** The whole schema, for a file that has none of its tables. It writes `version` and `oldest` to `millrace_schema`. */
  readonly sql: string
  /** Its version, from 1 up. */
  readonly version: number
  /** The oldest version whose statements still work on these tables. */
  readonly oldest: number
  /** Migrations from older versions: each leads from version `from` to the next. */
  readonly steps: readonly { readonly from: number; readonly sql: string }[]
}

/** The version of the tables in a file, and the oldest version whose statements work on them. */
interface Found {
  readonly version: number
  readonly oldest: number
}

/**
 * Migrates a database to the schema, in one transaction. It is safe if other processes do so at the same time, and only
 * reads if the schema is current, or newer and compatible. The version has its own table, because the file's
 * `user_version` and `application_id` may belong to the user, whose tables may be in the same file.
 */
export async function migrate(db: Database, schema: Schema, runtime: Runtime, patience: Millis): Promise<void> {
  const migrateOnce = (): void => {
    if (db.inTransaction) throw busyHere('A transaction of the user is open on this handle.')
    if (isUsable(findVersion(db), schema, db.path)) return
    db.exec('BEGIN IMMEDIATE')
    try {
      const found = findVersion(db)
      if (found === undefined) db.exec(schema.sql)
      else if (!isUsable(found, schema, db.path)) upgrade(db, found.version, schema)
      db.exec('COMMIT')
    } catch (error) {
      if (db.inTransaction) db.exec('ROLLBACK')
      throw error
    }
  }
  await retryWhileBusy(runtime, db.path, migrateOnce, patience)
}

/**
 * Throws SCHEMA_TOO_NEW if a later version of Millrace has migrated the tables, and statements of this version no longer
 * work on them. Call it before writing, whenever others may have written. `row` is of the statement `schemaVersion`.
 */
export function checkSchema(row: SqlRow | undefined, schema: Schema, path: string | undefined): void {
  isUsable(parseVersion(row, path), schema, path)
}

/** Whether this version can use the tables as they are; false if they are missing or older. Throws if they are too new. */
function isUsable(found: Found | undefined, schema: Schema, path: string | undefined): boolean {
  if (found === undefined || found.version < schema.version) return false
  if (found.oldest <= schema.version) return true
  throw new MillraceError(
    'SCHEMA_TOO_NEW',
    `The tables in ${nameOf(path)} are of schema ${found.version}, which works with versions of millrace from schema ${found.oldest} on; this one has schema ${schema.version}. Nothing was written. Update the package 'millrace' here.`,
    { details: { path, found: found.version, oldest: found.oldest, known: schema.version } },
  )
}

function findVersion(db: Database): Found | undefined {
  const table = db.prepare(`SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'millrace_schema'`).get()
  return table && parseVersion(db.prepare('SELECT version, oldest FROM millrace_schema').get(), db.path)
}

function parseVersion(row: SqlRow | undefined, path: string | undefined): Found {
  const [version, oldest] = row ?? []
  if (Number.isSafeInteger(version) && Number.isSafeInteger(oldest)) return { version, oldest } as Found
  throw new MillraceError(
    'DATABASE_INVALID',
    `The table millrace_schema in ${nameOf(path)} holds no version. It was not written by millrace, or was changed since; restore a backup, or use another file.`,
    { details: { path, found: version } },
  )
}

function upgrade(db: Database, found: number, schema: Schema): void {
  for (let version = found; version < schema.version; version++) {
    const step = schema.steps.find(({ from }) => from === version)
    if (!step) {
      throw new MillraceError(
        'DATABASE_INVALID',
        `The tables in ${nameOf(db.path)} are of schema ${version}, and this version of millrace has no migration from it to ${schema.version}. Update with a version of millrace in between first.`,
        { details: { path: db.path, found: version, known: schema.version } },
      )
    }
    db.exec(step.sql)
  }
  db.prepare('UPDATE millrace_schema SET version = ?, oldest = ?').run(schema.version, schema.oldest)
}
