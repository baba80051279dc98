// Flows, chains and dependencies are typed by the jobs declared.
import { describe, expectTypeOf, test } from 'vitest'
import { FlowProducer, Queue, Worker, defineJobs, job, typed } from 'millrace'
import type { ChainResult, DependencyPage, EdgeError, Ended, Store } from 'millrace'
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
        await ctx.complete(({ continueWith }) => continueWith('draft', { text: 'a' })) // it declares nothing of what is next
        return ''
      },
    })
    // @ts-expect-error there is no such job to go on with
    defineJobs({ a: job<number, number, 'b'>({ next: ['b'] }) })
  })

  test('a job that names what is next may leave its result to that, and no other may', () => {
    const orders = defineJobs({
      approve: job({ output: typed<{ by: string }>(), next: ['ship'] }),
      ship: job({ output: typed<{ parcel: string }>(), next: [] }),
      free: job({ output: typed<number>() }),
    })
    const made = new Queue('orders', { store, jobs: orders })
    void new Worker(made, {
      approve: async (_job, ctx) => {
        await ctx.complete(async ({ continueWith }) => void (await continueWith('ship')))
      },
      // @ts-expect-error it is the last
      ship: async () => {},
      // @ts-expect-error nothing is declared of what is next
      free: async () => {},
    })
    void made.add('approve').then((first) => {
      expectTypeOf(first.result()).resolves.toEqualTypeOf<{ by: string } | undefined>()
      expectTypeOf(made.chain(first).result()).resolves.toEqualTypeOf<{ by: string } | { parcel: string }>()
    })
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
        expectTypeOf(first).toEqualTypeOf<Ended | undefined>()
        // @ts-expect-error it may be of any queue
        return first?.name === 'fetch' && first.status === 'completed' ? String(first.result.rows) : ''
      },
    })
    // @ts-expect-error they are named in that order
    job<{ id: number }, string, string, ['fetch', 'resize']>({ after: ['resize', 'fetch'] })
  })

  test('are a tuple where they were declared', () => {
    new Worker(queue, {
      report: async (_job, ctx) => {
        const [fetch, resize, ...rest] = await ctx.dependencies()
        const page = await ctx.dependencies({ limit: 10 })
        // By page, of unknown beginning: those that were declared, and any other.
        expectTypeOf(page.dependencies).toEqualTypeOf<readonly (typeof fetch | typeof resize | Ended)[]>()
        expectTypeOf(page.cursor).toEqualTypeOf<string | undefined>()
        expectTypeOf(ctx.dependencies({ cursor: '1' })).resolves.toEqualTypeOf(page)
        expectTypeOf(ctx.dependencies({ limit: 10, cursor: page.cursor })).resolves.toEqualTypeOf(page)
        // @ts-expect-error without either, it is no page
        void ctx.dependencies({})
        // @ts-expect-error not by name
        void ctx.dependencies({ limit: 10, name: 'fetch' })
        expectTypeOf(fetch).toEqualTypeOf<Ended<'fetch', number[]>>()
        expectTypeOf(resize).toEqualTypeOf<Ended<'resize', string>>()
        if (fetch.status === 'failed') expectTypeOf(fetch.error).toEqualTypeOf<EdgeError>()
        expectTypeOf(rest).toEqualTypeOf<Ended[]>() // by ctx.waitFor, of any queue
        return { url: '' }
      },
      resize: async (_job, ctx) => {
        const [first] = await ctx.dependencies()
        expectTypeOf(ctx.dependencies({ limit: 10 })).resolves.toEqualTypeOf<DependencyPage>()
        if (first?.name === 'fetch' && first.status === 'completed') expectTypeOf(first.result).toBeUnknown()
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
  test('are typed by the jobs of their queues', () => {
    const mails = new Queue('mails', { store, jobs: defineJobs({ mail: job<{ to: string }, { id: string }>() }) })
    const both = new FlowProducer({ store, queues: [queue, mails] })
    const added = both.add({
      name: 'mail',
      queueName: 'mails',
      data: { to: 'a' },
      children: [{ name: 'fetch', queueName: 'typed', data: { source: 'db' } }],
    })
    void added.then(({ job: mail, children: [fetch] }) => {
      expectTypeOf(mail.result()).resolves.toEqualTypeOf<{ id: string }>()
      expectTypeOf(fetch.job.result()).resolves.toEqualTypeOf<number[]>()
    })
    // @ts-expect-error data is checked
    void both.add({ name: 'mail', queueName: 'mails', data: { to: 1 } })
    // @ts-expect-error there is no such job in either
    void both.add({ name: 'mial', queueName: 'mails', data: { to: 'a' } })
    const more = new FlowProducer({ store, jobs, queues: [mails] })
    void more.add({ name: 'resize', queueName: 'etl', data: { width: 1 } })
    // @ts-expect-error of the queue as well
    void more.add({ name: 'mail', queueName: 'mails' })
    const letters = new Queue('letters', { store, jobs: defineJobs({ mail: job<{ street: string }, 'sent'>() }) })
    const named = new FlowProducer({ store, queues: [mails, letters, queue] })
    void named.add({ name: 'mail', queueName: 'mails', data: { to: 'a' } })
    const letter = named.add({
      name: 'mail',
      queueName: 'letters',
      data: { street: 'a' },
      children: [{ name: 'fetch', queueName: 'typed', data: { source: 'db' } }],
    })
    void letter.then(({ job: mail }) => expectTypeOf(mail.result()).resolves.toEqualTypeOf<{ id: string } | 'sent'>())
    // @ts-expect-error of neither queue
    void named.add({ name: 'mail', queueName: 'letters', data: { to: 1 } })
    const any = new FlowProducer({ store, queues: [new Queue('any', { store })] })
    void any.add({ name: 'whatever', queueName: 'any', data: 1 })
  })

  test('refuse fields that there are not, in every job', () => {
    // @ts-expect-error it is onFailure
    void flows.add({ name: 'resize', queueName: 'etl', data: { width: 1 }, onFailur: 'ignore' })
    // @ts-expect-error there is no height
    void flows.add({ name: 'resize', queueName: 'etl', data: { width: 1, height: 1 } })
  })
})
