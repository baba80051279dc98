// `add_job`: jobs added from SQL are the same as those added by a queue.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from 'vitest'
import type { Queue } from 'millrace'
import type { AddOptions, Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { connect } from '../../../../src/store/connection.js'
import { foldSeries } from '../../../../src/store/series/series-cells.js'
import type { Group } from '../../../../src/store/store.js'
import type { JobRecord } from '../../../../src/job/job.js'
import { closing, event, gate, newQueue, newWorker } from '../../../setup.js'
import { newDatabase, newSchema, sharedServer } from '../server/shared.js'
import { announced, connected, newRole, rows, run } from '../server/clients.js'

let url = ''
let schema = ''

/** A store on the schema of these tests. */
const store = (): Store => closing(postgres(url, { schema }))

/** A queue that no other test has. */
const ownQueue = (on: Store = store()): Queue => newQueue({ store: on, name: newSchema() })

beforeAll(async () => {
  url = await sharedServer()
  schema = newSchema()
  const first = postgres(url, { schema })
  await first.open()
  await first.close()
})

type Added = readonly [queue: string, name: string, data?: unknown, options?: object]

const statement = (): string => `select ${schema}.add_job($1, $2, $3::jsonb, $4::jsonb) as id`
const values = ([queue, name, data, options = {}]: Added): unknown[] => [
  queue,
  name,
  data === undefined ? null : JSON.stringify(data),
  JSON.stringify(options),
]

async function addJob(...added: Added): Promise<string> {
  const [row] = await rows<{ id: string }>(url, statement(), values(added))
  return row!.id
}

/** The server's error: its code and message. */
async function refused(...added: Added): Promise<string> {
  try {
    await addJob(...added)
    return 'added'
  } catch (error) {
    const { code, message } = error as { code: string; message: string }
    return `${code} ${message}`
  }
}

test('jobs added and dropped from SQL are counted in the series of a queue that a process counts', async () => {
  const on = store()
  const queue = ownQueue(on)
  const cells = { details: on.details, commit: (group: Group) => connect(on).renewals.commit(group) }
  const tidy = () => run(url, `select ${schema}.tidy_v1(null, 1000, 1000000)`)
  const sums = async () => {
    const { rows: counted } = await queue.series({ by: 'name' })
    return counted.map(({ name, added, cancelled }) => [name, added, cancelled])
  }
  await addJob(queue.name, 'before')
  await tidy()
  expect(await sums()).toEqual([]) // nobody counts this queue
  await queue.limit({ group: { maxBacklog: 1, onFull: 'drop-oldest' } })
  await queue.add('mail', 0)
  await queue.series()
  await foldSeries(cells, queue.name)
  for (let n = 0; n < 3; n++) await addJob(queue.name, 'mail', n, { group: 'one' })
  await addJob(queue.name, 'index')
  await tidy()
  await tidy()
  expect(await sums()).toEqual([
    ['index', 1, 0],
    ['mail', 4, 2],
  ])
  expect(await queue.totals()).toMatchObject({ added: 6, cancelled: 2 })
})

test("queues of Millrace's own are refused, as by a queue", async () => {
  expect(await refused('millrace:webhooks', 'n')).toBe(
    `22023 millrace.add_job: the queue "millrace:webhooks" is one of Millrace's own; choose another`,
  )
})

describe('a job added from SQL is the one that queue.add adds', () => {
  const hour = 3_600_000
  const all: readonly (readonly [title: string, options: AddOptions, fromSql?: object])[] = [
    ['without options', {}],
    ['with a delay in milliseconds', { delay: 90_000 }],
    ['with a fraction of a millisecond', { delay: 0.2 }],
    ['with a delay in words', { delay: '1h 30m' }],
    ['with a delay in days', { delay: '2 days' }],
    ['with a delay of nothing', { delay: 0 }],
    ['with a date', { runAt: new Date('2100-01-01T00:00:00.500Z') }],
    ['with a date in milliseconds', { runAt: 4_102_444_800_000.5 }],
    ['with a date gone by', { runAt: new Date('2020-01-01') }],
    ['with a priority', { priority: -7 }],
    ['with the lowest priority', { priority: 2_147_483_647 }],
    ['last in, first out', { lifo: true }],
    ['with tags', { tags: ['user:7', 'ž "x"'] }],
    ['with tags and a timeout', { tags: ['import'], timeout: '1m' }],
    ['with a group', { group: 'tenant "ž"' }],
    ['with an expiry', { expires: '90s' }],
    ['with a date to expire at', { expires: new Date('2100-01-01T00:00:00.500Z') }],
    ['with an expiry in milliseconds', { expires: 90_000 }],
    ['with an expiry and a delay', { expires: '2 minutes', delay: '1m' }],
    ['with a group and a delay', { group: 'tenant', delay: '1m' }],
    ['with attempts', { attempts: 12 }],
    ['with attempts without end', { attempts: Infinity }, { attempts: 'Infinity' }],
    ['with a plain backoff', { backoff: '10s' }],
    ['with a fixed backoff', { backoff: { type: 'fixed', delay: 500, jitter: 0.25 } }],
    ['with a linear backoff', { backoff: { type: 'linear', delay: '1s', max: '1m' } }],
    [
      'with an exponential backoff',
      { backoff: { type: 'exponential', delay: '1s', factor: 1.5, max: '5m', jitter: 1 } },
    ],
    ['with a backoff of one’s own', { backoff: { type: 'custom', name: 'moon', delay: '2s' } }],
    ['with a timeout', { timeout: '30 seconds' }],
    ['removed when completed', { removeOnComplete: true }],
    ['kept when completed', { removeOnComplete: false, removeOnFail: false }],
    ['one of the newest so many', { removeOnComplete: { age: '7d', count: 1000 }, removeOnFail: { count: 1 } }],
    ['removed at an age', { removeOnComplete: { age: '1h' } }],
    ['removed a while after it ended', { removeOnComplete: '1d', removeOnFail: '1h' }],
    [
      'with everything',
      { delay: '1m', priority: 3, lifo: true, attempts: 1, backoff: 5, timeout: hour, removeOnFail: '9ms' },
    ],
  ]

  /** A record without what no two jobs share. */
  function comparable({
    id,
    ord,
    createdAt,
    runAt,
    expiresAt,
    dueAt,
    chainId,
    data,
    fence: _fence,
    ...rest
  }: JobRecord): object {
    return {
      ...rest,
      data: data === undefined ? undefined : (JSON.parse(data) as unknown),
      lifo: ord < 0,
      ownChain: chainId === id,
      runAt: runAt !== undefined && runAt < 4e12 && runAt > createdAt ? runAt - createdAt : runAt,
      expires: expiresAt !== undefined && expiresAt < 4e12 ? expiresAt - createdAt : expiresAt,
      due: expiresAt === undefined ? dueAt === runAt : dueAt === Math.min(expiresAt, runAt ?? expiresAt),
    }
  }

  const cases = all.map(([title, options, fromSql = options]) => ({ title, options, fromSql }))

  test.each(cases)('$title', async ({ options, fromSql }) => {
    const on = store()
    const queue = ownQueue(on)
    const data = { to: 'ä@example.com', list: [1, 2.5, null, true], text: 'a "quoted"\n\\ line' }
    const added = await queue.add('chore', data, options)
    const id = await addJob(queue.name, 'chore', data, fromSql)
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    const [ours, theirs] = await on.get([added.id, id])
    expect(Math.abs(theirs!.createdAt - ours!.createdAt)).toBeLessThan(hour)
    expect(comparable(theirs!)).toEqual(comparable(ours!))
    if (options.runAt === undefined) return
    expect(theirs!.runAt).toBe(ours!.runAt)
  })

  test('with tags, by which it is found until it is removed', async () => {
    const queue = ownQueue()
    const id = await addJob(queue.name, 'chore', 1, { tags: ['user:7', 'import'] })
    expect((await queue.list({ tags: ['import', 'user:7'] })).jobs.map((each) => each.id)).toEqual([id])
    await queue.remove(id)
    expect(await queue.count({ tags: 'import' })).toEqual({ count: 0, exact: true })
  })

  test('with data that is null, and with none', async () => {
    const queue = ownQueue()
    expect(await queue.get(await addJob(queue.name, 'chore', null))).toMatchObject({ data: null })
    expect((await queue.get(await addJob(queue.name, 'chore')))!.data).toBeUndefined()
  })

  test('with an id of its own, which is taken from then on', async () => {
    const queue = ownQueue()
    const id = `order ${queue.name}`
    expect(await addJob(queue.name, 'chore', 1, { id })).toBe(id)
    expect(await addJob(queue.name, 'chore', 2, { id })).toBe(id)
    expect(await queue.add('chore', 3, { id })).toMatchObject({ duplicate: true, data: 1 })
    expect(await queue.counts()).toMatchObject({ waiting: 1 })
    expect(await refused(queue.name, 'another', 4, { id })).toContain(
      `23505 millrace.add_job: job ${id} exists already`,
    )
  })

  test('with a version, which workers of that version take', async () => {
    const on = store()
    const queue = ownQueue(on)
    const id = await addJob(queue.name, 'chore', 1, { version: 4 })
    expect((await on.get([id]))[0]).toMatchObject({ version: 4 })
  })

  test('and is counted', async () => {
    const on = store()
    const queue = ownQueue(on)
    await addJob(queue.name, 'chore')
    await addJob(queue.name, 'chore', 1, { delay: '1h' })
    expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 1 })
    expect((await on.tally([queue.name]))[0]).toMatchObject({ lifetime: { added: 2 } })
  })

  test('in the order of both', async () => {
    const queue = ownQueue()
    await queue.add('chore', 1)
    await addJob(queue.name, 'chore', 2)
    await queue.add('chore', 3)
    await addJob(queue.name, 'chore', 0, { priority: -1 })
    const ran: unknown[] = []
    const done = gate()
    newWorker(queue, (job) => {
      if (ran.push(job.data) === 4) done.open()
    })
    await done.promise
    expect(ran).toEqual([0, 1, 2, 3])
  })
})

