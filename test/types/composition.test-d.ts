// Flows, chains and dependencies are typed by the jobs declared.
import { describe, expectTypeOf, test } from 'vitest'
import { FlowProducer, Queue, Worker, defineJobs, job, typed } from 'millrace'
import type { ChainResult, EdgeError, Ended, Store } from 'millrace'
import { z } from 'zod'

const jobs = defineJobs({
  fetch: job({ input: z.object({ source: z.string() }), output: z.array(z.number()) }),
  resize: job<{ width: number }, string>(),
  report: job({
    input: z.object({ id: z.number() }),
    output: z.object({ url: z.string() }),
    after: ['fetch', 'resize'],
  }),
  draft: job({ input: z.object({ text: z.string() }), next: ['review'] }),
  review: job<{ round: number }, unknown, 'review' | 'publish' | 'draft'>({ next: ['review', 'publish', 'draft'] }),
  publish: job({ input: z.object({ text: z.string() }), output: z.object({ at: z.number() }), next: [] }),
})
declare const store: Store<never>
const queue = new Queue('typed', { store, jobs })

describe('chains', () => {
  test('their result is that of the jobs they can end with, through loops and back', () => {
    expectTypeOf<ChainResult<typeof jobs, 'draft'>>().toEqualTypeOf<{ at: number }>()
    expectTypeOf<ChainResult<typeof jobs, 'fetch'>>().toEqualTypeOf<number[]>()
    expectTypeOf<ChainResult<typeof jobs, 'fetch' | 'draft'>>().toEqualTypeOf<number[] | { at: number }>()
    void queue.add('draft', { text: 'a' }).then((first) => {
      expectTypeOf(queue.chain(first).result()).resolves.toEqualTypeOf<{ at: number }>()
    })
    expectTypeOf(queue.chain('id').state()).resolves.toBeString()
  })

  test('a wrong continuation does not compile', () => {
    new Worker(queue, {
      draft: (_job, ctx) =>
        ctx.complete(async ({ continueWith }) => {
          await continueWith('review', { round: 1 })
          // @ts-expect-error a draft is reviewed first
          await continueWith('publish', { text: 'a' })
          // @ts-expect-error a review has a round
          await continueWith('review', { text: 'a' })
        }),
      publish: async (_job, ctx) => {
        // @ts-expect-error it is the last
        await ctx.complete(({ continueWith }) => continueWith('draft', { text: 'a' }))
        return { at: 1 }
      },
      resize: async (_job, ctx) => {
        await ctx.complete(({ continueWith }) => continueWith('draft', { text: 'a' })) // it says nothing of what is next
        return ''
      },
    })
    // @ts-expect-error there is no such job to go on with
    defineJobs({ a: job<number, number, 'b'>({ next: ['b'] }) })
  })

  test('plain types in the place of schemas leave the rest to be inferred', () => {
    const plain = defineJobs({
      write: job({ input: typed<{ text: string }>(), next: ['print', 'write'] }),
      print: job({ input: typed<number>(), output: typed<{ pages: number }>(), after: ['write'], next: [] }),
      last: job<string, string>({ next: [] }),
    })
    expectTypeOf<ChainResult<typeof plain, 'write'>>().toEqualTypeOf<{ pages: number }>()
    new Worker(new Queue('plain', { store, jobs: plain }), {
      write: (each, ctx) => {
        expectTypeOf(each.data).toEqualTypeOf<{ text: string }>()
        return ctx.complete(async ({ continueWith }) => {
          await continueWith('print', 5)
          // @ts-expect-error it is not named
          await continueWith('last', 'a')
          // @ts-expect-error a number
          await continueWith('print', 'a')
        })
      },
      print: async (_job, ctx) => {
        expectTypeOf((await ctx.dependencies())[0].name).toEqualTypeOf<'write'>()
        return { pages: 1 }
      },
    })
    // @ts-expect-error the names would be lost: they are to be inferred, or given as the third type
    job<string, string>({ next: ['print'] })
    job<string, string, 'print'>({ next: ['print'] })
  })

  test('are listed whole or by page', () => {
    expectTypeOf(queue.chain('id').jobs()).resolves.toExtend<readonly { name: string }[]>()
    expectTypeOf(queue.chain('id').jobs({ limit: 5 })).resolves.toExtend<{ readonly cursor?: string }>()
    // @ts-expect-error not by name
    void queue.chain('id').jobs({ name: 'draft' })
  })
})

