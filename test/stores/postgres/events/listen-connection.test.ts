// The connection on which a process receives notifications: a loss is noticed and repaired, and meanwhile the process polls.
import { Client, Pool } from 'pg'
import postgresJs from 'postgres'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { Driver, ask } from '../../../../src/conformance/driver.js'
import { complete, insert, put } from '../../../../src/conformance/changes.js'
import { systemRuntime } from '../../../../src/store/runtime.js'
import type { ListeningConnection } from '../../../../src/stores/postgres/drivers/driver.js'
import { openDriver } from '../../../../src/stores/postgres/drivers/open.js'
import type { Runtime } from '../../../../src/store/runtime.js'
import { closing, mailbox, newQueue, newWorker } from '../../../setup.js'
import { startProxy } from '../server/proxy.js'
import { newDatabase, newSchema } from '../server/shared.js'
import { announced, connected, newRole, rows, run } from '../server/clients.js'

/** A runtime whose timers take a twentieth of their time; stores on it wait 3 s for an answer. */
function hurried(): Runtime {
  const system = systemRuntime()
  return { ...system, timer: (delay, work) => system.timer(delay / 20, work) }
}

type Target = string | Pool | postgresJs.Sql

const opened = (target: Target): Store => closing(postgres(target as string, { runtime: hurried(), patience: '60s' }))

/** A worker that relies on notifications, and what it did with its jobs; resolves when it runs. */
async function listener(target: Target): Promise<{ next: () => Promise<unknown>; store: Store }> {
  const store = opened(target)
  const done = mailbox<unknown>()
  const worker = newWorker(newQueue({ store }), (job) => done.put(job.data), { pollEvery: '10h', autorun: false })
  await worker.run()
  return { next: done.next, store }
}

/** The backends of a database that listen, once there is another than those given. */
async function listening(url: string, other: readonly number[] = []): Promise<readonly number[]> {
  const client = await connected(url)
  for (;;) {
    const found = await client.query<{ pid: number }>(
      `select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
         and (query ilike 'listen "%' or query = $$select 'listening'$$)`,
    )
    const pids = found.rows.map(({ pid }) => pid)
    if (pids.some((pid) => !other.includes(pid))) return pids
    await client.query('select pg_sleep(0.02)') // there is no notice of it
  }
}

/** A connection of the test that receives all notifications of a schema, those of the store to itself left out. */
async function overheard(url: string): Promise<() => Promise<readonly string[]>> {
  const client = await connected(url)
  const received: string[] = []
  const ends = mailbox<void>()
  client.on('notification', ({ payload = '' }) => {
    if (payload === 'the end') ends.put()
    else if (!payload.startsWith('echo ')) received.push(payload)
  })
  await client.query('listen "millrace:millrace"')
  return async () => {
    await client.query(`notify "millrace:millrace", 'the end'`) // comes after all that was committed before it
    await ends.next()
    return received.splice(0)
  }
}

