// A job as it changes, from now until it has finished.
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { Store, Worker } from 'millrace'
import { memory } from 'millrace/memory'
import { served, stores } from '../../stores.js'
import { observed } from '../../observed-store.js'
import { addActive, closing, gate, newQueue, newWorker } from '../../setup.js'
import { counting } from '../counting-watchers.js'

const store = stores()

describe.each(served)('job.observe on %s', (kind) => {
  it('starts with the current state, yields at every event, and ends by itself', async () => {
    const { store: own, watchers } = counting(await store(kind))
    const queue = closing(new Queue('work', { store: own, logger: false }))
    const steps = [gate(), gate()]
    const job = await queue.add('film')
    const seen: string[] = []
    let worker: Worker | undefined
    for await (const each of job.observe()) {
      seen.push(`${each.state} ${(each.progress as number | undefined) ?? ''}`.trim())
      if (each.state === 'waiting') {
        worker = newWorker(queue, {
          film: async (_job, ctx) => {
            await steps[0]!.promise
            await ctx.progress(50)
            await steps[1]!.promise
            return 'done'
          },
        })
      } else if (each.state === 'active') steps[each.progress === undefined ? 0 : 1]!.open()
      else expect(each.returned).toBe('done')
    }
    expect(seen).toEqual(['waiting', 'active', 'active 50', 'completed 50'])
    await worker!.close()
    expect(watchers()).toBe(0)
    const again: string[] = []
    for await (const { state } of job.observe()) again.push(state)
    expect(again).toEqual(['completed'])
  })
})

