// What only the SQLite store does: handles of the user's, notices to others on the file, and what is written down.
import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Queue, Worker, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import type { SqliteOptions } from 'millrace/sqlite'
import { Driver, ask } from '../../../src/conformance/driver.js'
import { Listener } from '../../../src/conformance/listener.js'
import { complete, insert, remove } from '../../../src/conformance/changes.js'
import type { Store } from '../../../src/store/store.js'
import { steppedClock, stoppedClock } from '../../conformance/clock.js'
import { thrown } from '../../thrown.js'
import { drivers, freshFolder } from './folder.js'

const at = freshFolder()
const { Driver: Handle } = drivers[0]!

/** Reads with a connection of its own. */
function rows(path: string, text: string): readonly object[] {
  const handle = new Handle(path)
  try {
    return handle.prepare(text).all() as object[]
  } finally {
    handle.close()
  }
}

async function opened(options: SqliteOptions = {}, name = 'jobs.db'): Promise<Store> {
  const store = sqlite(at(name), options)
  await store.open()
  return store
}

describe('a handle of the user', () => {
  test('lends its file: the store is not held up by a transaction that is open on it, and does not see it', async () => {
    const handle = new Handle(at('jobs.db'))
    handle.exec('CREATE TABLE own (n INTEGER)')
    const store = sqlite(handle)
    const queue = new Queue('q', { store })
    await queue.add('work', 1)
    handle.exec('BEGIN; SELECT * FROM own')
    await queue.add('work', 2)
    handle.exec('COMMIT')
    expect(await queue.counts()).toMatchObject({ waiting: 2 })
    await shutdown([queue, store])
    expect(handle.prepare('SELECT count(*) AS n FROM millrace_job').get()).toEqual({ n: 2 })
    handle.close()
  })

  test('in memory is used itself: a commit waits for its transaction to end, and it stays open', async () => {
    const handle = new Handle(':memory:')
    const store = sqlite(handle)
    expect(store.can.share).toBe('process')
    const queue = new Queue('q', { store })
    await queue.add('work', 1)
    handle.exec('BEGIN')
    const added = queue.add('work', 2)
    await expect(
      Promise.race([added.then(() => 'added'), new Promise((go) => setImmediate(go, 'waits'))]),
    ).resolves.toBe('waits')
    handle.exec('COMMIT')
    await added
    await shutdown([queue, store])
    expect(handle.prepare('SELECT count(*) AS n FROM millrace_job').get()).toEqual({ n: 2 })
    handle.close()
  })

  test('that is in a transaction for too long gives a clear error, and nothing is written', async () => {
    const handle = new Handle(':memory:')
    const store = sqlite(handle, { patience: 20 })
    const queue = new Queue('q', { store })
    await queue.add('work', 1)
    handle.exec('BEGIN')
    await expect(queue.add('work', 2)).rejects.toMatchObject({ code: 'DATABASE_LOCKED' })
    handle.exec('COMMIT')
    expect(await queue.counts()).toMatchObject({ waiting: 1 })
    await shutdown([queue, store])
    handle.close()
  })
})

test('bad targets and options are refused at once', () => {
  expect(thrown(() => sqlite(''))).toMatchObject({ code: 'INVALID_OPTION' })
  expect(thrown(() => sqlite(5 as never))).toMatchObject({ code: 'INVALID_OPTION' })
  expect(thrown(() => sqlite('x.db', { synchronous: 'always' as never }))).toMatchObject({ code: 'INVALID_OPTION' })
  expect(thrown(() => sqlite('x.db', { durability: 'full' } as never))).toMatchObject({ code: 'UNKNOWN_OPTION' })
  expect(existsSync('x.db')).toBe(false)
})

test('people can read the jobs with a view', async () => {
  const store = await opened()
  const queue = new Queue('mails', { store })
  await queue.add('send', { to: 'ann' }, { priority: 3 })
  expect(rows(at('jobs.db'), 'SELECT queue, name, state, priority, data FROM millrace_jobs')).toEqual([
    { queue: 'mails', name: 'send', state: 'waiting', priority: 3, data: '{"to":"ann"}' },
  ])
  await shutdown([queue, store])
})

