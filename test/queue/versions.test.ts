// A worker receives jobs of the versions that it handles, on every store; the others wait, and `explain` has the reason.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, defineJobs, job } from 'millrace'
import type { JobDefinitions, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { z } from 'zod'
import { closing, collect, event } from '../setup.js'
import { newSchema, sharedServer } from '../stores/postgres/server/shared.js'

const first = defineJobs({ mail: job({ input: z.object({ to: z.string() }) }), other: job() })
const second = defineJobs({ mail: job({ version: 2, input: z.object({ to: z.array(z.string()) }) }), other: job() })
const both = defineJobs({
  mail: job({
    version: 2,
    input: z.object({ to: z.array(z.string()).min(1) }),
    upgrade: {
      1: (old: { to: string }) => {
        if (old.to === 'broken') throw new Error('nobody is called that')
        return { to: old.to === '' ? [] : [old.to] }
      },
    },
  }),
})

const stores: readonly (readonly [string, () => Promise<Store>])[] = [
  ['memory', async () => memory()],
  ['SQLite', async () => sqlite(':memory:')],
  ['PostgreSQL', async () => postgres(await sharedServer(), { schema: newSchema() })],
]

describe.each(stores)('on %s', (_name, make) => {
  const scene = async () => {
    const store = closing(await make())
    const queue = <Jobs extends JobDefinitions>(jobs: Jobs) =>
      closing(new Queue('work', { store, jobs, logger: false }))
    return {
      store,
      queue,
      old: queue(first),
      young: queue(second),
      loose: closing(new Queue('work', { store, logger: false })),
    }
  }

  test('jobs carry the version declared where they are added, 1 if none is', async () => {
    const { old, young, loose } = await scene()
    expect((await old.add('mail', { to: 'a' })).version).toBe(1)
    expect((await loose.add('mail', { to: 'a' })).version).toBe(1)
    expect((await young.add('mail', { to: ['a'] })).version).toBe(2)
    expect((await young.addBulk([{ name: 'mail', data: { to: ['a'] } }]))[0]!.version).toBe(2)
  })

  test('an old worker does not claim a new payload, and explain lists the versions that live workers handle', async () => {
    const { old, young } = await scene()
    const ran: unknown[] = []
    const worker = closing(
      new Worker(
        old,
        { mail: ({ data }) => void ran.push(data.to), other: () => {} },
        { concurrency: 5, logger: false },
      ),
    )
    await worker.run()
    const left = await young.add('mail', { to: ['new'] })
    await old.add('mail', { to: 'old' })
    const other = await young.add('other')
    await other.result()
    expect(ran).toEqual(['old'])
    expect((await left.refresh()).state).toBe('waiting')
    const { reasons, text } = await young.explain(left.id)
    expect(reasons).toEqual([{ why: 'no-worker', queue: 'work', name: 'mail', version: 2, known: [1] }])
    expect(text).toContain(
      "no live worker handles version 2 of 'mail' in queue work; those that handle it know version 1",
    )
  })

  test('a new worker takes old payloads that it knows how to upgrade, and those alone', async () => {
    const { old, young, queue, loose } = await scene()
    const now = queue(both)
    const seen: string[] = []
    closing(
      new Worker(
        now,
        { mail: ({ data, version }) => void seen.push(`${version}: ${data.to.join()}`) },
        { logger: false },
      ),
    )
    const added = [await old.add('mail', { to: 'a' }), await young.add('mail', { to: ['b', 'c'] })]
    for (const each of added) await each.result()
    expect(seen).toEqual(['1: a', '2: b,c'])
    const future = closing(
      new Queue('work', { store: now.store, jobs: defineJobs({ mail: job({ version: 3 }) }), logger: false }),
    )
    const unknown = await future.add('mail', {})
    // What cannot be upgraded, or is invalid then, fails for good.
    const broken = await loose.add('mail', { to: 'broken' }, { attempts: 5 })
    const empty = await loose.add('mail', { to: '' }, { attempts: 5 })
    await expect(broken.result()).rejects.toThrow('could not be upgraded from version 1: nobody is called that')
    await expect(empty.result()).rejects.toThrow('was refused')
    expect(await broken.refresh()).toMatchObject({ state: 'failed', attempt: 1 })
    expect((await unknown.refresh()).state).toBe('waiting')
    expect(await now.explain(unknown.id)).toMatchObject({ reasons: [{ why: 'no-worker', version: 3, known: [1, 2] }] })
  })

  test('a job keeps its version, whatever becomes of it', async () => {
    const { old, young, queue } = await scene()
    const retried = await old.add('mail', { to: 'a' }, { attempts: 2, backoff: 1 })
    const now = queue(both)
    const seen: number[] = []
    const failed = event(now, 'failed')
    closing(
      new Worker(
        now,
        {
          mail: (each, ctx) => {
            seen.push(each.version)
            if (seen.length === 1) ctx.snooze(1)
            throw new Error('no')
          },
        },
        { logger: false },
      ),
    )
    await failed
    expect(seen).toEqual([1, 1, 1])
    await young.retry(retried.id)
    await event(now, 'failed')
    expect(new Set(seen)).toEqual(new Set([1]))
    expect((await retried.refresh()).version).toBe(1)
  })

  test('data of one version does not become that of a job of another', async () => {
    const { old, young } = await scene()
    const left = await old.add('mail', { to: 'a' })
    await expect(young.update(left.id, { data: { to: ['b'] } })).rejects.toMatchObject({ code: 'OTHER_VERSION' })
    await young.add('mail', { to: ['c'] })
    expect(await young.update({ name: 'mail' }, { data: { to: ['d'] } })).toBe(1)
    expect(await young.update(left.id, { priority: 5 })).toBe(true)
    expect(await left.refresh()).toMatchObject({ data: { to: 'a' }, priority: 5 })
  })

  test('a worker without declared jobs takes all versions', async () => {
    const { young, loose } = await scene()
    const done = collect(loose, ['completed'])
    closing(new Worker(loose, () => {}, { logger: false }))
    await (await young.add('mail', { to: ['a'] })).result()
    expect(done).toEqual(['completed'])
  })
})
