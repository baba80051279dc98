// `queue.chain(id).complete`: a job settles without a worker, by an approval or a callback.
import { describe, expect, it } from 'vitest'
import { Queue, defineJobs, job } from 'millrace'
import { memory } from 'millrace/memory'
import { z } from 'zod'
import { closing, event, gate, newQueue } from '../../setup.js'
import { scenes, write } from '../../worker/attempt/transaction/file-store.js'
import type { FileTx } from '../../worker/attempt/transaction/file-store.js'

const scene = scenes()

describe.each(['memory', 'sqlite'] as const)('on %s, chain(id).complete', (where) => {
  async function makeQueue(): Promise<Queue> {
    if (where === 'memory') return newQueue({ store: closing(memory()) })
    return (await scene()).queue
  }

  it('completes a job that waits, with its result and who depends on it', async () => {
    const queue = await makeQueue()
    const approval = await queue.add('approve', { page: 7 })
    const dependent = await queue.add('publish', 1, { after: approval })
    const answer = await queue.chain(approval.id).complete(async ({ job: current, complete }) => {
      expect(current).toMatchObject({ id: approval.id, name: 'approve', data: { page: 7 }, state: 'waiting' })
      return complete(async () => ({ by: 'Ada' }))
    })
    expect(answer).toEqual({ by: 'Ada' })
    expect(await approval.refresh()).toMatchObject({ state: 'completed', attempt: 0 })
    expect(await approval.result()).toEqual({ by: 'Ada' })
    expect((await dependent.refresh()).state).toBe('waiting')
  })

  it('completes jobs that are delayed or wait for others', async () => {
    const queue = await makeQueue()
    const first = await queue.add('first', 1, { delay: '1h' })
    const second = await queue.add('second', 1, { after: first })
    for (const { id } of [second, first]) {
      await queue.chain(id).complete(async ({ complete }) => complete(async () => id))
    }
    expect((await first.refresh()).returned).toBe(first.id)
    expect((await second.refresh()).returned).toBe(second.id)
  })

  it('continues the chain, and then stands at the next job', async () => {
    const queue = await makeQueue()
    const first = await queue.add('first')
    const waiter = await queue.add('waiter', 1, { after: first })
    await queue.chain(first.id).complete(async ({ complete }) =>
      complete(async ({ add, continueWith }) => {
        await add('beside', 1)
        await continueWith('second', 2)
      }),
    )
    expect((await waiter.refresh()).state).toBe('waiting-children')
    const names: string[] = []
    await queue.chain(first.id).complete(async ({ job: current, complete }) => {
      names.push(`${current.name} ${current.chainIndex} ${String(current.chainId === first.id)}`)
      await complete(async () => 'end')
    })
    expect(names).toEqual(['second 1 true'])
    expect((await waiter.refresh()).state).toBe('waiting')
    expect((await queue.list({ name: 'beside' })).jobs).toHaveLength(1)
  })

  it('can be asked for by any job of the chain', async () => {
    const queue = await makeQueue()
    const first = await queue.add('first')
    let next = ''
    await queue
      .chain(first.id)
      .complete(async ({ complete }) =>
        complete(async ({ continueWith }) => (next = (await continueWith('second')).id)),
      )
    await queue.chain(next).complete(async ({ job: current, complete }) => {
      expect(current.id).toBe(next)
      await complete(async () => {})
    })
    expect((await queue.get(next))?.state).toBe('completed')
  })

  it('changes nothing if complete is not called, or if something throws', async () => {
    const queue = await makeQueue()
    const added = await queue.add('n')
    expect(await queue.chain(added.id).complete(async ({ job: current }) => current.name)).toBe('n')
    const failed = queue.chain(added.id).complete(async ({ complete }) =>
      complete(async ({ add }) => {
        await add('never')
        throw new Error('no')
      }),
    )
    await expect(failed).rejects.toThrow('no')
    expect((await added.refresh()).state).toBe('waiting')
    expect(await queue.counts()).toMatchObject({ waiting: 1, completed: 0 })
  })

  it('is refused if there is no such chain, if it has ended, and if complete is called twice', async () => {
    const queue = await makeQueue()
    await expect(queue.chain('nowhere').complete(async () => {})).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    const added = await queue.add('n')
    const elsewhere = closing(new Queue('elsewhere', { store: queue.store, logger: false }))
    await expect(elsewhere.chain(added.id).complete(async () => {})).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    const twice = queue.chain(added.id).complete(async ({ complete }) => {
      await complete(async () => {})
      await complete(async () => {})
    })
    await expect(twice).rejects.toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
    await queue.cancel(added.id)
    await expect(queue.chain(added.id).complete(async () => {})).rejects.toMatchObject({
      code: 'INVALID_STATE',
      details: { id: added.id },
    })
    expect(() => queue.chain('')).toThrow('job id')
  })

  it('refuses a continuation whose id is taken, and leaves the job as it is', async () => {
    const queue = await makeQueue()
    await queue.add('other', 1, { id: 'taken' })
    const added = await queue.add('n')
    const refused = queue
      .chain(added.id)
      .complete(async ({ complete }) =>
        complete(async ({ continueWith }) => void (await continueWith('next', 1, { id: 'taken' }))),
      )
    await expect(refused).rejects.toMatchObject({ code: 'DUPLICATE_ID' })
    expect(await added.refresh()).toMatchObject({ state: 'waiting' })
  })

  it('holds the result against the schema', async () => {
    const { store } = await makeQueue()
    const jobs = defineJobs({ approve: job({ output: z.object({ by: z.string() }) }) })
    const queue = closing(new Queue('typed', { store, jobs, logger: false }))
    const added = await queue.add('approve')
    const refused = queue.chain(added.id).complete(async ({ complete }) => complete(async () => ({ by: 5 })))
    await expect(refused).rejects.toMatchObject({ code: 'INVALID_RESULT' })
    expect((await added.refresh()).state).toBe('waiting')
  })
})

