// Opening a database: what is set, what a user's handle is for, and which errors are reported.
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { ErrorCode } from '../../../../src/job/errors/errors.js'
import { systemRuntime } from '../../../../src/store/runtime.js'
import { adopt } from '../../../../src/stores/sqlite/file/driver.js'
import type { Database, SqliteHandle } from '../../../../src/stores/sqlite/file/driver.js'
import { openAnother, openDatabase } from '../../../../src/stores/sqlite/file/open.js'
import type { OpenOptions } from '../../../../src/stores/sqlite/file/open.js'
import { virtualClock } from '../../../../src/testing/world/clock.js'
import { drivers, freshFolder, handleWith, heldOpen, refusal, send } from '../folder.js'

const path = freshFolder()
const runtime = systemRuntime()
const onWindows = process.platform === 'win32'

/** The settings of a connection that matter. */
function settings(db: Database): Record<string, unknown> {
  const names = [
    'journal_mode',
    'synchronous',
    'fullfsync',
    'checkpoint_fullfsync',
    'busy_timeout',
    'wal_autocheckpoint',
    'journal_size_limit',
    'cache_size',
    'foreign_keys',
    'temp_store',
  ]
  return Object.fromEntries(names.map((name) => [name, db.prepare(`PRAGMA ${name}`).get()?.[0]]))
}

const usual = {
  journal_mode: 'wal',
  synchronous: 2,
  fullfsync: 1,
  checkpoint_fullfsync: 1,
  busy_timeout: 0,
  wal_autocheckpoint: 0,
  journal_size_limit: 67_108_864,
  cache_size: -16_000,
  foreign_keys: 0,
  temp_store: 2,
}

