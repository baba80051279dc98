// Leases that another process revokes reach the running handlers at once, however many they are and whatever notice is lost.
import { expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { Driver } from '../../../src/conformance/driver.js'
import { cancel } from '../../../src/conformance/changes.js'
import { closing, gate } from '../../setup.js'
import { newDatabase } from './server/shared.js'
import { rows } from './server/clients.js'

/** A worker on a store of its own that holds so many running jobs, and will not renew their leases for hours. */
async function holding(
  url: string,
  count: number,
): Promise<{ queue: Queue; store: Store; reasons: Promise<string[]> }> {
  const store = closing(postgres(url))
  const queue = closing(new Queue('work', { store, logger: false }))
  const reasons: string[] = []
  let started = 0
  const running = gate()
  const all = gate<string[]>()
  const worker = closing(
    new Worker(
      queue,
      async (_job, { signal }) => {
        if (++started === count) running.open()
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        if (reasons.push(signal.reason!.reason) === count) all.open(reasons)
      },
      { logger: false, concurrency: count, lease: '10h', renewEvery: '9h', autorun: false },
    ),
  )
  await worker.run()
  await queue.addBulk(Array.from({ length: count }, (_, n) => ({ name: 'n', data: n })))
  await running.promise
  return { queue, store, reasons: all.promise }
}

test('200 jobs that are cancelled in one commit', async () => {
  const url = await newDatabase()
  const { reasons } = await holding(url, 200)
  const other = new Driver(closing(postgres(url)), 'other')
  const { items } = await other.store.find({ queue: 'work', states: ['active'], limit: 200 })
  const { groups } = await other.commit({ groups: items.map((job) => cancel(job)) })
  expect(groups.every(({ ok }) => ok)).toBe(true)
  expect(await reasons).toEqual(Array.from({ length: 200 }, () => 'cancelled'))
})

test('jobs that are cancelled while the connection that listens is gone', async () => {
  const url = await newDatabase()
  const { reasons } = await holding(url, 3)
  // One revocation gets no notice: it happens together with the end of all listening connections.
  const ended = await rows<{ ended: number }>(
    url,
    `with ears as (select count(pg_terminate_backend(pid)) as n from pg_stat_activity where datname = current_database()
         and pid <> pg_backend_pid() and (query ilike 'listen "%' or query = $$select 'listening'$$)),
       taken as (update millrace.job set state = 'cancelled', fence = fence + 1, due_at = null, lease_until = null, finished_at = created_at returning 1)
     select (select n from ears)::int as ended, (select count(*) from taken)::int as taken`,
  )
  expect(ended).toEqual([{ ended: 1, taken: 3 }])
  expect(await reasons).toEqual(['cancelled', 'cancelled', 'cancelled'])
})
