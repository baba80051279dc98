// Groups and rates on PostgreSQL, where its statements could go wrong: cursors, transactions, invalid settings, leftovers.
import { Pool } from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { Queue } from 'millrace'
import { postgres } from 'millrace/postgres'
import { ask, Driver } from '../../../src/conformance/driver.js'
import { insert, put } from '../../../src/conformance/changes.js'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'
import { rows } from './server/clients.js'

interface Here {
  readonly url: string
  readonly schema: string
  readonly d: Driver
  /** Another process. */
  other(name?: string): Driver
}

async function here(): Promise<Here> {
  const [url, schema] = [await sharedServer(), newSchema()]
  const open = (name: string): Driver => new Driver(closing(postgres(url, { schema })), name)
  const d = open('here')
  await d.store.open()
  return { url, schema, d, other: (name = 'there') => open(name) }
}

const groupsOf = (jobs: readonly { readonly group: string | undefined }[]): string =>
  jobs.map(({ group }) => group ?? '-').join('')

test('a claim that begins where the last one ended finds others of the same turn', { timeout: 60_000 }, async () => {
  const { d, other } = await here()
  const group = (n: number): string => `g${n % 1_500}`
  await d.commit({ groups: Array.from({ length: 3_000 }, (_, n) => [insert(d.id(), 'work', { group: group(n) })]) })
  const claimed = new Set<string>()
  // Turns of fifteen hundred are the same: each claim ends among them.
  for (const want of [1_100, 200, 100, 50]) {
    for (const { id } of await d.claim(want)) claimed.add(id)
  }
  expect(claimed.size).toBe(1_450)
  await other().add('work', { group: 'late' })
  const rest = await d.claim(2_000)
  expect(groupsOf(rest)).toContain('late')
  for (const { id } of rest) claimed.add(id)
  expect(claimed.size).toBe(3_001)
})

test('what was passed over at a limit is found once the limit is lifted', { timeout: 60_000 }, async () => {
  const { d } = await here()
  await d.addMany(50, 'work', { group: 'a' })
  for (let n = 0; n < 3; n++) await d.addMany(1_000, 'work', { group: 'b' })
  await d.limit({ groups: { a: { concurrency: 1 } } })
  expect(groupsOf(await d.claim(1_500)).replaceAll('b', '')).toBe('a')
  await d.limit({})
  expect(groupsOf(await d.claim(60))).toBe(`${'a'.repeat(49)}${'b'.repeat(11)}`)
})

test('a group of hundreds at its limit before others, in several lanes, with and without groups', async () => {
  const { d } = await here()
  await d.limit({ group: { concurrency: 3 } })
  for (const name of ['one', 'two']) await d.addMany(400, name, { group: 'a', priority: -1 })
  for (let n = 0; n < 40; n++) await d.add(n % 2 === 0 ? 'one' : 'two', { group: `g${n % 20}` })
  await d.addMany(5, 'one')
  const first = groupsOf(await d.claim(20))
  expect(first.startsWith('aaa')).toBe(true)
  const rest = await d.claim(100)
  expect(rest).toHaveLength(28)
  expect(groupsOf(rest)).not.toContain('a')
})

test('a commit does not fail because of the content of a limit', async () => {
  const { d } = await here()
  const nonsense: readonly unknown[] = [
    { concurrency: 'many', rate: 7, names: [1], group: 'x', groups: 'y', backlog: 'z' },
    { rate: { max: 'a', per: 'b' }, names: { work: 3 }, group: { rate: { max: 1 } }, groups: { a: 5, b: [] } },
    { rate: { max: 1, per: 0 }, group: { backlog: {}, concurrency: [] }, groups: { a: { weight: 'heavy' } } },
    { groups: { a: { weight: 0, rate: { max: 1e15, per: 1e15 } }, b: { weight: -1 }, c: { weight: 1e-300 } } },
    { rate: { max: 1e9, per: 1e15 }, names: null, group: null, groups: null },
  ]
  for (const [version, value] of nonsense.entries()) {
    await d.land(put('limit:mill', value, version))
    for (const group of ['a', 'b', 'c']) await d.addMany(3, 'work', { group })
    await d.addMany(2, 'work')
    expect(await d.claim(20)).toHaveLength(11)
  }
})

