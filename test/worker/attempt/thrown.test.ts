// Whatever a handler or a callback throws, its worker goes on, and the job is retried like any other.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Worker, middleware, phases } from 'millrace'
import type {
  AnyJobs,
  BackoffOptions,
  BatchContext,
  CustomBackoff,
  Duration,
  Handlers,
  JobContext,
  Middleware,
  Queue,
  WorkerOptions,
} from 'millrace'
import { closing, event, newQueue, newWorker } from '../../setup.js'
import { stores, transacting } from '../../stores.js'

const keepOut = (): never => {
  throw new Error('keep out')
}

function revoked(): unknown {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

function errorWithout(field: string): unknown {
  return Object.defineProperty(new Error('plain'), field, { get: keepOut })
}

function withoutThen(): unknown {
  return new Proxy({}, { get: (_target, key) => (key === 'then' ? keepOut() : undefined) })
}

/** Values that throw when they are inspected. */
const hostile: Record<string, () => unknown> = {
  'a revoked proxy': revoked,
  'a proxy that throws at everything': () => new Proxy({}, { get: keepOut, getPrototypeOf: keepOut, has: keepOut }),
  'an error without a name': () => errorWithout('name'),
  'an error without a code': () => errorWithout('code'),
  'an error without a message': () => errorWithout('message'),
  'an error without a stack': () => errorWithout('stack'),
  'an error without a cause': () => errorWithout('cause'),
  'an aggregate without its errors': () => errorWithout('errors'),
  'an object without a then': () => withoutThen(),
  'an object that is no text': () => ({ [Symbol.toPrimitive]: keepOut, toJSON: keepOut }),
  'an object that throws a revoked proxy': () => ({ toJSON: () => throwing(revoked()) }),
}

/** Values that are no errors at all. */
const odd: Record<string, () => unknown> = {
  undefined: () => undefined,
  null: () => null,
  0: () => 0,
  'an empty text': () => '',
  false: () => false,
  NaN: () => Number.NaN,
  'a symbol': () => Symbol('odd'),
  'a BigInt': () => 1n,
  'a function': () => () => {},
}

const values = { ...hostile, ...odd }

/** Something for each of the values, by its name. */
function each<T>(of: (make: () => unknown) => T): Record<string, T> {
  return Object.fromEntries(Object.entries(values).map(([name, make]) => [name, of(make)]))
}

function throwing(value: unknown): never {
  throw value
}

const stray: unknown[] = []
const note = (error: unknown): void => void stray.push(error)

beforeEach(() => {
  stray.length = 0
  process.on('unhandledRejection', note)
  process.on('uncaughtException', note)
})

afterEach(() => {
  process.off('unhandledRejection', note)
  process.off('uncaughtException', note)
})

/** Runs a job with two attempts for each handler, all to their ends, and then one that goes well. */
async function ends(
  handlers: Record<string, unknown>,
  options: Omit<WorkerOptions<AnyJobs>, 'middleware'> & { middleware?: readonly Middleware[] } = {},
  { queue = newQueue(), backoff = 0 }: { queue?: Queue; backoff?: BackoffOptions | Duration } = {},
): Promise<void> {
  const all = { ...handlers, well: () => 'done' } as Handlers<AnyJobs>
  const worker = closing(new Worker(queue, all, { logger: false, ...options }))
  worker.on('error', () => {})
  const names = Object.keys(handlers)
  const failed = Promise.all(names.map((name) => event(queue, 'failed', (reported) => reported.name === name)))
  const jobs = await Promise.all(names.map((name) => queue.add(name, 1, { attempts: 2, backoff })))
  await failed
  expect(await (await queue.add('well')).result({ timeout: '30s' })).toBe('done')
  const ended = await Promise.all(jobs.map((job) => job.refresh()))
  expect(stray).toEqual([])
  const seen = ended.map(
    ({ name, state, attempt, errors }) => `${name}: ${state} in ${attempt}, ${errors.length} errors`,
  )
  expect(seen).toEqual(names.map((name) => `${name}: failed in 2, 2 errors`))
}

describe('whatever is thrown', () => {
  it('by a handler at once, a job is retried and its worker goes on', async () => {
    await ends(each((make) => () => throwing(make())))
  })

  it('by a handler later, a job is retried and its worker goes on', async () => {
    await ends(
      each((make) => async () => {
        await Promise.resolve()
        throwing(make())
      }),
    )
  })

  it('in a step, awaited or not, a job is retried and its worker goes on', async () => {
    const fails = (make: () => unknown) => (ctx: JobContext) => ctx.step('one', () => throwing(make()))
    await ends(each((make) => (_job: unknown, ctx: JobContext) => fails(make)(ctx)))
    await ends(each((make) => (_job: unknown, ctx: JobContext) => void fails(make)(ctx)))
  })

  it('in a phase, a job is retried and its worker goes on', async () => {
    await ends(each((make) => phases({ first: () => throwing(make()), second: () => {} })))
  })

  it('by a handler of batches, each job is retried and its worker goes on', async () => {
    const batch = { size: 2 }
    await ends(each((make) => ({ batch, runBatch: () => throwing(make()) })))
    await ends(each((make) => ({ batch, runBatch: () => Promise.reject(make()) })))
    await ends(
      each((make) => ({ batch, runBatch: (_jobs: unknown, ctx: BatchContext) => ctx.each(() => throwing(make())) })),
    )
  })

  it('by a middleware, or through one, a job is retried and its worker goes on', async () => {
    const around = ['outer', 'inner'].map((place) =>
      middleware((job, _ctx, next) => {
        if (job.name.startsWith(place)) throwing(values[job.name.slice(place.length)]!())
        return next()
      }),
    )
    const names = Object.keys(values).flatMap((name) => [`outer${name}`, `inner${name}`])
    await ends(
      { ...Object.fromEntries(names.map((name) => [name, () => {}])), ...each((make) => () => throwing(make())) },
      { middleware: around },
    )
  })

  it('by retryable, by listeners and by a logger, jobs are retried and the worker goes on', async () => {
    for (const make of Object.values(values)) {
      const throws = (): never => throwing(make())
      const logger = { debug: throws, info: throws, warn: throws, error: throws }
      const queue = newQueue({ logger })
      queue.on('retrying', throws)
      queue.on('active', () => Promise.reject(make()))
      await ends({ fails: throws }, { logger, retryable: throws }, { queue })
    }
  })

  it('by a backoff of the own, the default takes its place', async () => {
    const queue = newQueue()
    const worker = newWorker(
      queue,
      each((make) => () => throwing(make())),
      { backoff: each((make) => () => throwing(make())) },
    )
    const reported: unknown[] = []
    worker.on('error', ({ error }) => reported.push(error))
    const names = Object.keys(values)
    const retrying = Promise.all(names.map((name) => event(queue, 'retrying', (each) => each.name === name)))
    for (const name of names) await queue.add(name, 1, { attempts: 2, backoff: { type: 'custom', name } })
    await retrying
    // The default may be so short that some have run again by now.
    expect(reported.length).toBeGreaterThanOrEqual(names.length)
    expect(reported).toEqual(reported.map(() => expect.objectContaining({ code: 'CALLBACK_FAILED' }) as unknown))
    expect(stray).toEqual([])
  })

  it('retryable and backoffs of the own are given that very value', async () => {
    const thrown = each((make) => make())
    const given: boolean[] = []
    const own: CustomBackoff = (_attempt, error) => {
      given.push(Object.values(thrown).some((value) => Object.is(value, error)))
      return 0
    }
    const options: WorkerOptions<AnyJobs> = {
      retryable: (error, job) => {
        given.push(Object.is(thrown[job.name], error))
        return 'retry'
      },
      backoff: { own },
    }
    const handlers = Object.fromEntries(Object.keys(values).map((name) => [name, () => throwing(thrown[name])]))
    await ends(handlers, options, { backoff: { type: 'custom', name: 'own' } })
    expect(given.every(Boolean)).toBe(true)
    expect(given.length).toBeGreaterThanOrEqual(3 * Object.keys(values).length)
  })
})

const make = stores()

describe.each(transacting)('on %s, whatever is thrown', (kind) => {
  it('a transaction is rolled back, and its connection is used again', async () => {
    const queue = newQueue({ store: await make(kind) })
    for (const value of Object.values(values)) {
      const given = value()
      const outcome = await queue
        .transaction(async () => {
          await queue.add('inside')
          throwing(given)
        })
        .then(
          () => 'committed',
          () => 'rolled back',
        )
      expect(outcome).toBe('rolled back')
    }
    expect(await queue.counts()).toMatchObject({ waiting: 0 })
  })

  it('by the callbacks of ctx.prepare and ctx.complete, or after them, a job is retried', async () => {
    const queue = newQueue({ store: await make(kind) })
    const of = (place: string, handler: (ctx: JobContext, value: unknown) => unknown): Record<string, unknown> =>
      Object.fromEntries(
        Object.entries(values).map(([name, value]) => [
          `${place} ${name}`,
          (_job: unknown, ctx: JobContext) => handler(ctx, value()),
        ]),
      )
    await ends(
      {
        ...of('complete', (ctx, value) => ctx.complete(() => throwing(value))),
        ...of('prepare', (ctx, value) => ctx.prepare({ mode: 'staged' }, () => throwing(value))),
        ...of('after', async (ctx, value) => {
          await ctx.complete(() => {})
          throwing(value)
        }),
      },
      {},
      { queue },
    )
  })
})