describe('what is recorded', () => {
  const recorded = (): unknown => ({
    events: rows(at('jobs.db'), 'SELECT * FROM millrace_event').length,
    notices: rows(at('jobs.db'), 'SELECT * FROM millrace_notice').length,
  })

  test('is nothing without a watcher', async () => {
    const store = await opened()
    const d = new Driver(store, 'd')
    await d.land(complete(await d.running('work')))
    expect(recorded()).toEqual({ events: 0, notices: 0 })
    await store.close()
  })

  test('is no notice for others while only this handle watches', async () => {
    const store = await opened()
    const listener = new Listener(store, {})
    const d = new Driver(store, 'd')
    await d.add('work')
    await listener.until(() => listener.work.has('mill'), 'the hint here')
    expect(recorded()).toEqual({ events: 0, notices: 0 })
    listener.stop()
    await store.close()
  })

  test('is a notice for each commit while another handle watches, and none after it has closed', async () => {
    const [store, other] = [await opened(), await opened()]
    const listener = new Listener(other, {})
    const marker = new Driver(other, 'marker')
    await marker.commit({}) // the handle is known to the others from here on
    const d = new Driver(store, 'd')
    await d.add('work')
    await listener.until(() => listener.work.has('mill'), 'the hint there')
    expect(recorded()).toEqual({ events: 0, notices: 1 })
    await other.close()
    await d.add('work')
    expect(recorded()).toEqual({ events: 0, notices: 1 })
    await store.close()
  })

  test('goes on for ten minutes after the last watcher of events has left, and not longer', async () => {
    const { runtime, advance } = stoppedClock()
    const store = await opened({ runtime })
    const d = new Driver(store, 'd')
    const listener = new Listener(store, { events: true })
    await d.add('work')
    const [first] = await listener.received(d)
    listener.stop()
    await d.commit({})
    await advance(599_000)
    await d.add('work')
    const resumed = new Listener(store, { events: true, from: first!.cursor })
    expect((await resumed.received(d)).map(({ id }) => id)).toEqual(['d-2'])
    expect(resumed.notices[0]).toMatchObject({ gap: false })
    resumed.stop()
    await d.commit({})
    await advance(601_000)
    await d.add('work')
    const late = new Listener(store, { events: true, from: first!.cursor })
    await late.received(d)
    expect(late.notices[0]).toMatchObject({ gap: true })
    late.stop()
    await store.close()
  })
})

test('what another handle commits after a read is sent to earlier watchers, though the file was locked', async () => {
  const [store, other] = [await opened(), await opened()]
  const lock = new Handle(at('jobs.db'))
  lock.exec('BEGIN IMMEDIATE')
  const listener = new Listener(store, { events: true })
  let answered = false
  const read = store.get(['none']).then(() => (answered = true))
  await new Promise((go) => setImmediate(go))
  expect(answered).toBe(false)
  lock.exec('COMMIT')
  lock.close()
  await read
  const d = new Driver(other, 'd')
  await d.add('work')
  await listener.until(() => listener.events.length > 0, 'the event')
  expect(listener.events.map(({ id }) => id)).toEqual(['d-1'])
  listener.stop()
  await store.close()
  await other.close()
})

test('a watcher that falls behind the ring of another handle receives a gap', async () => {
  const [store, other] = [await opened(), await opened({ ring: 5 })]
  const queue = new Queue('mill', { store, logger: false })
  const listener = new Listener(store, { events: true })
  const missed = new Promise<Error>((resolve) => queue.on('error', ({ error }) => resolve(error)))
  await store.get(['none'])
  const d = new Driver(other, 'd')
  for (let count = 0; count < 20; count++) await d.add('work')
  await listener.until(() => listener.notices.some(({ gap }) => gap), 'the gap')
  expect(listener.events.length).toBeLessThan(20)
  expect(await missed).toMatchObject({ code: 'EVENTS_MISSED' })
  listener.stop()
  await shutdown([queue])
  await Promise.all([store.close(), other.close()])
})

