// What handlers are given beside their job: the signal, and what middleware adds.
import { Worker, middleware } from 'millrace'
import type { AbortReason, ExtrasOf, HandlerOf, Job, JobAbort, JobContext, Middleware, Store } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { queue, store } from './jobs.js'
import type { jobs } from './jobs.js'

interface Account {
  readonly account: string
}
interface Tracing {
  readonly span: number
}

const account = middleware<Account>((job, ctx, next) => next({ account: `${job.id} ${ctx.signal.aborted}` }))
const tracing = middleware<Tracing>(async (_job, _ctx, next) => next({ span: 1 }))
const timing = middleware(async (_job, _ctx, next) => next())

describe('ctx', () => {
  test('has a signal with the reason of its abort, once it has aborted', () => {
    new Worker(queue, {
      sweep: async (_job, ctx) => {
        expectTypeOf(ctx.signal).toExtend<AbortSignal>()
        expectTypeOf(ctx.signal.reason).toEqualTypeOf<JobAbort | undefined>()
        await fetch('https://example.com', { signal: ctx.signal })
        return 5
      },
    })
  })

  test('has reasons that can be narrowed, all of them', () => {
    const explain = (reason: AbortReason): string => {
      switch (reason) {
        case 'cancelled':
        case 'lease-lost':
        case 'completed-elsewhere':
        case 'removed':
        case 'timeout':
        case 'shutdown':
          return reason
        default:
          return expectTypeOf(reason).toEqualTypeOf<never>() as never
      }
    }
    void explain
    // @ts-expect-error there is no such reason
    explain('bored')
  })

  test('snoozes without coming back', () => {
    new Worker(queue, { sweep: (_job, ctx) => ctx.snooze('5m') })
    expectTypeOf<JobContext['snooze']>().returns.toEqualTypeOf<never>()
    expectTypeOf<JobContext['progress']>().returns.toEqualTypeOf<Promise<void>>()
  })
})

describe('middleware', () => {
  test('must return what it declares to add', () => {
    // @ts-expect-error nothing is given
    middleware<Account>((_job, _ctx, next) => next())
    // @ts-expect-error an account is text
    middleware<Account>((_job, _ctx, next) => next({ account: 5 }))
  })

  test('needs no annotations', () => {
    middleware((job, ctx, next) => {
      expectTypeOf(job).toEqualTypeOf<Job>()
      expectTypeOf(ctx).toEqualTypeOf<JobContext>()
      expectTypeOf(next()).toEqualTypeOf<Promise<unknown>>()
    })
  })

  test('adds to the context of handlers', () => {
    new Worker(
      queue,
      {
        sweep: (_job, ctx) => {
          expectTypeOf(ctx).toEqualTypeOf<JobContext<Store, typeof jobs> & Account>()
          return ctx.account.length
        },
        charge: { run: async (_job, ctx) => ({ receipt: ctx.account }) },
        // @ts-expect-error no middleware adds a span
        loose: (_job, ctx) => ctx.span,
      },
      { middleware: [account] },
    )
  })

  test('adds all together, in lists of any length', () => {
    new Worker(
      queue,
      {
        sweep: (_job, ctx) => {
          expectTypeOf(ctx.account).toEqualTypeOf<string>()
          expectTypeOf(ctx.span).toEqualTypeOf<number>()
          return ctx.span
        },
      },
      { middleware: [account, timing, tracing] },
    )
    expectTypeOf<ExtrasOf<readonly [typeof account, typeof timing, typeof tracing]>>().toEqualTypeOf<
      Account & Tracing
    >()
    expectTypeOf<ExtrasOf<readonly [typeof timing]>>().toEqualTypeOf<unknown>()
    expectTypeOf<ExtrasOf<readonly []>>().toEqualTypeOf<unknown>()
  })

  test('adds to one handler for all, and to workers by name', () => {
    new Worker('main', async (_job, ctx) => ctx.account, { store, middleware: [account] })
    new Worker('main', { any: async (_job, ctx) => ctx.account }, { store, middleware: [account] })
    new Worker(queue, async (_job, ctx) => (ctx.span === 1 ? 5 : { receipt: ctx.account }), {
      middleware: [account, tracing],
    })
    // @ts-expect-error no middleware adds an account
    new Worker('main', async (_job, ctx) => ctx.account, { store, middleware: [timing] })
  })

  test('is typed beside other callbacks, and may be written in the list', () => {
    new Worker(
      queue,
      { sweep: (_job, ctx) => ctx.span },
      { middleware: [tracing], retryable: (_error, _job) => 'fatal' },
    )
    new Worker(queue, { sweep: () => 5 }, { middleware: [(job, ctx, next) => next({ [job.id]: ctx })] })
  })

  test('is known to handlers written apart', () => {
    const sweep: HandlerOf<typeof jobs, 'sweep', Tracing> = (_job, ctx) => ctx.span
    new Worker(queue, { sweep }, { middleware: [account, tracing] })
    // @ts-expect-error no middleware adds the span it needs
    new Worker(queue, { sweep }, { middleware: [account] })
  })

  test('can be added later, with no effect on types', () => {
    const worker = new Worker(queue, { sweep: () => 5 })
    expectTypeOf(worker.use(account)).toEqualTypeOf<typeof worker>()
    worker.use((_job, _ctx, next) => next())
    // @ts-expect-error a middleware is a function
    worker.use('account')
    expectTypeOf(account).toExtend<Middleware>()
  })
})
