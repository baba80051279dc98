// Opening a database: which targets are accepted, what is created there, by which role, and which errors are reported.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { Client, Pool } from 'pg'
import postgresJs from 'postgres'
import type { Sql } from 'postgres'
import { describe, expect, onTestFinished, test } from 'vitest'
import { Queue } from 'millrace'
import type { Store } from 'millrace'
import { migrationSql, postgres } from 'millrace/postgres'
import type { PostgresOptions } from 'millrace/postgres'
import type { OpenerInput, OpenerMessage } from '../../faults/programs/postgres/open-store.js'
import { scene, start } from '../../faults/processes.js'
import { closing, newQueue, newWorker } from '../../setup.js'
import { refusal } from '../sqlite/folder.js'
import { newDatabase, newSchema, sharedServer } from './server/shared.js'
import { newRole, rows, run } from './server/clients.js'

scene()

const opened = (target: string | Pool | Sql, options?: PostgresOptions): Store => closing(postgres(target, options))

/** Adds a job in one store, and has it done by a worker on another that is woken for it. */
async function works(store: Store, other: Store = store): Promise<void> {
  const queue = newQueue({ store })
  const theirs = other === store ? queue : newQueue({ store: other })
  const worker = newWorker(theirs, { double: (job) => (job.data as number) * 2 }, { pollEvery: '10m', autorun: false })
  await worker.run()
  const job = await queue.add('double', 21)
  expect(await job.result()).toBe(42)
  await worker.close()
}

/** The URL of connections with settings of their own. */
const withSettings = (url: string, settings: string): string => {
  const target = new URL(url)
  target.searchParams.set('options', settings)
  return target.href
}

describe('what is no database', () => {
  test.each([
    ['nothing', undefined],
    ['null', null],
    ['a number', 5],
    ['an empty text', ''],
    ['a path', 'jobs.db'],
    ['another database', 'mysql://localhost/jobs'],
    ['an object', { query: () => {} }],
    ['a function', () => {}],
    ['one client, which cannot listen while it works', new Client()],
  ])('%s is refused at once', (_what, target) => {
    expect(() => postgres(target as string)).toThrow(
      expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining("a Pool of 'pg'") }),
    )
  })

  test.each([
    [{ shema: 'x' }, 'UNKNOWN_OPTION', "did you mean 'schema'?"],
    [{ ring: 0 }, 'INVALID_OPTION', 'ring must be a whole number'],
    [{ connections: 1.5 }, 'INVALID_OPTION', 'connections must be a whole number'],
    [{ patience: -1 }, 'INVALID_DURATION', 'patience'],
    [{ schema: '' }, 'INVALID_OPTION', 'schema must be'],
    [{ schema: '1st' }, 'INVALID_OPTION', 'schema must be'],
    [{ schema: 'a-b' }, 'INVALID_OPTION', 'schema must be'],
    [{ schema: 'a"b' }, 'INVALID_OPTION', 'schema must be'],
    [{ schema: 'a$$b' }, 'INVALID_OPTION', 'schema must be'], // would end the bodies of functions
    [{ schema: 'größe' }, 'INVALID_OPTION', 'schema must be'],
    [{ schema: 'a'.repeat(52) }, 'INVALID_OPTION', 'at most 51 long'],
    [{ schema: 7 }, 'INVALID_OPTION', 'schema must be'],
  ])('the options %j are refused at once', (options, code, expected) => {
    expect(() => postgres('postgres://localhost/jobs', options as PostgresOptions)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(expected) }),
    )
  })

  test('a database that is not there is missing, until it is there', async () => {
    const url = new URL(await sharedServer())
    url.pathname = `/${newSchema()}`
    const store = opened(url.href)
    const error = await refusal(store.open())
    expect(error).toMatchObject({ code: 'DATABASE_MISSING', message: expect.stringContaining('create the database') })
    await run(await sharedServer(), `create database ${url.pathname.slice(1)}`)
    await works(store)
  })

  test('a server that is not there is reported with its address', async () => {
    const store = opened('postgres://127.0.0.1:9/jobs')
    await expect(store.open()).rejects.toThrow('127.0.0.1:9')
  })

  test('a wrong password is reported', async () => {
    const role = await newRole(await newDatabase())
    const error = await refusal(opened(role.url.replace('secret', 'wrong')).open())
    expect(error).toMatchObject({ code: 'DATABASE_FORBIDDEN', message: expect.stringContaining('password') })
  })
})

