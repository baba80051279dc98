// Calls of a handler while its transaction is open join it; calls of others do not, and none waits for ever.
import { describe, expect, it } from 'vitest'
import { Queue, Worker, middleware } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { closing, collect, event, gate } from '../../../setup.js'
import { scenes, write } from './file-store.js'

const scene = scenes()

describe('inside an open complete', () => {
  it('progress, log lines and adds commit with it, while a second slot is at work', async () => {
    const { queue, worker, effects } = await scene()
    const inside = gate()
    const go = gate()
    const seen = collect(queue, ['progress', 'completed'])
    const ran: string[] = []
    const works = worker(
      {
        long: async (job, ctx) => {
          await ctx.complete(async ({ tx }) => {
            write(tx, job.id)
            await ctx.progress(1)
            await ctx.log('inside')
            await queue.add('added inside')
            inside.open()
            await go.promise
            await ctx.progress(2)
          })
          await ctx.progress(3)
          await ctx.log('after')
          await queue.add('added after')
        },
        short: async (job, ctx) => {
          ran.push(`short ${job.data as number}`)
          await ctx.progress('of the short one')
          return job.data
        },
      },
      { concurrency: 2 },
    )
    const reported = collect(works, ['progress'])
    const long = await queue.add('long')
    await inside.promise
    // The others are asked for while the transaction is open, and must wait only as long as it is.
    const others = [1, 2, 3].map((n) => queue.add('short', n))
    const counted = queue.counts()
    expect((await counted).active).toBe(1)
    expect(reported).toEqual([])
    go.open()
    await long.result()
    for (const each of others) await (await each).result()
    expect(ran).toEqual(['short 1', 'short 2', 'short 3'])
    expect(effects()).toEqual([long.id])
    expect((await long.refresh()).progress).toBe(3)
    expect((await long.logs()).map(({ line }) => line)).toEqual(['inside', 'after'])
    expect((await queue.list({ state: 'waiting' })).jobs.map(({ name }) => name)).toEqual([
      'added inside',
      'added after',
    ])
    expect(seen.slice(0, 4)).toEqual(['progress', 'progress', 'progress', 'completed'])
    expect(reported.slice(0, 3)).toEqual(['progress', 'progress', 'progress'])
  })

  it('two slots with a transaction each take turns', async () => {
    const { queue, worker, effects } = await scene()
    worker(
      {
        n: async (job, ctx) => {
          if (job.data === 'late') await Promise.resolve()
          await ctx.complete(async ({ tx }) => {
            await new Promise(setImmediate)
            await queue.add('child', job.id)
            write(tx, job.id)
            await ctx.progress('inside')
          })
          await ctx.progress('after')
        },
      },
      { concurrency: 4 },
    )
    const jobs = await queue.addBulk(
      Array.from({ length: 20 }, (_, n) => ({ name: 'n', data: n % 2 === 0 ? 'late' : 'soon' })),
    )
    await Promise.all(jobs.map((job) => job.result()))
    expect(effects().toSorted()).toEqual(jobs.map(({ id }) => id).toSorted())
    expect((await queue.list({ name: 'child' })).jobs).toHaveLength(20)
  })

  it('calls made beside it, before it is open, join it too', async () => {
    const { queue, worker, effects } = await scene()
    const blocked = gate()
    const held = gate()
    worker(
      {
        first: async (_job, ctx) => {
          await ctx.complete(async () => {
            held.open()
            await blocked.promise
          })
        },
        second: async (job, ctx) => {
          const [, , added] = await Promise.all([
            ctx.complete(async ({ tx }) => write(tx, job.id)),
            ctx.progress('beside it'),
            queue.add('beside it'),
          ])
          if (job.attempt === 1) throw new Error(`undone with ${added.id}`)
        },
      },
      { concurrency: 2 },
    )
    await queue.add('first')
    await held.promise
    const adding = queue.add('second', 1, { backoff: '1h' })
    const retrying = event(queue, 'retrying')
    blocked.open()
    const second = await adding
    await retrying
    expect((await second.refresh()).progress).toBeUndefined()
    expect((await queue.list({ name: 'beside it' })).jobs).toEqual([])
    await second.promote()
    await second.result()
    expect((await second.refresh()).progress).toBe('beside it')
    expect((await queue.list({ name: 'beside it' })).jobs).toHaveLength(1)
    expect(effects()).toEqual([second.id])
  })

  it('what was reported before it is written first, though it was not awaited', async () => {
    const { queue, worker } = await scene()
    const notes: Promise<unknown>[] = []
    worker(async (_job, ctx) => {
      notes.push(ctx.log('before'), ctx.progress('before'))
      await ctx.complete(async () => {})
    })
    const added = await queue.add('n')
    await added.result()
    await Promise.all(notes)
    expect((await added.refresh()).progress).toBe('before')
    expect((await added.logs()).map(({ line }) => line)).toEqual(['before'])
  })

  it('waiting for what must wait for it is refused at once', async () => {
    const { queue, store, worker } = await scene()
    const works = worker({
      result: async (_job, ctx) => ctx.complete(async () => (await queue.add('other')).result()),
      queue: async (_job, ctx) => ctx.complete(async () => queue.close()),
      store: async (_job, ctx) => ctx.complete(async () => store.close()),
      worker: async (_job, ctx): Promise<void> => ctx.complete(async () => works.close()),
      later: async (_job, ctx): Promise<void> => {
        await ctx.complete(async () => {})
        await works.close()
      },
    })
    for (const name of ['result', 'queue', 'store', 'worker', 'later']) {
      const added = await queue.add(name, 1, { attempts: 1 })
      await expect(added.result()).rejects.toMatchObject({ details: { error: { code: 'IN_TRANSACTION' } } })
    }
    expect((await queue.list({ name: 'other' })).jobs).toEqual([])
  })

  it('queue.transaction is a savepoint, which discards what it rolls back', async () => {
    const { queue, worker, effects } = await scene()
    const works = worker({
      n: async (_job, ctx) => {
        await ctx.complete(async ({ tx }) => {
          write(tx, 'outer')
          await queue
            .transaction(async (inner) => {
              write(inner, 'inner')
              await queue.add('of the inner')
              await ctx.progress('of the inner')
              throw new Error('rolled back')
            })
            .catch(() => {})
          await queue.transaction(async () => ctx.progress('of the second'))
        })
        await queue.transaction(async (later) => write(later, 'later'))
      },
    })
    const reported: unknown[] = []
    works.on('progress', ({ progress }) => void reported.push(progress))
    const added = await queue.add('n')
    await added.result()
    expect(effects()).toEqual(['outer', 'later'])
    expect((await added.refresh()).progress).toBe('of the second')
    expect((await queue.list()).jobs).toHaveLength(1)
    expect(reported).toEqual(['of the second'])
  })

  it('adds with keys and ids that are taken are answered as outside, and spoil nothing', async () => {
    const { queue, worker } = await scene()
    const standing = await queue.add('standing', 1, { dedup: { key: 'k' }, delay: '1h' })
    const found: unknown[] = []
    worker({
      n: async (_job, ctx) => {
        await ctx.complete(async ({ add }) => {
          found.push((await add('n2', 2, { dedup: { key: 'k' } })).id)
          found.push((await add('n2', 'new', { dedup: { key: 'k', mode: 'replace' } })).id)
          found.push(await add('n2', 2, { dedup: { key: 'k', mode: 'reject' } }).catch((error: unknown) => error))
          await add('n2', 3)
        })
      },
    })
    await (await queue.add('n')).result()
    expect(found).toMatchObject([standing.id, standing.id, { code: 'DUPLICATE_JOB' }])
    expect((await standing.refresh()).data).toBe('new')
    expect((await queue.list({ name: 'n2' })).jobs.map(({ data }) => data)).toEqual([3])
  })

  it('a continuation whose id is taken fails the attempt and leaves nothing', async () => {
    const { queue, worker, effects } = await scene()
    await queue.add('other', 1, { id: 'taken' })
    worker({
      n: async (job, ctx) =>
        ctx.complete(async ({ tx, continueWith }) => {
          write(tx, job.id)
          await continueWith('next', 1, { id: 'taken' })
        }),
    })
    const added = await queue.add('n', 1, { attempts: 1 })
    await expect(added.result()).rejects.toMatchObject({ details: { error: { code: 'DUPLICATE_ID' } } })
    expect(effects()).toEqual([])
  })
})