describe('the connection that listens', () => {
  test('is rebuilt when it is terminated, and then receives notices again', async () => {
    const url = await newDatabase()
    const { next } = await listener(url)
    const producer = newQueue({ store: opened(url) })
    await producer.add('chore', 1)
    expect(await next()).toBe(1)
    let before = await listening(url)
    for (const n of [2, 3]) {
      await run(url, `select pg_terminate_backend(${before[0]})`)
      await producer.add('chore', n)
      expect(await next()).toBe(n)
      before = await listening(url, before)
      expect(before).toHaveLength(1)
    }
    await producer.add('chore', 4)
    expect(await next()).toBe(4)
  })

  test('is rebuilt by postgres.js as well', async () => {
    const url = await newDatabase()
    const sql = postgresJs(url, { max: 4, onnotice: () => {}, fetch_types: false, backoff: () => 0 })
    onTestFinished(() => sql.end({ timeout: 1 }))
    const { next } = await listener(sql)
    const producer = newQueue({ store: opened(url) })
    await producer.add('chore', 1)
    expect(await next()).toBe(1)
    const before = await listening(url)
    await run(url, `select pg_terminate_backend(${before.join('), pg_terminate_backend(')})`)
    await producer.add('chore', 2)
    expect(await next()).toBe(2)
    await listening(url, before)
    await producer.add('chore', 3)
    expect(await next()).toBe(3)
  })

  test('that cannot be rebuilt is done without: workers are woken by looking', async () => {
    const url = await newDatabase()
    const role = await newRole(url)
    await run(url, `create schema millrace authorization ${role.name}`)
    const { next } = await listener(role.url)
    const producer = newQueue({ store: opened(url) })
    await producer.add('chore', 1)
    expect(await next()).toBe(1)
    const before = await listening(url)
    await run(url, `alter role ${role.name} connection limit 1`) // those that stand stay
    await run(url, `select pg_terminate_backend(${before[0]})`)
    for (const n of [2, 3]) {
      await producer.add('chore', n)
      expect(await next()).toBe(n)
    }
    await run(url, `alter role ${role.name} connection limit -1`)
    await listening(url, before)
    await producer.add('chore', 4)
    expect(await next()).toBe(4)
  })

  test('that is half open is noticed and replaced, and a store with such connections can be closed', async () => {
    const url = await newDatabase()
    const proxy = await startProxy(Number(new URL(url).port))
    onTestFinished(() => proxy.close())
    const { next, store } = await listener(proxy.through(url))
    const producer = newQueue({ store: opened(url) })
    await producer.add('chore', 1)
    expect(await next()).toBe(1)
    const before = await listening(url)
    proxy.freeze('standing')
    await producer.add('chore', 2)
    expect(await next()).toBe(2)
    expect((await listening(url, before)).length).toBeGreaterThan(before.length) // the server still believes in the old one
    await producer.add('chore', 3)
    expect(await next()).toBe(3)
    proxy.freeze()
    await store.close()
  })

  test.each(['pg', 'postgres.js'])('that is half open is given up and made anew with %s', async (which) => {
    const url = await newDatabase()
    const proxy = await startProxy(Number(new URL(url).port))
    const sql = postgresJs(proxy.through(url), { max: 2, onnotice: () => {}, fetch_types: false })
    onTestFinished(() => sql.end({ timeout: 0 }))
    const { timer } = systemRuntime()
    const driver = await openDriver(which === 'pg' ? proxy.through(url) : sql, { patience: 300, connections: 2, timer })
    onTestFinished(() => driver.close())
    onTestFinished(() => proxy.close())
    const received = mailbox<string>()
    const lost = mailbox<unknown>()
    const listen = (): Promise<ListeningConnection> => driver.listen('ears', { notified: received.put, lost: lost.put })
    const say = { name: '', text: 'select pg_notify($1, $2)::text', values: ['ears', 'hello'] }

    const first = await listen()
    await first.call(say)
    expect(await received.next()).toBe('hello')
    proxy.freeze('standing')
    await expect(first.call(say)).rejects.toThrow('did not answer within 300 ms')
    expect(await lost.next()).toBeInstanceOf(Error)
    const second = await listen()
    await second.call(say)
    expect(await received.next()).toBe('hello')
    await second.close()
  })

  test('that carries nothing, as behind some poolers, is done without', async () => {
    class Deaf extends Client {
      override on(event: string, received: (...args: never[]) => void): this {
        return event === 'notification'
          ? this
          : (super.on as (event: string, received: unknown) => this)(event, received)
      }
    }
    const url = await newDatabase()
    const pool = new Pool({ connectionString: url, Client: Deaf })
    onTestFinished(() => pool.end())
    const { next } = await listener(pool)
    const producer = newQueue({ store: opened(url) })
    for (const n of [1, 2, 3]) {
      await producer.add('chore', n)
      expect(await next()).toBe(n)
    }
  })

  test('is one for all watchers of a process, and none without a watcher', async () => {
    const url = await newDatabase()
    const store = opened(url)
    const queue = newQueue({ store })
    await queue.add('chore', 1)
    await queue.list()
    await queue.transaction(() => queue.add('chore', 2))
    const client = await connected(url)
    const listeners = async (): Promise<number> =>
      (
        await client.query(
          `select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
             and (query ilike 'listen "%' or query = $$select 'listening'$$)`,
        )
      ).rows.length
    expect(await listeners()).toBe(0)
    queue.on('waiting', () => {})
    newQueue({ store, name: 'other' }).on('waiting', () => {})
    newWorker(newQueue({ store, name: 'third' }), () => {})
    await listening(url)
    await announced(store)
    expect(await listeners()).toBe(1)
  })
})