describe.each(drivers)('with $name', ({ name: driver, Driver }) => {
  const open = (target: string | SqliteHandle, options: OpenOptions = {}): Promise<Database> =>
    openDatabase(target, { driver, ...options }, runtime)

  const refused = async (target: string | SqliteHandle, code: ErrorCode, reported: string): Promise<void> => {
    const error = await refusal(open(target, { patience: 0 }))
    expect(error.code).toBe(code)
    expect(error.message).toContain(reported)
    expect(await heldOpen(path())).toEqual([])
  }

  describe('a path', () => {
    test('is opened with a write-ahead log and all other settings, each time', async () => {
      const db = await open(path('a.db'))
      expect(settings(db)).toEqual(usual)
      db.exec('CREATE TABLE t (a)')
      db.close()
      const again = await open(path('a.db'))
      expect(settings(again)).toEqual(usual)
      again.close()
    })

    test.each([
      ['full', 2, 1, 1],
      ['normal', 1, 0, 1],
      ['off', 0, 0, 0],
    ] as const)('is opened with synchronous %s', async (synchronous, value, fullfsync, checkpoints) => {
      const db = await open(path('a.db'), { synchronous })
      const flushes = { synchronous: value, fullfsync, checkpoint_fullfsync: checkpoints }
      expect(settings(db)).toEqual({ ...usual, ...flushes })
      const another = openAnother(db, synchronous)
      expect(settings(another)).toMatchObject(flushes)
      another.close()
      db.close()
    })

    test('is whole without its log once it is closed', async () => {
      const db = await open(path('a.db'))
      db.exec('CREATE TABLE t (a)')
      db.prepare('INSERT INTO t (a) VALUES (?)').run(1)
      db.close()
      copyFileSync(path('a.db'), path('b.db'))
      const copy = await open(path('b.db'))
      expect(copy.prepare('SELECT a FROM t').all()).toEqual([[1]])
      copy.close()
    })

    test(`':memory:' is a database in memory`, async () => {
      const db = await open(':memory:')
      expect(db.path).toBeUndefined()
      expect(settings(db)).toMatchObject({ journal_mode: 'memory', foreign_keys: 0 })
      db.close()
      expect(existsSync(':memory:')).toBe(false)
    })

    test('with a question mark in it is a path all the same', async () => {
      const db = await open(path('a?mode=memory#1.db'))
      db.close()
      expect(readdirSync(path())).toContain('a?mode=memory#1.db')
    })

    test.each(['', 'file:a.db', 'a\0.db'])('%j is refused', async (target) => {
      await refused(target, 'INVALID_OPTION', 'is no path')
    })

    test.each([
      [{ driver: 'sqlite3' }, `driver must be one of 'node:sqlite', '@photostructure/sqlite', 'better-sqlite3'`],
      [{ synchronous: 'FULL' }, `synchronous must be one of 'full', 'normal', 'off', not 'FULL'`],
      [{ patience: -1 }, 'patience must be milliseconds from 0 up, not -1'],
      [{ patience: Number.NaN }, 'patience must be'],
    ])('is refused with the options %j', async (options, reported) => {
      const error = await refusal(open(path('a.db'), options as OpenOptions))
      expect(error.code).toBe('INVALID_OPTION')
      expect(error.message).toContain(reported)
      expect(existsSync(path('a.db'))).toBe(false)
    })
  })

  describe('what is no database', () => {
    test('a folder that is missing', async () => {
      await refused(path('no/such/a.db'), 'DATABASE_PATH_MISSING', `its folder ${path('no/such')} does not exist`)
      expect(readdirSync(path())).toEqual([])
    })

    test('a file in place of the folder', async () => {
      writeFileSync(path('no'), '')
      await refused(path('no/a.db'), 'DATABASE_PATH_MISSING', `${path('no')} is a file, not a folder`)
      await refused(path('no/such/a.db'), 'DATABASE_PATH_MISSING', 'does not exist')
    })

    test('a folder', async () => {
      mkdirSync(path('a.db'))
      await refused(path('a.db'), 'DATABASE_IS_DIRECTORY', `${path('a.db')} cannot be opened: it is a folder`)
      expect(readdirSync(path('a.db'))).toEqual([])
    })

    test.skipIf(onWindows)('a device', async () => {
      symlinkSync('/dev/null', path('a.db'))
      await refused(path('a.db'), 'DATABASE_INVALID', 'it is no ordinary file')
    })

    test.each([5, 100, 10_000])('a file of %i other bytes, which is left as it is', async (length) => {
      const junk = Buffer.alloc(length, 'junk ')
      writeFileSync(path('a.db'), junk)
      await refused(path('a.db'), 'DATABASE_INVALID', 'is not an SQLite database, or is encrypted')
      expect(readFileSync(path('a.db'))).toEqual(junk)
      expect(readdirSync(path())).toEqual(['a.db'])
    })

    test('a damaged one', async () => {
      const db = await open(path('a.db'))
      db.exec('CREATE TABLE t (a)')
      db.close()
      expect(await heldOpen(path())).toEqual([])
      const file = openSync(path('a.db'), 'r+')
      writeSync(file, Buffer.alloc(1000, 0xff), 0, 1000, 100)
      closeSync(file)
      await refused(path('a.db'), 'DATABASE_CORRUPT', `The database file ${path('a.db')} is damaged`)
    })
  })

  describe('a locked file', () => {
    const locked = (): SqliteHandle => {
      const other = new Driver(path('a.db'))
      other.exec('BEGIN EXCLUSIVE')
      return other
    }

    test('is waited for', async () => {
      const clock = virtualClock()
      const other = locked()
      const opening = openDatabase(path('a.db'), { driver }, clock.runtime)
      await clock.advance(9000)
      other.exec('COMMIT')
      const db = await clock.until(opening)
      expect(settings(db)).toEqual(usual)
      db.close()
      other.close()
    })

    test('is given up after a while, and left where it is though still empty', async () => {
      const clock = virtualClock()
      const other = locked()
      const error = await refusal(clock.until(openDatabase(path('a.db'), { driver, patience: 700 }, clock.runtime)))
      expect(error).toMatchObject({ code: 'DATABASE_LOCKED', details: { path: path('a.db'), waited: 700 } })
      other.exec('CREATE TABLE t (a); COMMIT')
      other.close()
      expect(existsSync(path('a.db'))).toBe(true)
      expect(await heldOpen(path())).toEqual([])
    })
  })

  describe("a user's handle", () => {
    test('leads to a connection of its own, which neither sees nor joins a transaction of the user', async () => {
      const handle = new Driver(path('a.db'))
      handle.exec('PRAGMA journal_mode = WAL; CREATE TABLE t (a); BEGIN; INSERT INTO t (a) VALUES (1)')
      const db = await open(handle)
      expect(db.inTransaction).toBe(false)
      expect(settings(db)).toEqual(usual)
      expect(db.prepare('SELECT a FROM t').all()).toEqual([])
      handle.exec('COMMIT')
      expect(db.prepare('SELECT a FROM t').all()).toEqual([[1]])
      db.close()
      handle.exec('INSERT INTO t (a) VALUES (2)')
      handle.close()
    })

    test('keeps its own settings and the version of its file', async () => {
      const handle = new Driver(path('a.db'))
      handle.exec(
        'PRAGMA user_version = 9; PRAGMA busy_timeout = 123; PRAGMA foreign_keys = ON; PRAGMA cache_size = 77',
      )
      const db = await open(handle)
      expect(settings(adopt(handle))).toMatchObject({ busy_timeout: 123, foreign_keys: 1, cache_size: 77 })
      expect(adopt(handle).prepare('PRAGMA user_version').get()).toEqual([9])
      db.close()
      handle.close()
    })

    test('in memory is used itself, keeps its settings, and is not closed', async () => {
      const handle = new Driver(':memory:')
      handle.exec('PRAGMA busy_timeout = 123; PRAGMA foreign_keys = ON; PRAGMA cache_size = 77; CREATE TABLE t (a)')
      const db = await open(handle)
      expect(db.path).toBeUndefined()
      expect(db.prepare('SELECT a FROM t').all()).toEqual([])
      expect(settings(db)).toMatchObject({ busy_timeout: 123, foreign_keys: 1, cache_size: 77 })
      db.close()
      handle.exec('INSERT INTO t (a) VALUES (1)')
      handle.close()
    })

    test('that was opened read-only is refused', async () => {
      const created = new Driver(path('a.db'))
      created.exec('CREATE TABLE t (a)')
      created.close()
      const option = driver === 'better-sqlite3' ? { readonly: true } : { readOnly: true }
      const handle = handleWith(Driver, path('a.db'), option)
      const error = await refusal(open(handle))
      expect(error.code).toBe('DATABASE_NOT_WRITABLE')
      expect(error.message).toContain(`${path('a.db')} was opened read-only`)
      expect(adopt(handle).inTransaction).toBe(false)
      handle.close()
    })

    test('whose file was deleted is refused, and the file is not made anew', async () => {
      const handle = new Driver(path('a.db'))
      handle.exec('CREATE TABLE t (a)')
      rmSync(path('a.db'))
      expect(await refusal(open(handle))).toMatchObject({ code: 'DATABASE_GONE', details: { path: path('a.db') } })
      expect(existsSync(path('a.db'))).toBe(false)
      handle.close()
    })

    test('that is closed is refused', async () => {
      const handle = new Driver(path('a.db'))
      handle.close()
      await refused(handle, 'INVALID_OPTION', 'Give an open one')
    })

    test.each([undefined, null, 42, {}, new URL('file:///a.db')])('cannot be %o', async (target) => {
      await refused(target as never, 'INVALID_OPTION', 'is neither a path nor a handle')
    })
  })

  test('a file system without write-ahead logs is detected', async () => {
    /** A driver whose files stay in the mode they are in, as on a network file system. */
    class Elsewhere extends Driver {
      override prepare(sql: string): ReturnType<SqliteHandle['prepare']> {
        return super.prepare(sql.replace('journal_mode = WAL', 'journal_mode'))
      }
    }
    const handle = new Elsewhere(path('a.db'))
    const error = await refusal(open(handle))
    expect(error.code).toBe('DATABASE_FAILED')
    expect(error.message).toContain("it stays in mode 'delete'")
    handle.close()
    expect(await heldOpen(path())).toEqual([])
  })
})

