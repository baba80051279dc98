// Transactions of better-sqlite3 itself, and of Drizzle and Kysely over it: jobs commit or roll back with them. None of
// these is part of the project: scripts/test-system.mjs installs them aside and passes their path in MILLRACE_BETTER_SQLITE3.
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Queue, Worker, isMillraceError, shutdown } from '../../../src/index.js'
import type { AnyJobs, Store } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import type { DrizzleSqliteTransaction, KyselyTransaction, SqliteHandle, SqliteTx } from '../../../src/sqlite.js'

const folder = process.env['MILLRACE_BETTER_SQLITE3']
if (folder === undefined) throw new Error('MILLRACE_BETTER_SQLITE3 does not say where better-sqlite3 is installed.')
const load = createRequire(join(folder, 'package.json'))

interface BetterSqlite extends SqliteHandle {
  prepare(sql: string): {
    run(...values: unknown[]): unknown
    get(...values: unknown[]): unknown
    all(...values: unknown[]): unknown[]
  }
  transaction<T>(work: () => T): (() => T) & { immediate: () => T }
}

const Database = load('better-sqlite3') as new (path: string) => BetterSqlite

/** What these tests use of Drizzle. */
interface Drizzle {
  transaction<T>(work: (tx: DrizzleTransaction) => T, options?: { behavior: 'immediate' }): T
}
interface DrizzleTransaction extends DrizzleSqliteTransaction {
  run(query: unknown): unknown
  transaction<T>(work: (tx: DrizzleTransaction) => T): T
}

const { drizzle } = load('drizzle-orm/better-sqlite3') as { drizzle: (client: { client: BetterSqlite }) => Drizzle }
const { sql } = load('drizzle-orm') as { sql: (text: TemplateStringsArray, ...values: unknown[]) => unknown }

/** What these tests use of Kysely. */
interface Kysely {
  transaction(): { execute<T>(work: (trx: KyselyTrx) => Promise<T>): Promise<T> }
  startTransaction(): { execute(): Promise<KyselyTrx & { commit(): { execute(): Promise<unknown> } }> }
}
interface KyselyTrx extends KyselyTransaction {
  insertInto(table: string): { values(row: object): { execute(): Promise<unknown> } }
}

const kysely = load('kysely') as {
  Kysely: new (options: object) => Kysely
  SqliteDialect: new (options: { database: BetterSqlite }) => object
}

let place: string
let db: BetterSqlite
let store: Store<BetterSqlite, SqliteTx>
let queue: Queue<AnyJobs, Store<BetterSqlite, SqliteTx>>

beforeEach(async () => {
  place = mkdtempSync(join(tmpdir(), 'millrace-handle-'))
  db = new Database(join(place, 'app.db'))
  db.exec('CREATE TABLE users (name TEXT)')
  store = sqlite(db)
  await store.open()
  queue = new Queue('mails', { store, logger: false })
})

afterEach(async () => {
  await shutdown([queue, store])
  db.close()
  rmSync(place, { recursive: true, force: true })
})

const users = (): unknown => db.prepare('SELECT count(*) AS n FROM users').get()
const ids = async (): Promise<string[]> => (await queue.list()).jobs.map(({ id }) => id).toSorted()

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error: unknown = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  return isMillraceError(error) ? error.code : String(error)
}

const no = new Error('no')

describe('better-sqlite3', () => {
  test('db.transaction takes jobs with it, and gives them back', async () => {
    const sign = (id: string, fails: boolean) =>
      db.transaction(() => {
        db.prepare('INSERT INTO users VALUES (?)').run(id)
        void queue.add('welcome', { id }, { id, tx: db }) // it lets no promise be returned
        if (fails) throw no
      })
    sign('ann', false).immediate()
    sign('bob', false)()
    expect(sign('eve', true)).toThrow(no)
    expect(await ids()).toEqual(['ann', 'bob'])
    expect(users()).toEqual({ n: 2 })
    db.transaction(() => void queue.cancel('ann', { tx: db }))()
    expect((await queue.get('ann'))?.state).toBe('cancelled')
  })

  test('a nested db.transaction takes its own jobs back alone', async () => {
    db.transaction(() => {
      void queue.add('welcome', {}, { id: 'outer', tx: db })
      const inner = db.transaction(() => {
        void queue.add('welcome', {}, { id: 'inner', tx: db })
        throw no
      })
      expect(inner).toThrow(no)
    })()
    expect(await ids()).toEqual(['outer'])
  })

  test('queue.transaction gives a handle of the same class, and workers run what it committed', async () => {
    const worker = new Worker(queue, { welcome: async () => 'sent' }, { pollEvery: '10m' })
    const added = await queue.transaction(async (tx) => {
      expect(tx).toBeInstanceOf(Database)
      tx.prepare('INSERT INTO users VALUES (?)').run('ann')
      return queue.add('welcome', {}, { id: 'ann' })
    })
    expect(await added.result({ timeout: '30s' })).toBe('sent')
    expect(users()).toEqual({ n: 1 })
    await shutdown([worker])
  })
})

