// Schemas of files: created whole, migrated step by step, and never migrated back.
import { describe, expect, test } from 'vitest'
import { systemRuntime } from '../../../../src/store/runtime.js'
import { adopt, connect } from '../../../../src/stores/sqlite/file/driver.js'
import type { Database } from '../../../../src/stores/sqlite/file/driver.js'
import { migrate } from '../../../../src/stores/sqlite/file/migrate.js'
import type { Schema } from '../../../../src/stores/sqlite/file/migrate.js'
import { openDatabase } from '../../../../src/stores/sqlite/file/open.js'
import { virtualClock } from '../../../../src/testing/world/clock.js'
import { drivers, freshFolder, refusal, send } from '../folder.js'

const path = freshFolder()
const runtime = systemRuntime()

const versions = (version: number, oldest: number): string =>
  `CREATE TABLE millrace_schema (version INTEGER NOT NULL, oldest INTEGER NOT NULL) STRICT;
   INSERT INTO millrace_schema (version, oldest) VALUES (${version}, ${oldest});`

const first: Schema = {
  sql: `${versions(1, 1)} CREATE TABLE millrace_a (x INTEGER) STRICT`,
  version: 1,
  oldest: 1,
  steps: [],
}
const third: Schema = {
  sql: `${versions(3, 2)} CREATE TABLE millrace_a (x INTEGER, y INTEGER) STRICT; CREATE TABLE millrace_b (z TEXT) STRICT`,
  version: 3,
  oldest: 2,
  steps: [
    // In the wrong order on purpose: what counts is where each begins.
    { from: 2, sql: `CREATE TABLE millrace_b (z TEXT) STRICT; INSERT INTO millrace_b (z) SELECT y FROM millrace_a` },
    { from: 1, sql: 'ALTER TABLE millrace_a ADD COLUMN y INTEGER; UPDATE millrace_a SET y = x + 1' },
  ],
}

function tables(db: Database): unknown[] {
  return db.prepare(`SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`).all().flat()
}

const versionOf = (db: Database): unknown => db.prepare('SELECT version, oldest FROM millrace_schema').all()

