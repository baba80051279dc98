// A batch is decided by the engine over a working set that it has locked, or that its process has predicted: what others do
// meanwhile counts.
import { Client, Pool } from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { cancel, complete, failAndRetry, insert, note, update } from '../../../src/conformance/changes.js'
import { Driver } from '../../../src/conformance/driver.js'
import type { JobRecord } from '../../../src/job/job.js'
import { postgres } from '../../../src/postgres.js'
import type { Store } from '../../../src/store/store.js'
import { closing } from '../../setup.js'
import { rows } from './server/clients.js'
import { newSchema, sharedServer } from './server/shared.js'

interface TwoStores {
  readonly one: Driver
  readonly other: Driver
  readonly url: string
  readonly schema: string
  /** Runs before each call of `commit` by the first store is sent. */
  before: (() => Promise<unknown>) | undefined
  /** The functions that the first store has sent batches to, since last asked. */
  calls(): readonly string[]
}

async function twoStores(): Promise<TwoStores> {
  const url = await sharedServer()
  const schema = newSchema()
  const called: string[] = []
  class Interrupted extends Client {
    override query(...args: unknown[]): never {
      const send = (): Promise<unknown> => (super.query as (...args: unknown[]) => Promise<unknown>).apply(this, args)
      const [{ text = '' }] = args as [{ text?: string }]
      const name = /"\.(working_set|commit|fast_commit|fast_complete)_v\d+\(/.exec(text)?.[1]
      if (name === undefined) return send() as never
      called.push(name)
      return (scene.before === undefined || name !== 'commit' ? send() : scene.before().then(send)) as never
    }
  }
  const pool = new Pool({ connectionString: url, max: 4, Client: Interrupted })
  pool.on('error', () => {})
  onTestFinished(() => pool.end())
  const open = async (store: Store): Promise<Driver> => {
    await closing(store).open()
    return new Driver(store, store.runtime!.id())
  }
  const scene: TwoStores = {
    ...{ url, schema },
    one: await open(postgres(pool, { schema })),
    other: await open(postgres(url, { schema, connections: 4 })),
    before: undefined,
    calls: () => called.splice(0),
  }
  return scene
}

/** A job as it is in the store. */
async function stored({ store }: Driver, id: string): Promise<JobRecord | undefined> {
  return (await store.get([id]))[0]
}

test('a job is busy for others while a batch that moves it is decided', async () => {
  const scene = await twoStores()
  const { one, other } = scene
  const [job, neighbour] = [await one.add('work'), await one.add('work')]
  const meanwhile: unknown[] = []
  scene.before = async () => {
    scene.before = undefined
    const { groups } = await other.commit({ groups: [cancel(job), cancel(neighbour)] })
    meanwhile.push(...groups.map((verdict) => (verdict.ok ? 'landed' : verdict.why)))
  }
  scene.calls()
  await one.land(...update(job, { data: '1' }))
  expect(meanwhile).toEqual(['busy', 'landed'])
  expect(scene.calls()).toEqual(['working_set', 'commit'])
  expect(await stored(one, job.id)).toMatchObject({ state: 'waiting', data: '1' })
})

test('a process that stops while it decides loses its transaction, and applies the batch when it goes on', async () => {
  const scene = await twoStores()
  const { one, other } = scene
  const job = await one.add('work')
  scene.before = async () => {
    scene.before = undefined
    for (;;) {
      const { groups } = await other.commit({ groups: [cancel(job)] })
      if (groups[0]!.ok) return
    }
  }
  await expect(one.commit({ groups: [update(job, { data: '1' })] })).rejects.toThrow()
  expect((await one.replay()).groups).toMatchObject([{ ok: false, why: 'fence' }])
  expect(await stored(one, job.id)).toMatchObject({ state: 'cancelled' })
})

