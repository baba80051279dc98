// Chains that are too long to be held: they are removed by page, and waited for without what their jobs returned.
import { expect, test } from 'vitest'
import type { JobRecord } from '../../src/job/job.js'
import type { Batch, Store } from '../../src/store/store.js'
import { withChains } from '../../src/queue/flows/chain-ends.js'
import { stepwise } from '../../src/store/maybe-sync.js'
import type { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { hearing } from '../faults/hearing.js'
import { closing, newQueue, newWorker } from '../setup.js'

/** A store whose pages hold one job each. Counts the jobs that were read, with their payloads, since the last removal. */
function narrow(): { readonly store: Store; most(): number } {
  const of = closing(memory())
  let [held, most] = [0, 0]
  const saw = (records: readonly unknown[]): void => void (most = Math.max(most, (held += records.length)))
  const removes = ({ groups }: Batch): boolean =>
    groups.some((group) => group.some((change) => change.kind === 'move' && change.to === 'removed'))
  const store: Store = {
    ...hearing(of, (batch) => void (removes(batch) && (held = 0))),
    find: async (query, tx) => {
      const page = await of.find({ ...query, bytes: 1 }, tx)
      saw(page.items)
      return page
    },
    get: async (ids, tx) => {
      const found = await of.get(ids, tx)
      saw(found)
      return found
    },
  }
  return {
    store,
    most: () => {
      const seen = most
      held = most = 0
      return seen
    },
  }
}

/** A chain of so many jobs, which has ended. */
async function chainOf(queue: Queue, length: number): Promise<string> {
  newWorker(queue, {
    link: (job, ctx) =>
      ctx.complete(async ({ continueWith }) => {
        const left = job.data as number
        if (left > 1) await continueWith('link', left - 1)
      }),
  })
  const { id } = await queue.add('link', length)
  await queue.chain(id).result()
  return id
}

test('a chain is removed by page, from its first job on', async () => {
  const { store, most } = narrow()
  const queue = newQueue({ store })
  const id = await chainOf(queue, 8)
  most()
  expect(await queue.chain(id).remove()).toBe(8)
  expect(most()).toBeLessThanOrEqual(4)
  expect(await queue.counts()).toMatchObject({ completed: 0 })
})

test('a chain is removed though it is named by one of its jobs, which goes with the first page', async () => {
  const { store } = narrow()
  const queue = newQueue({ store })
  const id = await chainOf(queue, 5)
  const { jobs } = await queue.chain(id).jobs({ limit: 1 })
  const second = (await queue.chain(id).jobs())[1]!
  expect(jobs[0]!.id).toBe(id)
  expect(await queue.chain(second.id).remove()).toBe(5)
  await expect(queue.chain(id).state()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
})

test('what goes with a job that is removed is held without its payload', async () => {
  const { store } = narrow()
  const queue = newQueue({ store })
  const id = await chainOf(queue, 4)
  const last = (await queue.chain(id).jobs()).at(-1)!
  const records = (await store.get([last.id])) as readonly JobRecord[]
  const all = await stepwise(withChains(store, records))
  expect(all.map(({ chainIndex }) => chainIndex)).toEqual([0, 1, 2, 3])
  for (const each of all)
    for (const field of ['data', 'result', 'errors', 'memo']) expect(each).not.toHaveProperty(field)
})
