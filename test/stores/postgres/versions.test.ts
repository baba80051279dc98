// The version before this one, kept as the package it was, and this one work side by side on the schema of this one.
import { execFileSync, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, test } from 'vitest'
import { Queue, Worker } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { VERSION } from '../../../src/stores/postgres/schema.js'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'
import { rows as query, run } from './server/clients.js'

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..')
const JOBS = 300

/** A program of the older version: it adds jobs, and when told so works and adds more. */
const program = `
import { createInterface } from 'node:readline'
import { Queue, Worker } from 'millrace'
import { postgres } from 'millrace/postgres'

const [url, schema, jobs] = process.argv.slice(2)
const store = postgres(url, { schema })
const queue = new Queue('shared', { store })
const add = (from) => queue.addBulk(Array.from({ length: Number(jobs) }, (_, at) => ({ name: 'chore', data: from + at })))
await add(0)
console.log('added')
createInterface({ input: process.stdin }).once('line', async () => {
  const worker = new Worker(queue, { chore: async () => 'old' }, { concurrency: 5 })
  worker.on('error', ({ error }) => console.log('error ' + error.message))
  let worked = 0
  worker.on('completed', () => worked++ === 0 && console.log('worked'))
  for (let at = 0; at < 20; at++) await queue.add('chore', at)
  await add(1000)
  console.log('fed')
  createInterface({ input: process.stdin }).once('line', async () => {
    await worker.close()
    await queue.close()
    await store.close()
    process.exit(0)
  })
})
`

const folders: string[] = []
const processes: ChildProcess[] = []

afterEach(() => {
  for (const process of processes.splice(0)) process.kill('SIGKILL')
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true })
})

/** A folder in which the older package is installed. */
function installed(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-older-'))
  folders.push(folder)
  const modules = join(folder, 'node_modules')
  mkdirSync(join(modules, 'millrace'), { recursive: true })
  const archive = join(root, 'test/fixtures/millrace-0.1.0.tgz')
  execFileSync('tar', ['-xzf', archive, '-C', join(modules, 'millrace'), '--strip-components=1'])
  symlinkSync(join(root, 'node_modules/pg'), join(modules, 'pg'))
  symlinkSync(join(root, 'node_modules/@standard-schema'), join(modules, '@standard-schema'))
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  writeFileSync(join(folder, 'program.js'), program)
  return folder
}