test('a dependent that is added while the end of its dependency is decided waits for that decision', async () => {
  const scene = await twoStores()
  const { one, other } = scene
  await one.add('first')
  const [running] = await one.claim(1)
  await one.add('second', { id: 'known', after: [running!.id] })
  scene.before = async () => {
    scene.before = undefined
    const { groups } = await other.commit({ groups: [[insert('late', 'second', { after: [running!.id] })]] })
    expect(groups).toMatchObject([{ ok: false, why: 'busy' }])
  }
  await one.land(...complete(running!))
  expect(await stored(one, 'known')).toMatchObject({ state: 'waiting', pending: 0 })
  await other.land(insert('late', 'second', { after: [running!.id] }))
  expect(await stored(one, 'late')).toMatchObject({ state: 'waiting', pending: 0 })
})

test(
  'a renewal at the moment of a completion leaves no due time on the completed job',
  { timeout: 60_000 },
  async () => {
    const { one, other, url, schema } = await twoStores()
    const renewing = new Driver(one.store, 'renewals')
    for (let round = 0; round < 60; round++) {
      await one.commit({ groups: Array.from({ length: 20 }, (_, n) => [insert(`${round} ${n}`, 'work')]) })
      const jobs = await one.claim(20)
      const renewals = jobs.map(({ id, fence }) => ({ id, fence, lease: 60_000, started: true }))
      const groups = jobs.map((job) => [note(job, { progress: 1 })[0]!, ...complete(job)])
      await Promise.all([
        one.commit({ groups }),
        renewing.commit({ renewals }),
        new Driver(other.store, `other ${round}`).commit({ renewals }),
      ])
    }
    const due = `select count(*)::int as n from ${schema}.job where state <> 'active' and due_at is not null`
    expect(await rows(url, due)).toEqual([{ n: 0 }])
  },
)

test('what a lease holder does takes one call, whatever it is', async () => {
  const scene = await twoStores()
  const { one } = scene
  for (let n = 0; n < 4; n++) await one.add('work')
  const [a, b, c, d] = await one.claim(4)
  scene.calls()
  const next = insert('next', 'work', { chain: { id: d!.id, index: 1 } })
  const { groups } = await one.commit({
    groups: [
      failAndRetry(a!, 50),
      note(b!, { progress: 5 }),
      complete(c!, { result: 1 }),
      complete(d!, { continuation: next }),
    ],
    renewals: [{ id: b!.id, fence: b!.fence, lease: 60_000, started: true }],
  })
  expect(groups.map(({ ok }) => ok)).toEqual([true, true, true, true])
  expect(scene.calls()).toEqual(['fast_commit'])
  expect(await stored(one, a!.id)).toMatchObject({ state: 'delayed', errors: [{ attempt: 1 }] })
  expect(await stored(one, 'next')).toMatchObject({ state: 'waiting', chainId: d!.id })
})

test('a wrong prediction writes nothing, and the engine decides over the working set', async () => {
  const scene = await twoStores()
  const { one, other } = scene
  for (let n = 0; n < 2; n++) await one.add('work')
  const [lost, kept] = await one.claim(2)
  await other.land(...cancel(lost!))
  scene.calls()
  const { groups } = await one.commit({ groups: [failAndRetry(lost!, 50), failAndRetry(kept!, 50)] })
  expect(groups).toMatchObject([{ ok: false, why: 'fence' }, { ok: true }])
  expect(scene.calls()).toEqual(['fast_commit', 'working_set', 'commit'])
})

test('a job that is waited for, and a key that is taken, are found although they were not predicted', async () => {
  const { one, other } = await twoStores()
  await one.add('work')
  const [running] = await one.claim(1)
  await other.add('parent', { id: 'parent', after: [running!.id] })
  await one.land(note(running!, { progress: 1 })[0]!, ...complete(running!))
  expect(await stored(other, 'parent')).toMatchObject({ state: 'waiting' })
  const dedup = { key: '["mill","a"]' }
  const later = new Driver(other.store, 'later')
  expect((await later.commit({ groups: [[insert('mine', 'work', { dedup })]] })).groups).toMatchObject([{ ok: true }])
  const { groups } = await new Driver(one.store, 'third').commit({ groups: [[insert('theirs', 'work', { dedup })]] })
  expect(groups).toMatchObject([{ ok: false, why: 'duplicate', id: 'mine' }])
})