describe('beside a store that was opened by its path, with node:sqlite', () => {
  test.each(['a handle', 'Drizzle', 'Kysely'])('%s is refused, and no add of this process is lost', async (kind) => {
    const path = join(place, 'beside.db')
    const beside = sqlite(path, { driver: 'node:sqlite' })
    await beside.open()
    const own = new Queue('mails', { store: beside, logger: false })
    const other = new Database(path)
    const add = (tx: SqliteTx): Promise<unknown> => own.add('welcome', {}, { id: 'inside', tx })
    const adding: Readonly<Record<string, () => Promise<unknown>>> = {
      'a handle': () => other.transaction(() => ({ adding: add(other) })).immediate().adding,
      Drizzle: () =>
        drizzle({ client: other }).transaction((tx) => ({ adding: add(tx) }), { behavior: 'immediate' }).adding,
      Kysely: () =>
        new kysely.Kysely({ dialect: new kysely.SqliteDialect({ database: other }) }).transaction().execute(add),
    }
    expect(await codeOf(adding[kind]!())).toBe('SECOND_SQLITE')
    expect(await codeOf(sqlite(other).open())).toBe('SECOND_SQLITE')
    await Promise.all(['a', 'b', 'c'].map((id) => own.add('welcome', {}, { id })))
    expect((await own.list()).jobs.map(({ id }) => id)).toEqual(['a', 'b', 'c'])
    await shutdown([own, beside])
    other.close()
  })
})

describe('Drizzle', () => {
  test('its transactions take jobs with them, and give them back', async () => {
    const orm = drizzle({ client: db })
    orm.transaction((tx) => {
      tx.run(sql`INSERT INTO users VALUES (${'ann'})`)
      void queue.add('welcome', {}, { id: 'ann', tx })
    })
    expect(() =>
      orm.transaction(
        (tx) => {
          tx.run(sql`INSERT INTO users VALUES (${'eve'})`)
          void queue.add('welcome', {}, { id: 'eve', tx })
          throw no
        },
        { behavior: 'immediate' },
      ),
    ).toThrow(no)
    orm.transaction((tx) => {
      void queue.add('welcome', {}, { id: 'outer', tx })
      const inner = (): void =>
        tx.transaction((nested) => {
          void queue.add('welcome', {}, { id: 'inner', tx: nested })
          throw no
        })
      expect(inner).toThrow(no)
    })
    expect(await ids()).toEqual(['ann', 'outer'])
    expect(users()).toEqual({ n: 1 })
  })

  test('one that has ended is refused', async () => {
    let kept: DrizzleTransaction | undefined
    drizzle({ client: db }).transaction((tx) => void (kept = tx))
    expect(await codeOf(queue.add('welcome', {}, { tx: kept! }))).toBe('TRANSACTION_ENDED')
  })

  test('one on another file is refused', async () => {
    const other = new Database(join(place, 'other.db'))
    const { adding } = drizzle({ client: other }).transaction((tx) => ({ adding: queue.add('welcome', {}, { tx }) }))
    expect(await codeOf(adding)).toBe('OTHER_DATABASE')
    other.close()
  })
})

describe('Kysely', () => {
  const open = (database: BetterSqlite): Kysely =>
    new kysely.Kysely({ dialect: new kysely.SqliteDialect({ database }) })

  test('its transactions take jobs with them, and give them back', async () => {
    const orm = open(db)
    await orm.transaction().execute(async (trx) => {
      await trx.insertInto('users').values({ name: 'ann' }).execute()
      await Promise.all([
        queue.add('welcome', {}, { id: 'ann', tx: trx }),
        queue.add('welcome', {}, { id: 'ann', tx: trx }),
        queue.addBulk([{ name: 'welcome', options: { id: 'bulk' } }], { tx: trx }),
      ])
      expect(await queue.cancel('bulk', { tx: trx })).toBe(true)
      expect(await queue.get('ann', { tx: trx })).toBeDefined()
      expect(await queue.get('ann')).toBeUndefined()
    })
    const doomed = orm.transaction().execute(async (trx) => {
      await trx.insertInto('users').values({ name: 'eve' }).execute()
      await queue.add('welcome', {}, { id: 'eve', tx: trx })
      throw no
    })
    await expect(doomed).rejects.toBe(no)
    expect(await ids()).toEqual(['ann', 'bulk'])
    expect(users()).toEqual({ n: 1 })
  })

  test('one that has ended, or is none, is refused', async () => {
    const orm = open(db)
    const trx = await orm.startTransaction().execute()
    await queue.add('welcome', {}, { id: 'ann', tx: trx })
    await trx.commit().execute()
    expect(await codeOf(queue.add('welcome', {}, { tx: trx }))).toBe('TRANSACTION_ENDED')
    expect(await codeOf(queue.add('welcome', {}, { tx: orm as never }))).toBe('TRANSACTION_ENDED')
    expect(await ids()).toEqual(['ann'])
  })

  test('one on another file is refused', async () => {
    const other = new Database(join(place, 'other.db'))
    const adding = open(other)
      .transaction()
      .execute((trx) => queue.add('welcome', {}, { tx: trx }))
    expect(await codeOf(adding)).toBe('OTHER_DATABASE')
    other.close()
  })
})