describe('inside a transaction of the handler’s own', () => {
  it('progress and log lines commit with that, and publish events when they have', async () => {
    const { queue, worker } = await scene()
    const works = worker(async (_job, ctx) => {
      await queue
        .transaction(async () => {
          await ctx.progress('undone')
          await ctx.log('undone')
          throw new Error('rolled back')
        })
        .catch(() => {})
      await queue.transaction(async () => {
        await ctx.progress('done')
        await ctx.log('done')
        expect(reported).toEqual([])
      })
    })
    const reported: unknown[] = []
    works.on('progress', ({ progress }) => void reported.push(progress))
    const added = await queue.add('n', 1, { attempts: 1 })
    await added.result()
    expect(reported).toEqual(['done'])
    expect((await added.refresh()).progress).toBe('done')
    expect((await added.logs()).map(({ line }) => line)).toEqual(['done'])
  })
})

describe('in a database in memory, where there is one connection', () => {
  it('others wait until the transaction has ended', async () => {
    const store = closing(sqlite(':memory:'))
    const queue = closing(new Queue('work', { store, logger: false }))
    await queue.transaction(async (tx) => void tx.exec('CREATE TABLE effects (id INTEGER PRIMARY KEY, what TEXT)'))
    const inside = gate()
    const go = gate()
    closing(
      new Worker(
        queue,
        {
          long: async (job, ctx) => {
            await ctx.complete(async ({ tx, add }) => {
              write(tx, `attempt ${job.attempt}`)
              await add('child')
              await ctx.progress(job.attempt)
              inside.open()
              await go.promise
            })
            await queue.add('joined')
            if (job.attempt === 1) throw new Error('undone')
          },
          short: async () => 'short',
        },
        { logger: false, concurrency: 2 },
      ),
    )
    const long = await queue.add('long', 1, { backoff: 1 })
    await inside.promise
    const short = queue.add('short')
    const counts = queue.counts()
    go.open()
    await long.result()
    expect(await (await short).result()).toBe('short')
    expect((await counts).active).toBeGreaterThanOrEqual(0)
    const names = (await queue.list()).jobs.map(({ name }) => name)
    expect(names.toSorted()).toEqual(['child', 'joined', 'long', 'short'])
    expect((await long.refresh()).progress).toBe(2)
    const rows = await queue.transaction(async (tx) => tx.prepare('SELECT what FROM effects').all())
    expect(rows).toEqual([{ what: 'attempt 2' }])
  })
})

