// The store fails in the moment in which it answers a claim: the jobs are found again when it is back, at no cost.
import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Duration, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { served, stores } from '../stores.js'
import { observed } from '../observed-store.js'
import { event, gate, newQueue, newWorker } from '../setup.js'

const make = stores()

/** A store that goes away with the first claim that finds a job, whose answer is lost, until the test brings it back. */
function failing(store: Store): { store: Store; lost: Promise<void>; back: () => void } {
  let state: 'sound' | 'away' | 'back' = 'sound'
  let report = (): void => {}
  const lost = new Promise<void>((resolve) => (report = resolve))
  const commit: Store['commit'] = async (batch, tx) => {
    if (state === 'away') throw new Error('nobody is there')
    const receipt = await store.commit(batch, tx)
    if (state === 'back' || receipt.asks.flat().length === 0) return receipt
    state = 'away'
    report()
    throw new Error('the line was lost')
  }
  return { store: { ...observed(store, () => {}), commit }, lost, back: () => void (state = 'back') }
}

/** Resolves when a lease in the queue `work` is over, by the store's clock: there is no notice of it. */
async function overdue(store: Store): Promise<void> {
  while ((await store.due({ queues: ['work'], except: [], limit: 1 })).jobs.length === 0) await turn()
}

describe.each(served)('on %s', (kind) => {
  test(
    'a job whose claim got no answer runs once, at its only attempt, when the store is back',
    { timeout: 30_000 },
    async () => {
      const { store, lost, back } = failing(await make(kind))
      const queue = newQueue({ store })
      const job = await queue.add('job', null, { attempts: 1 })
      let runs = 0
      const worker = newWorker(queue, () => ++runs)
      await lost
      await event(worker, 'error', ({ error }) => error.message.includes('did not answer'))
      const completed = event(worker, 'completed')
      back()
      expect(await completed).toMatchObject({ id: job.id, attempt: 1, result: 1 })
      expect(await queue.get(job.id)).toMatchObject({ attempt: 1, stalls: 0 })
    },
  )

  test(
    'a job whose claim got no answer runs at its only attempt though the store was away for longer than the lease',
    { timeout: 30_000 },
    async () => {
      const sound = await make(kind)
      const { store, lost, back } = failing(sound)
      const queue = newQueue({ store })
      const job = await queue.add('job', null, { attempts: 1 })
      const worker = newWorker(queue, () => 'ran', { lease: '1s' })
      const ended = Promise.race([event(worker, 'completed'), event(queue, 'failed')])
      await lost
      await overdue(sound)
      back()
      expect(await ended).toMatchObject({ type: 'completed', id: job.id, attempt: 1, result: 'ran' })
      expect(await queue.get(job.id)).toMatchObject({ attempt: 1, stalls: 0 })
    },
  )

  test(
    'a job whose claim got no answer goes back unharmed if its worker was closed meanwhile',
    { timeout: 30_000 },
    async () => {
      const { store, lost, back } = failing(await make(kind))
      const queue = newQueue({ store })
      const job = await queue.add('job', null, { attempts: 1 })
      const worker = newWorker(queue, () => 'ran')
      await lost
      await event(worker, 'error', ({ error }) => error.message.includes('did not answer'))
      const closed = worker.close({ timeout: 0, grace: 50 }).catch(() => {})
      await closed
      back()
      const other = newWorker(queue, () => 'ran elsewhere', { pollEvery: 50 })
      expect(await event(other, 'completed')).toMatchObject({ id: job.id, attempt: 1, result: 'ran elsewhere' })
    },
  )
})

/** Runs one job with one attempt, whose claim gets no answer; the store then fails for so long. Returns its record. */
async function lose(
  workers: number,
  lasts: Duration,
  failing: 'all calls' | 'writes' | 'writes without an error',
): Promise<{ readonly ended: unknown; readonly attempt: number; readonly stalls: number; readonly runs: number }> {
  const clock = virtualClock()
  const sound = memory({ runtime: clock.runtime })
  let state: 'sound' | 'away' | 'back' = 'sound'
  const back = gate()
  const reached = async <T>(call: () => Promise<T>): Promise<T> => {
    if (state !== 'away') return call()
    if (failing !== 'writes without an error') throw new Error('nobody is there')
    await back.promise
    return call()
  }
  const commit: Store['commit'] = async (batch) => {
    const receipt = await reached(() => sound.commit(batch))
    if (state === 'sound' && receipt.asks.flat().length > 0) state = 'away'
    return reached(() => Promise.resolve(receipt))
  }
  /** The store, as one process reaches it. */
  const reach = (): Store => ({
    ...observed(sound, () => {}),
    commit,
    ...(failing === 'all calls' && {
      get: (ids) => reached(() => sound.get(ids)),
      details: (query) => reached(() => sound.details(query)),
      due: (query) => reached(() => sound.due(query)),
    }),
  })
  let runs = 0
  const all = Array.from(
    { length: workers },
    () => new Worker('work', () => void runs++, { store: reach(), logger: false }),
  )
  for (const worker of all) await clock.until(worker.run())
  const queue = new Queue('work', { store: reach(), logger: false })
  const { id } = await queue.add('job', null, { attempts: 1 })
  await clock.settle()
  expect(state).toBe('away')
  await clock.advance(lasts)
  state = 'back'
  back.open()
  await clock.advance('2m')
  const { state: ended, attempt, stalls } = (await queue.get(id))!
  await clock.until(Promise.all(all.map((worker) => worker.close())))
  return { ended, attempt, stalls, runs }
}

describe('a store that is away for longer than the lease', () => {
  const unharmed = { ended: 'completed', attempt: 1, stalls: 0, runs: 1 }

  test('costs no attempt if it is away from all workers', async () => {
    for (const lasts of ['35s', '47s', '2m']) expect(await lose(2, lasts, 'all calls')).toEqual(unharmed)
  })

  test('costs no attempt if it takes no writes of the only worker, whose upkeep goes on', async () => {
    for (let lasts = 31_000; lasts < 60_000; lasts += 1700) expect(await lose(1, lasts, 'writes')).toEqual(unharmed)
  })

  test('costs no attempt if its answers are late', async () => {
    expect(await lose(1, '45s', 'writes without an error')).toEqual(unharmed)
  })
})
