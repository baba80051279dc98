// What subscribers receive on PostgreSQL where a read of events fails, is large, or begins during a commit.
import { Client, Pool } from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { Driver } from '../../../src/conformance/driver.js'
import { Listener } from '../../../src/conformance/listener.js'
import { complete, insert } from '../../../src/conformance/changes.js'
import type { Store } from '../../../src/store/store.js'
import { postgres } from '../../../src/postgres.js'
import { Queue } from '../../../src/index.js'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'
import { announced, connected, rows } from './server/clients.js'

interface Unreliable {
  readonly store: Store
  /** The next reads of events fail; those after this number alone, if one is given. */
  fail(times: number, after?: string): void
  failed(): number
}

/** A store whose reads of events fail on command of the test. */
async function unreliable(schema: string): Promise<Unreliable> {
  let left = 0
  let which: string | undefined
  let failed = 0
  class Failing extends Client {
    override query(...args: unknown[]): never {
      const [{ name = '', values = [] }] = args as [{ name?: string; values?: readonly string[] }]
      if (name.startsWith('events') && left > 0 && (which === undefined || values[0] === which)) {
        left--
        failed++
        return Promise.reject(Object.assign(new Error('out of memory'), { code: '53200' })) as never
      }
      return (super.query as (...args: unknown[]) => unknown).apply(this, args) as never
    }
  }
  const pool = new Pool({ connectionString: await sharedServer(), max: 4, Client: Failing })
  pool.on('error', () => {})
  onTestFinished(() => pool.end())
  const store = closing(postgres(pool, { schema }))
  await store.open()
  return {
    store,
    fail: (times, after) => {
      left = times
      which = after
    },
    failed: () => failed,
  }
}

test('a read of events that failed is made again, and a result that is waited for arrives', async () => {
  const { store, fail, failed } = await unreliable(newSchema())
  const d = new Driver(store, 'writer')
  const listener = new Listener(store, { events: true })
  await announced(store)
  fail(2)
  await d.add('work')
  await listener.until(() => listener.events.length > 0, 'the event is received once the read succeeds')
  expect(failed()).toBe(2)
  listener.stop()

  const queue = closing(new Queue('mill', { store, logger: false }))
  const job = await queue.add('job')
  const result = job.result()
  const held = (await d.claim(2)).find(({ id }) => id === job.id)!
  fail(1)
  await d.land(complete(held, { result: 'done' }))
  expect(await result).toBe('done')
})

test('a subscriber whose missed events cannot be read receives a gap, and commits of its process go on', async () => {
  const { store, fail } = await unreliable(newSchema())
  const d = new Driver(store, 'writer')
  const first = new Listener(store, { events: true })
  await d.add('work')
  const cursor = (await first.received(d))[0]!.cursor
  await d.add('work') // so that it has missed something
  await first.received(d)
  fail(5, cursor)
  const resumed = new Listener(store, { events: true, from: cursor })
  await d.add('work') // does not fail
  await resumed.until(() => resumed.notices.some(({ gap }) => gap), 'the gap is received')
  await first.received(d)
  await resumed.received(d)
  await d.add('work', { queue: 'later' })
  await resumed.received(d)
  expect(resumed.events.at(-1)).toMatchObject({ queue: 'later' })
  expect(first.notices.some(({ gap }) => gap)).toBe(false)
  expect(first.events).toHaveLength(4)
  for (const listener of [first, resumed]) listener.stop()
})

test('a subscriber that resumes is given what it missed in pages', { timeout: 60_000 }, async () => {
  const { store } = await unreliable(newSchema())
  const d = new Driver(store, 'writer')
  const first = new Listener(store, { events: true })
  await d.addMany(41, 'work')
  const result = 'x'.repeat(100_000)
  for (const job of await d.claim(41)) await d.land(complete(job, { result }))
  const cursor = (await first.received(d))[0]!.cursor
  const resumed = new Listener(store, { events: true, from: cursor })
  await resumed.received(d)
  expect(resumed.all).toEqual(first.all.slice(1).concat(resumed.all.slice(first.all.length - 1)))
  const sizes = resumed.notices.map(({ events }) => JSON.stringify(events).length)
  expect(Math.max(...sizes)).toBeLessThan(1_300_000)
  expect(resumed.notices.every(({ gap }) => !gap)).toBe(true)
  for (const listener of [first, resumed]) listener.stop()
})

test('a subscriber that begins while a long commit is in progress receives its events, or a gap', async () => {
  const schema = newSchema()
  const url = await sharedServer()
  const [near, far] = [closing(postgres(url, { schema })), closing(postgres(url, { schema }))]
  await Promise.all([near.open(), far.open()])
  const d = new Driver(far, 'slow')
  const holder = await connected(url)
  await holder.query('begin')
  await holder.query(`insert into ${schema}.writer (id, seq, at, receipt) values ('slow', 0, 0, '')`)
  const landing = d.land([insert('late', 'work')][0]!) // waits for the row of its writer, long after it has looked who watches
  const waits = `select count(*)::int as n from pg_locks where not granted and locktype = 'transactionid'`
  while ((await rows<{ n: number }>(url, waits))[0]!.n === 0);
  const listener = new Listener(near, { events: true })
  await announced(near) // does not wait for ever
  await holder.query('rollback')
  await landing
  await listener.until(
    () => listener.notices.some(({ gap, events }) => gap || events.some(({ id }) => id === 'late')),
    'the event of the commit, or a gap',
  )
  listener.stop()
})
