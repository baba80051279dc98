// What writers have counted is added up soon after they fall silent, a portion at a time; the counts are the same all along.
import { expect, test } from 'vitest'
import { postgres } from 'millrace/postgres'
import { Driver } from '../../../src/conformance/driver.js'
import { complete, insert } from '../../../src/conformance/changes.js'
import { systemRuntime } from '../../../src/store/runtime.js'
import type { Batch, Store } from '../../../src/store/store.js'
import { closing } from '../../setup.js'
import { newDatabase } from './server/shared.js'
import { connected, rows } from './server/clients.js'

const WHILE = 31_000
const LONG = 601_000

/** What all writers together have counted, and how many there are. */
async function standing(url: string): Promise<{ total: number; counting: number }> {
  const [found] = await rows<{ total: number; counting: number }>(
    url,
    `select count(*)::int as total, (count(*) filter (where counts <> '{}'))::int as counting from millrace.writer where id <> ''`,
  )
  return found!
}

/** Tidies up as of so much later; answers how often there was more. */
async function tidy(url: string, later: number): Promise<number> {
  const clock = Date.now() + later
  for (let more = 0; ; more++) {
    const [answer] = await rows<{ more: boolean }>(url, 'select millrace.tidy_v1($1, 10000, 67108864) as more', [clock])
    if (!answer!.more) return more
  }
}

/** Batches of as many writers, each of which adds a job; the last of them. */
async function crowd(store: Store, count: number): Promise<Batch> {
  const batches = Array.from({ length: count }, (_, n): Batch => {
    return { writer: `writer ${n}`, seq: 1, groups: [[insert(`job ${n}`, 'work')]], renewals: [], asks: [] }
  })
  for (let at = 0; at < count; at += 8) {
    await Promise.all(batches.slice(at, at + 8).map((batch) => store.commit(batch)))
  }
  return batches.at(-1)!
}

test('many writers', { timeout: 60_000 }, async () => {
  const url = await newDatabase()
  const store = closing(postgres(url))
  const last = await crowd(store, 2_100)
  const before = await store.tally()
  expect(before).toMatchObject([{ names: { work: { waiting: 2_100 } }, lifetime: { added: 2_100 } }])
  expect(await tidy(url, 0)).toBe(0) // they have only just been seen
  expect(await standing(url)).toEqual({ total: 2_100, counting: 2_100 })

  expect(await tidy(url, WHILE)).toBe(2)
  expect(await standing(url)).toEqual({ total: 2_100, counting: 0 })
  expect(await store.tally()).toEqual(before)
  // Their last batches may still come once more.
  const other = closing(postgres(url))
  expect(await other.commit(last)).toMatchObject({ groups: [{ ok: true, inserted: [{ id: 'job 2099' }] }] })
  expect(await store.tally()).toEqual(before)

  expect(await tidy(url, LONG)).toBe(2)
  expect(await standing(url)).toEqual({ total: 0, counting: 0 })
  expect(await store.tally()).toEqual(before)
})

test('writers that go on meanwhile', async () => {
  const url = await newDatabase()
  const store = closing(postgres(url))
  await store.open()
  const going = { on: true }
  const tidying = (async () => {
    let times = 0
    for (; going.on; times++) await tidy(url, times % 2 === 0 ? WHILE : LONG)
    return times
  })()
  const writers = Array.from({ length: 4 }, (_, n) => new Driver(store, `writer ${n}`))
  await Promise.all(
    writers.map(async (d) => {
      for (let n = 0; n < 40; n++) {
        await d.add('one')
        await d.addMany(3, 'many')
        for (const job of await d.claim(2)) await d.land(complete(job))
      }
    }),
  )
  going.on = false
  expect(await tidying).toBeGreaterThan(3)
  await tidy(url, LONG)
  const { lifetime, names } = (await store.tally())[0]!
  expect(lifetime).toMatchObject({ added: 640, completed: 320 })
  const left = ({ waiting = 0, active = 0 }): number => waiting + active
  expect([left(names['one']!) + left(names['many']!), names['one']!.active ?? 0]).toEqual([320, 0])
})

test('a store tidies up by itself, as long as there is more', { timeout: 60_000 }, async () => {
  const url = await newDatabase()
  let later = 0
  const system = systemRuntime()
  const hurried = { ...system, timer: (delay: number, work: () => void) => system.timer(delay / 100, work) }
  const store = closing(postgres(url, { runtime: hurried, patience: '1000s', clock: () => Date.now() + later }))
  await crowd(store, 1_100)
  later = WHILE
  const client = await connected(url)
  while ((await standing(url)).counting > 0) await client.query('select pg_sleep(0.02)') // there is no notice of it
  expect(await store.tally()).toMatchObject([{ names: { work: { waiting: 1_100 } }, lifetime: { added: 1_100 } }])
})