/** A program of the older version that has made its schema and runs on it, and what it says. */
async function startOlder(): Promise<{
  readonly url: string
  readonly schema: string
  tell(word: string): void
  heard(line: string): Promise<void>
  readonly said: readonly string[]
  readonly ended: Promise<number | null>
}> {
  const [url, schema] = [await sharedServer(), newSchema()]
  const older = spawn(process.execPath, ['program.js', url, schema, String(JOBS)], {
    cwd: installed(),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  processes.push(older)
  const said: string[] = []
  const waiting = new Map<string, () => void>()
  createInterface({ input: older.stdout }).on('line', (line) => {
    said.push(line)
    waiting.get(line)?.()
  })
  const heard = (line: string): Promise<void> =>
    said.includes(line) ? Promise.resolve() : new Promise((go) => waiting.set(line, go))
  const ended = new Promise<number | null>((resolve) => older.once('exit', resolve))
  await heard('added')
  return { url, schema, tell: (word) => void older.stdin.write(`${word}\n`), heard, said, ended }
}

test(
  'a schema is led on by five processes while the older version works on it, and keeps what others have made of it',
  { timeout: 120_000 },
  async () => {
    const { url, schema, tell, heard, said, ended } = await startOlder()
    await run(url, `create view ${schema}.mine as select id, state from ${schema}.job`)
    await run(url, `grant select on ${schema}.job, ${schema}.jobs to pg_monitor`)
    await run(url, `grant select, insert, update on ${schema}.writer to pg_monitor`)
    tell('go')
    await heard('worked')
    const stores = Array.from({ length: 5 }, () => closing(postgres(url, { schema })))
    await Promise.all(stores.map((store) => store.open()))
    await heard('fed')
    tell('end')
    expect(await ended).toBe(0)
    expect(said.filter((line) => line.startsWith('error'))).toEqual([])

    const queue = closing(new Queue('shared', { store: stores[0]! }))
    const total = 2 * JOBS + 20
    const left = total - (await queue.counts()).completed
    const worker = new Worker(queue, { chore: async () => 'new' }, { concurrency: 5, autorun: false })
    closing(worker)
    const all = new Promise<void>((resolve) => {
      let completed = 0
      if (left === 0) resolve()
      worker.on('completed', () => ++completed === left && resolve())
    })
    await worker.run()
    await all
    expect(await queue.counts()).toMatchObject({ waiting: 0, active: 0, completed: total })
    const [seen] = await query<{ n: number; job: boolean; jobs: boolean; rate: boolean }>(
      url,
      `select (select count(*)::int from ${schema}.mine where state = 'completed') as n,
              has_table_privilege('pg_monitor', '${schema}.job', 'select') as job,
              has_table_privilege('pg_monitor', '${schema}.jobs', 'select') as jobs,
              has_table_privilege('pg_monitor', '${schema}.rate', 'update') as rate`, // is new, and written by whoever writes
    )
    expect(seen).toEqual({ n: total, job: true, jobs: true, rate: true })
  },
)

test(
  'an older and a newer version share a schema that the newer one has led on, under load',
  { timeout: 120_000 },
  async () => {
    const { url, schema, tell, heard, said, ended } = await startOlder()
    const version = async (): Promise<number> =>
      (await query<{ version: number }>(url, `select version from ${schema}.meta`))[0]!.version
    expect(await version()).toBe(1)

    const store = closing(postgres(url, { schema }))
    await store.open()
    expect(await version()).toBe(VERSION)
    const fresh = newSchema()
    await closing(postgres(url, { schema: fresh })).open()
    expect(await shapeOf(url, schema)).toEqual(await shapeOf(url, fresh))
    const queue = closing(new Queue('shared', { store }))
    const total = 3 * JOBS + 20
    const all = new Promise<void>((resolve) => {
      let completed = 0
      queue.on('completed', () => {
        if (++completed === total) resolve()
      })
    })
    await queue.counts() // from here on all know that somebody watches: no end is missed
    tell('go')
    await heard('worked')
    const worker = closing(new Worker(queue, { chore: async () => 'new' }, { concurrency: 5 }))
    const group = (at: number): object => (at % 2 === 0 ? { options: { group: `group ${at % 7}` } } : {})
    await queue.addBulk(Array.from({ length: JOBS }, (_, at) => ({ name: 'chore', data: at, ...group(at) })))
    await heard('fed')
    await all
    await worker.close()
    tell('end')
    expect(await ended).toBe(0)

    expect(said.filter((line) => line.startsWith('error'))).toEqual([])
    const [tally] = await store.tally(['shared'])
    expect(tally).toMatchObject({
      names: { chore: { completed: total } },
      lifetime: { added: total, completed: total },
    })
    const rows = await query<{ attempt: number; result: string; n: number }>(
      url,
      `select attempt, result, count(*)::int as n from ${schema}.job group by 1, 2 order by 2`,
    )
    expect(rows.map(({ attempt }) => attempt)).toEqual(rows.map(() => 1))
    expect(rows.map(({ result }) => result)).toContain('"old"')
    expect(rows.reduce((sum, { n }) => sum + n, 0)).toBe(total)
  },
)

/** Columns, indexes and functions of a schema, without its name. */
async function shapeOf(url: string, schema: string): Promise<readonly string[]> {
  const found = await query<{ what: string }>(
    url,
    `select format('%s.%s %s %s', table_name, column_name, data_type, is_nullable) as what from information_schema.columns
       where table_schema = $1
     union all select indexdef from pg_indexes where schemaname = $1
     union all select pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1
     union all select format('%s %s', c.relname, c.reloptions) from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where n.nspname = $1 and c.relkind = 'r'`,
    [schema],
  )
  return found.map(({ what }) => what.replaceAll(schema, 'S')).toSorted()
}