describe('a dedup key', () => {
  const scopes: readonly (readonly [object, object?])[] = [
    [{ key: 'a "b" ü/\\' }],
    [{ key: 'k', scope: 'queue' }],
    [{ key: 'k', scope: 'name' }],
    [{ key: 'k', scope: 'global' }],
    [{ key: 'k', window: '1h' }],
  ]

  test.each(scopes)('%j is the same from SQL and from a queue', async (dedup) => {
    const queue = ownQueue()
    const unique = { ...dedup, key: `${(dedup as { key: string }).key} ${queue.name}` }
    const first = await addJob(queue.name, 'chore', 1, { dedup: unique })
    expect(await queue.add('chore', 2, { dedup: unique })).toMatchObject({ id: first, duplicate: true })
    expect(await addJob(queue.name, 'chore', 3, { dedup: unique })).toBe(first)
    const other = await addJob(queue.name, 'other', 4, { dedup: unique })
    expect(other === first).toBe((dedup as { scope?: string }).scope !== 'name')
    expect((await queue.add('chore', 5, { dedup: { ...unique, key: `${unique.key}!` } })).duplicate).toBe(false)
    expect(await refused(queue.name, 'chore', 6, { dedup: { ...unique, mode: 'reject' } })).toContain(
      `23505 millrace.add_job: job ${first} holds the dedup key`,
    )
  })

  test('that a queue took first holds in SQL, and is free when its job has ended', async () => {
    const queue = ownQueue()
    const dedup = { key: 'k' }
    const first = await queue.add('chore', 1, { dedup })
    expect(await addJob(queue.name, 'chore', 2, { dedup })).toBe(first.id)
    await first.cancel()
    const second = await addJob(queue.name, 'chore', 3, { dedup })
    expect(second).not.toBe(first.id)
    expect(await queue.add('chore', 4, { dedup })).toMatchObject({ id: second, duplicate: true })
  })

  test('that two transactions want at once is for one of them; the other is refused as busy', async () => {
    const queue = ownQueue()
    await addJob(queue.name, 'chore')
    const [one, two] = [await connected(url), await connected(url)]
    await one.query('begin')
    const added = values([queue.name, 'chore', 1, { dedup: { key: 'k' } }])
    const first = (await one.query<{ id: string }>(statement(), added)).rows[0]!.id
    await expect(two.query(statement(), added)).rejects.toMatchObject({ code: '55P03' })
    await one.query('commit')
    expect((await two.query<{ id: string }>(statement(), added)).rows[0]!.id).toBe(first)
  })
})

