// Two versions of Millrace on one schema: the older package and this one, and this one and a later schema.
import { expect, test } from 'vitest'
import { migrationSql } from 'millrace/postgres'
import { Queue, Worker } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { dropFunctionsBelow } from '../../../src/stores/postgres/migrate.js'
import { VERSION } from '../../../src/stores/postgres/schema.js'
import { importOlder } from '../../older.js'
import { closing } from '../../setup.js'
import { refusal } from '../sqlite/folder.js'
import { newSchema, sharedServer } from './server/shared.js'
import { rows, run } from './server/clients.js'

const older = await importOlder()
const JOBS = 200

/** A queue on a schema, of this version or of another. */
async function queueOn(
  schema: string,
  made: Pick<typeof older, 'Queue' | 'postgres'> = { Queue, postgres },
): Promise<Queue> {
  const store = closing(made.postgres(await sharedServer(), { schema }))
  return closing(new made.Queue('shared', { store, logger: false }))
}

const chores = (data: string): { name: string; data: string }[] =>
  Array.from({ length: JOBS }, () => ({ name: 'chore', data }))

/** Works on a queue, and reports errors of the worker to a list. */
function workerOn(queue: Queue, result: string, errors: unknown[], Of = Worker): Worker {
  const worker = closing(new Of(queue, { chore: async () => result }, { concurrency: 5, logger: false }))
  worker.on('error', ({ error }) => void errors.push(error))
  return worker
}

/** Resolves once this many jobs were completed, from now on. */
async function completions(queue: Queue, count: number): Promise<{ readonly all: Promise<void> }> {
  const all = new Promise<void>((resolve) => {
    let completed = 0
    queue.on('completed', () => ++completed === count && resolve())
  })
  await queue.counts() // after this, every process records events
  return { all }
}

/** The migration of a later version: it has a column and a table more, and functions of its own beside the others. */
function later(schema: string, oldest: number): string {
  const creation = migrationSql({ schema })
  const functions = creation.slice(creation.indexOf('create or replace function'))
  return `begin;
    alter table "${schema}".job add column later text not null default 'none';
    create table "${schema}".later (job text not null);
    ${functions.replaceAll(`_v${VERSION}`, `_v${VERSION + 1}`)}
    ${dropFunctionsBelow(oldest, schema)}
    update "${schema}".meta set version = ${VERSION + 1}, oldest = ${oldest};
    commit`
}

test(
  'an older and a newer version share a schema under load, which five processes migrate meanwhile',
  { timeout: 120_000 },
  async () => {
    const [url, schema] = [await sharedServer(), newSchema()]
    const errors: unknown[] = []
    const oldQueue = await queueOn(schema, older)
    await oldQueue.addBulk(chores('before'))
    await run(url, `create view ${schema}.mine as select id, state from ${schema}.job`)
    await run(url, `grant select on ${schema}.job, ${schema}.jobs to pg_monitor`)
    const total = 3 * JOBS
    const { all } = await completions(oldQueue, total)
    const oldWorker = workerOn(oldQueue, 'old', errors, older.Worker)
    const queues = await Promise.all(Array.from({ length: 5 }, () => queueOn(schema)))
    await Promise.all(queues.map((queue) => queue.counts()))
    const [queue] = queues as [Queue]
    const group = (at: number): object => (at % 2 === 0 ? { options: { group: `group ${at % 7}` } } : {})
    await queue.addBulk(chores('new').map((chore, at) => ({ ...chore, ...group(at) })))
    await oldQueue.addBulk(chores('old'))
    const worker = workerOn(queue, 'new', errors)
    await all
    await Promise.all([worker.close(), oldWorker.close()])

    expect(errors).toEqual([])
    expect(await queue.counts()).toMatchObject({ waiting: 0, active: 0, completed: total })
    const [seen] = await rows<{ n: number; attempts: number; job: boolean; jobs: boolean }>(
      url,
      `select (select count(*)::int from ${schema}.mine where state = 'completed') as n, (select max(attempt) from ${schema}.job) as attempts,
              has_table_privilege('pg_monitor', '${schema}.job', 'select') as job, has_table_privilege('pg_monitor', '${schema}.jobs', 'select') as jobs`,
    )
    expect(seen).toEqual({ n: total, attempts: 1, job: true, jobs: true })
  },
)

test('a schema that was migrated is the same as a new one', async () => {
  const [url, migrated, created] = [await sharedServer(), newSchema(), newSchema()]
  await (await queueOn(migrated, older)).counts()
  for (const schema of [migrated, created]) await (await queueOn(schema)).counts()
  expect(await shapeOf(url, migrated)).toEqual(await shapeOf(url, created))
})

test('a later version that supports this one migrates the schema under it, and this one goes on and opens it', async () => {
  const [url, schema] = [await sharedServer(), newSchema()]
  const errors: unknown[] = []
  const queue = await queueOn(schema)
  await queue.addBulk(chores('before'))
  const { all } = await completions(queue, 2 * JOBS + 3)
  const worker = workerOn(queue, 'done', errors)
  await run(url, later(schema, VERSION))
  await queue.addBulk(chores('after'))
  const first = await queue.add('chore', null, { dedup: { key: 'once' } })
  await queue.add('chore', null, { after: first, group: 'g' })
  await (await queueOn(schema)).add('chore')
  await all
  await worker.close()
  expect(errors).toEqual([])
  expect(await rows(url, `select version, oldest from ${schema}.meta`)).toEqual([
    { version: VERSION + 1, oldest: VERSION },
  ])
})

test.each([
  ['this version', { Queue, postgres }],
  ['the older version', older],
])('%s is refused before it writes where a later version does not support it', async (_, made) => {
  const [url, schema] = [await sharedServer(), newSchema()]
  const contents = (): Promise<unknown> =>
    rows(
      url,
      `select id, state, fence, (select json_agg(w.* order by w.id) from ${schema}.writer w) from ${schema}.job`,
    )
  const queue = await queueOn(schema, made)
  const job = await queue.add('before')
  await (await queueOn(schema)).counts() // migrates it, from where the later version goes on
  await run(url, later(schema, VERSION + 1))
  const before = await contents()
  const writes = [
    () => queue.add('after'),
    () => queue.cancel(job.id),
    () => queue.transaction(() => queue.add('in a transaction')),
    async () => (await queueOn(schema, made)).add('opened'),
  ]
  for (const write of writes) {
    expect(await refusal(write())).toMatchObject({
      code: 'SCHEMA_TOO_NEW',
      message: expect.stringContaining("Update the package 'millrace'"),
    })
  }
  expect(await contents()).toEqual(before)
})

/** Columns, indexes and functions of a schema, without its name. */
async function shapeOf(url: string, schema: string): Promise<readonly string[]> {
  const found = await rows<{ what: string }>(
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
