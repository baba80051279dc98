// The index of values: what a search reads from it, and how it is built beside everything else.
import postgresJs from 'postgres'
import { beforeEach, expect, test } from 'vitest'
import { Queue } from 'millrace'
import { postgres } from 'millrace/postgres'
import type { Store } from '../../../src/store/store.js'
import { closing } from '../../setup.js'
import { explainedPool } from './plans.js'
import { newDatabase } from './server/shared.js'
import { rows, run } from './server/clients.js'

let url: string
let store: Store
let queue: Queue

beforeEach(async () => {
  url = await newDatabase()
  store = closing(postgres(url))
  queue = closing(new Queue('work', { store }))
})

/** Adds so many jobs with numbers, by SQL. */
async function fill(count: number): Promise<void> {
  await queue.add('mail', { n: -1 })
  await run(
    url,
    `insert into millrace.job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, data)
     select 'job ' || n, nextval('millrace.job_order'), l.queue, l.id, 'waiting', 0, n, 5, 3, 1, '{"n":' || n || ',"even":' || (n % 2 = 0)::text || '}'
     from millrace.lane l, generate_series(1, ${count}) n`,
  )
}

const indexes = () =>
  rows<{ name: string; valid: boolean }>(
    url,
    `select c.relname as name, i.indisvalid as valid from pg_index i join pg_class c on c.oid = i.indexrelid where c.relname like 'job_search%'`,
  )

test('a search with the index reads the jobs that it finds, and no others', async () => {
  await fill(20_000)
  await queue.searchIndex(true)
  const { pool, misdeeds } = explainedPool(url)
  const own = postgres(pool)
  const searching = new Queue('work', { store: own })
  let found: unknown
  const search = async (): Promise<void> => {
    found = await searching.list({ search: { 'data.n': 12_345 } })
  }
  expect((await misdeeds(search, 20)).found).toEqual([])
  expect(found).toMatchObject({ jobs: [{ id: 'job 12345' }], exact: true, searched: 1 })
  await searching.close()
  await own.close()
  await pool.end()
})

test('values that very many jobs have are looked for job by job', async () => {
  await fill(20_100)
  await queue.searchIndex(true)
  const page = await queue.list({ search: { 'data.even': true }, limit: 5 })
  expect(page.jobs).toHaveLength(5)
  expect(page.exact).toBeUndefined()
  expect(await queue.list({ search: { 'data.even': true, 'data.n': 4_444 } })).toMatchObject({
    jobs: [{ id: 'job 4444' }],
    exact: true,
  })
})

test('jobs are found whose values the index cannot hold: no jsonb, and large ones', async () => {
  await queue.searchIndex(true)
  await fill(2)
  await run(url, `update millrace.job set data = replace(data, '}', ',"vast":1e999999}') where id like 'job %'`)
  await queue.add('mail', { n: 1, text: 'x'.repeat(200_000) })
  const page = await queue.list({ search: { 'data.n': 1 } })
  expect(page).toMatchObject({ exact: true, searched: 3 })
  expect(page.jobs).toHaveLength(2)
})

test('an index is built while a transaction has jobs to write, and by one process at a time', async () => {
  await fill(10)
  const sql = postgresJs(url, { onnotice: () => {} })
  const other = postgres(sql)
  const theirs = new Queue('work', { store: other })
  let first: Promise<void> | undefined
  await store.transact!(async (tx) => {
    await store.commit({ writer: 'x', seq: 0, groups: [], renewals: [], asks: [] }, tx)
    await queue.add('mail', { n: 77 }, { tx })
    first = queue.searchIndex(true)
    // The build waits for this transaction; until then the index is there and not valid.
    while ((await indexes()).length === 0) await queue.ping().catch(() => {})
    await expect(theirs.searchIndex(true)).rejects.toMatchObject({ code: 'DATABASE_LOCKED' })
    expect((await theirs.list({ search: { 'data.n': 3 } })).exact).toBeUndefined()
  })
  await first
  expect(await theirs.list({ search: { 'data.n': 77 } })).toMatchObject({ exact: true, jobs: [{ name: 'mail' }] })
  await theirs.close()
  await other.close()
  await sql.end()
})

test('an index that was left half built is replaced', async () => {
  await fill(10)
  await queue.searchIndex(true)
  await run(
    url,
    `update pg_index set indisvalid = false where indexrelid = (select c.oid from pg_class c where c.relname like 'job_search%')`,
  )
  expect((await queue.list({ search: { 'data.n': 3 } })).exact).toBeUndefined()
  await queue.searchIndex(true)
  expect(await indexes()).toMatchObject([{ valid: true }])
  expect((await queue.list({ search: { 'data.n': 3 } })).exact).toBe(true)
  await queue.searchIndex(false)
  expect(await indexes()).toEqual([])
})