describe('after', () => {
  test('waits for jobs, and for what their failure means', async () => {
    const on = store()
    const queue = ownQueue(on)
    const [one, two, three] = await queue.addBulk([1, 2, 3].map((n) => ({ name: 'first', data: n })))
    const id = await addJob(queue.name, 'then', 4, {
      after: [one!.id, { job: two!.id, onFailure: 'remove' }, { job: three!.id }],
      onChildFailure: 'ignore',
    })
    expect(await queue.get(id)).toMatchObject({ state: 'waiting-children' })
    const { jobs } = await on.details({ jobs: [id] })
    expect(jobs[0]!.edges.map(({ chain, policy }) => [chain, policy])).toEqual([
      [one!.id, 'ignore'],
      [two!.id, 'remove'],
      [three!.id, 'ignore'],
    ])
    newWorker(queue, (job) => job.data)
    const done = event(queue, 'completed', (each) => each.id === id)
    await done
  })

  test('takes one job by its id, and fails with it', async () => {
    const queue = ownQueue()
    const one = await queue.add('first', 1, { delay: '1h' })
    const id = await addJob(queue.name, 'then', 2, { after: one.id })
    const failed = event(queue, 'failed', (each) => each.id === id)
    newWorker(queue, (job) => job.data)
    await one.cancel()
    await failed
  })

  test('of nothing is nothing to wait for, and a delay comes after it', async () => {
    const queue = ownQueue()
    expect(await queue.get(await addJob(queue.name, 'then', 1, { after: [] }))).toMatchObject({ state: 'waiting' })
    const one = await queue.add('first')
    const id = await addJob(queue.name, 'then', 1, { after: one.id, delay: '1h' })
    newWorker(queue, { first: () => {} })
    await event(queue, 'delayed', (each) => each.id === id)
  })
})

