// Two copies of SQLite in one process: their locks do not exclude each other, so a second one on a store's file is refused.
import { linkSync } from 'node:fs'
import { Queue } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { beforeAll, describe, expect, test } from 'vitest'
import type { DatabaseClass, SqliteHandle } from '../../../../src/stores/sqlite/file/driver.js'
import { sameCopy } from '../../../../src/stores/sqlite/file/library-copies.js'
import { closing, gate } from '../../../setup.js'
import { anotherCopy } from '../another-copy.js'
import { drivers, freshFolder, refusal } from '../folder.js'
import { kysely } from '../user-transactions/kysely.js'

const at = freshFolder()
const { Second: loadSecond } = anotherCopy()
/** The driver that a store by path uses here. */
const { name: first, Driver: First } = drivers[0]!
let Second: DatabaseClass

beforeAll(() => void (Second = loadSecond()))

/** A handle as tests use it. */
interface Handle extends SqliteHandle {
  prepare(sql: string): {
    run(...values: unknown[]): unknown
    get(...values: unknown[]): unknown
    all(...values: unknown[]): Record<string, unknown>[]
  }
}

/** A store that is open on a file by its path, and a queue. */
async function setUp() {
  const store = closing(sqlite(at('app.db')))
  await store.open()
  const queue = closing(new Queue('mail', { store, logger: false }))
  return { store, queue, other: new Second(at('app.db')) as Handle }
}

/** A handle as a library passes it on that answers later. */
function executor(handle: Handle) {
  return {
    execute: async (sql: string, params: readonly unknown[]): Promise<Record<string, unknown>[]> => {
      await new Promise((go) => setImmediate(go))
      if (/^\s*(SELECT|PRAGMA|INSERT.*RETURNING)/is.test(sql)) return handle.prepare(sql).all(...params)
      handle.prepare(sql).run(...params)
      return []
    },
  }
}

/** Refuses to read the limit on the heap, as an engine may that knows few pragmas. */
function withoutHeapLimit({ execute }: ReturnType<typeof executor>): ReturnType<typeof executor> {
  return {
    execute: async (sql, params) => {
      if (sql.includes('soft_heap_limit')) throw new Error('unknown pragma')
      return execute(sql, params)
    },
  }
}

const ids = async (queue: Queue): Promise<string[]> => (await queue.list()).jobs.map(({ id }) => id)

test('handles of one copy are known as such, in a transaction as well, and those of another are not', () => {
  const handles = [new First(':memory:'), new First(at('one.db'))]
  const others = [new Second(':memory:'), new Second(at('two.db'))]
  handles[1]!.exec('BEGIN IMMEDIATE')
  others[1]!.exec('BEGIN IMMEDIATE')
  expect(sameCopy(handles[0]!, handles[1]!)).toBe(true)
  expect(sameCopy(handles[1]!, handles[0]!)).toBe(true)
  expect(sameCopy(others[0]!, others[1]!)).toBe(true)
  expect(sameCopy(handles[1]!, others[1]!)).toBe(false)
  expect(sameCopy(others[0]!, handles[0]!)).toBe(false)
  for (const each of [...handles, ...others]) {
    expect(Object.values(each.prepare('PRAGMA soft_heap_limit').get() as object)).toEqual([0])
    each.close()
  }
})

test('a limit on the heap that the user has set is left as it was', () => {
  const [a, b, other] = [new First(':memory:'), new First(':memory:'), new Second(':memory:')]
  a.exec('PRAGMA soft_heap_limit = 123456789')
  expect(sameCopy(a, b)).toBe(true)
  expect(sameCopy(a, other)).toBe(false)
  expect(Object.values(b.prepare('PRAGMA soft_heap_limit').get() as object)).toEqual([123_456_789])
  a.exec('PRAGMA soft_heap_limit = 0')
  for (const each of [a, b, other]) each.close()
})

