// Helpers for tests: typed by the declared jobs, as the real queue and the real context are.
import { Queue, middleware } from 'millrace'
import type { BatchHandlerOf, ErrorInfo, HandlerOf, Job } from 'millrace'
import { memory } from 'millrace/memory'
import type { sqlite } from 'millrace/sqlite'
import { millraceMatchers, testContext, testQueue } from 'millrace/testing'
import type { MillraceMatchers, TestQueue } from 'millrace/testing'
import { describe, expectTypeOf, test } from 'vitest'
import { jobs } from '../testing/queue/jobs.js'

declare const sendEmail: HandlerOf<typeof jobs, 'send-email'>
declare const onSqlite: HandlerOf<typeof jobs, 'send-email', unknown, ReturnType<typeof sqlite>>
declare const withAccount: HandlerOf<typeof jobs, 'send-email', { readonly account: string }>
declare const sendEmails: BatchHandlerOf<typeof jobs, 'send-email'>

/** As production code takes a queue. */
declare function signUp(queue: Queue<typeof jobs>): Promise<void>

describe('testQueue', () => {
  test('is a queue of the declared jobs, for code that takes one', () => {
    const queue = testQueue(jobs)
    expectTypeOf(queue).toExtend<Queue<typeof jobs>>()
    expectTypeOf(signUp(queue)).toEqualTypeOf<Promise<void>>()
    void queue.add('send-email', { to: 'ann' })
    // @ts-expect-error -- not declared
    void queue.add('send-mail', { to: 'ann' })
    // @ts-expect-error -- not the data of this job
    void queue.add('send-email', { from: 'ann' })
  })

  test('takes handlers of the declared jobs, with what middleware adds', () => {
    testQueue(jobs, { handlers: { 'send-email': sendEmail } })
    testQueue(jobs, { handlers: { 'send-email': { runBatch: sendEmails, batch: { size: 10 } } } })
    testQueue(jobs, { handlers: { resize: ({ data }) => data.unit.toUpperCase() } })
    const account = middleware<{ readonly account: string }>((_job, _ctx, next) => next({ account: 'a' }))
    const queue = testQueue(jobs, { worker: { middleware: [account] }, handlers: { 'send-email': withAccount } })
    void queue.drain({ handlers: { 'send-email': withAccount } })
    // @ts-expect-error -- without the middleware
    testQueue(jobs, { handlers: { 'send-email': withAccount } })
    // @ts-expect-error -- a result of another type
    testQueue(jobs, { handlers: { sweep: () => 'five' } })
    // @ts-expect-error -- not declared
    testQueue(jobs, { handlers: { sweeps: () => 5 } })
  })

  test('shows what was added, typed by its name', () => {
    const queue = testQueue(jobs)
    const [mail] = queue.added('send-email', { to: 'ann' }, { delay: '1h' })
    expectTypeOf(mail!.data.to).toEqualTypeOf<string>()
    const [any] = queue.added()
    if (any?.name === 'resize') expectTypeOf(any.data.width).toEqualTypeOf<number>()
    queue.added('send-email', { from: { name: 'Ann' }, tags: ['a'] })
    queue.added('send-email', (data) => data.to === 'ann')
    queue.added('send-email', { to: (to) => to.endsWith('.org') })
    // @ts-expect-error -- not in the data
    queue.added('send-email', { recipient: 'ann' })
    // @ts-expect-error -- of another type
    queue.added('send-email', { to: 5 })
    // @ts-expect-error -- not declared
    queue.added('send-mail')
    // @ts-expect-error -- not an option
    queue.added('send-email', {}, { retries: 5 })
  })

  test('returns outcomes that can be narrowed', async () => {
    const queue = testQueue(jobs)
    const run = await queue.runOne(await queue.add('sweep'))
    expectTypeOf(run.name).toEqualTypeOf<'sweep'>()
    if (run.outcome === 'completed') expectTypeOf(run.result).toEqualTypeOf<number>()
    if (run.outcome === 'failed') expectTypeOf(run.error).toEqualTypeOf<ErrorInfo>()
    if (run.outcome === 'retrying') expectTypeOf(run.runAt).toEqualTypeOf<number>()
    // @ts-expect-error -- it may have failed
    void run.result
    const { runs, completed } = await queue.drain({ advance: '1h' })
    expectTypeOf(completed).toEqualTypeOf<number>()
    for (const each of runs) {
      if (each.name === 'send-email' && each.outcome === 'completed') {
        expectTypeOf(each.result).toEqualTypeOf<{ messageId: string }>()
        expectTypeOf(each.job.data.to).toEqualTypeOf<string>()
      }
    }
  })

  test('takes any jobs without a declaration', () => {
    const queue = testQueue(undefined, { handlers: (job: Job) => job.name })
    void queue.add('anything', { at: 'all' })
    expectTypeOf(queue).toExtend<Queue>()
  })

  test('stands beside another test queue, and no other queue', () => {
    testQueue(jobs, { beside: testQueue(jobs) })
    // @ts-expect-error -- a queue has no store of this kind
    testQueue(jobs, { beside: { store: 'here' } })
    testQueue(jobs, { beside: new Queue('mine', { store: memory() }) }) // refused when it runs
  })
})