describe('the driver', () => {
  test('that is not installed is asked for by name', () => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-no-driver-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const root = fileURLToPath(new URL('../../..', import.meta.url))
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }\n')
    mkdirSync(join(folder, 'node_modules'))
    symlinkSync(join(root, 'node_modules/croner'), join(folder, 'node_modules/croner')) // which is always there
    const compiler = join(root, 'node_modules/typescript/bin/tsc')
    const project = join(root, 'tsconfig.build.json')
    const built = spawnSync(process.execPath, [compiler, '-p', project, '--noCheck', '--outDir', folder])
    expect(String(built.stdout)).toBe('')
    const door = pathToFileURL(join(folder, 'postgres.js')).href
    const program = `const { postgres } = await import(${JSON.stringify(door)})
      await postgres('postgres://localhost/jobs').open().catch((error) => console.log(error.code, error.message))`
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', program], { cwd: folder })
    expect(String(stdout)).toContain("MISSING_DRIVER postgres(url) needs the package 'pg'. Install it: npm install pg")
  })

  test('may be a pool, which two stores share, and which stays open when they close', async () => {
    const pool = new Pool({ connectionString: await sharedServer(), max: 4 })
    onTestFinished(() => pool.end())
    const [one, two] = [opened(pool, { schema: newSchema() }), opened(pool, { schema: newSchema() })]
    await works(one)
    await works(two)
    await works(one)
    expect(await newQueue({ store: two }).counts()).toMatchObject({ completed: 1 })
    await one.close()
    await two.close()
    expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
    expect(pool.idleCount).toBe(pool.totalCount)
  })

  test('may be a client of postgres.js, which two stores share, and which stays open when they close', async () => {
    const sql = postgresJs(await sharedServer(), { max: 4, onnotice: () => {}, fetch_types: false })
    onTestFinished(() => sql.end())
    const [one, two] = [opened(sql, { schema: newSchema() }), opened(sql, { schema: newSchema() })]
    await works(one)
    await works(two)
    await works(one)
    expect(await newQueue({ store: two }).counts()).toMatchObject({ completed: 1 })
    await one.close()
    await two.close()
    expect([...(await sql`select 1 as one`)]).toEqual([{ one: 1 }])
  })

  test('of one store reach the other, and the other way round', async () => {
    const url = await sharedServer()
    const schema = newSchema()
    const sql = postgresJs(url, { max: 4, onnotice: () => {}, fetch_types: false })
    onTestFinished(() => sql.end())
    const [one, two] = [opened(url, { schema }), opened(sql, { schema })]
    await works(one, two)
    await works(two, one)
  })
})

