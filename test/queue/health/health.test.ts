// The health of a queue, on every store: how late it is, what holds it back, and who works on it.
import { describe, expect, test } from 'vitest'
import { defineJobs, job, Queue } from 'millrace'
import { served, stores } from '../../stores.js'
import { closing, event, gate, newWorker } from '../../setup.js'

const storeOf = stores()
const jobs = defineJobs({ mail: job(), index: job() })

describe.each(served)('on %s', (kind) => {
  const scene = async () => {
    const store = await storeOf(kind)
    return { store, queue: closing(new Queue('work', { store, jobs, logger: false })) }
  }

  test('an empty queue is in good health', async () => {
    const { queue } = await scene()
    const { at, ...health } = await queue.health()
    expect(at).toBeGreaterThan(0)
    expect(health).toMatchObject({ queue: 'work', paused: false, atLimit: [], workers: 0, slots: 0 })
    expect(health.oldestWaiting).toBeUndefined()
    expect(health.upkeepLag).toBeUndefined()
    expect(Object.keys(health.names)).toEqual(['mail', 'index'])
    expect(await queue.workers()).toEqual([])
    expect(await queue.totals()).toEqual({ added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0 })
  })

  test('a queue without workers shows how long its jobs have waited', async () => {
    const { queue } = await scene()
    const added = await queue.add('mail', 1)
    await queue.add('mail', 2, { priority: -1 })
    const { at, oldestWaiting, names, counts, lastMinute } = await queue.health()
    expect(oldestWaiting).toBe(at - added.createdAt)
    expect(names.mail).toMatchObject({ oldestWaiting, workers: 0, paused: false })
    expect(names.index.oldestWaiting).toBeUndefined()
    expect(counts.waiting).toBe(2)
    expect(lastMinute).toMatchObject({ added: 2, completed: 0, failed: 0 })
    expect(lastMinute!.failureRate).toBeUndefined()
  })

  test('live workers, what runs, and what is at a limit are shown', async () => {
    const { queue } = await scene()
    const [running, end] = [gate(), gate()]
    await queue.limit({ concurrency: 1, maxBacklog: 2, names: { index: { concurrency: 3 } } })
    const worker = newWorker(
      queue,
      {
        mail: async () => {
          running.open()
          await end.promise
        },
      },
      { concurrency: 4, workerName: 'postman' },
    )
    await worker.run()
    await queue.add('mail', 0)
    await running.promise
    await queue.addBulk([{ name: 'mail' }, { name: 'mail' }])
    const health = await queue.health()
    expect(health).toMatchObject({ workers: 1, slots: 4 })
    expect(health.longestRunning).toBeGreaterThanOrEqual(0)
    expect(health.names.mail).toMatchObject({ workers: 1, longestRunning: health.longestRunning })
    expect(health.names.index.workers).toBe(0)
    expect(health.atLimit).toEqual([
      { of: 'queue', what: 'concurrency', used: 1, max: 1 },
      { of: 'queue', what: 'backlog', used: 2, max: 2 },
    ])
    const [entry] = await queue.workers()
    expect(entry).toMatchObject({
      id: worker.id,
      workerName: 'postman',
      pid: process.pid,
      queues: ['work'],
      names: ['mail'],
      slots: 4,
      state: 'running',
    })
    expect(entry!.seenAt).toBeLessThanOrEqual(health.at + 60_000)
    end.open()
    await event(queue, 'drained')
    await worker.close()
    expect(await queue.workers()).toEqual([])
  })

  test('what is paused is shown, and a rate that is used up', async () => {
    const { queue } = await scene()
    expect(await queue.paused()).toEqual({ queue: false, names: [] })
    await queue.pause('mail')
    expect(await queue.paused()).toEqual({ queue: false, names: ['mail'] })
    await queue.limit({ rate: { max: 1, per: '1 hour' } })
    await queue.add('index', 1)
    const [claimed] = await queue.claim({ names: ['index'], lease: '1 minute' })
    const { names, atLimit, paused } = await queue.health()
    expect([paused, names.mail.paused, names.index.paused]).toEqual([false, true, false])
    expect(atLimit).toEqual([{ of: 'queue', what: 'rate', used: 1, max: 1 }])
    await claimed!.complete()
    await queue.pause()
    expect(await queue.health()).toMatchObject({ paused: true })
    expect(await queue.totals()).toMatchObject({ added: 1, completed: 1 })
  })

  test('holds are shown, and leases that expired while nobody does upkeep', async () => {
    const { store, queue } = await scene()
    expect((await queue.health()).holds).toEqual([])
    await queue.hold('1h', { name: 'mail', by: 'ops' })
    await queue.hold('1h', { group: 'tenant' })
    await queue.add('index', 1)
    const handles = [{ name: 'index', lease: 1 }]
    const ask = { worker: 'gone', queues: ['work'], handles, want: 1, ahead: 0 }
    await store.commit({ writer: 'gone', seq: 1, groups: [], renewals: [], asks: [ask] })
    await expect.poll(async () => (await queue.health()).expiredLease).toBeGreaterThanOrEqual(0)
    const { holds, at, upkeepLag, names } = await queue.health()
    expect(upkeepLag).toBeGreaterThanOrEqual(0)
    expect(holds).toMatchObject([{ name: 'mail', by: 'ops' }, { group: 'tenant' }])
    expect(holds.every(({ until }) => until > at)).toBe(true)
    expect(Object.keys(names)).toEqual(['mail', 'index'])
    await queue.unhold({ name: 'mail' })
    expect((await queue.health()).holds).toMatchObject([{ group: 'tenant' }])
  })

  test('a ping answers from the store, and rejects when it is closed', async () => {
    const { store, queue } = await scene()
    expect(await queue.ping()).toMatchObject({ store: store.name })
    await store.close()
    await expect(queue.ping()).rejects.toMatchObject({ code: 'STORE_CLOSED' })
  })
})