describe('outside of it', () => {
  it('handlers, listeners and middleware of other jobs are in no transaction', async () => {
    const { queue, worker } = await scene()
    const inside = gate()
    const fail = gate()
    const works = worker(
      {
        fails: async (_job, ctx) => {
          await ctx.complete(async () => {
            // The batch that this begins carries the claims and settlements of others.
            void queue.add('joined')
          })
          inside.open()
          await fail.promise
          throw new Error('rolled back')
        },
        works: async () => void (await queue.add('by a handler')),
      },
      { concurrency: 2 },
    )
    works.on('completed', () => void queue.add('by a listener'))
    const failing = await queue.add('fails', 1, { attempts: 1 })
    await inside.promise
    const working = queue.add('works')
    const received = event(queue, 'waiting', ({ name }) => name === 'by a listener')
    fail.open()
    await failing.result().catch(() => {})
    await (await working).result()
    await received
    const names = (await queue.list()).jobs.map(({ name }) => name)
    expect(names.toSorted()).toEqual(['by a handler', 'by a listener', 'fails', 'works'])
  })

  it('middleware that calls after the handler is inside, since the job settles after it', async () => {
    const { path } = await scene()
    const store = closing(sqlite(path))
    const queue = closing(new Queue('wrapped', { store, logger: false }))
    const after = middleware(async (job, _ctx, next) => {
      const result = await next()
      if (job.name === 'n') await queue.add('by middleware')
      if (job.attempt === 1 && job.data === 'fails') throw new Error('in middleware')
      return result
    })
    closing(
      new Worker(
        queue,
        { n: async (_job, ctx) => ctx.complete(async () => 'done') },
        { middleware: [after], logger: false },
      ),
    )
    await (await queue.add('n', 'fine')).result()
    await (await queue.add('n', 'fails', { backoff: 1 })).result()
    expect((await queue.list({ name: 'by middleware' })).jobs).toHaveLength(2)
  })
})