describe.each(drivers)('a file opened with $name', ({ name, Driver }) => {
  const open = (schema?: Schema): Promise<Database> => openDatabase(path('a.db'), { driver: name, schema }, runtime)

  test('gets the schema whole when it is new', async () => {
    const db = await open(third)
    expect(tables(db)).toEqual(['millrace_a', 'millrace_b', 'millrace_schema'])
    expect(versionOf(db)).toEqual([[3, 2]])
    db.close()
  })

  test('gets it in steps when it is older, with what it holds', async () => {
    const older = await open(first)
    older.exec('INSERT INTO millrace_a (x) VALUES (41)')
    older.close()
    const db = await open(third)
    expect(db.prepare('SELECT x, y FROM millrace_a').all()).toEqual([[41, 42]])
    expect(db.prepare('SELECT z FROM millrace_b').all()).toEqual([['42']])
    expect(versionOf(db)).toEqual([[3, 2]])
    db.close()
  })

  test('is only read when it has it already, even while another holds the lock for writing', async () => {
    const writer = await open(first)
    writer.exec('BEGIN IMMEDIATE; INSERT INTO millrace_a (x) VALUES (1)')
    const db = connect(Driver, path('a.db'))
    await migrate(db, first, runtime, 0)
    writer.exec('ROLLBACK')
    db.close()
    writer.close()
  })

  test('is left whole as it was where a step fails', async () => {
    const db = await open(first)
    const broken = {
      ...third,
      steps: [...third.steps.slice(1), { from: 2, sql: 'INSERT INTO nowhere (x) VALUES (1)' }],
    }
    expect(await refusal(migrate(db, broken, runtime, 0))).toMatchObject({ code: 'DATABASE_FAILED' })
    expect(db.inTransaction).toBe(false)
    expect(versionOf(db)).toEqual([[1, 1]])
    expect(db.prepare('SELECT * FROM millrace_a').all()).toEqual([])
    expect(tables(db)).toEqual(['millrace_a', 'millrace_schema'])
    await migrate(db, third, runtime, 0)
    expect(versionOf(db)).toEqual([[3, 2]])
    db.close()
  })

  test('is used as it is when it is newer and supports this version', async () => {
    const newer = await open(third)
    const db = await open({ ...first, version: 2, oldest: 2 })
    expect(versionOf(db)).toEqual([[3, 2]])
    db.close()
    newer.close()
  })

  test('is refused when it is newer and does not support this version, and the versions are named', async () => {
    const newer = await open(third)
    const error = await refusal(open(first))
    expect(error).toMatchObject({
      code: 'SCHEMA_TOO_NEW',
      details: { path: newer.path, found: 3, oldest: 2, known: 1 },
    })
    expect(error.message).toMatch(
      /are of schema 3, .* this one has schema 1\. Nothing was written\. Update the package/,
    )
    expect(versionOf(newer)).toEqual([[3, 2]])
    newer.close()
  })

  test('is refused when no step leads from its version', async () => {
    const older = await open(first)
    const error = await refusal(open({ ...third, steps: [{ from: 2, sql: '' }] }))
    expect(error).toMatchObject({ code: 'DATABASE_INVALID', details: { found: 1, known: 3 } })
    expect(versionOf(older)).toEqual([[1, 1]])
    older.close()
  })

  test('is refused when the table of the version holds none', async () => {
    const db = await open(first)
    db.exec('DELETE FROM millrace_schema')
    expect(await refusal(open(first))).toMatchObject({ code: 'DATABASE_INVALID' })
    db.close()
  })

  test('keeps the tables, the version and the mark of the program whose file it is', async () => {
    const user = connect(Driver, path('a.db'))
    user.exec(`CREATE TABLE orders (id); INSERT INTO orders (id) VALUES (7)`)
    user.exec('PRAGMA user_version = 5; PRAGMA application_id = 6')
    const db = await open(third)
    expect(user.prepare('SELECT id FROM orders').all()).toEqual([[7]])
    expect(user.prepare('PRAGMA user_version').get()).toEqual([5])
    expect(user.prepare('PRAGMA application_id').get()).toEqual([6])
    db.close()
    user.close()
  })

  test('waits for a writer before it is brought forward', async () => {
    const clock = virtualClock()
    const writer = await open(first)
    const db = connect(Driver, path('a.db'))
    writer.exec('BEGIN IMMEDIATE; INSERT INTO millrace_a (x) VALUES (1)')
    const done = migrate(db, third, clock.runtime, 10_000)
    await clock.advance(5000)
    expect(versionOf(db)).toEqual([[1, 1]])
    writer.exec('COMMIT')
    await clock.until(done)
    expect(db.prepare('SELECT x, y FROM millrace_a').all()).toEqual([[1, 2]])
    db.close()
    writer.close()
  })

  test("in memory waits for the user's own transaction to end", async () => {
    const clock = virtualClock()
    const handle = new Driver(':memory:')
    handle.exec('BEGIN; CREATE TABLE orders (id)')
    const done = openDatabase(handle, { schema: first }, clock.runtime)
    await clock.advance(5000)
    expect(tables(adopt(handle))).toEqual(['orders'])
    handle.exec('ROLLBACK')
    const db = await clock.until(done)
    expect(tables(db)).toEqual(['millrace_a', 'millrace_schema'])
    handle.close()
  })
})

describe('ten processes at once', () => {
  const errands = (schema: Schema) => Array.from({ length: 10 }, () => ({ path: path('a.db'), options: { schema } }))
  const tenOpened = Array.from({ length: 10 }, () => ({ report: { kind: 'opened' }, stderr: '' }))

  test('make one file together, and later bring it forward together', { timeout: 120_000 }, async () => {
    expect(await send(errands(first))).toEqual(tenOpened)
    expect(await send(errands(third))).toEqual(tenOpened)
    const db = await openDatabase(path('a.db'), {}, runtime)
    expect(versionOf(db)).toEqual([[3, 2]])
    expect(tables(db)).toEqual(['millrace_a', 'millrace_b', 'millrace_schema'])
    db.close()
  })
})