describe('dependencies', () => {
  test('are a tuple where plain types name them, as the guide shows', () => {
    const plain = defineJobs({
      fetch: job<{ source: string }, { rows: number }>(),
      resize: job<{ path: string }, { bytes: number }>(),
      summary: job<{ id: number }, string, string, ['fetch', 'resize']>({ after: ['fetch', 'resize'] }),
      loose: job<{ id: number }, string>({ after: ['fetch', 'resize'] }),
    })
    new Worker(new Queue('plain', { store, jobs: plain }), {
      summary: async (_job, ctx) => {
        const [fetched, resized] = await ctx.dependencies()
        expectTypeOf(fetched).toEqualTypeOf<Ended<'fetch', { rows: number }>>()
        expectTypeOf(resized).toEqualTypeOf<Ended<'resize', { bytes: number }>>()
        return fetched.status === 'completed' ? `${fetched.result.rows} rows` : 'no rows'
      },
      loose: async (_job, ctx) => {
        const [first] = await ctx.dependencies()
        if (first?.name === 'fetch' && first.status === 'completed') return String(first.result.rows)
        // @ts-expect-error it may be any of them
        return first.result
      },
    })
    // @ts-expect-error they are named in that order
    job<{ id: number }, string, string, ['fetch', 'resize']>({ after: ['resize', 'fetch'] })
  })

  test('are a tuple where they were declared', () => {
    new Worker(queue, {
      report: async (_job, ctx) => {
        const [fetch, resize, ...rest] = await ctx.dependencies()
        expectTypeOf(fetch).toEqualTypeOf<Ended<'fetch', number[]>>()
        expectTypeOf(resize).toEqualTypeOf<Ended<'resize', string>>()
        if (fetch.status === 'failed') expectTypeOf(fetch.error).toEqualTypeOf<EdgeError>()
        for (const more of rest) if (more.name === 'resize' && more.status === 'completed') more.result.toUpperCase()
        return { url: '' }
      },
      resize: async (_job, ctx) => {
        const [first] = await ctx.dependencies()
        if (first?.name === 'fetch' && first.status === 'completed')
          expectTypeOf(first.result).toEqualTypeOf<number[]>()
        await ctx.add('fetch', { source: 'a' })
        // @ts-expect-error data is checked
        await ctx.add('fetch', { sauce: 'a' })
        expectTypeOf(ctx.waitFor).returns.toBeNever()
        return ''
      },
    })
  })
})

describe('flows', () => {
  const flows = new FlowProducer({ store, jobs })
  test('are checked and answered job by job', () => {
    const added = flows.add({
      name: 'report',
      queueName: 'reports',
      data: { id: 1 },
      children: [
        { name: 'fetch', queueName: 'etl', data: { source: 'db' } },
        {
          name: 'resize',
          queueName: 'etl',
          data: { width: 3 },
          onFailure: 'ignore',
          options: { cancelSiblings: true },
        },
      ],
    })
    void added.then(({ job: report, children: [fetch, resize] }) => {
      expectTypeOf(report.result()).resolves.toEqualTypeOf<{ url: string }>()
      expectTypeOf(fetch.job.result()).resolves.toEqualTypeOf<number[]>()
      expectTypeOf(resize.job.name).toEqualTypeOf<'resize'>()
    })
    // @ts-expect-error data is checked
    void flows.add({ name: 'fetch', queueName: 'etl', data: { source: 1 } })
    // @ts-expect-error there is no such job
    void flows.add({ name: 'fetsch', queueName: 'etl', data: { source: 'db' } })
    void flows.add({
      name: 'resize',
      queueName: 'etl',
      data: { width: 1 },
      // @ts-expect-error children are checked as well
      children: [{ name: 'fetch', queueName: 'etl', data: { source: 1 } }],
    })
  })
})