describe('notifications', () => {
  test('are one for a batch, whatever it holds, and none if no other process listens', async () => {
    const url = await newDatabase()
    const store = opened(url)
    const d = new Driver(store, 'writer')
    const next = await overheard(url)
    const jobs = [...(await d.addMany(10, 'a')), ...(await d.addMany(10, 'b', { queue: 'second' }))]
    expect(jobs).toHaveLength(20)
    expect(await next()).toEqual([])

    const { store: peer } = await listener(url)
    await announced(peer)
    const running = await d.claim(10, { queues: ['mill', 'second'] })
    await next()
    await d.commit({
      groups: [
        ...running.map((job) => complete(job)),
        ...Array.from({ length: 20 }, (_, n) => [insert(`new ${n}`, 'c', { queue: `queue ${n}` })]),
        [insert('later', 'c', { run: { in: 60_000 } })],
        [put('pause:mill', { all: false, names: [] }, 0, [{ type: 'paused', queue: 'mill' }])],
      ],
      asks: [ask(5, { queues: ['queue 1', 'queue 2'] })],
    })
    const received = await next()
    expect(received).toHaveLength(1)
    expect(JSON.parse(received[0]!)).toMatchObject({ work: expect.arrayContaining(['queue 0', 'queue 19']) })
    await d.commit({ renewals: [] })
    expect(await next()).toEqual([])
  })

  test('are no more once the last listener has left', async () => {
    const url = await newDatabase()
    const store = opened(url)
    const other = opened(url)
    const next = await overheard(url)
    const stop = other.watch({}, () => {})
    await announced(other)
    const d = new Driver(store, 'writer')
    await d.add('chore')
    expect(await next()).toHaveLength(1)
    stop()
    const client = await connected(url)
    const gone = `select 1 from millrace.peer where until <= extract(epoch from clock_timestamp()) * 1000`
    while ((await client.query(gone)).rows.length === 0) await client.query('select pg_sleep(0.01)')
    await d.add('chore')
    expect(await next()).toEqual([])
  })

  test('that cannot carry all that happened wake everybody', async () => {
    const url = await newDatabase()
    const { next } = await listener(url)
    const store = opened(url)
    const d = new Driver(store, 'writer')
    await d.add('chore', { queue: 'work', data: 0 })
    expect(await next()).toBe(0)
    const received = await overheard(url)
    const many = Array.from({ length: 200 }, (_, n) => [insert(d.id(), 'c', { queue: `${'long '.repeat(20)} ${n}` })])
    await d.commit({ groups: [...many, [insert(d.id(), 'chore', { queue: 'work', data: 1 })]] })
    expect(await next()).toBe(1)
    const moved = (await received()).filter((payload) => JSON.parse(payload).from !== undefined)
    expect(Math.max(...moved.map((payload) => Buffer.byteLength(payload)))).toBeLessThan(8000)
  })

  test('of a transaction come with its commit, one for each of its calls at most', async () => {
    const url = await newDatabase()
    const { next } = await listener(url)
    const queue = newQueue({ store: opened(url) })
    await queue.counts()
    const received = await overheard(url)
    await queue.transaction(async () => {
      await queue.add('chore', 1)
      await queue.addBulk([{ name: 'chore', data: 2 }])
      expect(await received()).toEqual([])
    })
    expect(new Set([await next(), await next()])).toEqual(new Set([1, 2]))
  })

  test('of other programs on the same channel are left alone', async () => {
    const url = await newDatabase()
    const { next } = await listener(url)
    await rows(
      url,
      `select pg_notify('millrace:millrace', payload) from unnest(array['', 'hello', '{', '[]', '{}', 'null', '7', '{"from":"x","events":0}']) payload`,
    )
    await newQueue({ store: opened(url) }).add('chore', newSchema().length)
    expect(await next()).toBeGreaterThan(0)
  })
})

describe('a worker that appears while something is being added', () => {
  const slow = `create function millrace.slowly() returns trigger language plpgsql as $$ begin perform pg_sleep(0.25); return null; end $$;
    create trigger slowly before insert on millrace.job for each statement execute function millrace.slowly()`

  test.each([
    ['a transaction', (store: Store) => newQueue({ store }).transaction(() => newQueue({ store }).add('job', 1))],
    ['one job', (store: Store) => newQueue({ store }).add('job', 1)],
    [
      'several',
      (store: Store) =>
        newQueue({ store }).addBulk([
          { name: 'job', data: 1 },
          { name: 'job', data: 2 },
        ]),
    ],
    ['one with an id', (store: Store) => newQueue({ store }).add('job', 1, { id: 'mine' })],
  ] as const)('receives it: %s', async (_, add) => {
    const url = await newDatabase()
    const first = opened(url)
    await newQueue({ store: first }).add('job', 0, { delay: '1h' }) // all is there
    await run(url, slow)
    const added = add(first)
    const client = await connected(url)
    for (;;) {
      const { rows: sleeping } = await client.query("select 1 from pg_stat_activity where wait_event = 'PgSleep'")
      if (sleeping.length > 0) break // there is no notice of it
    }
    const { next } = await listener(url)
    await added
    expect(await next()).toBe(1)
  })
})
