// Durable steps: what a handler does once for its job, however often it runs.
import { describe, expect, test } from 'vitest'
import { Queue, UnrecoverableError, Worker, isMillraceError, phases } from 'millrace'
import type { AnyJobs, Handlers, JobContext, Store, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { kinds, stores } from '../../stores.js'
import { addActive, closing, event, gate } from '../../setup.js'

const make = stores()

function stage(store: Store, handlers: Handlers<AnyJobs>, options: WorkerOptions<AnyJobs, readonly []> = {}) {
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 3, backoff: 1 } }))
  const worker = closing(new Worker(queue, handlers, { concurrency: 1, logger: false, ...options }))
  return { queue, worker }
}

/** The code of what it rejects with. */
async function codeOf(work: Promise<unknown>): Promise<string | undefined> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  return isMillraceError(error) ? error.code : String(error)
}

describe.each(kinds)('on %s', (kind) => {
  test('a step is run once per job, and remembered across retries', async () => {
    const ran: string[] = []
    const { queue } = stage(await make(kind), {
      order: async (job, ctx) => {
        const charged = await ctx.step('charge', () => {
          ran.push(`charge in ${job.attempt}`)
          return { amount: 12, parts: ['a', null] }
        })
        const nothing = await ctx.step('notify', () => void ran.push(`notify in ${job.attempt}`))
        if (job.attempt < 3) throw new Error('not yet')
        return { charged, nothing: nothing === undefined }
      },
    })
    const added = await queue.add('order')
    expect(await added.result()).toEqual({ charged: { amount: 12, parts: ['a', null] }, nothing: true })
    expect(ran).toEqual(['charge in 1', 'notify in 1'])
  })

  test('a step is remembered when its job is retried by hand', async () => {
    let ran = 0
    let broken = true
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        const n = await ctx.step('count', () => ++ran)
        if (broken) throw new UnrecoverableError('broken')
        return n
      },
    })
    const failed = event(queue, 'failed')
    const added = await queue.add('order')
    await failed
    broken = false
    await added.retry()
    expect(await added.result()).toBe(1)
    expect(ran).toBe(1)
  })

  test('a result that is no JSON, or too large, is a coded error that is not retried', async () => {
    const results: Record<string, unknown> = { date: { at: [new Date(0)] }, large: 'x'.repeat(1024 * 1024) }
    const { queue } = stage(await make(kind), {
      order: async (job, ctx) => ctx.step('bad', () => results[job.data as string]),
    })
    for (const [what, code] of [
      ['date', 'INVALID_DATA'],
      ['large', 'DATA_TOO_LARGE'],
    ]) {
      const added = await queue.add('order', what)
      await expect(added.result()).rejects.toThrow("Step 'bad'")
      await added.refresh()
      expect([added.state, added.error?.code, added.attempt]).toEqual(['failed', code, 1])
    }
  })

  test('a sleep gives slot and attempt back, and is over when the handler runs again', async () => {
    const runs: string[] = []
    const { queue } = stage(await make(kind), {
      order: async (job, ctx) => {
        const first = await ctx.step('first', () => runs.push('step'))
        runs.push(`run, attempt ${job.attempt}`)
        await ctx.sleep('a while', 5)
        await ctx.sleep('another', 5)
        return first
      },
    })
    const added = await queue.add('order', undefined, { attempts: 1 })
    expect(await added.result()).toBe(1)
    expect(runs).toEqual(['step', 'run, attempt 1', 'run, attempt 1', 'run, attempt 1'])
  })

  test('steps are refused inside and after ctx.complete, and inside transactions', async () => {
    const store = await make(kind)
    const codes: (string | undefined)[] = []
    const { queue } = stage(store, {
      order: async (_job, ctx) => {
        await ctx.complete(async () => {
          codes.push(await codeOf(ctx.step('inside', () => 1)))
          codes.push(await codeOf(ctx.sleep('inside', 1)))
          codes.push(await codeOf(ctx.waitForSignal('inside')))
        })
        codes.push(await codeOf(ctx.step('after', () => 1)))
        return 'done'
      },
      nested: async (_job, ctx) => queue.transaction(() => codeOf(ctx.step('in a transaction', () => 1))),
      prepared: async (_job, { prepare, step }) => {
        await prepare({ mode: 'atomic' }, () => {})
        return codeOf(step('while it is open', () => 1))
      },
    })
    expect(await (await queue.add('order')).result()).toBe('done')
    expect(codes).toEqual(Array.from({ length: 4 }, () => 'CALLED_OUT_OF_ORDER'))
    if (!store.can.transactions) return
    expect(await (await queue.add('nested')).result()).toBe('IN_TRANSACTION')
    expect(await (await queue.add('prepared')).result()).toBe('IN_TRANSACTION')
  })
})

