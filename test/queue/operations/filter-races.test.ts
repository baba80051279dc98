// Calls by filter beside others that change the same jobs: what matches no longer when its turn comes is left alone.
import { describe, expect, test } from 'vitest'
import type { Job, Queue, Store } from 'millrace'
import { runBulk } from '../../../src/queue/operations/bulk/run.js'
import { connect } from '../../../src/store/connection.js'
import type { Batch } from '../../../src/store/store.js'
import { observed } from '../../observed-store.js'
import { newQueue, newWorker } from '../../setup.js'
import { served, stores } from '../../stores.js'

const make = stores()

/** A store as a process sees it in which something happens just before its first commit that moves a job. */
function interrupted(store: Store, id: string, happens: () => Promise<unknown>): Store {
  let isOver = false
  const commit = async (batch: Batch): ReturnType<Store['commit']> => {
    const moves = batch.groups.some((group) => group.some((change) => change.kind === 'move' && change.id === id))
    if (moves && !isOver) {
      isOver = true
      await happens()
    }
    return store.commit(batch)
  }
  return { ...observed(store, () => {}), commit }
}

describe.each(served)('on %s', (kind) => {
  const scene = async (): Promise<{ store: Store; queue: Queue }> => {
    const store = await make(kind)
    return { store, queue: newQueue({ store }) }
  }

  /** Two jobs that have failed. */
  const failed = async (queue: Queue): Promise<readonly [Job, Job]> => {
    const jobs = await queue.addBulk([
      { name: 'job', options: { attempts: 1 } },
      { name: 'job', options: { attempts: 1 } },
    ])
    const worker = newWorker(queue, () => Promise.reject(new Error('no')))
    await worker.run({ until: 'drained' })
    return jobs as unknown as readonly [Job, Job]
  }

  test('removing failed jobs spares one that was retried meanwhile', async () => {
    const { store, queue } = await scene()
    const [retried] = await failed(queue)
    const other = newQueue({ store: interrupted(store, retried.id, () => queue.retry(retried.id)) })
    expect(await other.remove({ state: 'failed' })).toBe(1)
    expect((await queue.list()).jobs.map(({ id, state }) => [id, state])).toEqual([[retried.id, 'waiting']])
  })

  test('an operation that removes failed jobs spares one that was retried meanwhile', async () => {
    const { store, queue } = await scene()
    const [retried] = await failed(queue)
    const { fingerprint } = (await queue.errors()).errors[0]!
    const operation = await queue.operate({ do: 'remove', where: { error: { fingerprint } } })
    const beside = interrupted(store, retried.id, () => queue.retry(retried.id))
    const [row] = await store.get([operation.id])
    await runBulk(
      { connection: connect(beside), lease: 10_000, now: () => Date.now() + 1_000, stopped: () => false },
      row!,
    )
    expect((await operation.refresh()).toJSON()).toMatchObject({ state: 'completed', done: 1 })
    expect((await queue.list()).jobs.map(({ id }) => id)).toEqual([retried.id])
  })

  test('cancelling with children spares a job that ended meanwhile, and goes on with the others', async () => {
    const { store, queue } = await scene()
    const [first] = await queue.addBulk([{ name: 'quick' }, { name: 'job' }])
    const run = (): Promise<unknown> => newWorker(queue, { quick: () => 'done' }).run({ maxJobs: 1 })
    const other = newQueue({ store: interrupted(store, first!.id, run) })
    expect(await other.cancel({ state: 'waiting' }, { cascade: true })).toBe(1)
    expect(await queue.counts()).toMatchObject({ completed: 1, cancelled: 1 })
  })

  test('cancelling delayed jobs spares one that was promoted meanwhile', async () => {
    const { store, queue } = await scene()
    const [first] = await queue.addBulk([1, 2].map(() => ({ name: 'job', options: { delay: '1h' } })))
    const other = newQueue({ store: interrupted(store, first!.id, () => queue.promote(first!.id)) })
    expect(await other.cancel({ state: 'delayed' })).toBe(1)
    expect(await queue.counts()).toMatchObject({ waiting: 1, cancelled: 1 })
  })
})