describe('a worker', () => {
  test('is woken when the transaction commits, and not before', async () => {
    const queue = ownQueue()
    const ran: unknown[] = []
    const done = gate()
    const worker = newWorker(
      queue,
      (job) => {
        ran.push(job.data)
        if (job.data === 'last') done.open()
      },
      { pollEvery: '10m', autorun: false },
    )
    await worker.run()
    const client = await connected(url)
    await client.query('begin')
    await client.query(statement(), values([queue.name, 'chore', 'rolled back']))
    await client.query('rollback')
    await client.query('begin')
    await client.query(statement(), values([queue.name, 'chore', 'first']))
    await client.query(statement(), values([queue.name, 'chore', 'last']))
    expect(await queue.counts()).toMatchObject({ waiting: 0, active: 0, completed: 0 })
    expect(ran).toEqual([])
    await client.query('commit')
    await done.promise
    expect(ran).toEqual(['first', 'last'])
    expect(await queue.counts()).toMatchObject({ waiting: 0 })
  })

  test('learns of a delay that is over sooner than what it knew of', async () => {
    const queue = ownQueue()
    const done = gate<unknown>()
    const worker = newWorker(queue, (job) => done.open(job.data), {
      pollEvery: '10m',
      upkeepEvery: '30s',
      autorun: false,
    })
    await worker.run()
    await queue.add('chore', 'later', { delay: '1h' })
    await addJob(queue.name, 'chore', 'sooner', { delay: 50 })
    expect(await done.promise).toBe('sooner')
  })

  test('receives events of committed adds only', async () => {
    const on = store()
    const queue = ownQueue(on)
    const seen: string[] = []
    queue.on('waiting', ({ id }) => seen.push(id))
    await announced(on)
    const client = await connected(url)
    await client.query('begin')
    await client.query(statement(), values([queue.name, 'chore', 1, { id: `no ${queue.name}` }]))
    await client.query('rollback')
    const received = event(queue, 'waiting')
    await addJob(queue.name, 'chore', 2, { id: `yes ${queue.name}` })
    await received
    expect(seen).toEqual([`yes ${queue.name}`])
  })
})

test('a queue that a transaction is still making is waited for by one job at a time, not by others', async () => {
  const on = store()
  const [queue, busy] = [ownQueue(on), ownQueue(on)]
  const client = await connected(url)
  await client.query('begin')
  await client.query(statement(), values([queue.name, 'chore', 'theirs']))
  let landed = false
  const added = queue.add('chore', 'ours').then(() => (landed = true))
  await busy.add('chore')
  await busy.add('chore')
  expect(landed).toBe(false)
  await client.query('commit')
  await added
  expect((await queue.list()).jobs.map((job) => job.data)).toEqual(['theirs', 'ours'])
})

test('a queue that a transaction is making can be added to in it', async () => {
  const queue = ownQueue()
  const client = await connected(url)
  await client.query('begin')
  await client.query(statement(), values([queue.name, 'chore', 1]))
  await queue.add('chore', 2, { tx: client })
  await client.query('rollback')
  expect(await queue.counts()).toMatchObject({ waiting: 0 })
  await client.query('begin')
  await client.query(statement(), values([queue.name, 'chore', 3]))
  await queue.add('chore', 4, { tx: client })
  await client.query('commit')
  await queue.add('chore', 5)
  expect((await queue.list()).jobs.map((job) => job.data)).toEqual([3, 4, 5])
})