describe('a transaction of another copy', () => {
  test('is refused as `tx` before anything is written, and no add beside it is lost', async () => {
    const { queue, other } = await setUp()
    other.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY, job TEXT)')
    other.exec('BEGIN IMMEDIATE')
    const error = await refusal(queue.add('send', {}, { id: 'inside', tx: other }))
    expect(error.code).toBe('SECOND_SQLITE')
    expect(error.message).toContain('sqlite(db)')
    expect(error.details).toMatchObject({ path: at('app.db') })
    expect((await refusal(queue.list({ tx: other }))).code).toBe('SECOND_SQLITE')
    expect((await refusal(queue.cancel('inside', { tx: other }))).code).toBe('SECOND_SQLITE')
    other.exec('ROLLBACK')
    await Promise.all(['a', 'b', 'c'].map((id) => queue.add('send', {}, { id })))
    expect(await ids(queue)).toEqual(['a', 'b', 'c'])
    other.close()
  })

  test('is refused with { execute } as well', async () => {
    const { queue, other } = await setUp()
    other.exec('BEGIN IMMEDIATE')
    expect((await refusal(queue.add('send', {}, { id: 'inside', tx: executor(other) }))).code).toBe('SECOND_SQLITE')
    other.exec('ROLLBACK')
    await queue.add('send', {}, { id: 'a' })
    expect(await ids(queue)).toEqual(['a'])
    other.close()
  })

  test('is refused by its lock where its copy cannot be read', async () => {
    const { queue, other } = await setUp()
    other.exec('BEGIN IMMEDIATE')
    const tx = withoutHeapLimit(executor(other))
    expect((await refusal(queue.add('send', {}, { id: 'inside', tx }))).code).toBe('SECOND_SQLITE')
    other.exec('ROLLBACK')
    expect(await ids(queue)).toEqual([])
    other.close()
  })

  test.each([
    ['', (tx: ReturnType<typeof executor>) => tx],
    [', where its copy cannot be read', withoutHeapLimit],
  ])('is refused while the store has a transaction of its own open%s', async (_, through) => {
    const { queue, other } = await setUp()
    const [began, ending] = [gate(), gate()]
    const own = queue.transaction(async (tx) => {
      await queue.add('send', {}, { id: 'own', tx })
      began.open()
      await ending.promise
    })
    await began.promise
    other.exec('BEGIN IMMEDIATE')
    const tx = through(executor(other))
    expect((await refusal(queue.add('send', {}, { id: 'inside', tx }))).code).toBe('SECOND_SQLITE')
    other.exec('ROLLBACK')
    ending.open()
    await own
    expect(await ids(queue)).toEqual(['own'])
    other.close()
  })

  test('is refused while another handle of the same copy has the lock', async () => {
    const { queue, other } = await setUp()
    const own = new First(at('app.db'))
    own.exec('BEGIN IMMEDIATE')
    other.exec('BEGIN IMMEDIATE')
    expect((await refusal(queue.add('send', {}, { id: 'inside', tx: executor(other) }))).code).toBe('SECOND_SQLITE')
    other.exec('ROLLBACK')
    own.exec('COMMIT')
    own.close()
    other.close()
  })

  test('that a store took with { execute } before it was opened keeps it from opening the file', async () => {
    const { store: earlier } = await setUp()
    await earlier.close()
    const store = closing(sqlite(at('app.db'), { driver: first }))
    const queue = new Queue('mail', { store, logger: false })
    const other = new Second(at('app.db')) as Handle
    other.exec('BEGIN IMMEDIATE')
    await queue.add('send', {}, { id: 'a', tx: executor(other) })
    expect((await refusal(queue.add('send', {}, { id: 'lost' }))).code).toBe('SECOND_SQLITE')
    other.exec('COMMIT')
    await queue.add('send', {}, { id: 'b' })
    expect(await ids(queue)).toEqual(['a', 'b'])
    other.close()
  })

  test('that never answers again does not keep the store from opening', async () => {
    const { store: earlier } = await setUp()
    await earlier.close()
    const store = closing(sqlite(at('app.db'), { driver: first }))
    const other = new Second(at('app.db')) as Handle
    const { execute } = executor(other)
    let answers = true
    const tx = {
      execute: (...call: Parameters<typeof execute>) => (answers ? execute(...call) : new Promise<never>(() => {})),
    }
    other.exec('BEGIN IMMEDIATE')
    await new Queue('mail', { store, logger: false }).add('send', {}, { tx })
    other.exec('COMMIT')
    answers = false
    await store.open()
    other.close()
  })

  test('is refused under Kysely', async () => {
    const { queue, other } = await setUp()
    const orm = kysely<{ orders: { job: string } }>(other)
    const doomed = orm.transaction().execute(async (trx) => void (await queue.add('send', {}, { tx: trx })))
    expect((await refusal(doomed)).code).toBe('SECOND_SQLITE')
    expect(await ids(queue)).toEqual([])
    await orm.destroy()
  })

  test('that a store took before it was opened keeps the other copy from opening the file', async () => {
    const { store: earlier } = await setUp()
    await earlier.close()
    const store = closing(sqlite(at('app.db'), { driver: first }))
    const queue = new Queue('mail', { store, logger: false })
    const other = new Second(at('app.db')) as Handle
    other.exec('BEGIN IMMEDIATE')
    await queue.add('send', {}, { id: 'a', tx: other })
    other.exec('COMMIT')
    expect((await refusal(store.open())).code).toBe('SECOND_SQLITE')
    other.close()
    await store.open()
    expect(await ids(queue)).toEqual(['a'])
  })
})

