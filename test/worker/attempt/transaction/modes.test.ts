// `ctx.prepare` and the modes: which transaction each callback runs in, and what is not allowed.
import { describe, expect, it } from 'vitest'
import { memory } from 'millrace/memory'
import { event, gate, newQueue, newWorker } from '../../../setup.js'
import { thrown } from '../../../thrown.js'
import { scenes, write } from './file-store.js'
import type { FileContext, FileTx } from './file-store.js'

const scene = scenes()

/** How many rows of the user's table a transaction sees. */
function count(tx: FileTx): number {
  return (tx.prepare('SELECT count(*) AS n FROM effects').get() as { n: number }).n
}

describe('atomic mode', () => {
  it('runs prepare and complete in one transaction, which holds the job from the first on', async () => {
    const { queue, worker, effects } = await scene()
    const prepared = gate()
    const go = gate()
    worker(async (_job, ctx) => {
      const value = await ctx.prepare({ mode: 'atomic' }, async ({ tx }) => {
        write(tx, 'prepared')
        return 5
      })
      prepared.open()
      await go.promise
      return ctx.complete(async ({ tx }) => {
        write(tx, 'completed')
        return [value, count(tx)]
      })
    })
    const added = await queue.add('n')
    await prepared.promise
    expect(effects()).toEqual([])
    // It cannot be cancelled while it is locked: a cancel waits, and then finds it completed.
    const cancelled = queue.cancel(added.id)
    go.open()
    expect(await added.result()).toEqual([5, 2])
    expect(await cancelled).toBe(false)
    expect(effects()).toEqual(['prepared', 'completed'])
  })

  it('undoes the writes of prepare with those of complete', async () => {
    const { queue, worker, effects } = await scene()
    worker(async (job, ctx) => {
      await ctx.prepare({ mode: 'atomic' }, async ({ tx }) => write(tx, `prepared ${job.attempt}`))
      await ctx.complete(async ({ tx }) => {
        write(tx, `completed ${job.attempt}`)
        if (job.attempt === 1) throw new Error('no')
      })
    })
    await (await queue.add('n', 1, { backoff: 1 })).result()
    expect(effects()).toEqual(['prepared 2', 'completed 2'])
  })

  it('settles in that transaction even if complete is never called', async () => {
    const { queue, worker, effects } = await scene()
    worker(async (job, ctx) => {
      await ctx.prepare({ mode: 'atomic' }, async ({ tx }) => write(tx, `prepared ${job.attempt}`))
      if (job.attempt === 1) throw new Error('no')
      return 'done'
    })
    expect(await (await queue.add('n', 1, { backoff: 1 })).result()).toBe('done')
    expect(effects()).toEqual(['prepared 2'])
  })

  it('undoes just the callback whose error the handler catches, and stays usable', async () => {
    const { queue, worker, effects } = await scene()
    worker(async (_job, ctx) => {
      const { prepare } = ctx
      await expect(
        prepare({ mode: 'atomic' }, async ({ tx }) => {
          write(tx, 'prepare that failed')
          throw new Error('first')
        }),
      ).rejects.toThrow('first')
      await prepare({ mode: 'atomic' }, async ({ tx }) => write(tx, 'prepared'))
      await expect(
        ctx.complete(async ({ tx, add, continueWith }) => {
          write(tx, 'complete that failed')
          await add('never')
          await continueWith('neither')
          await ctx.progress('of nothing')
          write(tx, 'prepared') // refused by SQLite
        }),
      ).rejects.toThrow('UNIQUE')
      await ctx.complete(async ({ tx, add }) => {
        write(tx, 'completed')
        await add('child')
      })
    })
    const added = await queue.add('n', 1, { attempts: 1 })
    await added.result()
    expect(effects()).toEqual(['prepared', 'completed'])
    expect((await queue.list()).jobs.map(({ name }) => name)).toEqual(['n', 'child'])
    expect((await added.refresh()).progress).toBeUndefined()
  })
})