describe('the schema', () => {
  test.each(['select', 'MixedCase', '_', 'a'.repeat(51)])('may be called %s', async (schema) => {
    const url = await newDatabase()
    await works(opened(url, { schema }), opened(url, { schema }))
    const queue = newQueue({ store: opened(url, { schema }) })
    const [added] = await rows<{ id: string }>(url, `select "${schema}".add_job('work', 'sql') as id`)
    expect(await queue.get(added!.id)).toMatchObject({ name: 'sql', state: 'waiting' })
    const [{ count }] = (await rows<{ count: string }>(
      url,
      `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where nspname not in ('pg_catalog', 'pg_toast', 'information_schema', $1)`,
      [schema],
    )) as [{ count: string }]
    expect(count).toBe('0')
  })

  test('is made once, by the first of ten processes that start on an empty database', async () => {
    const url = await newDatabase()
    const schema = 'Ten'
    const programs = Array.from({ length: 10 }, () =>
      start<OpenerMessage>('postgres/open-store', { url, schema } satisfies OpenerInput),
    )
    await Promise.all(programs.map((program) => program.received('ready')))
    for (const program of programs) program.send({ kind: 'go' })
    const answers = await Promise.all(
      programs.map(
        (program) =>
          new Promise<OpenerMessage>((resolve) => program.onEach((each) => each.kind !== 'ready' && resolve(each))),
      ),
    )
    expect(answers.filter(({ kind }) => kind !== 'added')).toEqual([])
    const ends = await Promise.all(programs.map((program) => program.finish()))
    expect(ends.map(({ code }) => code)).toEqual(programs.map(() => 0))
    expect(await rows(url, 'select version, oldest from "Ten".meta')).toHaveLength(1)
    expect(await newQueue({ store: opened(url, { schema }) }).counts()).toMatchObject({ waiting: 10 })
  })

  test('is made once by ten stores of one process', async () => {
    const url = await newDatabase()
    const stores = Array.from({ length: 10 }, () => opened(url, { connections: 2 }))
    await Promise.all(stores.map((store) => store.open()))
    expect(await rows(url, 'select version from millrace.meta')).toHaveLength(1)
  })

  test('may be there already, empty, for a role that can make no other', async () => {
    const url = await newDatabase()
    const role = await newRole(url)
    await run(url, `create schema jobs authorization ${role.name}`)
    await works(opened(role.url, { schema: 'jobs' }))
  })

  test('that a role may not create is reported, and nothing is left behind', async () => {
    const url = await newDatabase()
    const role = await newRole(url)
    const error = await refusal(opened(role.url).open())
    expect(error).toMatchObject({ code: 'DATABASE_FORBIDDEN', message: expect.stringContaining('permission denied') })
    expect(await rows(url, `select 1 from pg_namespace where nspname = 'millrace'`)).toEqual([])
  })

  test('that a role may not use is reported', async () => {
    const url = await newDatabase()
    await opened(url).open()
    const role = await newRole(url)
    for (const migrate of [true, false]) {
      const error = await refusal(opened(role.url, { migrate }).open())
      expect(error).toMatchObject({ code: 'DATABASE_FORBIDDEN', message: expect.stringContaining("schema 'millrace'") })
    }
  })

  test('of a database that takes no writes cannot be made, but is read where it is', async () => {
    const url = await newDatabase()
    const readOnly = withSettings(url, '-c default_transaction_read_only=on')
    const error = await refusal(opened(readOnly).open())
    expect(error).toMatchObject({ code: 'DATABASE_NOT_WRITABLE', message: expect.stringContaining('read-only') })

    const queue = newQueue({ store: opened(url) })
    const { id } = await queue.add('chore')
    const reader = newQueue({ store: opened(readOnly) })
    expect(await reader.get(id)).toMatchObject({ state: 'waiting' })
    expect(await refusal(reader.add('chore'))).toMatchObject({ code: 'DATABASE_NOT_WRITABLE' })
    expect(await queue.counts()).toMatchObject({ waiting: 1 })
  })

  test('that is newer is used as long as it serves this version, and then no more', async () => {
    const url = await newDatabase()
    await opened(url).open()
    await run(url, 'update millrace.meta set version = version + 1')
    await works(opened(url))
    await run(url, 'update millrace.meta set oldest = version')
    for (const migrate of [true, false]) {
      const error = await refusal(opened(url, { migrate }).open())
      expect(error).toMatchObject({
        code: 'SCHEMA_TOO_NEW',
        message: expect.stringContaining("Update the package 'millrace'"),
      })
    }
  })

  test('is reported at once where a user’s connections begin transactions at another isolation level', async () => {
    const url = withSettings(await newDatabase(), '-c default_transaction_isolation=serializable')
    const pool = new Pool({ connectionString: url })
    const sql = postgresJs(url, { onnotice: () => {}, fetch_types: false })
    onTestFinished(async () => void (await Promise.all([pool.end(), sql.end()])))
    for (const target of [pool, sql]) {
      expect(await refusal(opened(target).open())).toMatchObject({
        code: 'INVALID_OPTION',
        message: expect.stringMatching(/'serializable'.* needs read committed\. Set default_transaction_isolation/),
      })
    }
  })

  test('is worked on at the level that is needed where the store opens the connections', async () => {
    const url = await newDatabase()
    const { pathname } = new URL(url)
    await run(url, `alter database ${pathname.slice(1)} set default_transaction_isolation = 'repeatable read'`)
    await works(opened(url))
    await works(opened(withSettings(url, '-c default_transaction_isolation=serializable -c lock_timeout=5s')))
  })

  test('is reported where the level is changed under a user’s pool', async () => {
    const url = await newDatabase()
    const pool = new Pool({ connectionString: url, max: 2 })
    onTestFinished(() => pool.end())
    const store = opened(pool)
    await store.open()
    const clients = await Promise.all([pool.connect(), pool.connect()])
    for (const client of clients) await client.query('set default_transaction_isolation = serializable')
    for (const client of clients) client.release()
    const batch = { writer: 'w', seq: 1, groups: [], renewals: [], asks: [] }
    expect(await refusal(store.commit(batch))).toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining("'serializable', and Millrace needs read committed"),
    })
  })
})