describe('bad input is refused with the reason', () => {
  const wrong: readonly (readonly [options: unknown, expected: string])[] = [
    [[], 'options must be an object'],
    ['x', 'options must be an object'],
    [{ tags: 'a' }, 'tags must be a list of texts'],
    [{ tags: ['a', 'a'] }, 'tags must be at most 10 different texts'],
    [{ tags: [7] }, 'tags must be at most 10 different texts'],
    [{ tags: [''] }, 'the tag must be 1 to 255 printable characters'],
    [{ tags: ['x'.repeat(65)] }, 'a tag has at most 64 characters'],
    [{ prio: 1 }, 'unknown option "prio" in options; it knows id, delay'],
    [{ id: '' }, 'the id must be 1 to 255 printable characters'],
    [{ id: 'a\nb' }, 'the id must be 1 to 255 printable characters'],
    [{ delay: '5' }, 'delay must be milliseconds as a number, or text'],
    [{ delay: 'soon' }, 'delay must be'],
    [{ delay: '-1s' }, 'delay must be'],
    [{ delay: '1 month' }, 'delay must be'],
    [{ delay: -1 }, 'delay must be'],
    [{ delay: true }, 'delay must be'],
    [{ delay: '101 years' }, 'delay must be'],
    [{ delay: 1, runAt: 2 }, 'either delay or runAt'],
    [{ runAt: 'tomorrow-ish' }, 'runAt must be a date'],
    [{ runAt: 9e15 }, 'runAt must be a date'],
    [{ runAt: {} }, 'runAt must be a date'],
    [{ expires: 0 }, 'expires must be milliseconds'],
    [{ expires: 'soon' }, 'expires must be'],
    [{ expires: {} }, 'expires must be a duration'],
    [{ expires: '2020-01-01T00:00:00Z' }, 'expires is in the past'],
    [{ expires: '1s', delay: '1m' }, 'would expire before it may start'],
    [{ priority: 1.5 }, 'priority must be a whole number'],
    [{ priority: 2_147_483_648 }, 'priority must be a whole number'],
    [{ priority: '1' }, 'priority must be a whole number'],
    [{ id: 'run:work:2026-11-17T12:00:00.000Z:nightly' }, "begins as those of Millrace's own do"],
    [{ id: 'schedule:work:nightly' }, "begins as those of Millrace's own do"],
    [{ id: 'millrace:signal:1' }, "begins as those of Millrace's own do"],
    [{ lifo: 1 }, 'lifo must be true or false'],
    [{ attempts: 0 }, 'attempts'],
    [{ attempts: 2.5 }, 'attempts'],
    [{ attempts: 'many' }, 'attempts'],
    [{ version: 0 }, 'version must be a whole number'],
    [{ timeout: 0 }, 'timeout must be'],
    [{ backoff: 'exponential' }, 'backoff must be'],
    [{ backoff: { delay: 5 } }, 'an object with a type'],
    [{ backoff: { type: 'cubic', delay: 5 } }, 'backoff.type must be one of fixed, linear, exponential, custom'],
    [{ backoff: { type: 'fixed' } }, 'backoff.delay is missing'],
    [{ backoff: { type: 'fixed', delay: 5, max: 7 } }, 'unknown option "max" in backoff'],
    [{ backoff: { type: 'linear', delay: 5, jitter: 2 } }, 'backoff.jitter must be a number from 0 to 1'],
    [{ backoff: { type: 'exponential', delay: 5, factor: '2' } }, 'backoff.factor must be a number'],
    [{ backoff: { type: 'custom' } }, 'the backoff name must be'],
    [{ dedup: 'k' }, 'dedup must be an object'],
    [{ dedup: {} }, 'the dedup key must be'],
    [{ dedup: { key: 'k', scope: 'name ' } }, 'dedup.scope must be one of queue, name, global'],
    [{ dedup: { key: 'k', mode: 'replace' } }, 'dedup.mode must be one of keep, reject'],
    [{ dedup: { key: 'k', window: 0 } }, 'dedup.window must be'],
    [{ dedup: { key: 'k', windw: 1 } }, 'unknown option "windw" in dedup'],
    [{ after: 'nobody' }, 'there is no job nobody to wait for'],
    [{ after: [null] }, 'after must be an object'],
    [{ after: [{ job: 'x', onFailure: 'explode' }] }, 'after.onFailure must be one of fail, ignore, remove'],
    [{ onChildFailure: 'explode' }, 'onChildFailure must be one of fail, ignore, remove'],
    [{ removeOnComplete: 'never' }, 'removeOnComplete must be'],
    [{ removeOnComplete: 1000 }, 'removeOnComplete must be true, a duration with its unit'],
    [{ removeOnFail: {} }, 'removeOnFail must have an age, a count, or both'],
    [{ removeOnFail: { age: null } }, 'removeOnFail must have an age, a count, or both'],
    [{ removeOnFail: { age: 7 } }, 'removeOnFail.age must be a duration with its unit, such as "7d", not 7'],
    [{ removeOnFail: { age: '0s' } }, 'removeOnFail.age must be'],
    [{ removeOnFail: { count: 0 } }, 'removeOnFail.count must be a whole number from 1'],
    [{ removeOnFail: { count: 1.5 } }, 'removeOnFail.count must be a whole number from 1'],
    [{ removeOnFail: { keep: 5 } }, 'unknown option "keep" in removeOnFail; it knows age, count'],
    [{ removeOnComplete: [1] }, 'removeOnComplete must be'],
  ]

  test.each(wrong)('options %j', async (options, expected) => {
    const queue = ownQueue()
    const message = await refused(queue.name, 'chore', 1, options as object)
    expect(message).toContain('22023 millrace.add_job: ')
    expect(message).toContain(expected)
  })

  test('names, and one that is null is one that was not given', async () => {
    const queue = ownQueue()
    expect(await refused('', 'chore')).toContain('the queue must be 1 to 255 printable characters, not ""')
    expect(await refused(queue.name, 'a\tb')).toContain('the name must be')
    expect(await refused(queue.name, 'x'.repeat(256))).toContain('the name must be')
    await expect(rows(url, `select ${schema}.add_job(null, 'chore')`)).rejects.toThrow('the queue must be')
    await rows(url, `select ${schema}.add_job($1, 'chore', null, null)`, [queue.name])
    await addJob(queue.name, 'chore', 1, { id: null, delay: null, dedup: null, after: null, backoff: null })
    expect(await queue.counts()).toMatchObject({ waiting: 2 })
  })

  test('a queue at its bound', async () => {
    const on = store()
    const queue = ownQueue(on)
    const value = JSON.stringify({ backlog: 1 })
    const put = { kind: 'put', key: `limit:${queue.name}`, value, version: 0, events: [] } as const
    await on.commit({ writer: queue.name, seq: 1, groups: [[put]], renewals: [], asks: [] })
    await addJob(queue.name, 'chore')
    expect(await refused(queue.name, 'chore')).toBe(
      `54000 millrace.add_job: queue '${queue.name}' is at its backlog limit`,
    )
  })

  test('a group at its bound, and groups that are none', async () => {
    const on = store()
    const queue = ownQueue(on)
    const value = JSON.stringify({ group: { backlog: 1 } })
    const put = { kind: 'put', key: `limit:${queue.name}`, value, version: 0, events: [] } as const
    await on.commit({ writer: queue.name, seq: 1, groups: [[put]], renewals: [], asks: [] })
    await addJob(queue.name, 'chore', 1, { group: 'a' })
    await addJob(queue.name, 'chore', 1, { group: 'b' })
    expect(await refused(queue.name, 'chore', 1, { group: 'a' })).toBe(
      `54000 millrace.add_job: group 'a' of queue '${queue.name}' is at its backlog limit`,
    )
    expect(await refused(queue.name, 'chore', 1, { group: '' })).toContain('22023 millrace.add_job: the group must be')
    expect(await refused(queue.name, 'chore', 1, { group: 7 })).toContain('22023 millrace.add_job: the group must be')
    expect(await refused(queue.name, 'chore', 1, { group: 'a', lifo: true })).toContain('give either group or lifo')
    expect(await queue.counts()).toMatchObject({ waiting: 2 })
  })
})

