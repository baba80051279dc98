// What the drivers' errors mean, and how they are reported.
import { describe, expect, test } from 'vitest'
import { MillraceError } from '../../../../src/job/errors/errors.js'
import { connect } from '../../../../src/stores/sqlite/file/driver.js'
import { failureKind, isBusy, toStoreError } from '../../../../src/stores/sqlite/file/errors.js'
import { thrown } from '../../../thrown.js'
import { drivers, freshFolder } from '../folder.js'

const path = freshFolder()

describe.each(drivers)('a failure of $name', ({ Driver }) => {
  test('is busy where another connection is writing', () => {
    const [a, b] = [connect(Driver, path('a.db')), connect(Driver, path('a.db'))]
    a.exec('PRAGMA journal_mode = WAL; CREATE TABLE t (a)')
    a.exec('BEGIN IMMEDIATE')
    const error = thrown(() => b.exec('BEGIN IMMEDIATE'))
    expect(isBusy(error)).toBe(true)
    expect(toStoreError(error, path('a.db'))).toMatchObject({ code: 'DATABASE_LOCKED', cause: error })
    a.exec('COMMIT')

    b.exec('BEGIN')
    b.prepare('SELECT a FROM t').all()
    a.exec('INSERT INTO t (a) VALUES (1)')
    expect(isBusy(thrown(() => b.exec('INSERT INTO t (a) VALUES (2)')))).toBe(true)
    a.close()
    b.close()
  })

  test('is full where the database may not grow', () => {
    const db = connect(Driver, path('a.db'))
    db.exec('PRAGMA max_page_count = 2; CREATE TABLE t (a)')
    const error = thrown(() => db.exec(`INSERT INTO t (a) VALUES (hex(zeroblob(9999)))`))
    expect(failureKind(error)).toBe('full')
    const reported = toStoreError(error, db.path)
    expect(reported).toMatchObject({ code: 'DATABASE_FULL', cause: error, details: { path: db.path } })
    expect(reported.message).toContain(`There is no space left for the database file ${db.path}`)
    db.close()
  })

  test('is readonly where writing is forbidden', () => {
    const db = connect(Driver, path('a.db'))
    db.exec('CREATE TABLE t (a); PRAGMA query_only = ON')
    const error = thrown(() => db.exec('INSERT INTO t (a) VALUES (1)'))
    expect(toStoreError(error, db.path)).toMatchObject({ code: 'DATABASE_NOT_WRITABLE' })
    db.close()
  })

  test('is the same whether rows are asked for one by one or all at once', () => {
    const [a, b] = [connect(Driver, path('a.db')), connect(Driver, path('a.db'))]
    a.exec('CREATE TABLE t (a)')
    const rows = b.prepare('SELECT a FROM t')
    rows.all()
    a.exec('BEGIN EXCLUSIVE')
    expect(isBusy(thrown(() => rows.get()))).toBe(true)
    expect(isBusy(thrown(() => rows.all()))).toBe(true)
    a.exec('COMMIT')
    a.close()
    b.close()
  })

  test('has no code of its own otherwise, and keeps its cause', () => {
    const db = connect(Driver, ':memory:')
    const error = thrown(() => db.exec('SELECT'))
    expect(isBusy(error)).toBe(false)
    const reported = toStoreError(error, undefined)
    expect(reported).toMatchObject({ code: 'DATABASE_FAILED', cause: error, details: {} })
    expect(reported.message).toContain('The database in memory failed: incomplete input')
    db.close()
  })
})

describe('failures by their codes', () => {
  test.each([
    ['SQLITE_BUSY', 5, 'busy'],
    ['SQLITE_BUSY_RECOVERY', 261, 'busy'],
    ['SQLITE_BUSY_SNAPSHOT', 517, 'busy'],
    ['SQLITE_LOCKED_SHAREDCACHE', 262, 'busy'],
    ['SQLITE_PROTOCOL', 15, 'busy'],
    ['SQLITE_FULL', 13, 'full'],
    ['SQLITE_CORRUPT_INDEX', 779, 'corrupt'],
    ['SQLITE_NOTADB', 26, 'invalid'],
    ['SQLITE_READONLY_DIRECTORY', 1544, 'readonly'],
    ['SQLITE_PERM', 3, 'readonly'],
    ['SQLITE_CANTOPEN_ISDIR', 526, 'unopenable'],
    ['SQLITE_IOERR_FSYNC', 1034, 'other'],
    ['SQLITE_CONSTRAINT_UNIQUE', 2067, 'other'],
    ['SQLITE_TOOBIG', 18, 'large'],
  ] as const)('%s, or %i, is %s', (code, errcode, kind) => {
    expect(failureKind(Object.assign(new Error('of better-sqlite3'), { code }))).toBe(kind)
    expect(failureKind(Object.assign(new Error('of Node'), { code: 'ERR_SQLITE_ERROR', errcode }))).toBe(kind)
  })

  test.each([undefined, null, 'SQLITE_BUSY', {}, new Error('database is locked'), { code: 'EBUSY' }])(
    '%o is none of them',
    (error) => {
      expect(failureKind(error)).toBe('other')
      expect(toStoreError(error, '/data/jobs.db').code).toBe('DATABASE_FAILED')
    },
  )

  test('an error of Millrace stays what it is', () => {
    const error = new MillraceError('SCHEMA_TOO_NEW', 'newer')
    expect(toStoreError(error, '/data/jobs.db')).toBe(error)
  })
})