test('a watcher that slept while others went on unrecorded receives a gap with its next sign of life', async () => {
  const { runtime, advance } = stoppedClock()
  const [store, other] = [await opened({ runtime }), await opened({ runtime })]
  const listener = new Listener(store, { events: true })
  await store.get(['none'])
  await advance(7_200_000)
  const d = new Driver(other, 'd')
  await d.add('work')
  const sign = new Listener(store, {})
  await listener.until(() => listener.notices.some(({ gap }) => gap), 'the gap')
  await d.add('work')
  await listener.until(() => listener.events.length > 0, 'later events')
  expect(listener.events.map(({ id }) => id)).toEqual(['d-2'])
  listener.stop()
  sign.stop()
  await Promise.all([store.close(), other.close()])
})

test('refusals over a heavy job do not weigh on the file', async () => {
  const store = await opened()
  const d = new Driver(store, 'd')
  await d.land(insert('heavy', 'work', { data: 'x'.repeat(100_000), dedup: { key: 'k' } }))
  const groups = Array.from({ length: 50 }, (_, at) => [insert(`more-${at}`, 'work', { dedup: { key: 'k' } })])
  const receipt = await d.commit({ groups })
  expect(receipt.groups.every((verdict) => !verdict.ok && verdict.job?.id === 'heavy')).toBe(true)
  const [written] = rows(at('jobs.db'), "SELECT length(receipt) AS n FROM millrace_counter WHERE what = 'd'")
  expect((written as { n: number }).n).toBeLessThan(10_000)
  const other = await opened()
  expect(await other.commit(d.last)).toEqual(receipt)
  await Promise.all([store.close(), other.close()])
})

describe('a receipt in the file', () => {
  const flow = (d: Driver, data: string) => [
    insert('child', 'work', { data, extras: { trace: 'trace' } }),
    insert('parent', 'work', { data, after: ['child'], parent: 'none', keep: { completed: { deleteAfter: 0 } } }),
    insert('late', 'work', { data, after: ['child'], run: { in: 5_000 }, attempts: Infinity }),
  ]

  test('holds no data of the jobs of a flow, and is the same when read again', async () => {
    const store = await opened()
    const d = new Driver(store, 'd')
    const also = [insert('also', 'other', { data: 'secret-also', group: 'g' })]
    const held = await d.add('work', { data: 'held' }).then(() => d.claimOne())
    const receipt = await d.commit({ groups: [flow(d, 'secret-flow'), complete(held, { result: 'secret-end', also })] })
    expect(receipt.groups.map((verdict) => verdict.ok && verdict.inserted.length)).toEqual([3, 1])
    const kept = "SELECT count(*) AS n FROM millrace_counter WHERE receipt LIKE '%secret%'"
    expect(rows(at('jobs.db'), kept)).toEqual([{ n: 0 }])
    const other = await opened()
    expect(await other.commit(d.last)).toEqual(receipt)
    const again = new Driver(other, 'again')
    await again.land(...complete((await again.claim(9)).find(({ id }) => id === 'child')!))
    const third = await opened()
    expect(await third.commit(d.last), 'though the jobs have moved on').toEqual(receipt)
    await Promise.all([store.close(), other.close(), third.close()])
  })

  test('of a job that was changed in the same group is the same when read again', async () => {
    const store = await opened()
    const d = new Driver(store, 'd')
    await d.add('before')
    const held = await d.claimOne()
    await d.land(...complete(held))
    const [finished] = await store.get([held.id])
    const removal = remove(finished!)
    const receipt = await d.commit({ groups: [[...removal, insert(held.id, 'work', { data: 'secret-new' })]] })
    expect(receipt.groups[0]).toMatchObject({ ok: true, inserted: [{ id: held.id }] })
    expect(rows(at('jobs.db'), "SELECT n FROM millrace_counter WHERE receipt LIKE '%secret%'")).toEqual([])
    const other = await opened()
    expect(await other.commit(d.last)).toEqual(receipt)
    await Promise.all([store.close(), other.close()])
  })

  test('is forgotten when its writer has been silent for a day', async () => {
    const { runtime, advance } = steppedClock()
    const store = await opened({ runtime })
    await new Driver(store, 'old').add('work')
    const held = new Driver(store, 'young')
    await held.add('work')
    const writers = () =>
      rows(at('jobs.db'), "SELECT what FROM millrace_counter WHERE kind = 'writer' ORDER BY what").map(
        (row) => (row as { what: string }).what,
      )
    await advance(86_300_000)
    await held.add('work')
    await advance(200_000)
    await new Driver(store, 'new').add('work')
    expect(writers()).toEqual(['new', 'young'])
    await store.close()
  })
})