describe('testContext', () => {
  test('fits the handler of its job', () => {
    const ctx = testContext(jobs, 'send-email', { to: 'ann' })
    expectTypeOf(sendEmail(ctx.job, ctx)).toExtend<unknown>()
    const store = {} as ReturnType<typeof sqlite>
    const forSqlite = testContext(jobs, 'send-email', { to: 'ann' }, { store })
    expectTypeOf(onSqlite(forSqlite.job, forSqlite)).toExtend<unknown>()
    // @ts-expect-error -- its transactions are those of another store
    void onSqlite(ctx.job, ctx)
    expectTypeOf(ctx.job.data.to).toEqualTypeOf<string>()
    // @ts-expect-error -- what the middleware adds is missing
    void withAccount(ctx.job, ctx)
    const more = testContext(jobs, 'send-email', { to: 'ann' }, { extra: { account: 'a' } })
    void withAccount(more.job, more)
    const other = testContext(jobs, 'sweep')
    // @ts-expect-error -- another job
    void sendEmail(other.job, other)
  })

  test('takes the data of its job, and gives what the schema makes of it', () => {
    expectTypeOf(testContext(jobs, 'resize', { width: 5 }).job.data).toEqualTypeOf<{ width: number; unit: string }>()
    // @ts-expect-error -- data is missing
    testContext(jobs, 'resize')
    // @ts-expect-error -- of another type
    testContext(jobs, 'resize', { width: '5' })
  })

  test('shows recorded jobs by name', () => {
    const [first] = testContext(jobs, 'sweep').recorded.added
    if (first?.name === 'send-email') expectTypeOf(first.data.to).toEqualTypeOf<string>()
  })
})

describe('matchers', () => {
  test('are typed by the queue, for vitest and for jest', () => {
    const typed = {} as MillraceMatchers<TestQueue<typeof jobs>, Promise<void>>
    expectTypeOf(typed.toHaveAdded('send-email', { to: 'ann' })).toEqualTypeOf<Promise<void>>()
    void typed.toHaveAddedTimes(2, 'send-email', { to: 'ann' }, { delay: '1h' })
    // @ts-expect-error -- not declared
    void typed.toHaveAdded('send-mail')
    // @ts-expect-error -- not in the data
    void typed.toHaveAdded('send-email', { recipient: 'ann' })
    const loose = {} as MillraceMatchers
    loose.toHaveAdded('anything', { at: 'all' })
    expectTypeOf(millraceMatchers.toHaveAdded({}, 'a').pass).toEqualTypeOf<boolean>()
  })
})