test('a bound on the backlog of a group holds in a transaction, too, and between transactions', async () => {
  const { url, schema, d } = await here()
  await d.limit({ group: { backlog: 2 } })
  const oldest = await d.add('work', { group: 'a' })
  const pool = new Pool({ connectionString: url, max: 2 })
  onTestFinished(() => pool.end())
  const queue = closing(new Queue('mill', { store: postgres(url, { schema }) }))
  const client = await pool.connect()
  await client.query('begin')
  await queue.add('work', 1, { group: 'a', tx: client })
  const full = await d.store
    .commit({ writer: '', seq: 0, groups: [[insert(d.id(), 'work', { group: 'a' })]], renewals: [], asks: [] }, client)
    .then(({ groups }) => groups[0])
  expect(full).toMatchObject({ ok: false, why: 'full', job: { id: oldest.id } })
  // It is not known yet whether there is room for another.
  const meanwhile = await d.commit({ groups: [[insert(d.id(), 'work', { group: 'a' })]] })
  expect(meanwhile.groups[0]).toMatchObject({ ok: false, why: 'busy' })
  await d.add('work', { group: 'b' })
  await client.query('rollback')
  client.release()
  await d.add('work', { group: 'a' })
  await d.refuse('full', 'that was the last', insert(d.id(), 'work', { group: 'a' }))
})

test('an insert into a full group gets the same refusal again from another process', async () => {
  const { d, other } = await here()
  await d.limit({ group: { backlog: 1 } })
  const oldest = await d.add('work', { group: 'a' })
  const batch = { writer: 'same', seq: 1, groups: [[insert('x', 'work', { group: 'a' })]], renewals: [], asks: [] }
  const first = await d.store.commit(batch)
  expect(first.groups[0]).toMatchObject({ ok: false, why: 'full', id: 'x', job: { id: oldest.id } })
  expect((await other().store.commit(batch)).groups).toEqual(first.groups)
})

test('a claim delayed by a rate gets the same time again from another process', async () => {
  const { d, other } = await here()
  await d.addMany(3, 'work')
  await d.limit({ rate: { max: 2, per: 60_000 } })
  const batch = { writer: 'same', seq: 1, groups: [], renewals: [], asks: [ask(3)] }
  const first = await d.store.commit(batch)
  expect(first.again).toBeGreaterThan(first.now)
  expect((await other().store.commit(batch)).again).toBe(first.again)
})

test('a claim that had to wait for another counts from when it was let in', async () => {
  const { url, schema, d } = await here()
  await d.addMany(3, 'work', { group: 'a' })
  await d.limit({ rate: { max: 2, per: 60_000 } })
  const pool = new Pool({ connectionString: url, max: 1 })
  onTestFinished(() => pool.end())
  const client = await pool.connect()
  await client.query('begin')
  await client.query(`select 1 from ${schema}.queue for update`)
  const claiming = d.commit({ asks: [ask(1)] })
  const waits = `select exists (select 1 from pg_stat_activity a where pg_backend_pid() = any (pg_blocking_pids(a.pid))) as so`
  while (!(await client.query<{ so: boolean }>(waits)).rows[0]!.so);
  const { rows: clock } = await client.query<{ t: number }>(
    'select (extract(epoch from clock_timestamp()) * 1000)::float8 as t',
  )
  await client.query('commit')
  client.release()
  const [job] = (await claiming).asks[0]!
  expect(job!.startedAt).toBeGreaterThanOrEqual(Math.floor(clock[0]!.t))
  expect((await d.job(job!)).startedAt).toBe(job!.startedAt)
})

test('what a rate has counted is forgotten when it has long come back', async () => {
  const { url, schema, d } = await here()
  await d.limit({ rate: { max: 5, per: 10 }, group: { rate: { max: 5, per: 10 } } })
  for (const group of ['a', 'b', 'c']) await d.add('work', { group })
  expect(await d.claim(9)).toHaveLength(3)
  const kept = async (): Promise<number> =>
    (await rows<{ n: number }>(url, `select count(*)::int as n from ${schema}.rate`))[0]!.n
  expect(await kept()).toBe(4)
  const tidy = (clock: number) => rows(url, `select ${schema}.tidy_v1($1, 10000, 67108864)`, [clock])
  await tidy(Date.now())
  expect(await kept()).toBe(4)
  await tidy(Date.now() + 700_000)
  expect(await kept()).toBe(0)
})

test('three who claim and add at the same time neither wait for each other nor lose a job', async () => {
  const { d, other } = await here()
  const sides = [d, other('second'), other('third')]
  const ids: string[] = []
  await Promise.all(
    sides.map(async (side, at) => {
      for (let round = 0; round < 15; round++) {
        await side.commit({
          groups: Array.from({ length: 20 }, (_, n) => [insert(`${at} ${round} ${n}`, 'work', { group: `g${n % 7}` })]),
        })
        ids.push(...(await side.claim(15)).map(({ id }) => id))
      }
    }),
  )
  for (let more = await d.claim(100); more.length > 0; more = await d.claim(100)) ids.push(...more.map(({ id }) => id))
  expect(new Set(ids).size).toBe(900)
  expect(ids).toHaveLength(900)
})

test('a job with its group is in the view for people', async () => {
  const { url, schema, d } = await here()
  const { id } = await d.add('work', { group: 'tenant' })
  expect(await rows(url, `select id, "group" from ${schema}.jobs`)).toEqual([{ id, group: 'tenant' }])
})
