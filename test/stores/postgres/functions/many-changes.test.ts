// Many changes in one statement publish and leave behind what each of them alone would.
import { beforeEach, expect, test } from 'vitest'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import type { JobRecord } from '../../../../src/job/job.js'
import { Driver } from '../../../../src/conformance/driver.js'
import { Listener } from '../../../../src/conformance/listener.js'
import { complete, handBack, insert, note, failAndRetry } from '../../../../src/conformance/changes.js'
import type { JobOptions } from '../../../../src/conformance/changes.js'
import { closing } from '../../../setup.js'
import { newSchema, sharedServer } from '../server/shared.js'

const QUEUE = 'crowd'

let store: Store
let d: Driver
let listener: Listener

beforeEach(async () => {
  store = closing(postgres(await sharedServer(), { schema: newSchema() }))
  d = new Driver(store, 'writer')
  listener = new Listener(store, { events: true })
})

/** So many jobs that are being worked on; nothing of theirs is among the notices. */
async function running(count: number, options: JobOptions = {}): Promise<readonly JobRecord[]> {
  await d.addMany(count, 'many', { queue: QUEUE, ...options })
  const jobs = await d.claim(count, { queues: [QUEUE] })
  expect(jobs).toHaveLength(count)
  await listener.received(d)
  listener.notices.length = 0
  return jobs
}

test('jobs handed back are work again', async () => {
  await d.commit({ groups: (await running(10)).map(handBack) })
  await listener.received(d)
  expect([...listener.work]).toEqual([QUEUE])
})

test('jobs that are tried again are due when the first of them is', async () => {
  const jobs = await running(10)
  const { now } = await d.commit({ groups: jobs.map((job, at) => failAndRetry(job, 60_000 - at)) })
  await listener.received(d)
  expect(listener.notices.flatMap(({ due }) => due)).toEqual([{ queue: QUEUE, at: now + 60_000 - 9 }])
})

test('leases that end make room under a limit', async () => {
  await d.limit({ concurrency: 10 }, QUEUE)
  const jobs = await running(10)
  await d.land(insert(d.id(), 'many', { queue: QUEUE, run: { in: 10 ** 9 } }))
  await d.addMany(1, 'many', { queue: QUEUE })
  await listener.received(d)
  listener.notices.length = 0
  await d.commit({ groups: jobs.map((job) => failAndRetry(job, 60_000)) })
  await listener.received(d)
  expect([...listener.work]).toEqual([QUEUE])
})

test('jobs that are not kept leave no lines behind', async () => {
  const jobs = await running(10, { keep: { completed: { deleteAfter: 0 } } })
  await d.commit({ groups: jobs.map((job) => note(job, { logs: ['half'] })) })
  await d.commit({ groups: jobs.map((job) => complete(job)) })
  expect((await store.get(jobs.map(({ id }) => id))).every((job) => job === undefined)).toBe(true)
  // Others of the same ids begin without any.
  await d.commit({ groups: jobs.map(({ id }) => [insert(id, 'many', { queue: QUEUE })]) })
  const { jobs: next } = await store.details({ jobs: jobs.map(({ id }) => id) })
  expect(next.flatMap(({ logs }) => logs)).toEqual([])
})
