// A batch is decided by the engine over a working set that was read without locks: what others change meanwhile counts.
import { Client, Pool } from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { cancel, complete, failAndRetry, insert, note, update } from '../../../src/conformance/changes.js'
import { Driver } from '../../../src/conformance/driver.js'
import type { JobRecord } from '../../../src/job/job.js'
import { postgres } from '../../../src/postgres.js'
import type { Store } from '../../../src/store/store.js'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'

/** Two stores on one schema. `before` runs before each call of `commit` by the first one is sent. */
async function twoStores(): Promise<{
  readonly one: Driver
  readonly other: Driver
  before: (() => Promise<unknown>) | undefined
  /** The calls of `commit`, since last asked. */
  commits(): number
}> {
  const url = await sharedServer()
  const schema = newSchema()
  let commits = 0
  class Interrupted extends Client {
    override query(...args: unknown[]): never {
      const send = (): Promise<unknown> => (super.query as (...args: unknown[]) => Promise<unknown>).apply(this, args)
      const [{ name = '' }] = args as [{ name?: string }]
      if (!/^commit\d*:/.test(name)) return send() as never
      commits++
      return (scene.before === undefined ? send() : scene.before().then(send)) as never
    }
  }
  const pool = new Pool({ connectionString: url, max: 4, Client: Interrupted })
  onTestFinished(() => pool.end())
  const open = async (store: Store): Promise<Driver> => {
    await closing(store).open()
    return new Driver(store, store.runtime!.id())
  }
  const scene = {
    one: await open(postgres(pool, { schema })),
    other: await open(postgres(url, { schema, connections: 2 })),
    before: undefined as (() => Promise<unknown>) | undefined,
    commits: () => {
      const count = commits
      commits = 0
      return count
    },
  }
  return scene
}

/** A job as it is in the store. */
async function stored({ store }: Driver, id: string): Promise<JobRecord | undefined> {
  return (await store.get([id]))[0]
}

test('a job that another process moves while a batch is decided is not moved twice', async () => {
  const scene = await twoStores()
  const { one, other } = scene
  const [job, neighbour] = [await one.add('work'), await one.add('work')]
  let cancelled = false
  scene.before = async () => {
    if (cancelled) return
    cancelled = true
    await other.land(...cancel(job))
  }
  scene.commits()
  const { groups } = await one.commit({ groups: [update(job, { data: '1' }), update(neighbour, { data: '2' })] })
  expect(groups).toMatchObject([{ ok: false, why: 'fence', job: { state: 'cancelled' } }, { ok: true }])
  expect(scene.commits()).toBe(2)
  expect(await stored(one, job.id)).toMatchObject({ state: 'cancelled' })
  expect(await stored(one, neighbour.id)).toMatchObject({ data: '2' })
})

test('a dependent that is added while the end of its dependency is decided is released', async () => {
  const scene = await twoStores()
  const { one, other } = scene
  await one.add('first')
  const [running] = await one.claim(1)
  let added = false
  scene.before = async () => {
    if (added) return
    added = true
    await other.land(insert('late', 'second', { after: [running!.id] }))
  }
  await one.land(note(running!, { progress: 1 })[0]!, ...complete(running!))
  expect(await stored(one, 'late')).toMatchObject({ state: 'waiting', pending: 0 })
})

test('a batch is busy, and leaves no trace, if others change what it needs each time', async () => {
  const scene = await twoStores()
  const { one, other } = scene
  const job = await one.add('work')
  scene.before = async () => {
    const current = await stored(other, job.id)
    await other.land(...update(current!, { data: String(current!.fence) }))
  }
  const { groups } = await one.commit({ groups: [[insert('beside', 'work')], update(job, { data: '"mine"' })] })
  expect(groups).toMatchObject([
    { ok: false, why: 'busy', id: 'beside' },
    { ok: false, why: 'busy', id: job.id },
  ])
  expect(await stored(one, 'beside')).toBeUndefined()
  scene.before = undefined
  const again = await one.commit({ groups: [[insert('beside', 'work')]] })
  expect(again.groups).toMatchObject([{ ok: true }])
})

test('what a lease holder does takes two calls, whatever it is', async () => {
  const scene = await twoStores()
  const { one } = scene
  for (let n = 0; n < 3; n++) await one.add('work')
  const [a, b, c] = await one.claim(3)
  scene.commits()
  await one.commit({ groups: [failAndRetry(a!, 50), note(b!, { progress: 5 }), complete(c!, { result: 1 })] })
  expect(scene.commits()).toBe(1)
})