describe('in a transaction', () => {
  it('what the callback writes and the settlement are there together', async () => {
    const { queue, effects } = await scene()
    const added = await queue.add('n')
    const undone = queue.chain(added.id).complete(async ({ complete }) => {
      await complete(async ({ tx, continueWith }) => {
        write(tx, 'undone')
        await continueWith('never')
      })
      throw new Error('after complete')
    })
    await expect(undone).rejects.toThrow('after complete')
    expect(effects()).toEqual([])
    expect((await added.refresh()).state).toBe('waiting')
    await queue.chain(added.id).complete(async ({ complete }) => {
      const caught = complete(async ({ tx }) => {
        write(tx, 'caught')
        throw new Error('caught')
      })
      await expect(caught).rejects.toThrow('caught')
      await complete(async ({ tx }) => write(tx, 'written'))
    })
    expect(effects()).toEqual(['written'])
    expect((await added.refresh()).state).toBe('completed')
    expect((await queue.list()).jobs).toHaveLength(1)
  })

  it('of the user it belongs to that: it is there if that commits', async () => {
    const { queue, effects } = await scene()
    const added = await queue.add('n')
    const settle = (tx: FileTx): Promise<unknown> =>
      queue.chain(added.id).complete(
        async ({ complete }) =>
          complete(async (inside) => {
            write(inside.tx, 'written')
            return 'result'
          }),
        { tx },
      )
    const rolledBack = queue.transaction(async (tx) => {
      await settle(tx)
      throw new Error('rolled back')
    })
    await expect(rolledBack).rejects.toThrow('rolled back')
    expect(effects()).toEqual([])
    await queue.transaction(settle)
    expect(effects()).toEqual(['written'])
    expect(await added.result()).toBe('result')
  })

  it('inside a handler’s complete it joins that', async () => {
    const { queue, worker, effects } = await scene()
    const approval = await queue.add('approval')
    worker({
      approves: async (job2, ctx) =>
        ctx.complete(async ({ tx }) => {
          write(tx, `approved ${job2.attempt}`)
          await queue.chain(approval.id).complete(async ({ complete }) => complete(async () => job2.attempt))
          if (job2.attempt === 1) throw new Error('undone')
        }),
    })
    await (await queue.add('approves', 1, { backoff: 1 })).result()
    expect(effects()).toEqual(['approved 2'])
    expect(await approval.result()).toBe(2)
  })

  it('a worker that runs it is notified, and its settlement is refused', async () => {
    const { queue, worker, effects } = await scene()
    const started = gate()
    const reason = gate<string | undefined>()
    worker(async (_job, ctx) => {
      started.open()
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      reason.open(ctx.signal.reason?.reason)
      return ctx.complete(async ({ tx }) => write(tx, 'by the worker'))
    })
    const added = await queue.add('n')
    await started.promise
    const completed = event(queue, 'completed')
    await queue.chain(added.id).complete(async ({ complete }) =>
      complete(async ({ tx }) => {
        write(tx, 'by hand')
        return 'by hand'
      }),
    )
    expect(await reason.promise).toBe('completed-elsewhere')
    expect((await completed).result).toBe('by hand')
    expect(effects()).toEqual(['by hand'])
  })
})