describe('staged mode', () => {
  it('commits prepare by itself, holds nothing in between, and settles with complete', async () => {
    const { queue, worker, effects } = await scene()
    const prepared = gate()
    const go = gate()
    worker(async (job, ctx) => {
      const value = await ctx.prepare({ mode: 'staged' }, async ({ tx }) => {
        write(tx, `prepared ${job.attempt}`)
        await ctx.progress('prepared')
        return 'prepared'
      })
      if (job.attempt === 1) prepared.open()
      await go.promise
      return ctx.complete(async ({ tx }) => {
        write(tx, `completed ${job.attempt}`)
        if (job.attempt === 1) throw new Error('no')
        return value
      })
    })
    const progress = event(queue, 'progress')
    const added = await queue.add('n', 1, { backoff: 1 })
    await prepared.promise
    await progress
    expect(effects()).toEqual(['prepared 1'])
    await queue.update(added.id, { data: 'changed meanwhile' })
    go.open()
    expect(await added.result()).toBe('prepared')
    expect(effects()).toEqual(['prepared 1', 'prepared 2', 'completed 2'])
  })

  it('undoes a prepare that throws, and does not run the rest', async () => {
    const { queue, worker, effects } = await scene()
    worker(async (job, ctx) => {
      await ctx.prepare({ mode: 'staged' }, async ({ tx }) => {
        write(tx, `prepared ${job.attempt}`)
        if (job.attempt === 1) throw new Error('no')
      })
      await ctx.complete(async ({ tx }) => write(tx, `completed ${job.attempt}`))
    })
    await (await queue.add('n', 1, { backoff: 1 })).result()
    expect(effects()).toEqual(['prepared 2', 'completed 2'])
  })

  it('lets go of the transaction of a complete whose error the handler catches', async () => {
    const { queue, worker, effects, elsewhere } = await scene()
    const other = elsewhere()
    worker(async (_job, ctx) => {
      await new Promise(setImmediate)
      const failed = ctx.complete(async ({ tx }) => {
        write(tx, 'undone')
        throw new Error('caught')
      })
      await expect(failed).rejects.toThrow('caught')
      await other.add('another process can write')
      return 'settled without it'
    })
    const added = await queue.add('n')
    expect(await added.result()).toBe('settled without it')
    expect(effects()).toEqual([])
  })
})

describe('without prepare', () => {
  /** What a handler finds when it looks at `ctx.prepare` there. */
  async function finds(handler: (ctx: FileContext, look: () => void) => Promise<unknown>): Promise<unknown> {
    const { queue, worker } = await scene()
    let found: unknown = 'nothing was thrown'
    worker(async (_job, ctx) =>
      handler(ctx, () => {
        found = thrown(() => ctx.prepare)
      }),
    )
    await (await queue.add('n', 1, { attempts: 1 })).result()
    return found
  }
  const documented = {
    code: 'CALLED_OUT_OF_ORDER',
    message: expect.stringContaining('Prepare cannot be accessed after auto-setup') as string,
  }

  it('complete is atomic if it is called before the first await: prepare cannot be accessed any more', async () => {
    expect(
      await finds((ctx, look) => {
        const done = ctx.complete(async () => 'done')
        look()
        return done
      }),
    ).toMatchObject(documented)
  })

  it('it is staged after the first await: prepare cannot be accessed any more', async () => {
    expect(
      await finds(async (ctx, look) => {
        await Promise.resolve()
        look()
        await ctx.complete(async () => 'done')
        look()
      }),
    ).toMatchObject(documented)
  })

  it('a prepare that was taken in time can be called later', async () => {
    const { queue, worker, effects } = await scene()
    worker(async (_job, { prepare, complete }) => {
      await new Promise(setImmediate)
      await prepare({ mode: 'atomic' }, async ({ tx }) => write(tx, 'prepared'))
      await complete(async ({ tx }) => write(tx, 'completed'))
    })
    await (await queue.add('n', 1, { attempts: 1 })).result()
    expect(effects()).toEqual(['prepared', 'completed'])
  })
})