describe.each(kinds.slice(0, 2))('in one process, on %s', (kind) => {
  test('a step that throws is not remembered, and its error passes through', async () => {
    let tries = 0
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) =>
        ctx.step('shaky', () => {
          tries++
          if (tries < 3) throw new TypeError(`try ${tries}`)
          return tries
        }),
    })
    const added = await queue.add('order')
    expect(await added.result()).toBe(3)
    await added.refresh()
    expect(added.errors.map(({ name, message }) => [name, message])).toEqual([
      ['TypeError', 'try 1'],
      ['TypeError', 'try 2'],
    ])
  })

  test('a name used twice in one run gives the same result, and two at the same time share one', async () => {
    let ran = 0
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        const step = (): Promise<number> => ctx.step('once', async () => ++ran)
        const both = await Promise.all([step(), step()])
        return [...both, await step()]
      },
    })
    expect(await (await queue.add('order')).result()).toEqual([1, 1, 1])
  })

  test('steps that the handler did not wait for are remembered before the attempt ends', async () => {
    const slow = gate()
    let ran = 0
    const { queue } = stage(await make(kind), {
      order: async (job, ctx) => {
        const one = ctx.step('slow', async () => {
          ran++
          await slow.promise
          return 'slow'
        })
        if (job.attempt > 1) return one
        return Promise.all([
          one,
          ctx.step('fails', () => {
            setImmediate(slow.open)
            throw new Error('at once')
          }),
        ])
      },
    })
    expect(await (await queue.add('order')).result()).toBe('slow')
    expect(ran).toBe(1)
  })

  test('a worker that has lost its job remembers nothing', async () => {
    const inside = gate()
    const go = gate()
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        const step = ctx.step('late', async () => {
          inside.open()
          await go.promise
          return 'late'
        })
        const codes = [await codeOf(step), await codeOf(ctx.step('later', () => taken.push('later')))]
        reported.open(codes)
      },
    })
    const taken: string[] = []
    const reported = gate<(string | undefined)[]>()
    const added = await queue.add('order')
    await inside.promise
    await added.cancel()
    go.open()
    expect(await reported.promise).toEqual(['LEASE_LOST', 'LEASE_LOST'])
    expect(taken).toEqual([]) // nor does it take further steps
  })

  test('a sleeping job is delayed, does not hold its slot, and a promote ends its sleep early', async () => {
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        await ctx.sleep('for long', '1 day')
        return 'awake'
      },
      other: () => 'meanwhile',
    })
    const delayed = event(queue, 'delayed')
    const added = await queue.add('order')
    await delayed
    expect(await (await queue.add('other')).result()).toBe('meanwhile')
    await added.refresh()
    expect([added.state, added.attempt]).toEqual(['delayed', 0])
    expect(added.runAt! - added.createdAt).toBeGreaterThan(23 * 60 * 60 * 1000)
    await queue.promote(added.id)
    expect(await added.result()).toBe('awake')
  })

  test('who catches what a sleep throws takes no further steps', async () => {
    const ran: string[] = []
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        await ctx.sleep('a while', 5).catch(() => {})
        await ctx.step('after', () => ran.push('after')).catch(() => ran.push('refused'))
        return 'done'
      },
    })
    expect(await (await queue.add('order')).result()).toBe('done')
    expect(ran).toEqual(['refused', 'after'])
  })

  test.each<[string, (ctx: JobContext) => unknown]>([
    ['at once', (ctx) => void ctx.sleep('a while', 1)],
    ['at once, of a signal', (ctx) => void ctx.waitForSignal('go')],
    [
      'long after it',
      async (ctx) => {
        void ctx.sleep('a while', 1)
        await ctx.progress(1)
        await ctx.progress(2)
      },
    ],
    [
      'though more was to come after it',
      async (ctx) => {
        void ctx.sleep('a while', 1).then(() => 'more')
        void ctx.waitForSignal('go').finally(() => 'more')
        await ctx.progress(1)
        await ctx.progress(2)
      },
    ],
    ['of a race', (ctx) => Promise.race([ctx.sleep('a while', 1), Promise.resolve('first')])],
    ['of a function that is not awaited', (ctx) => void (async () => await ctx.sleep('a while', 1))()],
    [
      'in a later step',
      async (ctx) => {
        void ctx.sleep('a while', 1)
        await ctx.progress(1)
        await ctx.step('later', () => 'never')
      },
    ],
  ])('a handler that ends without its sleep or its signal fails for good: %s', async (_how, run) => {
    const strays: unknown[] = []
    const stray = (error: unknown): void => void strays.push(error)
    process.on('unhandledRejection', stray)
    let runs = 0
    const { queue } = stage(await make(kind), {
      order: (_job, ctx) => {
        runs++
        return run(ctx)
      },
      other: () => new Promise((resolve) => setImmediate(resolve)),
    })
    const added = await queue.add('order')
    await expect(added.result()).rejects.toThrow(/ctx\.(sleep|waitForSignal)\('/)
    await added.refresh()
    expect([added.state, added.error?.code, added.attempt, runs]).toEqual(['failed', 'NOT_AWAITED', 1, 1])
    await (await queue.add('other')).result()
    process.off('unhandledRejection', stray)
    expect(strays).toEqual([])
  })

  test('what a handler throws is what it fails with, whatever it did not wait for', async () => {
    const { queue } = stage(await make(kind), {
      order: async (job, ctx) => {
        void ctx.sleep('a while', '1 day')
        await ctx.progress(1)
        if (job.attempt === 1) throw new Error('broken')
        return 'never'
      },
    })
    const added = await queue.add('order')
    const { error } = await event(queue, 'retrying')
    expect(error.message).toBe('broken')
    await expect(added.result()).rejects.toThrow('not awaited')
  })

  test('a step that is not awaited fails its job, and one that is awaited late does not', async () => {
    const { queue } = stage(await make(kind), {
      careless: (job, ctx) => {
        void ctx.step('charge', () => {
          if (job.attempt === 1) throw new Error('refused')
        })
        return 'returned'
      },
      late: async (_job, ctx) => {
        const charge = ctx.step('charge', () => Promise.reject(new Error('refused')))
        await ctx.progress(1)
        await ctx.progress(2)
        return charge.catch(() => 'caught')
      },
    })
    const retrying = event(queue, 'retrying')
    const careless = await queue.add('careless')
    expect((await retrying).error.message).toBe('refused')
    expect(await careless.result()).toBe('returned')
    expect(await (await queue.add('late')).result()).toBe('caught')
  })

  test('a phase that returns without its sleep fails for good, and the next one does not begin', async () => {
    const ran: string[] = []
    const slow = gate()
    const { queue } = stage(await make(kind), {
      order: phases({
        first: async (_job, ctx) => {
          void ctx.step('slow', async () => {
            await slow.promise
            ran.push('slow')
          })
          setImmediate(slow.open)
        },
        second: (_job, ctx) => {
          ran.push('second')
          void ctx.sleep('a while', 1)
        },
        third: () => void ran.push('third'),
      }),
    })
    const added = await queue.add('order')
    await expect(added.result()).rejects.toThrow("ctx.sleep('a while')")
    await added.refresh()
    expect([added.state, added.error?.code, Object.values(added.phases).map(({ status }) => status)]).toEqual([
      'failed',
      'NOT_AWAITED',
      ['completed', 'failed', 'cancelled'],
    ])
    expect(ran).toEqual(['slow', 'second'])
  })

  test('steps, sleeps and signals of one name are not taken for each other', async () => {
    let runs = 0
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        runs++
        const step = await ctx.step('same', () => 'step')
        await ctx.sleep('same', 1)
        return [step, await ctx.waitForSignal('same')]
      },
    })
    const added = await queue.add('order')
    await queue.signal(added.id, 'same', 'signal')
    expect(await added.result()).toEqual(['step', 'signal'])
    expect(runs).toBe(2)
  })

  test('steps of a job with the id of a removed one are its own', async () => {
    let ran = 0
    const { queue } = stage(await make(kind), { order: async (_job, ctx) => ctx.step('count', () => ++ran) })
    for (const n of [1, 2]) {
      const added = await queue.add('order', undefined, { id: 'same' })
      expect(await added.result()).toBe(n)
      await added.remove()
    }
  })
})

