// What people type from habit, coming from another job queue, is refused with our name for it.
import { FlowProducer, Queue, Worker } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import { describe, expect, it } from 'vitest'
import { fieldNames } from '../../src/job/values/peer-names.js'
import { newQueue, newStore } from '../setup.js'
import { thrown } from '../thrown.js'

describe('an option of another queue', () => {
  it.each([
    [{ jobId: 'a' }, "'id'"],
    [{ deduplication: { id: 'a' } }, "'dedup'"],
    [{ singletonKey: 'a' }, "'dedup'"],
    [{ jobKey: 'a' }, "'dedup'"],
    [{ maxAttempts: 3 }, "'attempts'"],
    [{ retryLimit: 3 }, "'attempts'"],
    [{ startAfter: 10 }, "'delay' or 'runAt'"],
    [{ expireInSeconds: 10 }, "'timeout'"],
    [{ failParentOnFailure: true }, "'onChildFailure'"],
    [{ blockers: [] }, "'after'"],
  ])('of a job is refused: %j', async (options, ours) => {
    const queue = newQueue()
    await expect(queue.add('n', 1, options as never)).rejects.toMatchObject({
      code: 'UNKNOWN_OPTION',
      message: expect.stringContaining(ours) as unknown,
    })
    expect(await queue.counts()).toMatchObject({ waiting: 0 })
  })

  it.each([
    [{ lockDuration: 1 }, "'lease'"],
    [{ maxStalledCount: 1 }, "'attempts' of queue.add"],
    [{ stalledInterval: 1 }, "'upkeepEvery'"],
    [{ pollInterval: 1 }, "'pollEvery'"],
    [{ teamSize: 1 }, "'concurrency'"],
    [{ limiter: { max: 1, duration: 1 } }, 'queue.limit({ rate'],
    [{ connection: {} }, "'store'"],
  ])('of a worker is refused: %j', (options, ours) => {
    const made = (): Worker => new Worker('q', () => {}, { store: newStore(), ...(options as object) })
    expect(thrown(made)).toMatchObject({
      code: 'UNKNOWN_OPTION',
      message: expect.stringContaining(`here it is ${ours}`) as unknown,
    })
  })

  it('of a queue is refused', () => {
    const made = (): Queue => new Queue('q', { store: newStore(), defaultJobOptions: {} } as never)
    expect(thrown(made)).toMatchObject({ message: expect.stringContaining("here it is 'defaults'") as unknown })
  })

  it('is no option here: one that is known stays as it is', async () => {
    const queue = newQueue()
    await queue.schedule('nightly', { cron: '0 3 * * *', tz: 'Europe/Berlin', name: 'n' })
    expect(thrown(() => new Worker('q', () => {}, { store: newStore(), laese: 1 } as never))).toMatchObject({
      message: expect.stringContaining("did you mean 'lease'?") as unknown,
    })
  })
})

describe('removeOnComplete', () => {
  it.each([1000, 0, { age: 3600 }])('takes no %j: other queues mean another unit', async (value) => {
    const queue = newQueue()
    for (const option of ['removeOnComplete', 'removeOnFail']) {
      const options = { [option]: value } as never
      await expect(queue.add('n', 1, options)).rejects.toMatchObject({
        code: 'INVALID_OPTION',
        message: expect.stringContaining('a duration with its unit') as unknown,
      })
      expect(thrown(() => new Queue('q', { store: newStore(), defaults: options }))).toMatchObject({
        code: 'INVALID_OPTION',
      })
    }
    await queue.add('n', 1, { removeOnComplete: true, removeOnFail: '7d' })
  })
})

describe('a field of another queue', () => {
  it('is refused with its name here', async () => {
    const job = await newQueue().add('n', 1)
    for (const [field, ours] of Object.entries(fieldNames)) {
      const read = (): unknown => (job as unknown as Record<string, unknown>)[field]
      expect(thrown(read)).toMatchObject({
        code: 'UNKNOWN_FIELD',
        message: `A job has no '${field}'; here it is ${ours}.`,
      })
    }
  })

  it('is in no listing of a job, and a job prints as before', async () => {
    const job = await newQueue().add('n', { a: 1 })
    expect(Object.keys(job)).not.toContain('returnvalue')
    expect(JSON.parse(JSON.stringify(job))).toMatchObject({ data: { a: 1 } })
  })
})

describe('await using', () => {
  it('closes queues, workers, flow producers and stores', async () => {
    for (const store of [memory(), sqlite(':memory:')]) {
      const queue = new Queue('q', { store })
      const worker = new Worker('q', () => {}, { store })
      const flows = new FlowProducer({ store })
      const parts: readonly AsyncDisposable[] = [worker, flows, queue, store]
      for (const each of parts) await each[Symbol.asyncDispose]()
      await expect(worker.run()).rejects.toMatchObject({ code: 'WORKER_CLOSED' })
      expect(queue.closed).toBe(true)
      await expect(flows.add({ name: 'n', queueName: 'q' })).rejects.toMatchObject({ code: 'QUEUE_CLOSED' })
      await expect(store.open()).rejects.toMatchObject({ code: 'STORE_CLOSED' })
    }
  })
})
