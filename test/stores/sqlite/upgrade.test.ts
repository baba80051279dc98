// Files of the version before: opened by this one with all that is in them, also while the older one is still at work.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { Queue, Worker } from '../../../src/index.js'
import type { Job } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { systemRuntime } from '../../../src/store/runtime.js'
import { loadDriver } from '../../../src/stores/sqlite/driver.js'
import { openDatabase } from '../../../src/stores/sqlite/open.js'
import { schema, steps, VERSION } from '../../../src/stores/sqlite/schema.js'
import { closing } from '../../setup.js'
import { freshFolder } from './folder.js'

const path = freshFolder()
const root = fileURLToPath(new URL('../../..', import.meta.url))

/** The older package, as far as it is used here; its doors are the same. */
interface Older {
  readonly millrace: { readonly Queue: typeof Queue }
  readonly sqlite: { readonly sqlite: typeof sqlite }
  readonly schema: string
}

const installed = mkdtempSync(join(tmpdir(), 'millrace-older-'))
afterAll(() => rmSync(installed, { recursive: true, force: true }))

/** Installs the package of version 0.1.0, and imports it. */
async function older(): Promise<Older> {
  const folder = join(installed, 'node_modules/millrace')
  if (!existsSync(folder)) {
    mkdirSync(folder, { recursive: true })
    execFileSync('tar', ['-xzf', join(root, 'test/fixtures/millrace-0.1.0.tgz'), '-C', folder, '--strip-components=1'])
    for (const name of ['@photostructure', '@standard-schema']) {
      symlinkSync(join(root, 'node_modules', name), join(installed, 'node_modules', name))
    }
  }
  const door = async (name: string): Promise<unknown> =>
    import(/* @vite-ignore */ pathToFileURL(join(folder, 'dist', name)).href)
  return {
    millrace: (await door('index.js')) as Older['millrace'],
    sqlite: (await door('sqlite.js')) as Older['sqlite'],
    schema: ((await door('stores/sqlite/schema.js')) as { schema: string }).schema,
  }
}

test('a file of 0.1.0 keeps its jobs, which are worked off beside new ones with groups, while 0.1.0 still adds some', async () => {
  const before = await older()
  const oldStore = closing(before.sqlite.sqlite(path('jobs.db'), { synchronous: 'off' }))
  const oldQueue = closing(new before.millrace.Queue('work', { store: oldStore, logger: false }))
  await oldQueue.addBulk(Array.from({ length: 20 }, (_, n) => ({ name: `name ${n % 2}`, data: { n } })))
  const delayed = await oldQueue.add('late', { n: 20 }, { delay: '1h', priority: 4 })
  const gate = await oldQueue.add('gate', 'x'.repeat(1_000), { priority: -1 })
  await oldQueue.add('gated', null, { after: gate })

  const store = closing(sqlite(path('jobs.db'), { synchronous: 'off' }))
  const queue = closing(new Queue('work', { store, logger: false }))
  expect(await queue.counts()).toMatchObject({ waiting: 21, delayed: 1, 'waiting-children': 1 })
  expect(await queue.get(delayed.id)).toMatchObject({ name: 'late', priority: 4, data: { n: 20 } })
  await queue.addBulk(
    Array.from({ length: 6 }, (_, n) => ({
      name: 'name 0',
      data: { group: `g${n % 2}` },
      options: { group: `g${n % 2}` },
    })),
  )
  await oldQueue.add('name 0', { n: 21 })
  await oldQueue.add('name 1', { n: 22 })

  const ran: string[] = []
  let worker: Worker | undefined
  await new Promise<void>((resolve) => {
    const run = async (job: Job): Promise<void> => {
      ran.push((job.data as { group?: string } | undefined)?.group ?? job.name)
      if (ran.length === 20 + 2 + 6 + 2) resolve()
    }
    worker = closing(new Worker(queue, run, { logger: false }))
  })
  await worker?.close()
  expect(ran[0]).toBe('gate')
  expect(ran.filter((each) => /^g\d$/.test(each))).toEqual(['g0', 'g1', 'g0', 'g1', 'g0', 'g1'])
  expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 1, completed: 30 })
})

test('a file that is led on has the schema of one that is new', async () => {
  const { schema: first } = await older()
  const Driver = await loadDriver()
  const old = new Driver(path('old.db'))
  old.exec(`BEGIN; ${first}`)
  old.exec(
    'CREATE TABLE millrace_schema (version INTEGER NOT NULL) STRICT; INSERT INTO millrace_schema VALUES (1); COMMIT',
  )
  old.close()
  const shape = async (name: string): Promise<unknown> => {
    const db = await openDatabase(path(name), { schema: { sql: schema, steps, version: VERSION } }, systemRuntime())
    const things = db.prepare(`SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name`).all()
    const columns = things
      .filter(([type]) => type === 'table' || type === 'view')
      .map(([, table]) => [
        table,
        db.prepare('SELECT name, type, "notnull" AS needed, dflt_value, pk FROM pragma_table_info(?)').all(table!),
      ])
    const indexes = db
      .prepare(`SELECT name, sql FROM sqlite_master WHERE type IN ('index', 'view') ORDER BY name`)
      .all()
    const version = db.prepare('SELECT version FROM millrace_schema').all()
    db.close()
    return { things, columns, indexes, version }
  }
  expect(await shape('old.db')).toEqual(await shape('new.db'))
})