describe('without migrations', () => {
  /** What a role needs that only works here. */
  const grants = (schema: string, role: string): string => `
    grant usage on schema ${schema} to ${role};
    grant select, insert, update, delete on all tables in schema ${schema} to ${role};
    grant usage, select on all sequences in schema ${schema} to ${role};
  `

  test('a schema that is not there is asked for, with what makes it', async () => {
    const error = await refusal(opened(await newDatabase(), { schema: 'jobs', migrate: false }).open())
    expect(error).toMatchObject({
      code: 'SCHEMA_MISSING',
      message: expect.stringContaining("migrationSql({ schema: 'jobs' })"),
    })
  })

  test('a role that may make nothing works on what migrationSql() made, from SQL as well', async () => {
    const url = await newDatabase()
    await run(url, `begin; ${migrationSql({ schema: 'jobs' })}; commit`)
    const role = await newRole(url)
    await run(url, grants('jobs', role.name))
    const options = { schema: 'jobs', migrate: false }
    await works(opened(role.url, options), opened(role.url, options))
    const [added] = await rows<{ id: string }>(role.url, `select jobs.add_job('work', 'sql') as id`)
    const store = opened(role.url, options)
    const queue = newQueue({ store })
    expect(await queue.get(added!.id)).toMatchObject({ state: 'waiting' })
    await queue.pause()
    expect(await queue.remove(added!.id)).toBe(true)
    await queue.transaction(() => queue.add('chore'))
    expect(await queue.counts()).toMatchObject({ completed: 1, waiting: 1 })

    await expect(run(role.url, 'create table jobs.own (n int)')).rejects.toThrow('permission denied')
    await expect(run(role.url, 'create schema other')).rejects.toThrow('permission denied')
  })

  test('it is the same as what opening makes', async () => {
    const [made, byHand] = [await newDatabase(), await newDatabase()]
    await opened(made).open()
    await run(byHand, migrationSql())
    const shape = `select string_agg(x, chr(10) order by x) as x from (
      select table_name || '.' || column_name || ' ' || data_type || coalesce(' ' || column_default, '') as x
        from information_schema.columns where table_schema = 'millrace'
      union all select indexdef from pg_indexes where schemaname = 'millrace'
      union all select pg_get_functiondef(p.oid) from pg_proc p where pronamespace = 'millrace'::regnamespace) y`
    expect(await rows(byHand, shape)).toEqual(await rows(made, shape))
  })
})

test('what is closed is refused, and closing again is nothing', async () => {
  const store = postgres(await sharedServer(), { schema: newSchema() })
  const queue = new Queue('work', { store, logger: false })
  await queue.add('chore')
  await store.close()
  await store.close()
  expect(await refusal(store.open())).toMatchObject({ code: 'STORE_CLOSED' })
  expect(await refusal(queue.add('chore'))).toMatchObject({ code: 'STORE_CLOSED' })
  const never = postgres('postgres://127.0.0.1:9/jobs')
  await never.close()
  expect(await refusal(never.open())).toMatchObject({ code: 'STORE_CLOSED' })
})