describe('calls out of order', () => {
  async function fails(handler: (ctx: FileContext) => Promise<unknown>): Promise<unknown> {
    const { queue, worker } = await scene()
    worker(async (_job, ctx) => handler(ctx))
    const added = await queue.add('n', 1, { attempts: 1 })
    await added.result().catch(() => {})
    return (await added.refresh()).error
  }
  const outOfOrder = (what: string): object => ({
    code: 'CALLED_OUT_OF_ORDER',
    message: expect.stringContaining(what) as string,
  })

  it('complete twice', async () => {
    expect(
      await fails(async (ctx) => {
        await ctx.complete(async () => {})
        await ctx.complete(async () => {})
      }),
    ).toMatchObject(outOfOrder('ctx.complete was called twice'))
  })

  it('prepare twice', async () => {
    expect(
      await fails(async ({ prepare }) => {
        await prepare({ mode: 'staged' }, async () => {})
        await prepare({ mode: 'atomic' }, async () => {})
      }),
    ).toMatchObject(outOfOrder('ctx.prepare was called twice'))
  })

  it('prepare after complete', async () => {
    expect(
      await fails(async ({ prepare, complete }) => {
        await complete(async () => {})
        await prepare({ mode: 'atomic' }, async () => {})
      }),
    ).toMatchObject(outOfOrder('ctx.prepare was called after ctx.complete'))
  })

  it('complete inside prepare', async () => {
    expect(
      await fails(async (ctx) => ctx.prepare({ mode: 'atomic' }, async () => ctx.complete(async () => {}))),
    ).toMatchObject(outOfOrder('before ctx.prepare had ended'))
  })

  it('continueWith twice, and add after the callback', async () => {
    expect(
      await fails(async (ctx) =>
        ctx.complete(async ({ continueWith }) => {
          await continueWith('a')
          await continueWith('b')
        }),
      ),
    ).toMatchObject(outOfOrder('continueWith was called twice'))
    expect(
      await fails(async (ctx) => {
        let late: (() => Promise<unknown>) | undefined
        await ctx.complete(async ({ add }) => void (late = () => add('a')))
        await late?.()
      }),
    ).toMatchObject(outOfOrder('add was called after the callback of complete had ended'))
  })

  it('complete inside a transaction of the handler’s own', async () => {
    const { queue, worker } = await scene()
    worker(async (_job, ctx) => queue.transaction(async () => ctx.complete(async () => {})))
    const added = await queue.add('n', 1, { attempts: 1 })
    await added.result().catch(() => {})
    expect((await added.refresh()).error).toMatchObject({ code: 'IN_TRANSACTION' })
  })

  it('a mode that there is not, and a callback that is none', async () => {
    expect(await fails(async (ctx) => ctx.prepare({ mode: 'atomc' as 'atomic' }, async () => {}))).toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining("did you mean 'atomic'") as string,
    })
    expect(await fails(async (ctx) => ctx.complete(undefined as never))).toMatchObject({ code: 'INVALID_OPTION' })
  })
})

describe('on a store without transactions', () => {
  it('the order is the same, and callbacks get no transaction', async () => {
    const queue = newQueue({ store: memory() })
    const given: string[][] = []
    newWorker(queue, async (_job, ctx) => {
      const value = await ctx.prepare({ mode: 'staged' }, async (inside) => {
        given.push(Object.keys(inside))
        return 7
      })
      await ctx.complete(async (inside) => void given.push(Object.keys(inside)))
      await expect(ctx.complete(async () => {})).rejects.toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
      return value
    })
    expect(await (await queue.add('n', 1, { attempts: 1 })).result()).toBe(7)
    expect(given).toEqual([[], ['add', 'continueWith']])
  })
})
