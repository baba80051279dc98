// Chains: following one to its end, looking at it, ending it early.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, defineJobs, job } from 'millrace'
import type { Store } from 'millrace'
import { z } from 'zod'
import { closing, event } from '../../setup.js'
import { served, stores } from '../../stores.js'

const make = stores()

const jobs = defineJobs({
  draft: job<{ text: string }, unknown, 'review'>({ next: ['review'] }),
  review: job<{ text: string; round: number }, unknown, 'draft' | 'publish' | 'review'>({
    next: ['draft', 'publish', 'review'],
  }),
  publish: job<{ text: string }, { url: string }>({ next: [] }),
  wild: job<number, number>(),
})

function stage(store: Store) {
  const queue = closing(new Queue('texts', { store, jobs, logger: false, defaults: { attempts: 1 } }))
  const work = () =>
    closing(
      new Worker(
        queue,
        {
          draft: (each, ctx) =>
            ctx.complete(async ({ continueWith }) => void (await continueWith('review', { ...each.data, round: 0 }))),
          review: (each, ctx) =>
            ctx.complete(async ({ continueWith }) => {
              const { text, round } = each.data
              if (text === 'bad') throw new Error('refused')
              if (round < 2) await continueWith('review', { text, round: round + 1 })
              else await continueWith('publish', { text })
            }),
          publish: (each) => ({ url: `/${each.data.text}` }),
          wild: (each, ctx) =>
            ctx.complete(async ({ continueWith }) => {
              if (each.data > 0) await continueWith('wild', each.data - 1, { removeOnComplete: true })
              return each.data
            }),
        },
        { logger: false },
      ),
    )
  return { queue, work }
}

const checked = defineJobs({
  approve: job({
    input: z.object({ by: z.string().optional() }),
    output: z.object({ by: z.string() }),
    next: ['ship'],
  }),
  ship: job({ output: z.object({ parcel: z.string() }), next: [] }),
})

