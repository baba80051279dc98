// Code that outlives the transaction in which it was begun: its calls are refused, and what is made to last is outside.
import { describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { JobContext } from 'millrace'
import { memory } from 'millrace/memory'
import { closing, event, gate } from '../setup.js'
import { stores, transacting } from '../stores.js'

const open = stores()
const ENDED = { code: 'TRANSACTION_ENDED', message: expect.stringContaining('await the call inside') as string }
const no = new Error('no')

describe.each(transacting)('on %s, code begun inside a transaction', (kind) => {
  async function setUp(): Promise<Queue> {
    return closing(new Queue('work', { store: await open(kind), logger: false }))
  }

  const names = async (queue: Queue): Promise<string[]> => (await queue.list()).jobs.map(({ name }) => name)

  it.each(['committed', 'rolled back'])('is refused whatever it calls once that is %s', async (how) => {
    const queue = await setUp()
    const standing = await queue.add('standing')
    const ended = gate()
    const calls = {
      add: () => queue.add('late'),
      addBulk: () => queue.addBulk([{ name: 'late' }]),
      get: () => queue.get(standing.id),
      list: () => queue.list(),
      counts: () => queue.counts(),
      cancel: () => queue.cancel(standing.id),
      pause: () => queue.pause(),
      transaction: () => queue.transaction(async () => {}),
      complete: () => queue.chain(standing.id).complete(async () => {}),
      refresh: () => standing.refresh(),
      logs: () => standing.logs(),
    }
    let late: Promise<unknown[]> | undefined
    const work = queue.transaction(async () => {
      late = ended.promise.then(() =>
        Promise.all(Object.values(calls).map((call) => call().catch((error: unknown) => error))),
      )
      if (how === 'rolled back') throw no
    })
    await (how === 'committed' ? work : expect(work).rejects.toBe(no))
    ended.open()
    expect(await late).toMatchObject(Object.values(calls).map(() => ENDED))
    expect(await names(queue)).toEqual(['standing'])
    expect(await queue.get(standing.id)).toMatchObject({ state: 'waiting' })
  })

  it('is refused when a timer brings it back, also with the `tx` it was given', async () => {
    const queue = await setUp()
    const [timed, named] = [gate<unknown>(), gate<unknown>()]
    const ended = gate()
    await queue.transaction(async (tx) => {
      setTimeout(() => void queue.add('late').catch(timed.open), 1)
      void ended.promise.then(() => queue.add('late', 1, { tx }).catch(named.open))
    })
    ended.open()
    await expect(timed.promise).resolves.toMatchObject(ENDED)
    await expect(named.promise).resolves.toMatchObject({ code: 'TRANSACTION_ENDED' })
    expect(await names(queue)).toEqual([])
  })

  it('does not slip into the one around a savepoint that has ended', async () => {
    const queue = await setUp()
    await queue.transaction(async () => {
      const ended = gate()
      let late: Promise<unknown> | undefined
      const inner = queue.transaction(async () => {
        late = ended.promise.then(() => queue.add('late'))
        throw no
      })
      await expect(inner).rejects.toBe(no)
      ended.open()
      await expect(late).rejects.toMatchObject(ENDED)
      await queue.add('in time')
    })
    expect(await names(queue)).toEqual(['in time'])
  })

  it('may call what is not in that store', async () => {
    const queue = await setUp()
    const other = closing(new Queue('other', { store: closing(memory()), logger: false }))
    const ended = gate()
    let late: Promise<unknown> | undefined
    await queue.transaction(async () => {
      late = ended.promise.then(() => other.add('elsewhere'))
    })
    ended.open()
    await late
    expect(await names(other)).toEqual(['elsewhere'])
  })

  it('is waited for if its call was made in time, though the work did not wait', async () => {
    const queue = await setUp()
    const forgotten: Promise<unknown>[] = []
    await queue.transaction(async () => {
      for (let n = 0; n < 3; n++) forgotten.push(queue.add('forgotten'))
    })
    await Promise.all(forgotten)
    const undone = queue.transaction(async () => {
      forgotten.push(queue.add('undone'))
      throw no
    })
    await expect(undone).rejects.toBe(no)
    await Promise.all(forgotten)
    expect(await names(queue)).toEqual(['forgotten', 'forgotten', 'forgotten'])
  })

  it('may make workers and listeners, which live on outside of it', async () => {
    const queue = await setUp()
    const received = gate<unknown>()
    const asked: unknown[] = []
    await queue.transaction(async () => {
      queue.on('completed', ({ name }) => {
        if (name === 'first') queue.add('by the listener').then(received.open, received.open)
      })
      const worker = closing(
        new Worker(
          queue,
          async ({ name, attempt }) => {
            if (name !== 'first') return
            if (attempt === 1) throw no
            await queue.add('by the handler')
          },
          {
            logger: false,
            backoff: {},
            retryable: () => {
              asked.push(queue.add('by the rule'))
              return 'retry'
            },
          },
        ),
      )
      await expect(worker.run()).rejects.toMatchObject({ code: 'IN_TRANSACTION' })
      worker.pause()
      worker.resume()
    })
    const done = event(queue, 'completed', ({ name }) => name === 'by the listener')
    await queue.add('first', 1, { backoff: 1 })
    await expect(received.promise).resolves.toMatchObject({ name: 'by the listener' })
    await done
    await Promise.all(asked)
    expect((await names(queue)).toSorted()).toEqual(['by the handler', 'by the listener', 'by the rule', 'first'])
  })
})

describe.each(transacting)('on %s, a handler', (kind) => {
  const names = async (queue: Queue): Promise<string[]> => (await queue.list()).jobs.map(({ name }) => name)

  it('emits events to listeners inside its transaction, and the listeners run outside of it', async () => {
    const queue = closing(new Queue('work', { store: await open(kind), logger: false }))
    const added = gate<unknown>()
    const worker = closing(
      new Worker(
        queue,
        {
          n: async (_job, ctx) => {
            await ctx.complete(async () => {
              void ctx.progress(1n as never) // which JSON cannot represent: the worker reports it, because there is no other listener
              await new Promise((resolve) => worker.on('error', resolve))
              throw no
            })
          },
        },
        { logger: false },
      ),
    )
    worker.on('error', () => void queue.add('by the listener').then(added.open, added.open))
    await queue.add('n', 1, { attempts: 1 })
    await expect(added.promise).resolves.toMatchObject({ name: 'by the listener' })
    expect((await names(queue)).toSorted()).toEqual(['by the listener', 'n'])
  })

  it('goes on outside when its transaction has ended; what was begun in a callback does not', async () => {
    const queue = closing(new Queue('work', { store: await open(kind), logger: false }))
    const prepared = gate()
    const ended = gate()
    const late: Promise<unknown>[] = []
    const adds = (name: string, after: Promise<unknown>, ctx?: JobContext): void => {
      late.push(
        after.then(() => queue.add(name)).catch((error: unknown) => error),
        after.then(() => ctx?.log('late')).catch((error: unknown) => error),
      )
    }
    closing(
      new Worker(
        queue,
        {
          n: async (_job, ctx) => {
            await ctx.prepare({ mode: 'staged' }, async () => adds('late', prepared.promise, ctx))
            prepared.open()
            await Promise.all(late)
            await queue.add('between')
            await ctx.complete(async () => {
              await queue.add('inside')
              adds('later', ended.promise)
            })
            void ended.promise.then(() => queue.add('after'))
          },
        },
        { logger: false },
      ),
    )
    const added = await queue.add('n', 1, { attempts: 1 })
    await added.result()
    const waiting = event(queue, 'waiting', ({ name }) => name === 'after')
    ended.open()
    await waiting
    expect(await Promise.all(late)).toMatchObject([ENDED, ENDED, ENDED, undefined])
    expect((await names(queue)).toSorted()).toEqual(['after', 'between', 'inside', 'n'])
    expect(await added.logs()).toEqual([])
  })
})