test('steps are refused in batches', async () => {
  const { queue } = stage(await make('memory'), {
    order: {
      runBatch: (_jobs, ctx) =>
        ctx.each((_job, own) => {
          const { step, sleep, waitForSignal } = own as never as Record<string, (name: string) => Promise<unknown>>
          return Promise.all([step!('a'), sleep!('b'), waitForSignal!('c')].map(codeOf))
        }),
      batch: { size: 2 },
    },
  })
  const codes = ['NOT_IN_BATCH', 'NOT_IN_BATCH', 'NOT_IN_BATCH']
  expect(await (await queue.add('order')).result()).toEqual(codes)
})

test('bad names, callbacks and durations are refused', async () => {
  const { queue } = stage(await make('memory'), {
    order: async (_job, ctx) => [
      await codeOf(ctx.step('', () => 1)),
      await codeOf(ctx.step('ok', 'no function' as never)),
      await codeOf(ctx.sleep('\n', 1)),
      await codeOf(ctx.sleep('ok', 'soon')),
      await codeOf(ctx.waitForSignal(1 as never)),
      await codeOf(ctx.waitForSignal('ok', { timeout: -1 })),
      await codeOf(ctx.waitForSignal('ok', { tmeout: 1 } as never)),
    ],
  })
  const codes = ['INVALID_NAME', 'INVALID_OPTION', 'INVALID_NAME', 'INVALID_DURATION', 'INVALID_NAME']
  expect(await (await queue.add('order')).result()).toEqual([...codes, 'INVALID_DURATION', 'UNKNOWN_OPTION'])
})