describe('a group that drops its oldest job at its bound', () => {
  async function stage(maxBacklog = 1) {
    const on = store()
    const queue = ownQueue(on)
    await queue.limit({ group: { maxBacklog, onFull: 'drop-oldest' } })
    return { on, queue, group: `a "group" of 100%\\ 'ž'` }
  }

  /** What the end of a job was, without what no two jobs share. */
  const ended = ({ state, error, errors, finishedAt, deleteAt, dueAt, runAt }: JobRecord): object => ({
    state,
    error,
    errors: errors.map(({ at, fence: _fence, ...rest }) => ({ ...rest, at: at - finishedAt! })),
    deleteAt: deleteAt! - finishedAt!,
    dueAt: dueAt! - finishedAt!,
    runAt,
  })

  test('cancels it as queue.add does, and adds the new one', async () => {
    const { on, queue, group } = await stage()
    const first = await queue.add('chore', 1, { group })
    const id = `second of ${queue.name}`
    const cancelled = event(queue, 'cancelled', (each) => each.id === id)
    const second = await queue.add('chore', 2, { group, id }) // its commit waits until the listener is known to the server
    const third = await addJob(queue.name, 'chore', 3, { group })
    expect((await cancelled).id).toBe(second.id)
    const [dropped, pushedOut, added] = await on.get([first.id, second.id, third])
    expect(pushedOut).toMatchObject({ state: 'cancelled', error: { code: 'JOB_DROPPED' } })
    expect(ended(pushedOut!)).toEqual(ended(dropped!))
    expect(added).toMatchObject({ state: 'waiting', group })
    expect(await queue.counts()).toMatchObject({ waiting: 1, cancelled: 2 })
    expect((await on.tally([queue.name]))[0]).toMatchObject({ lifetime: { added: 3, cancelled: 2 } })
  })

  test('frees its dedup key, and what waits for it goes by its policy', async () => {
    const { queue, group } = await stage()
    const id = await addJob(queue.name, 'chore', 1, { group, dedup: { key: 'k' } })
    const fails = await addJob(queue.name, 'next', 2, { after: id })
    const goesOn = await addJob(queue.name, 'next', 3, { after: id, onChildFailure: 'ignore' })
    const failed = event(queue, 'failed', (each) => each.id === fails)
    const done = event(queue, 'completed', (each) => each.id === goesOn)
    const next = await addJob(queue.name, 'chore', 4, { group })
    newWorker(queue, { next: () => {} })
    await Promise.all([failed, done])
    expect((await queue.get(id))!.error).toMatchObject({ code: 'JOB_DROPPED' })
    expect(await addJob(queue.name, 'chore', 5, { dedup: { key: 'k' } })).not.toBe(id)
    expect((await queue.get(next))!.state).toBe('waiting')
  })

  test('drops in the transaction of the caller, and one that this added, too', async () => {
    const { queue, group } = await stage()
    const first = await queue.add('chore', 1, { group })
    const client = await connected(url)
    await client.query('begin')
    await client.query(statement(), values([queue.name, 'chore', 2, { group }]))
    expect((await first.refresh()).state).toBe('waiting')
    await client.query('rollback')
    expect((await first.refresh()).state).toBe('waiting')
    expect(await queue.counts()).toMatchObject({ waiting: 1, cancelled: 0 })
    await client.query('begin')
    await client.query(statement(), values([queue.name, 'chore', 2, { group }]))
    await client.query(statement(), values([queue.name, 'chore', 3, { group }]))
    await client.query('commit')
    expect(await queue.counts()).toMatchObject({ waiting: 1, cancelled: 2 })
    expect((await queue.list({ state: 'waiting' })).jobs.map((job) => job.data)).toEqual([3])
  })

  test('drops as many as it takes where its bound was lowered, and none for a job that stands', async () => {
    const { queue, group } = await stage(5)
    for (const n of [1, 2, 3, 4]) await queue.add('chore', n, { group, delay: n === 1 ? '1h' : 0 })
    const id = `last ${queue.name}`
    await queue.add('chore', 5, { group, id })
    await queue.limit({ group: { maxBacklog: 2 } })
    expect(await addJob(queue.name, 'chore', 6, { group, id })).toBe(id)
    expect(await queue.counts()).toMatchObject({ waiting: 4, delayed: 1, cancelled: 0 })
    await addJob(queue.name, 'chore', 6, { group })
    expect(await queue.counts()).toMatchObject({ waiting: 2, delayed: 0, cancelled: 4 })
    expect((await queue.list({ state: 'waiting' })).jobs.map((job) => job.data)).toEqual([5, 6])
  })

  test('is refused where the oldest has a webhook for its end', async () => {
    const { queue, group } = await stage()
    const webhook = { url: 'https://example.com/hook' }
    const notified = await queue.add('chore', 1, { group, webhook: { ...webhook, on: ['completed', 'cancelled'] } })
    expect(await refused(queue.name, 'chore', 2, { group })).toBe(
      `54000 millrace.add_job: group '${group}' of queue '${queue.name}' is at its backlog limit, and its oldest job, ${notified.id}, ` +
        `cannot be dropped from SQL: a webhook is to be called, or the job is to be removed at once`,
    )
    expect((await notified.refresh()).state).toBe('waiting')
    await notified.cancel()
    await queue.add('chore', 3, { group, webhook: { ...webhook, on: ['failed'] } })
    expect(await refused(queue.name, 'chore', 4, { group })).toBe('added')
  })

  test('is refused where the oldest is held by another transaction, or the caller sees an older state', async () => {
    const { queue, group } = await stage()
    const first = await queue.add('chore', 1, { group })
    const client = await connected(url)
    await client.query('begin')
    await client.query(`select 1 from ${schema}.job where id = $1 for update`, [first.id])
    expect(await refused(queue.name, 'chore', 2, { group })).toBe(
      `55P03 millrace.add_job: another transaction holds job ${first.id}, the oldest of group '${group}', which is to be dropped; try again`,
    )
    await client.query('commit')
    await client.query('begin isolation level repeatable read')
    await expect(client.query(statement(), values([queue.name, 'chore', 2, { group }]))).rejects.toMatchObject({
      code: '54000',
      message: expect.stringContaining('under read committed alone, not under repeatable read') as string,
    })
    await client.query('rollback')
    expect(await queue.counts()).toMatchObject({ waiting: 1, cancelled: 0 })
    expect(await refused(queue.name, 'chore', 2, { group })).toBe('added')
  })

  test('looks again where the oldest begins meanwhile, and drops none then', async () => {
    const { queue, group } = await stage()
    const [holder, adder] = [await connected(url), await connected(url)]
    const { pid } = (await adder.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]!
    const pausing = `select 1 from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'`
    const begins = `update ${schema}.job set state = 'active', fence = fence + 1, lease_until = 1e15, due_at = 1e15, worker = 'w' where id = $1`
    /** Adds to a group whose oldest begins in a transaction that ends once the new job is seen to wait for it. */
    const meet = async (own: string): Promise<string> => {
      const first = await queue.add('chore', 1, { group: own, id: `${own} ${queue.name}` })
      await holder.query('begin')
      await holder.query(begins, [first.id])
      const ended: string[] = []
      const adding = adder
        .query(statement(), values([queue.name, 'chore', 2, { group: own }]))
        .then(
          () => 'added',
          (error: { code: string }) => error.code,
        )
        .finally(() => ended.push(own))
      while (ended.length === 0 && (await rows(url, pausing, [pid])).length === 0);
      await holder.query('commit')
      return adding
    }
    // It waits for a moment alone: on a machine too busy to end the other transaction within that, once more.
    let tries = 0
    while ((await meet(`${group} ${tries}`)) === '55P03') expect(++tries).toBeLessThan(20)
    const { jobs } = await queue.list({ group: `${group} ${tries}` })
    expect(jobs.map(({ data, state, error }) => [data, state, error])).toEqual([
      [1, 'active', undefined],
      [2, 'waiting', undefined],
    ])
  })

  test('but not where one group is to reject, nor at the bound of the queue', async () => {
    const { queue, group } = await stage()
    await queue.limit({ groups: { [group]: { onFull: 'reject' } } })
    await queue.add('chore', 1, { group })
    expect(await refused(queue.name, 'chore', 2, { group })).toBe(
      `54000 millrace.add_job: group '${group}' of queue '${queue.name}' is at its backlog limit`,
    )
    await queue.add('chore', 1, { group: 'b' })
    await queue.limit({ maxBacklog: 2 })
    expect(await refused(queue.name, 'chore', 2, { group: 'b' })).toBe(
      `54000 millrace.add_job: queue '${queue.name}' is at its backlog limit`,
    )
    expect(await queue.counts()).toMatchObject({ waiting: 2, cancelled: 0 })
  })
})

