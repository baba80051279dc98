// Lists that may be long are to be had by page: schedules, the jobs of a chain, and what a job waited for.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, defineJobs, job } from 'millrace'
import type { DependencyPage, JobContext, Store } from 'millrace'
import { observed } from '../observed-store.js'
import { closing } from '../setup.js'
import { served, stores } from '../stores.js'

const make = stores()

describe.each(served)('on %s', (kind) => {
  test('schedules by page neither skip nor repeat one, whatever is made or taken away meanwhile', async () => {
    const queue = closing(new Queue('paged', { store: await make(kind), logger: false }))
    const keys = Array.from({ length: 7 }, (_, n) => `k${n}`)
    for (const key of keys) await queue.schedule(key, { every: '1h', name: 'n' })
    await queue.add('n')
    const seen: string[] = []
    let page = await queue.schedules({ limit: 3 })
    for (; page.cursor !== undefined; page = await queue.schedules({ limit: 3, cursor: page.cursor })) {
      seen.push(...page.schedules.map(({ key }) => key))
      if (seen.length === 3) {
        await queue.unschedule('k1')
        await queue.schedule('k7', { every: '1h', name: 'n' })
      }
    }
    seen.push(...page.schedules.map(({ key }) => key))
    expect(seen).toEqual([...keys, 'k7'])
    expect(page.schedules[0]!.next).toHaveLength(5)
    expect((await queue.schedules()).map(({ key }) => key)).toEqual(seen.filter((key) => key !== 'k1'))
    await expect(queue.schedules({ limit: 0 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.schedules({ cursor: 'x' })).rejects.toMatchObject({ code: 'INVALID_CURSOR' })
    await expect(queue.schedules({ page: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  })

  test('the jobs of a chain by page, in its order, asked for by any of them', async () => {
    const queue = closing(new Queue('paged', { store: await make(kind), logger: false }))
    closing(
      new Worker(
        queue,
        (job, ctx) =>
          ctx.complete(async ({ continueWith }) => {
            const left = job.data as number
            if (left > 0) await continueWith('n', left - 1)
          }),
        { logger: false },
      ),
    )
    const first = await queue.add('n', 4)
    await queue.chain(first).result()
    const one = await queue.chain(first).jobs({ limit: 2 })
    expect(one.jobs.map(({ data }) => data)).toEqual([4, 3])
    const two = await queue.chain(one.jobs[1]!.id).jobs({ limit: 10, cursor: one.cursor! })
    expect(two.jobs.map(({ data }) => data)).toEqual([2, 1, 0])
    expect(two.cursor).toBeUndefined()
    expect(await queue.chain(first).jobs()).toHaveLength(5)
    await expect(queue.chain(first).jobs({ limit: 5000 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  test('what a job waited for by page, in its order, whole or cut by bytes, without signals', async () => {
    const of = await make(kind)
    let bytes: { readonly bytes?: number } = {}
    const store: Store = { ...observed(of, () => {}), details: (query, tx) => of.details({ ...query, ...bytes }, tx) }
    const queue = closing(new Queue('paged', { store, logger: false }))
    const children = await queue.addBulk(Array.from({ length: 7 }, (_, n) => ({ name: 'child', data: n })))
    const parent = await queue.add('parent', 0, { after: children })
    type Pages = readonly (readonly (number | string)[])[]
    const paged = async (ctx: JobContext, limit: number): Promise<Pages> => {
      const pages: (number | string)[][] = []
      for (let cursor: string | undefined; ;) {
        const page: DependencyPage = await ctx.dependencies({ limit, cursor })
        pages.push(
          page.dependencies.map((each) => (each.status === 'completed' ? (each.result as number) : each.status)),
        )
        cursor = page.cursor
        if (cursor === undefined) return pages
      }
    }
    const refused: unknown[] = []
    closing(
      new Worker(
        queue,
        {
          child: ({ data }) => data,
          parent: async (_job, ctx) => {
            await ctx.waitForSignal('a')
            await ctx.waitForSignal('b')
            const more = await ctx.add('child', 7)
            const whole = await ctx.dependencies()
            if (whole.length === 7) return ctx.waitFor(more)
            for (const options of [{ limit: 0 }, { limit: 1001 }, { limit: 5, cursor: 'x' }, { limit: 5, page: 2 }]) {
              await ctx.dependencies(options as never).catch((error: unknown) => refused.push(error))
            }
            const found: Pages[] = [[whole.map((each) => (each.status === 'completed' ? (each.result as number) : -1))]]
            for (const limit of [3, 100]) found.push(await paged(ctx, limit))
            bytes = { bytes: 1 }
            found.push(await paged(ctx, 100))
            bytes = {}
            return found
          },
        },
        { logger: false },
      ),
    )
    await queue.signal(parent.id, 'a')
    await queue.signal(parent.id, 'b')
    const all = [0, 1, 2, 3, 4, 5, 6, 7]
    const [whole, threes, one, cut] = (await parent.result()) as Pages[]
    expect(whole).toEqual([all])
    expect(threes!.flat()).toEqual(all)
    expect(Math.max(...threes!.map(({ length }) => length))).toBe(3)
    expect(one).toEqual([all])
    expect(cut).toEqual(all.map((each) => [each]))
    const [a, b, c, d] = refused
    for (const error of [a, b]) expect(error).toMatchObject({ code: 'INVALID_OPTION' })
    expect(c).toMatchObject({ code: 'INVALID_CURSOR' })
    expect(d).toMatchObject({ code: 'UNKNOWN_OPTION' })
  })

  test('pages of what was waited for are held to what was declared, as far as they go', async () => {
    const of = await make(kind)
    const declared = defineJobs({
      a: job<number, number>(),
      b: job<number, number>(),
      sum: job<number, number, string, ['a', 'b']>({ after: ['a', 'b'] }),
    })
    const other = closing(new Queue('paged', { store: of, logger: false }))
    const queue = closing(new Queue('paged', { store: of, jobs: declared, logger: false }))
    closing(
      new Worker(
        queue,
        {
          a: ({ data }) => data,
          b: ({ data }) => data,
          sum: async (_job, ctx) => {
            const one = await ctx.dependencies({ limit: 1 })
            const two = await ctx.dependencies({ limit: 1, cursor: one.cursor! })
            return one.dependencies.length + two.dependencies.length
          },
        },
        { logger: false },
      ),
    )
    const [a, b] = [await queue.add('a', 1), await queue.add('b', 2)]
    expect(await (await queue.add('sum', 0, { after: [a, b] })).result()).toBe(2)
    const options = { attempts: 1 }
    const turned = await other.add('sum', 0, { after: [b, a], ...options })
    await expect(turned.result()).rejects.toMatchObject({ cause: { code: 'WRONG_DEPENDENCIES' } })
    const wrong = await other.add('sum', 0, { after: [a, await queue.add('sum', 0, { after: [a, b] })], ...options })
    await expect(wrong.result()).rejects.toMatchObject({ cause: { code: 'WRONG_DEPENDENCIES' } })
  })

  test('a refused removal counts the jobs that wait, and lists no more than a page of them', async () => {
    const queue = closing(new Queue('paged', { store: await make(kind), logger: false }))
    const job = await queue.add('n')
    await queue.addBulk(Array.from({ length: 1005 }, () => ({ name: 'n', options: { after: job.id } })))
    for (const removal of [() => job.remove(), () => queue.chain(job).remove()]) {
      const error = (await removal().catch((thrown: unknown) => thrown)) as { code: string; details: object }
      expect(error).toMatchObject({ code: 'JOB_HAS_DEPENDENTS', details: { count: 1005 } })
      expect((error.details as { dependents: string[] }).dependents).toHaveLength(1000)
    }
    const many = (await queue.list({ limit: 1000 })).jobs.slice(1, 31)
    const all = await queue.add('n', 1, { after: many })
    expect((await queue.explain(all.id)).text).toMatch(/ and 20 more\.$/)
  })
})
