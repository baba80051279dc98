// The store fails in the moment in which it answers a claim: the jobs are found again when it is back, at no cost.
import { describe, expect, test } from 'vitest'
import type { Store } from 'millrace'
import { kinds, stores } from '../composition/stores.js'
import { hearing } from '../faults/hearing.js'
import { event, newQueue, newWorker } from '../setup.js'

const make = stores()

/** A store that goes away with the first claim that finds a job, whose answer is lost, until it is told to come back. */
function failing(store: Store): { store: Store; lost: Promise<void>; back: () => void } {
  let state: 'sound' | 'away' | 'back' = 'sound'
  let tell = (): void => {}
  const lost = new Promise<void>((resolve) => (tell = resolve))
  const commit: Store['commit'] = async (batch, tx) => {
    if (state === 'away') throw new Error('nobody is there')
    const receipt = await store.commit(batch, tx)
    if (state === 'back' || receipt.asks.flat().length === 0) return receipt
    state = 'away'
    tell()
    throw new Error('the line was lost')
  }
  return { store: { ...hearing(store, () => {}), commit }, lost, back: () => void (state = 'back') }
}

describe.each(kinds)('on %s', (kind) => {
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
