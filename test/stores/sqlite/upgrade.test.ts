// Two versions of Millrace on one file: the older package and this one, and this one and a later schema.
import { expect, test } from 'vitest'
import { Queue, Worker } from '../../../src/index.js'
import type { Job } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { systemRuntime } from '../../../src/store/runtime.js'
import { connect, loadDriver } from '../../../src/stores/sqlite/file/driver.js'
import type { Schema } from '../../../src/stores/sqlite/file/migrate.js'
import { openDatabase } from '../../../src/stores/sqlite/file/open.js'
import { schema } from '../../../src/stores/sqlite/schema.js'
import { importOlder } from '../../older.js'
import { closing } from '../../setup.js'
import { freshFolder, refusal } from './folder.js'

const older = await importOlder()
const path = freshFolder()

type Made = Pick<typeof older, 'Queue' | 'sqlite'>

/** A queue on a file, of this version or of another. */
function queueOn({ Queue: Of, sqlite: open }: Made = { Queue, sqlite }, file = 'jobs.db'): Queue {
  const store = closing(open(path(file), { synchronous: 'off' }))
  return closing(new Of('work', { store, logger: false }))
}

/** Runs jobs with a worker until this many have run; resolves to their names, or to the groups of those that have one. */
async function work(queue: Queue, count: number, Of = Worker): Promise<string[]> {
  const ran: string[] = []
  let worker: Worker | undefined
  await new Promise<void>((resolve) => {
    const run = async (job: Job): Promise<void> => {
      ran.push(job.group ?? job.name)
      if (ran.length === count) resolve()
    }
    worker = closing(new Of(queue, run, { logger: false }))
  })
  await worker?.close()
  return ran
}

/** A schema of a later version, which has more columns and tables than this one. */
const later = (oldest: number): Schema => ({
  sql: '',
  version: schema.version + 1,
  oldest,
  steps: [
    ...schema.steps,
    {
      from: schema.version,
      sql: `ALTER TABLE millrace_job ADD COLUMN later TEXT NOT NULL DEFAULT 'none';
            CREATE TABLE millrace_later (job INTEGER NOT NULL REFERENCES millrace_job (seq)) STRICT;
            CREATE INDEX millrace_job_later ON millrace_job (later);`,
    },
  ],
})

/** Migrates the file as a later version of Millrace would. */
async function migrateTo(next: Schema): Promise<void> {
  ;(await openDatabase(path('jobs.db'), { schema: next }, systemRuntime())).close()
}

/** What the file holds of jobs and commits. */
async function contents(): Promise<unknown> {
  const db = connect(await loadDriver(), path('jobs.db'))
  const rows = [
    db.prepare('SELECT id, state, fence FROM millrace_job ORDER BY seq').all(),
    db.prepare('SELECT * FROM millrace_counter ORDER BY kind, of, what').all(),
  ]
  db.close()
  return rows
}

test('a file of the older version keeps its jobs, and both versions add and run jobs on it', async () => {
  const oldQueue = queueOn(older)
  await oldQueue.addBulk(Array.from({ length: 20 }, (_, n) => ({ name: `name ${n % 2}`, data: { n } })))
  const delayed = await oldQueue.add('late', { n: 20 }, { delay: '1h', priority: 4 })
  const gate = await oldQueue.add('gate', 'x'.repeat(1_000), { priority: -1 })
  await oldQueue.add('gated', null, { after: gate })
  await oldQueue.add('unwanted')
  await oldQueue.cancel({ name: 'unwanted' })

  const queue = queueOn()
  expect(await queue.counts()).toMatchObject({ waiting: 21, delayed: 1, 'waiting-children': 1, cancelled: 1 })
  expect(await queue.get(delayed.id)).toMatchObject({ name: 'late', priority: 4, data: { n: 20 } })
  const grouped = Array.from({ length: 6 }, (_, n) => ({ name: 'name 0', options: { group: `g${n % 2}` } }))
  await queue.addBulk(grouped)
  await oldQueue.add('name 0', { n: 21 })
  await oldQueue.add('name 1', { n: 22 })

  const ran = await work(queue, 20 + 2 + 6 + 2)
  expect(ran[0]).toBe('gate')
  expect(ran.filter((each) => /^g\d$/.test(each))).toEqual(['g0', 'g1', 'g0', 'g1', 'g0', 'g1'])
  await queue.addBulk(grouped)
  expect(await work(oldQueue, 6, older.Worker)).toEqual(['g0', 'g1', 'g0', 'g1', 'g0', 'g1'])
  for (const each of [queue, oldQueue]) {
    expect(await each.counts()).toMatchObject({ waiting: 0, delayed: 1, completed: 36 })
  }
})

test('a file that was migrated has the same tables as a new one', async () => {
  const shapeOf = async (file: string): Promise<unknown> => {
    await queueOn(undefined, file).counts()
    const db = connect(await loadDriver(), path(file))
    const things = db.prepare('SELECT type, name FROM sqlite_master ORDER BY type, name').all()
    const columnsOf = db.prepare(
      'SELECT name, type, "notnull" AS needed, dflt_value, pk FROM pragma_table_info(?) ORDER BY name',
    )
    const columns = things.map(([, name]) => [name, columnsOf.all(name!)])
    const others = db.prepare(`SELECT sql FROM sqlite_master WHERE type IN ('index', 'view') ORDER BY name`).all()
    const versions = db.prepare('SELECT version, oldest FROM millrace_schema').all()
    db.close()
    return { things, columns, others, versions }
  }
  await queueOn(older, 'migrated.db').counts()
  expect(await shapeOf('migrated.db')).toEqual(await shapeOf('new.db'))
})

test('a file that a later version has migrated is opened and used, where that version supports this one', async () => {
  const queue = queueOn()
  await queue.add('before')
  await migrateTo(later(schema.version))
  await queue.add('after')
  await queueOn().add('opened')
  expect(await work(queue, 3)).toEqual(['before', 'after', 'opened'])
  await migrateTo(later(schema.version)) // would fail if the file had been migrated back
})

test.each([
  ['this version', { Queue, sqlite }],
  ['the older version', older],
])('%s is refused before it writes where a later version does not support it', async (_, made) => {
  const queue = queueOn(made)
  const job = await queue.add('before')
  await migrateTo(later(schema.version + 1))
  const before = await contents()
  const writes = [
    () => queue.add('after'),
    () => queue.cancel(job.id),
    () => queue.transaction(() => queue.add('in a transaction')),
    () => queueOn(made).add('opened'),
  ]
  for (const write of writes) {
    expect(await refusal(write())).toMatchObject({
      code: 'SCHEMA_TOO_NEW',
      message: expect.stringContaining("Update the package 'millrace'"),
    })
  }
  expect(await contents()).toEqual(before)
})
