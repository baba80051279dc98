// The drivers under one face: rows as arrays of plain values, whichever driver it is.
import { DatabaseSync } from '@photostructure/sqlite'
import { realpathSync, symlinkSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { adopt, classOf, connect, fileOf, loadDriver } from '../../../../src/stores/sqlite/file/driver.js'
import type { DriverName, SqliteHandle } from '../../../../src/stores/sqlite/file/driver.js'
import { drivers, freshFolder, handleWith, refusal } from '../folder.js'

const path = freshFolder()

describe.each(drivers)('a database of $name', ({ Driver }) => {
  test('gives rows as arrays of plain values', () => {
    const db = connect(Driver, ':memory:')
    db.exec('CREATE TABLE t (a INTEGER, b TEXT, c)')
    const insert = db.prepare('INSERT INTO t (a, b, c) VALUES (?, ?, ?)')
    expect(Number(insert.run(2 ** 52 + 1, 'text', null).changes)).toBe(1)
    expect(Number(insert.run(1_700_000_000_000, '', 1.5).changes)).toBe(1)
    const all = db.prepare('SELECT a, b, c FROM t ORDER BY a')
    expect(all.all()).toEqual([
      [1_700_000_000_000, '', 1.5],
      [2 ** 52 + 1, 'text', null],
    ])
    expect(all.get()).toEqual([1_700_000_000_000, '', 1.5])
    expect(db.prepare('SELECT a FROM t WHERE a = ?').get(7)).toBeUndefined()
    expect(db.prepare('SELECT a FROM t WHERE a = ?').all(7)).toEqual([])
    expect(db.prepare('INSERT INTO t (a) VALUES (?), (?) RETURNING a').all(1, 2)).toEqual([[1], [2]])
    db.close()
  })

  test('counts the changes of a statement', () => {
    const db = connect(Driver, ':memory:')
    db.exec('CREATE TABLE t (a INTEGER)')
    expect(Number(db.prepare('INSERT INTO t (a) VALUES (1), (2), (3)').run().changes)).toBe(3)
    expect(Number(db.prepare('UPDATE t SET a = a + 1 WHERE a > ?').run(1).changes)).toBe(2)
    expect(Number(db.prepare('DELETE FROM t WHERE a > ?').run(7).changes)).toBe(0)
    db.close()
  })

  test('hands out the statements of the driver itself, if they can give arrays', () => {
    const handle = new Driver(':memory:')
    const db = adopt(handle)
    if (!('setReturnArrays' in handle.prepare('SELECT 1') || 'raw' in handle.prepare('SELECT 1'))) return
    expect(Object.getPrototypeOf(db.prepare('SELECT 1 AS a'))).toBe(Object.getPrototypeOf(handle.prepare('SELECT 1')))
    handle.close()
  })

  test('knows whether a transaction is open, one that a statement began too', () => {
    const db = connect(Driver, ':memory:')
    const begin = db.prepare('BEGIN IMMEDIATE')
    const commit = db.prepare('COMMIT')
    expect(db.inTransaction).toBe(false)
    begin.run()
    expect(db.inTransaction).toBe(true)
    commit.run()
    expect(db.inTransaction).toBe(false)
    db.close()
  })

  test('knows its file, with links followed', () => {
    symlinkSync(path('real.db'), path('link.db'))
    const db = connect(Driver, path('link.db'))
    expect(db.path).toBe(`${realpathSync(path())}/real.db`)
    db.close()
    const memory = connect(Driver, ':memory:')
    expect(memory.path).toBeUndefined()
    memory.close()
  })

  test('can be closed twice', () => {
    const db = connect(Driver, path('a.db'))
    db.close()
    db.close()
    expect(() => db.exec('SELECT 1')).toThrow()
  })
})

describe.each(drivers)("a user's handle of $name", ({ name, Driver }) => {
  test('stays open when the store has no more use for it', () => {
    const handle = new Driver(':memory:')
    adopt(handle).close()
    handle.exec('SELECT 1')
    handle.close()
  })

  test('gives plain numbers, even if it is set to give big ones', () => {
    const handle = handleWith(Driver, ':memory:', name === 'better-sqlite3' ? {} : { readBigInts: true })
    ;(handle as { defaultSafeIntegers?: (on: boolean) => void }).defaultSafeIntegers?.(true)
    expect(adopt(handle).prepare('SELECT 42 AS a').get()).toEqual([42])
    handle.close()
  })

  test('leads to its file, and to its class, which opens that once more', () => {
    const handle = new Driver(path('a.db'))
    handle.exec('CREATE TABLE t (a); INSERT INTO t (a) VALUES (1); BEGIN; INSERT INTO t (a) VALUES (2)')
    const file = fileOf(handle)
    const db = connect(classOf(handle), file ?? '')
    expect(db.path).toBe(file)
    expect(db.inTransaction).toBe(false)
    expect(db.prepare('SELECT count(*) AS n FROM t').get()).toEqual([1])
    db.close()
    handle.exec('COMMIT')
    handle.close()
  })
})

describe('a driver that knows only objects and no transactions, as in Node 22.13', () => {
  function old(): SqliteHandle {
    const handle: SqliteHandle = new DatabaseSync(':memory:')
    return {
      prepare: (sql) => {
        const statement = handle.prepare(sql)
        return {
          run: (...values) => statement.run(...values),
          get: (...values) => statement.get(...values),
          all: (...values) => statement.all(...values),
        }
      },
      exec: (sql) => handle.exec(sql),
      close: () => handle.close(),
    }
  }

  test('still gives rows as arrays', () => {
    const db = adopt(old())
    db.exec('CREATE TABLE t (a INTEGER, b TEXT)')
    expect(db.prepare('INSERT INTO t (a, b) VALUES (?, ?)').run(1, null)).toMatchObject({ changes: 1 })
    const select = db.prepare('SELECT b, a FROM t WHERE a = ?')
    expect(select.get(1)).toEqual([null, 1])
    expect(select.all(1)).toEqual([[null, 1]])
    expect(select.get(2)).toBeUndefined()
  })

  test('still knows whether a transaction is open, and leaves it as it is', () => {
    const db = adopt(old())
    expect(db.inTransaction).toBe(false)
    db.exec('BEGIN; CREATE TABLE t (a)')
    expect(db.inTransaction).toBe(true)
    db.exec('COMMIT')
    expect(db.inTransaction).toBe(false)
    expect(db.prepare('SELECT a FROM t').all()).toEqual([])
  })
})

describe('choosing a driver', () => {
  const [major = 0] = process.versions.node.split('.').map(Number)

  const has = (driver: DriverName): boolean => drivers.some(({ name }) => name === driver)

  test.skipIf(has('better-sqlite3'))('one that is not installed is named, with the way to get it', async () => {
    const error = await refusal(loadDriver('better-sqlite3'))
    expect(error).toMatchObject({ code: 'MISSING_DRIVER', details: { package: 'better-sqlite3', installed: false } })
    expect(error.message).toContain("needs the package 'better-sqlite3'. Install it: npm install better-sqlite3")
    expect(error.message).toContain('Node 22.13')
  })

  test.runIf(major < 22)('the one in Node is missed before 22.13, and another is named', async () => {
    const error = await refusal(loadDriver('node:sqlite'))
    expect(error).toMatchObject({ code: 'MISSING_DRIVER', details: { package: 'node:sqlite' } })
    expect(error.message).toContain('npm install @photostructure/sqlite@1')
  })

  test('the one in Node comes first, and else the drop-in package', async () => {
    expect(await loadDriver()).toBe(drivers[0]?.Driver)
    expect(has('node:sqlite')).toBe(major >= 22)
    expect(has('@photostructure/sqlite')).toBe(true)
  })
})