describe('a store by another copy', () => {
  test('is refused while the file is open in this process, and opens it once that has been closed', async () => {
    const { store, queue, other } = await setUp()
    const later = closing(sqlite(other))
    const error = await refusal(later.open())
    expect(error.code).toBe('SECOND_SQLITE')
    expect(error.message).toContain('sqlite(db)')
    await queue.add('send', {}, { id: 'a' })
    expect(await ids(queue)).toEqual(['a'])
    await store.close()
    await later.open()
    expect(await ids(new Queue('mail', { store: later }))).toEqual(['a'])
    expect((await refusal(closing(sqlite(at('app.db'), { driver: first })).open())).code).toBe('SECOND_SQLITE')
    await later.close()
    other.close()
  })

  test('is refused under another name of the file', async () => {
    const { other } = await setUp()
    linkSync(at('app.db'), at('linked.db'))
    const linked = new Second(at('linked.db'))
    expect((await refusal(closing(sqlite(linked)).open())).code).toBe('SECOND_SQLITE')
    linked.close()
    other.close()
  })

  test('is no hindrance on another file', async () => {
    await setUp()
    const elsewhere = new Second(at('elsewhere.db'))
    await closing(sqlite(elsewhere)).open()
    elsewhere.close()
  })
})

test('other commits that are overwritten are missed as well', async () => {
  const { queue, other } = await setUp()
  other.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY, job TEXT)')
  await queue.add('send', {})
  other.exec("BEGIN IMMEDIATE; INSERT INTO orders (job) VALUES ('x')")
  await queue.pause()
  other.exec('COMMIT')
  expect((await refusal(queue.add('send', {}))).code).toBe('DATABASE_OVERWRITTEN')
  other.close()
})

test('acknowledged jobs that a transaction of another copy has overwritten are missed at the next commit', async () => {
  const { queue, other } = await setUp()
  other.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY, job TEXT)')
  await queue.add('send', {}, { id: 'before' })
  other.exec("BEGIN IMMEDIATE; INSERT INTO orders (job) VALUES ('x')")
  await queue.add('send', {}, { id: 'lost' })
  other.exec('COMMIT')
  const error = await refusal(queue.add('send', {}, { id: 'after' }))
  expect(error.code).toBe('DATABASE_OVERWRITTEN')
  expect((await refusal(queue.add('send', {}, { id: 'later' }))).code).toBe('DATABASE_OVERWRITTEN')
  other.close()
})