describe.skipIf(onWindows)('permissions', { timeout: 60_000 }, () => {
  const attempt = async (target: string) => {
    const [answer] = await send([{ path: target, asNobody: true }])
    return answer?.report
  }

  /** A database that everybody may write to. Made without a statement, so that nothing of it stays open. */
  const make = (name: string): void => {
    const handle = new drivers[0]!.Driver(path(name))
    handle.exec('PRAGMA journal_mode = WAL; CREATE TABLE t (a)')
    handle.close()
    chmodSync(path(name), 0o666)
  }

  test('a file that may not be written to', async () => {
    make('a.db')
    chmodSync(path('a.db'), 0o444)
    expect(await attempt(path('a.db'))).toMatchObject({
      code: 'DATABASE_NOT_WRITABLE',
      message: expect.stringContaining('it may not be read and written by this process') as string,
    })
  })

  test('a folder that may not be written to, which would hold the file', async () => {
    mkdirSync(path('in'), { mode: 0o555 })
    expect(await attempt(path('in/a.db'))).toMatchObject({
      code: 'DATABASE_NOT_WRITABLE',
      message: expect.stringContaining(`its folder ${path('in')} may not be written to`) as string,
    })
    expect(readdirSync(path('in'))).toEqual([])
  })

  test('a folder that may not be written to, which holds a file that may', async () => {
    mkdirSync(path('in'))
    make('in/a.db')
    chmodSync(path('in'), 0o555)
    expect(await attempt(path('in/a.db'))).toMatchObject({
      code: 'DATABASE_NOT_WRITABLE',
      message: expect.stringContaining(`its folder ${path('in')} may not be written to`) as string,
    })
    chmodSync(path('in'), 0o777)
  })

  test('a folder that may not be looked into', async () => {
    mkdirSync(path('in'), { mode: 0 })
    expect(await attempt(path('in/a.db'))).toMatchObject({ code: 'DATABASE_NOT_WRITABLE' })
    expect(await attempt(path('in/such/a.db'))).toMatchObject({ code: 'DATABASE_NOT_WRITABLE' })
    chmodSync(path('in'), 0o777)
  })

  test('a log beside the file that may not be written to', async () => {
    make('a.db')
    const db = await openDatabase(path('a.db'), {}, runtime)
    db.exec('INSERT INTO t (a) VALUES (1)')
    copyFileSync(path('a.db'), path('b.db'))
    copyFileSync(path('a.db-wal'), path('b.db-wal'))
    db.close()
    chmodSync(path('b.db'), 0o666)
    chmodSync(path('b.db-wal'), 0)
    expect(await attempt(path('b.db'))).toMatchObject({
      code: 'DATABASE_NOT_WRITABLE',
      message: expect.stringContaining(`${path('b.db-wal')} may not be read and written`) as string,
    })
  })

  test('a file that may be written to is opened', async () => {
    make('a.db')
    expect(await attempt(path('a.db'))).toEqual({ kind: 'opened' })
  })
})
