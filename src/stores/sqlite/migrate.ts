// stores/sqlite/migrate.ts: migrates the tables of a file to the schema of this version, forwards only.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Database } from './driver.js'
import { busyHere, nameOf } from './errors.js'
import { retryWhileBusy } from './busy-retry.js'

/** The schema to migrate to. */
export interface Schema {
  /** The whole schema, for a file that has none of its tables. */
  readonly sql: string
  /** Its version, from 1 up. */
  readonly version: number
  /** Migrations from older versions: each leads from version `from` to the next. */
  readonly steps: readonly { readonly from: number; readonly sql: string }[]
}

/**
 * Migrates a database to the schema, in one transaction. It is safe if other processes do so at the same time, and only
 * reads if the schema is current. The version has its own table, because the file's `user_version` and `application_id`
 * may belong to the user, whose tables may be in the same file.
 */
export async function migrate(db: Database, schema: Schema, runtime: Runtime, patience: Millis): Promise<void> {
  const migrateOnce = (): void => {
    if (db.inTransaction) throw busyHere('A transaction of the user is open on this handle.')
    if (isCurrent(db, schema)) return
    db.exec('BEGIN IMMEDIATE')
    try {
      if (!isCurrent(db, schema)) upgrade(db, schema)
      db.exec('COMMIT')
    } catch (error) {
      if (db.inTransaction) db.exec('ROLLBACK')
      throw error
    }
  }
  await retryWhileBusy(runtime, db.path, migrateOnce, patience)
}

/** Whether the schema is current. Throws for a file with a newer schema. */
function isCurrent(db: Database, schema: Schema): boolean {
  const version = versionOf(db)
  if (version === undefined || version <= schema.version) return version === schema.version
  throw new MillraceError(
    'SCHEMA_TOO_NEW',
    `The tables in ${nameOf(db.path)} are of schema ${version}, and this version of millrace knows ${schema.version} at most. Update millrace here.`,
    { details: { path: db.path, found: version, known: schema.version } },
  )
}

/** The version of the tables in the file; undefined if there are none. */
function versionOf(db: Database): number | undefined {
  if (!db.prepare(`SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'millrace_schema'`).get()) {
    return undefined
  }
  const version = db.prepare('SELECT version FROM millrace_schema').get()?.[0]
  if (typeof version === 'number' && Number.isSafeInteger(version)) return version
  throw new MillraceError(
    'DATABASE_INVALID',
    `The table millrace_schema in ${nameOf(db.path)} holds no version. It was not written by millrace, or was changed since; restore a backup, or use another file.`,
    { details: { path: db.path, found: version } },
  )
}

function upgrade(db: Database, schema: Schema): void {
  let version = versionOf(db)
  if (version === undefined) {
    db.exec(schema.sql)
    db.exec('CREATE TABLE millrace_schema (version INTEGER NOT NULL) STRICT')
    db.prepare('INSERT INTO millrace_schema (version) VALUES (?)').run(schema.version)
    return
  }
  for (; version < schema.version; version++) {
    const step = schema.steps.find(({ from }) => from === version)
    if (!step) {
      throw new MillraceError(
        'DATABASE_INVALID',
        `The tables in ${nameOf(db.path)} are of schema ${version}, from which this version of millrace knows no way to ${schema.version}. Update with a version of millrace in between first.`,
        { details: { path: db.path, found: version, known: schema.version } },
      )
    }
    db.exec(step.sql)
  }
  db.prepare('UPDATE millrace_schema SET version = ?').run(schema.version)
}