describe('job.observe', () => {
  it('frees everything on break, on abort, on return while it waits, and when the queue closes', async () => {
    const { store: own, watchers } = counting(memory())
    const queue = new Queue('work', { store: own, logger: false })
    const job = await queue.add('film')
    for await (const seen of job.observe()) {
      expect(watchers()).toBe(1)
      if (seen.state === 'waiting') break
    }
    expect(watchers()).toBe(0)

    const aborter = new AbortController()
    const aborted = job.observe({ signal: aborter.signal })
    await aborted.next()
    const waits = aborted.next()
    aborter.abort()
    expect(await waits).toEqual({ done: true, value: undefined })
    expect(await job.observe({ signal: AbortSignal.abort() }).next()).toEqual({ done: true, value: undefined })

    const left = job.observe()
    await left.next()
    const never = left.next()
    await left.return()
    expect(await never).toEqual({ done: true, value: undefined })
    expect(watchers()).toBe(0)

    const closed = job.observe()
    await closed.next()
    const last = closed.next()
    await queue.close()
    expect(await last).toEqual({ done: true, value: undefined })
    expect(watchers()).toBe(0)
  })

  it('shows the latest state to who is slow, and not what came between', async () => {
    const queue = newQueue()
    const end = gate()
    newWorker(queue, async (_job, ctx) => {
      for (let n = 1; n <= 100; n++) await ctx.progress(n)
      await end.promise
    })
    const job = await addActive(queue, 'film')
    const reported = new Promise<void>((resolve) =>
      queue.on('progress', ({ progress }) => progress === 100 && resolve()),
    )
    const seen: unknown[] = []
    for await (const each of job.observe()) {
      seen.push(each.progress)
      await reported
      end.open()
    }
    expect(seen.length).toBeLessThanOrEqual(3)
    expect(seen.at(-1)).toBe(100)
  })

  it('reports a job that is removed, by its end if it had one', async () => {
    const queue = newQueue()
    const job = await queue.add('film', {}, { delay: '1h' })
    const seen: string[] = []
    for await (const { state } of job.observe()) {
      seen.push(state)
      if (state === 'delayed') await queue.remove(job.id)
    }
    expect(seen).toEqual(['delayed', 'removed'])
    await expect(job.observe().next()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })

    const fleeting = await queue.add('film', {}, { removeOnComplete: true })
    const ends: string[] = []
    for await (const each of fleeting.observe()) {
      ends.push(each.state)
      if (each.state === 'waiting') newWorker(queue, () => 'gone')
      else if (each.state === 'completed') expect(each.returned).toBe('gone')
    }
    expect(ends.at(-1)).toBe('completed')
  })

  it('misses nothing between its first look and its watch', async () => {
    const of = memory()
    const looking = gate()
    const looked = gate()
    const own: Store = {
      ...observed(of, () => {}),
      get: async (ids, tx) => {
        const found = await of.get(ids, tx)
        looked.open()
        await looking.promise
        return found
      },
    }
    const queue = newQueue({ store: closing(own) })
    const elsewhere = newQueue({ store: of })
    const job = await queue.add('film')
    const seen = job.observe()
    const first = seen.next()
    await looked.promise
    await elsewhere.cancel(job.id) // after the look, before its answer
    looking.open()
    expect((await first).value).toMatchObject({ state: 'waiting' })
    expect((await seen.next()).value).toMatchObject({ state: 'cancelled' })
    expect((await seen.next()).done).toBe(true)
  })

  it('with fields yields these alone, when one of them has changed, and ends with the job', async () => {
    const queue = newQueue()
    const steps = [gate(), gate()]
    const job = await queue.add('film', { card: 'hidden' }, { id: 'job' })
    const seen: object[] = []
    for await (const each of job.observe({ fields: ['id', 'progress', 'returned'] })) {
      seen.push(each)
      if (seen.length === 1) {
        newWorker(queue, async (_job, ctx) => {
          await ctx.log('a change that was not asked for')
          await ctx.progress(50)
          await steps[0]!.promise
          return 'done'
        })
      } else steps[0]!.open()
    }
    expect(seen).toEqual([{ id: 'job' }, { id: 'job', progress: 50 }, { id: 'job', progress: 50, returned: 'done' }])
  })

  it('with fields that its end does not change ends without another value', async () => {
    const queue = newQueue()
    const job = await queue.add('film')
    const seen = job.observe({ fields: ['name'] })
    expect(await seen.next()).toEqual({ done: false, value: { name: 'film' } })
    const last = seen.next()
    await job.cancel()
    expect(await last).toEqual({ done: true, value: undefined })
  })

  it('with fields is freed on return while it waits', async () => {
    const { store: own, watchers } = counting(memory())
    const queue = closing(new Queue('work', { store: own, logger: false }))
    const seen = (await queue.add('film')).observe({ fields: ['state'] })
    await seen.next()
    const waits = seen.next()
    await seen.return()
    expect(await waits).toEqual({ done: true, value: undefined })
    expect(watchers()).toBe(0)
  })

  it.each([
    [[], 'fields must name one field at least'],
    ['state', "fields must be a list, as in ['state', 'progress'], not 'state'"],
    [['stat'], "did you mean 'state'"],
    [[5], 'fields must be one of'],
    [['refresh'], 'fields must be one of'],
  ])('refuses %o as its fields', async (fields, message) => {
    const job = await newQueue().add('film')
    const refused = { code: 'INVALID_OPTION', message: expect.stringContaining(message) }
    await expect(job.observe({ fields } as never).next()).rejects.toMatchObject(refused)
  })

  it('refuses options that it does not know', async () => {
    const job = await newQueue().add('film')
    await expect(job.observe({ timeout: 5 } as never).next()).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  })

  it.each(['x', 5, null, {}])('refuses %o as its signal, and so does job.result', async (signal) => {
    const job = await newQueue().add('film')
    const refused = { code: 'INVALID_OPTION', message: expect.stringContaining('signal must be an AbortSignal') }
    await expect(job.observe({ signal } as never).next()).rejects.toMatchObject(refused)
    await expect(job.result({ signal } as never)).rejects.toMatchObject(refused)
  })

  it.each(['x', 5, null, []])('refuses %o as its options', async (options) => {
    const job = await newQueue().add('film')
    await expect(job.observe(options as never).next()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(job.result(options as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
})
