// `ctx.complete`: the user's writes, the jobs added and the settlement are there together, or not at all.
import { describe, expect, it } from 'vitest'
import { UnrecoverableError } from 'millrace'
import { collect, event, gate } from '../../../setup.js'
import { scenes, write } from './file-store.js'

const scene = scenes()

describe('ctx.complete', () => {
  it('commits what its callback wrote together with the settlement, when the handler has returned', async () => {
    const { queue, worker, effects } = await scene()
    const done = gate()
    const written = gate()
    worker(async (job, ctx) => {
      await ctx.complete(async ({ tx }) => write(tx, job.id))
      written.open()
      await done.promise
      return 'result'
    })
    const added = await queue.add('n')
    await written.promise
    expect(effects()).toEqual([])
    expect((await queue.get(added.id))?.state).toBe('active')
    done.open()
    expect(await added.result()).toBe('result')
    expect(effects()).toEqual([added.id])
    expect(await added.refresh()).toMatchObject({ state: 'completed', attempt: 1 })
  })

  it('gives the result: of the handler, or else of the callback', async () => {
    const { queue, worker } = await scene()
    worker({
      both: async (_job, ctx) => {
        expect(await ctx.complete(async () => 'of the callback')).toBe('of the callback')
        return 'of the handler'
      },
      callback: async (_job, ctx) => void (await ctx.complete(async () => 'of the callback')),
      neither: async (_job, ctx) => ctx.complete(async () => {}),
      sync: async (_job, ctx) => void (await ctx.complete(() => 'without a promise')),
    })
    expect(await (await queue.add('both')).result()).toBe('of the handler')
    expect(await (await queue.add('callback')).result()).toBe('of the callback')
    expect(await (await queue.add('neither')).result()).toBeUndefined()
    expect(await (await queue.add('sync')).result()).toBe('without a promise')
  })

  it('that is not awaited fails the attempt if it fails, whenever it does', async () => {
    const { queue, worker, effects } = await scene()
    const strays: unknown[] = []
    const stray = (error: unknown): void => void strays.push(error)
    process.on('unhandledRejection', stray)
    worker({
      n: async (job, ctx) => {
        void ctx.complete(async ({ tx }) => {
          write(tx, `attempt ${job.attempt}`)
          if (job.attempt < 2) throw new Error('not yet')
        })
        for (const line of ['one', 'two', 'three']) await ctx.log(line) // it has failed when the handler returns
        return 'returned'
      },
      refused: async (_job, ctx) => {
        await queue.transaction(async () => void ctx.complete(async () => 'never'))
      },
    })
    const added = await queue.add('n', 1, { backoff: 1 })
    expect(await added.result()).toBe('returned')
    expect(effects()).toEqual(['attempt 2'])
    expect((await added.refresh()).errors.map(({ message }) => message)).toEqual(['not yet'])
    const inside = await queue.add('refused', 1, { attempts: 1 })
    await expect(inside.result()).rejects.toMatchObject({ details: { error: { code: 'IN_TRANSACTION' } } })
    process.off('unhandledRejection', stray)
    expect(strays).toEqual([])
  })

  it('whose failure the handler has caught does not fail it', async () => {
    const { queue, worker } = await scene()
    worker(async (_job, ctx) => {
      await ctx.complete(() => Promise.reject(new Error('no'))).catch(() => {})
      return 'without it'
    })
    expect(await (await queue.add('n')).result()).toBe('without it')
  })

  it('that throws undoes its writes, and the job is tried again', async () => {
    const { queue, worker, effects } = await scene()
    worker(async (job, ctx) =>
      ctx.complete(async ({ tx }) => {
        write(tx, `attempt ${job.attempt}`)
        if (job.attempt < 3) throw new Error('not yet')
        return job.attempt
      }),
    )
    const added = await queue.add('n', 1, { backoff: 1 })
    expect(await added.result()).toBe(3)
    expect(effects()).toEqual(['attempt 3'])
    expect((await added.refresh()).errors.map(({ message }) => message)).toEqual(['not yet', 'not yet'])
  })

  it('undoes the settlement, the continuation, added jobs and writes over an error that comes after it', async () => {
    const { queue, worker, effects } = await scene()
    const seen = collect(queue, ['completed', 'retrying', 'failed', 'waiting', 'progress'])
    worker({
      first: async (job, ctx) => {
        await ctx.complete(async ({ tx, add, continueWith }) => {
          write(tx, 'first')
          await add('also')
          await continueWith('next')
          await ctx.progress(50)
          await ctx.log('here')
          await queue.add('joined')
        })
        await queue.add('joined later')
        if (job.attempt === 1) throw new Error('after complete')
      },
    })
    const retrying = event(queue, 'retrying')
    const added = await queue.add('first', 1, { backoff: '1h' })
    await retrying
    expect(effects()).toEqual([])
    expect((await queue.list()).jobs.map(({ name, state }) => `${name} ${state}`)).toEqual(['first delayed'])
    expect(await added.refresh()).toMatchObject({ progress: undefined, error: { message: 'after complete' } })
    expect(await added.logs()).toEqual([])
    expect(seen).toEqual(['waiting', 'retrying'])
    await added.promote()
    await added.result()
    expect(effects()).toEqual(['first'])
    const names = (await queue.list()).jobs.map(({ name, chainId, chainIndex }) => [
      name,
      chainId === added.id,
      chainIndex,
    ])
    expect(names).toEqual([
      ['first', true, 0],
      ['also', false, 0],
      ['joined', false, 0],
      ['joined later', false, 0],
      ['next', true, 1],
    ])
    expect((await added.refresh()).progress).toBe(50)
  })

  it('survives SQL of the user that fails: the job is rescheduled, or failed for good', async () => {
    const { queue, worker, effects } = await scene()
    const taken = await queue.add('taken')
    worker({
      taken: async (_job, ctx) => ctx.complete(async ({ tx }) => write(tx, 'taken')),
      clash: async (job, ctx) =>
        ctx.complete(async ({ tx }) => {
          write(tx, `clash ${job.attempt}`)
          if (job.attempt === 1) write(tx, 'taken')
        }),
      rollback: async (job, ctx) =>
        ctx.complete(async ({ tx }) => {
          write(tx, `rollback ${job.attempt}`)
          if (job.attempt === 1) tx.exec('ROLLBACK') // the worst that can be done to a transaction
        }),
      fatal: async (_job, ctx) =>
        ctx.complete(async ({ tx }) => {
          write(tx, 'fatal')
          throw new UnrecoverableError('never')
        }),
    })
    await taken.result()
    const clash = await queue.add('clash', 1, { backoff: 1 })
    const rollback = await queue.add('rollback', 1, { backoff: 1 })
    const fatal = await queue.add('fatal')
    await Promise.all([clash.result(), rollback.result(), fatal.result().catch(() => {})])
    expect(effects().toSorted()).toEqual(['clash 2', 'rollback 2', 'taken'])
    expect((await clash.refresh()).errors).toHaveLength(1)
    expect((await clash.refresh()).errors[0]?.message).toContain('UNIQUE')
    expect((await rollback.refresh()).errors[0]?.code).toBe('TRANSACTION_ENDED')
    expect(await fatal.refresh()).toMatchObject({ state: 'failed', attempt: 1 })
  })

  it('whose callback the handler does not wait for belongs to it all the same', async () => {
    const { queue, worker, effects } = await scene()
    worker({
      good: (_job, ctx) => {
        void ctx.complete(async ({ tx }) => {
          await new Promise(setImmediate)
          write(tx, 'good')
          return 'awaited for it'
        })
      },
      bad: (_job, ctx) => {
        void ctx.complete(async ({ tx }) => {
          await new Promise(setImmediate)
          write(tx, 'bad')
          throw new Error('nobody listens')
        })
      },
      thrown: async (_job, ctx) => {
        void ctx.complete(async ({ tx }) => {
          await new Promise(setImmediate)
          write(tx, 'thrown')
        })
        throw new Error('did not wait')
      },
    })
    expect(await (await queue.add('good')).result()).toBe('awaited for it')
    await expect((await queue.add('bad', 1, { attempts: 1 })).result()).rejects.toThrow('nobody listens')
    await expect((await queue.add('thrown', 1, { attempts: 1 })).result()).rejects.toThrow('did not wait')
    await (await queue.add('good', 1, { attempts: 1 })).result().catch(() => {})
    expect(effects()).toEqual(['good'])
  })

  it('leaves nothing of a snoozed job, which runs again', async () => {
    const { queue, worker, effects } = await scene()
    let runs = 0
    worker(async (_job, ctx) => {
      runs++
      await ctx.complete(async ({ tx }) => write(tx, `run ${runs}`))
      if (runs === 1) ctx.snooze(1)
    })
    await (await queue.add('n', 1, { attempts: 1 })).result()
    expect(effects()).toEqual(['run 2'])
  })

  it('fails the job over a result that is refused, and leaves nothing of it', async () => {
    const { queue, worker, effects } = await scene()
    worker(async (_job, ctx) => {
      await ctx.complete(async ({ tx }) => write(tx, 'written'))
      return { when: new Date() }
    })
    const added = await queue.add('n')
    await expect(added.result()).rejects.toMatchObject({ details: { error: { code: 'INVALID_DATA' } } })
    expect(effects()).toEqual([])
  })

  it('writes exactly one row for each of many jobs, however often they fail', async () => {
    const { queue, worker, effects } = await scene()
    const fails = new Map<string, number>()
    worker(
      async (job, ctx) => {
        const before = Number(job.id.slice(-1).codePointAt(0)) % 3
        if (before === 1 && job.attempt === 1) await new Promise(setImmediate)
        await ctx.complete(async ({ tx, add }) => {
          write(tx, job.id)
          if (job.name === 'n') await add('child', job.id)
          if (job.attempt === 1 && before === 0) throw new Error('in complete')
        })
        fails.set(job.id, job.attempt)
        if (job.attempt === 1 && before === 1) throw new Error('after complete')
      },
      { concurrency: 8 },
    )
    const jobs = await queue.addBulk(
      Array.from({ length: 100 }, () => ({ name: 'n', options: { backoff: 1, attempts: 5 } })),
    )
    await Promise.all(jobs.map((job) => job.result()))
    const { jobs: children } = await queue.list({ name: 'child', limit: 1000 })
    await Promise.all(children.map((job) => job.result()))
    expect(children.map((job) => job.data as string).toSorted()).toEqual(jobs.map(({ id }) => id).toSorted())
    expect(effects().length).toBe(200)
    expect([...fails.values()].some((attempt) => attempt > 1)).toBe(true)
  })
})
