// stores/sqlite/migrate.ts: brings the tables of a file to the schema this version works with, forwards only.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Database } from './driver.js'
import { busyHere, nameOf } from './errors.js'
import { whenFree } from './busy-retry.js'

/** The schema a file is brought to. */
export interface Schema {
  /** All of it, for a file that has none of it yet. */
  readonly sql: string
  /** Its version, from 1 up. */
  readonly version: number
  /** The ways here from older versions: each leads from `from` to the next. */
  readonly steps: readonly { readonly from: number; readonly sql: string }[]
}

/**
 * Brings a database to the schema, in one transaction, whoever else is doing so at the same time; one that has it
 * already is only read. The version has a table of its own: the file's `user_version` and `application_id` may be
 * the user's, whose own tables may be in the same file.
 */
export async function migrate(db: Database, schema: Schema, runtime: Runtime, patience: Millis): Promise<void> {
  const work = (): void => {
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
  await whenFree(runtime, db.path, work, patience)
}

/** Whether nothing is to be done. Refuses a file that is ahead. */
function isCurrent(db: Database, schema: Schema): boolean {
  const version = versionOf(db)
  if (version === undefined || version <= schema.version) return version === schema.version
  throw new MillraceError(
    'SCHEMA_TOO_NEW',
    `The tables in ${nameOf(db.path)} are of schema ${version}, and this version of millrace knows ${schema.version} at most. Update millrace here.`,
    { details: { path: db.path, found: version, known: schema.version } },
  )
}

/** The version of the tables in the file; undefined where there are none. */
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
