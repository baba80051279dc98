// The result of a chain is that of its last job, which is not removed before the jobs ahead of it.
import { describe, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { AddOptions, JobContext, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from '../../../src/testing/world/clock.js'
import { closing, event } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

type Context = JobContext

function stage(store: Store) {
  const queue = closing(new Queue('ends', { store, logger: false, defaults: { attempts: 1 }, retention: false }))
  const goOn = (name: string) => (job: { data: unknown }, ctx: Context) =>
    ctx.complete(async ({ continueWith }) => {
      await continueWith(name as never, null, job.data as AddOptions)
      return 'first'
    })
  const work = () =>
    closing(
      new Worker(
        queue,
        {
          first: goOn('last'),
          fails: goOn('bad'),
          last: () => 'last',
          bad: () => {
            throw new Error('bad')
          },
          after: async (_, ctx) => (await ctx.dependencies())[0],
        },
        { logger: false },
      ),
    )
  return { queue, work }
}

describe.each(kinds)('on %s', (kind) => {
  test('the last job of a chain is not removed alone, by id or by filter', async () => {
    const { queue, work } = stage(await make(kind))
    work()
    const first = await queue.add('first', {})
    await queue.chain(first).result()
    const last = (await queue.chain(first).jobs())[1]!
    const refused = { code: 'JOB_ENDS_CHAIN', details: { id: last.id, chain: first.id } }
    await expect(queue.remove(last.id)).rejects.toMatchObject(refused)
    await expect(last.remove({ cascade: true })).rejects.toMatchObject(refused)
    expect(await queue.remove({ name: 'last' })).toBe(0)
    expect(await (await queue.add('after', 1, { after: first })).result()).toMatchObject({ result: 'last' })
    expect(await queue.remove({ chain: first.id })).toBe(2) // with all before it, it goes
    const second = await queue.add('first', {})
    await queue.chain(second).result()
    expect(await second.remove()).toBe(true) // the first may go: the chain ends as it did
    expect(await queue.chain(second.id).result()).toBe('last')
    expect(await queue.remove({ name: 'last' })).toBe(1)
  })

  test('one that is not to be kept stays with those before it, and goes where there are none', async () => {
    const { queue, work } = stage(await make(kind))
    work()
    const first = await queue.add('first', { removeOnComplete: true })
    await queue.chain(first).result()
    expect(await (await queue.add('after', 1, { after: first })).result()).toMatchObject({ result: 'last' })
    const bad = await queue.add('fails', { removeOnFail: true })
    await expect(queue.chain(bad).result()).rejects.toMatchObject({ code: 'JOB_FAILED' })
    const late = await queue.add('after', 1, { after: { job: bad, onFailure: 'ignore' } })
    expect(await late.result()).toMatchObject({ status: 'failed', error: { message: 'bad' } })
    const gone = event(queue, 'removed', ({ name }) => name === 'last')
    const none = await queue.add('first', { removeOnComplete: true }, { removeOnComplete: true })
    await gone
    expect(await queue.chain(none.id).jobs()).toEqual([])
  })

  test('a continuation that a failure removes is cancelled, so that its chain does not seem completed', async () => {
    const { queue, work } = stage(await make(kind))
    const blocker = await queue.add('blocker')
    const first = await queue.add('first', { after: { job: blocker.id, onFailure: 'remove' } })
    const waits = event(queue, 'waiting-children', ({ name }) => name === 'last')
    await queue.counts()
    work()
    await waits
    const cancelled = event(queue, 'cancelled', ({ name }) => name === 'last')
    await blocker.cancel()
    await cancelled
    expect(await queue.chain(first).state()).toBe('cancelled')
    const late = await queue.add('after', 1, { after: { job: first, onFailure: 'ignore' } })
    expect(await late.result()).toMatchObject({ status: 'cancelled' })
  })

  test('a chain of another queue is not there', async () => {
    const store = await make(kind)
    const { queue } = stage(store)
    const other = closing(new Queue('elsewhere', { store, logger: false }))
    const job = await other.add('n')
    const chain = queue.chain(job.id)
    expect([await chain.jobs(), (await chain.jobs({ limit: 5 })).jobs, await chain.remove()]).toEqual([[], [], 0])
    await expect(chain.result({ timeout: '5s' })).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    await expect(chain.state()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    expect(await other.chain(job).state()).toBe('waiting')
  })

  test('a removal that cascades to the last job of a chain takes the chain', async () => {
    const { queue, work } = stage(await make(kind))
    const blocker = await queue.add('blocker')
    const first = await queue.add('first', { after: blocker.id })
    const waits = event(queue, 'waiting-children', ({ name }) => name === 'last')
    await queue.counts()
    work()
    await waits
    expect(await blocker.remove({ cascade: true })).toBe(true)
    expect(await queue.chain(first.id).jobs()).toEqual([])
  })
})

test('the last job that is not to be kept goes soon after those before it have gone, and is looked at less and less', async () => {
  const clock = virtualClock()
  const store = memory({ runtime: clock.runtime })
  const { queue, work } = stage(store)
  work()
  const first = await queue.add('first', { removeOnComplete: true })
  await clock.advance('1s')
  const last = (await queue.chain(first).jobs())[1]!
  const looks = async (): Promise<number> => (await store.get([last.id]))[0]!.fence
  const before = await looks()
  await clock.advance('6h')
  expect((await looks()) - before).toBeLessThan(20)
  await first.remove()
  await clock.advance('7h')
  expect(await queue.get(last.id)).toBeUndefined()
})