describe.each(served)('on %s', (kind) => {
  test('a job that declares a result may leave it to the one that its chain goes on with', async () => {
    const queue = closing(
      new Queue('orders', { store: await make(kind), jobs: checked, logger: false, defaults: { attempts: 1 } }),
    )
    const [worked, approved, ended, forgot] = await queue.addBulk([
      { name: 'approve', data: {} },
      { name: 'approve', data: { by: 'hand' }, options: { delay: '1h' } },
      { name: 'approve', data: { by: 'ann' } },
      { name: 'approve', data: { by: 'nobody' } },
    ])
    closing(
      new Worker(
        queue,
        {
          approve: async ({ data: { by } }, ctx) => {
            if (by === 'ann') return { by }
            if (by === 'nobody') return undefined
            return ctx.complete(async ({ continueWith }) => void (await continueWith('ship')))
          },
          ship: () => ({ parcel: 'p' }),
        },
        { logger: false },
      ),
    )
    await queue
      .chain(approved!.id)
      .complete(({ complete }) => complete(async ({ continueWith }) => void (await continueWith('ship'))))
    for (const each of [worked, approved]) {
      expect(await queue.chain(each!.id).result({ timeout: '50s' })).toEqual({ parcel: 'p' })
      expect((await each!.refresh()).state).toBe('completed')
      expect(each!.returned).toBeUndefined()
    }
    expect(await ended!.result({ timeout: '50s' })).toEqual({ by: 'ann' })
    await expect(forgot!.result({ timeout: '50s' })).rejects.toMatchObject({ code: 'JOB_FAILED' }) // it did not go on
    const last = await queue.add('approve', {}, { delay: '1h' })
    const forgetting = queue.chain(last.id).complete(({ complete }) => complete(() => undefined))
    await expect(forgetting).rejects.toMatchObject({ code: 'INVALID_RESULT' })
  })

  test('the result of a chain is that of its last job, through branches and loops', async () => {
    const { queue, work } = stage(await make(kind))
    const first = await queue.add('draft', { text: 'hello' })
    const chain = queue.chain(first)
    expect(await chain.state()).toBe('waiting')
    const result = chain.result({ timeout: '30s' })
    work()
    expect(await result).toEqual({ url: '/hello' })
    expect((await chain.jobs()).map(({ name, chainIndex }) => [name, chainIndex])).toEqual([
      ['draft', 0],
      ['review', 1],
      ['review', 2],
      ['review', 3],
      ['publish', 4],
    ])
    expect(await chain.state()).toBe('completed')
    expect(await chain.result()).toEqual({ url: '/hello' }) // known already
    const last = (await chain.jobs()).at(-1)!
    expect(await queue.chain(last.id).result()).toEqual({ url: '/hello' }) // by any of its jobs
    expect(await chain.cancel()).toBe(false)
    expect(await chain.remove()).toBe(5)
    await expect(chain.state()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    await expect(chain.result()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
  })

  test('a result is received even if every job of the chain is removed as it completes', async () => {
    const { queue, work } = stage(await make(kind))
    const first = await queue.add('wild', 6, { removeOnComplete: true })
    const result = queue.chain(first).result()
    await queue.counts() // the ear is open
    work()
    expect(await result).toBe(0)
  })

  test('a result rejects if the chain fails, and a wait that times out leaves the chain alone', async () => {
    const { queue, work } = stage(await make(kind))
    const slow = await queue.add('draft', { text: 'late' }, { delay: '1h' })
    await expect(queue.chain(slow.id).result({ timeout: 5 })).rejects.toMatchObject({ code: 'RESULT_TIMEOUT' })
    await expect(queue.chain(slow.id).result({ signal: AbortSignal.abort('enough') })).rejects.toBe('enough')
    const bad = await queue.add('draft', { text: 'bad' })
    const result = queue.chain(bad).result()
    work()
    await expect(result).rejects.toMatchObject({ code: 'JOB_FAILED' })
    const cut = queue.chain(slow.id).result()
    const received = event(queue, 'cancelled')
    cut.catch(() => {})
    expect(await queue.chain(slow.id).cancel()).toBe(true)
    await received
    await expect(cut).rejects.toMatchObject({ code: 'JOB_CANCELLED' })
  })

  test('a chain that others wait for is removed with them or not at all', async () => {
    const { queue } = stage(await make(kind))
    const first = await queue.add('draft', { text: 'a' })
    const waits = await queue.add('wild', 1, { after: first })
    await expect(queue.chain(first.id).remove()).rejects.toMatchObject({
      code: 'JOB_HAS_DEPENDENTS',
      details: { dependents: [waits.id] },
    })
    expect(await queue.chain(first.id).remove({ cascade: true })).toBe(1)
    expect(await queue.get(waits.id)).toBeUndefined()
  })

  test('a settlement has one continuation, whichever call is first', async () => {
    const { queue } = stage(await make(kind))
    const first = await queue.add('draft', { text: 'x' })
    const race = await Promise.allSettled(
      Array.from({ length: 6 }, (_, n) =>
        queue.chain(first.id).complete(({ job: current, complete }) => {
          if (current.id !== first.id) throw new Error('too late')
          return complete(async ({ continueWith }) => void (await continueWith('review', { text: 'x', round: n })))
        }),
      ),
    )
    expect(race.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(await queue.chain(first.id).jobs()).toHaveLength(2)
  })

  test('a continuation that was not declared is refused', async () => {
    const { queue } = stage(await make(kind))
    const first = await queue.add('draft', { text: 'x' })
    const wrong = queue
      .chain(first.id)
      .complete(({ complete }) => complete(({ continueWith }) => continueWith('publish', { text: 'x' })))
    await expect(wrong).rejects.toMatchObject({ code: 'WRONG_CONTINUATION' })
    expect(await queue.chain(first.id).state()).toBe('waiting')
  })
})

test('declarations that lead nowhere are refused', () => {
  expect(() => defineJobs({ a: job({ next: ['b'] }) } as never)).toThrow("goes on with 'b'")
  expect(() => job({ next: 'b' as never })).toThrow('a list of names')
})

test('declared dependencies are asked for at add', async () => {
  const declared = defineJobs({
    fetch: job<number, number>(),
    resize: job<number, string>(),
    report: job<number, number, string, readonly ['fetch', 'resize']>({ after: ['fetch', 'resize'] }),
  })
  const queue = closing(new Queue('typed', { store: await make('memory'), jobs: declared, logger: false }))
  const [fetch, resize] = [await queue.add('fetch', 1), await queue.add('resize', 2)]
  await expect(queue.add('report', 3)).rejects.toMatchObject({ code: 'WRONG_DEPENDENCIES' })
  await expect(queue.add('report', 3, { after: [resize, fetch] })).rejects.toMatchObject({ code: 'WRONG_DEPENDENCIES' })
  const report = await queue.add('report', 3, { after: [fetch.id, resize] })
  closing(
    new Worker(queue, {
      fetch: ({ data }) => data,
      resize: ({ data }) => `${data} px`,
      report: async (_job, ctx) => {
        const [a, b] = await ctx.dependencies()
        return a.status === 'completed' && b.status === 'completed' ? a.result + b.result.length : 0
      },
    }),
  )
  expect(await report.result()).toBe(5)
})