describe('the documented SQL', () => {
  const page = readFileSync(fileURLToPath(new URL('../../../../docs/postgres-sql.md', import.meta.url)), 'utf8')
  const [statementOfDocs, trigger, grants] = [...page.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, sql]) => sql!)

  test('adds a job, and its trigger sends a receipt for an order that was committed', async () => {
    const own = await newDatabase()
    const orders = closing(postgres(own))
    const queue = newQueue({ store: orders, name: 'emails' })
    await orders.open()
    await run(own, statementOfDocs!)
    expect(await queue.counts()).toMatchObject({ delayed: 1 })

    await run(own, trigger!)
    const sent: unknown[] = []
    const next = [gate(), gate()]
    const held = gate()
    const worker = newWorker(
      queue,
      {
        'send-receipt': async (job) => {
          next[sent.push(job.data) - 1]!.open()
          if (sent.length === 1) await held.promise
        },
      },
      { pollEvery: '10m', autorun: false },
    )
    await worker.run()
    const client = await connected(own)
    const insert = `insert into orders (email, total) values ('a@example.com', 12.5)`
    await client.query(`begin; ${insert}; rollback`)
    await client.query(`begin; ${insert}; commit`)
    await next[0]!.promise
    expect(sent).toEqual([{ order: 2, to: 'a@example.com' }])
    await client.query(`update orders set total = 13; update orders set email = 'b@example.com'`)
    expect(await queue.counts()).toMatchObject({ active: 1, waiting: 0 }) // the key is held by the one that runs
    const done = event(queue, 'completed')
    held.open()
    await done
    await client.query('update orders set total = 14')
    await next[1]!.promise
    expect(sent[1]).toEqual({ order: 2, to: 'b@example.com' })
  })

  test('grants what a role needs', async () => {
    const own = await newDatabase()
    const first = postgres(own)
    await first.open()
    await first.close()
    const role = await newRole(own)
    await run(own, grants!.replaceAll('to app', `to ${role.name}`))
    const [{ id }] = (await rows(role.url, `select millrace.add_job('emails', 'send-receipt', '1') as id`)) as [
      { id: string },
    ]
    const queue = newQueue({ store: closing(postgres(role.url, { migrate: false })), name: 'emails' })
    newWorker(queue, (job) => job.data)
    expect(await (await queue.get(id))!.result()).toBe(1)
  })
})
