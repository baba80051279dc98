// Chains that are too long to be held: they are removed by page, and waited for without what their jobs returned.
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import type { JobRecord } from '../../../src/job/job.js'
import type { Batch, Notice, Store } from '../../../src/store/store.js'
import type { StoreEvent } from '../../../src/job/events.js'
import { withEarlierJobs } from '../../../src/queue/flows/chain-ends.js'
import { runSteps } from '../../../src/store/maybe-sync.js'
import type { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { observed } from '../../observed-store.js'
import { closing, gate, newQueue, newWorker } from '../../setup.js'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void

/** Collects garbage. */
async function collect(): Promise<void> {
  for (let n = 0; n < 3; n++) {
    await setImmediate()
    gc()
  }
}

const alive = (refs: readonly WeakRef<object>[]): number => refs.filter((ref) => ref.deref() !== undefined).length

/** A store whose pages hold one job each. Counts the jobs that were read, with their payloads, since the last removal. */
function narrow(): { readonly store: Store; most(): number } {
  const of = closing(memory())
  let [held, most] = [0, 0]
  const saw = (records: readonly unknown[]): void => void (most = Math.max(most, (held += records.length)))
  const removes = ({ groups }: Batch): boolean =>
    groups.some((group) => group.some((change) => change.kind === 'move' && change.to === 'removed'))
  const store: Store = {
    ...observed(of, (batch) => void (removes(batch) && (held = 0))),
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

test('who waits for a chain holds nothing of the jobs that it has gone through, nor of other chains', async () => {
  const of = closing(memory())
  let release: (notice: Notice) => void = () => {}
  const slow: { until?: Promise<void> } = {}
  const store: Store = {
    ...observed(of, () => {}),
    watch: (options, listener) => of.watch(options, options.events === true ? (release = listener) : listener),
    find: async (query, tx) => {
      await slow.until
      return of.find(query, tx)
    },
  }
  const queue = newQueue({ store })
  await queue.add('link', 1, { id: 'first', runAt: Date.now() + 600_000 })
  let cursor = 1_000
  const refs: WeakRef<StoreEvent>[] = []
  const happens = (id: string, chain: string | undefined, type: 'active' | 'completed'): void => {
    const event: StoreEvent = {
      cursor: String(cursor++),
      type,
      id,
      ...(chain !== undefined && { chain }),
      queue: 'work',
      name: 'link',
      at: 0,
      result: JSON.stringify('x'.repeat(100)),
    }
    refs.push(new WeakRef(event))
    release({ work: [], due: [], revoked: [], events: [event], gap: false })
  }
  const held = gate()
  slow.until = held.promise
  const result = queue.chain('first').result()
  await setImmediate()
  for (let n = 0; n < 500; n++) happens(`other ${n}`, undefined, 'completed')
  await collect()
  expect(alive(refs)).toBeLessThan(10)
  held.open()
  await setImmediate()
  happens('first', undefined, 'active')
  refs.length = 0
  for (let n = 1; n < 500; n++) {
    happens(`link ${n}`, 'first', 'active')
    happens(n === 1 ? 'first' : `link ${n - 1}`, n === 1 ? undefined : 'first', 'completed')
  }
  await collect()
  expect(alive(refs)).toBeLessThan(10)
  happens('link 499', 'first', 'completed')
  expect(await result).toBe('x'.repeat(100))
})

test('what goes with a job that is removed is held without its payload', async () => {
  const { store } = narrow()
  const queue = newQueue({ store })
  const id = await chainOf(queue, 4)
  const last = (await queue.chain(id).jobs()).at(-1)!
  const records = (await store.get([last.id])) as readonly JobRecord[]
  const all = await runSteps(withEarlierJobs(store, records))
  expect(all.map(({ chainIndex }) => chainIndex)).toEqual([0, 1, 2, 3])
  for (const each of all)
    for (const field of ['data', 'result', 'errors', 'memo']) expect(each).not.toHaveProperty(field)
})