test('a handle in memory has one store at a time', async () => {
  const handle = new Handle(':memory:')
  const store = sqlite(handle)
  await store.open()
  await expect(sqlite(handle).open()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await store.close()
  const next = sqlite(handle)
  await next.open()
  await next.close()
  handle.close()
})

test('a replay through another handle is the same though the job has moved on since', async () => {
  const [store, other] = [await opened(), await opened()]
  const d = new Driver(store, 'd')
  await d.addMany(3, 'work', { attempts: Infinity })
  await d.add('keyed', { dedup: { key: 'k' } })
  const receipt = await d.commit({
    groups: [[insert('new', 'work')], [insert('delayed', 'work', { run: { in: 5_000 } }), insert('two', 'work')]],
    asks: [ask(2), ask(2, { ahead: 1 })],
  })
  const writer = new Driver(other, 'other')
  for (const job of receipt.asks.flat()) await writer.land(complete(job))
  await writer.claim(10)
  expect(await other.commit(d.last)).toEqual(receipt)
  await store.close()
  await other.close()
})

test('a wake file that was removed is made again, and wakes', async () => {
  const [store, other] = [await opened(), await opened()]
  const listener = new Listener(other, {})
  await new Driver(other, 'marker').commit({})
  const d = new Driver(store, 'd')
  rmSync(at('jobs.db-wake'))
  await d.add('work')
  await listener.until(() => listener.work.has('mill'), 'the hint there all the same')
  await d.add('work', { queue: 'second' })
  await listener.until(() => listener.work.has('second'), 'the hint there again')
  listener.stop()
  await store.close()
  await other.close()
})

test('a store that is closed while it opens leaves nothing open', async () => {
  const store = sqlite(at('jobs.db'))
  const opening = store.open().then(
    () => undefined,
    (error: { code: string }) => error.code,
  )
  await store.close()
  expect(await opening).toBe('STORE_CLOSED')
  await expect(store.get(['x'])).rejects.toMatchObject({ code: 'STORE_CLOSED' })
})

test('a path that cannot be opened is tried again once it can', async () => {
  const store = sqlite(at('missing/jobs.db'))
  const queue = new Queue('q', { store, logger: false })
  await expect(queue.add('work', 1)).rejects.toMatchObject({ code: 'DATABASE_PATH_MISSING' })
  mkdirSync(at('missing'))
  const worker = new Worker(queue, { work: async () => 'done' })
  const job = await queue.add('work', 1)
  expect(await job.result({ timeout: '30s' })).toBe('done')
  await shutdown([worker, queue, store])
})

test('a job that another constraint than that of ids keeps out is an error, and no duplicate', async () => {
  const store = await opened()
  const d = new Driver(store, 'w')
  await d.add('work')
  const handle = new Handle(at('jobs.db'))
  handle.exec(`CREATE TRIGGER refuses BEFORE INSERT ON millrace_job WHEN new.id = 'bad'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END`)
  handle.close()
  const batch = { writer: 'x', seq: 1, groups: [[insert('bad', 'work')]], renewals: [], asks: [] }
  await expect(store.commit(batch)).rejects.toMatchObject({ code: 'DATABASE_FAILED' })
  await store.close()
})