test('a middleware may not take the place of steps', async () => {
  const store = await make('memory')
  const queue = closing(new Queue('work', { store, logger: false }))
  closing(
    new Worker(queue, () => 1, {
      logger: false,
      middleware: [(_job, _ctx, next) => next({ step: () => 'mine' })],
    }),
  )
  await expect((await queue.add('order', undefined, { attempts: 1 })).result()).rejects.toThrow('ctx.step')
})

test('steps cost one read a run, and none for handlers that take none', async () => {
  const store = await make('memory')
  let reads = 0
  const counted = new Proxy(store, {
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key)
      if (key === 'details') {
        return (query: Parameters<Store['details']>[0]) => {
          if (query.jobs !== undefined) reads++
          return store.details(query)
        }
      }
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const { queue } = stage(counted, {
    steps: async (_job, ctx) => {
      await ctx.step('a', () => 1)
      await Promise.all([ctx.step('b', () => 1), ctx.step('c', () => 1)])
    },
    plain: () => 1,
  })
  const job = await addActive(queue, 'plain')
  await job.result()
  expect(reads).toBe(0)
  await (await queue.add('steps')).result()
  expect(reads).toBe(1)
})

test('a stored step does not run again for a worker that does not know that its job was removed', async () => {
  const store = memory()
  let ran = 0
  const [waits, go, ended] = [gate(), gate(), gate<string | undefined>()]
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 3, backoff: 1 } }))
  // Its notices are lost, and its next renewal is far away.
  const deaf = closing(new Queue('work', { store: { ...store, watch: () => () => {} }, logger: false }))
  const handler = async (job: { readonly attempt: number }, ctx: JobContext) => {
    if (job.attempt > 1) {
      waits.open()
      await go.promise
    }
    const step = ctx.step('count', () => ++ran)
    if (job.attempt > 1) ended.open(await codeOf(step))
    await step
    throw new Error('again')
  }
  closing(new Worker(deaf, { order: handler }, { logger: false, lease: '10m', pollEvery: 50 }))
  const job = await queue.add('order')
  await waits.promise
  await job.remove()
  go.open()
  expect(await ended.promise).toBe('LEASE_LOST')
  expect(ran).toBe(1)
})
