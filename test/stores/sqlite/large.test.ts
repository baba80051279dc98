// What is much, in bytes: a commit on SQLite holds the event loop for as long as it reads, so that it must not read payloads.
import { beforeEach, describe, expect, test } from 'vitest'
import { sqlite } from 'millrace/sqlite'
import { due } from '../../../src/job/lifecycle.js'
import type { PlainJob } from '../../../src/job/retention.js'
import { Driver } from '../../../src/conformance/driver.js'
import { complete, insert, note } from '../../../src/conformance/changes.js'
import { systemRuntime } from '../../../src/store/runtime.js'
import type { Store } from '../../../src/store/store.js'
import { closing } from '../../setup.js'
import { drivers, freshFolder } from './folder.js'

const at = freshFolder()
const { Driver: Native } = drivers[0]!

/** Bytes of text that statements have answered. */
let bytes = 0

/** Counts what its statements answer. */
class Counting extends Native {
  override prepare(sql: string): ReturnType<InstanceType<typeof Native>['prepare']> {
    const statement = super.prepare(sql)
    return new Proxy(statement, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        return (...values: unknown[]) => counted(Reflect.apply(value, target, values))
      },
    })
  }
}

function counted<T>(answer: T): T {
  if (typeof answer === 'string') bytes += answer.length
  else if (typeof answer === 'object' && answer !== null) Object.values(answer).forEach(counted)
  return answer
}

const LARGE = 'x'.repeat(100_000)
const COUNT = 30

let store: Store
let driver: Driver

beforeEach(async () => {
  store = closing(sqlite(new Counting(at('jobs.db'))))
  await store.open()
  driver = new Driver(store, 'writer')
})

/** What is due, once all of it is. */
async function allDue(): Promise<readonly ReturnType<typeof due>[]> {
  for (;;) {
    const seen = await store.due({ queues: ['mill'], except: [], limit: 500 })
    if (seen.jobs.length === COUNT) return seen.jobs.map((job) => due(job as PlainJob, seen.now))
  }
}

describe('a commit that moves large jobs', () => {
  test('does not read what they hold, whether it is in time or too late', async () => {
    for (let n = 0; n < COUNT; n++) await driver.land(insert(`j${n}`, 'work', { data: LARGE, run: { in: 1 } }))
    const groups = await allDue()
    bytes = 0
    const first = await driver.commit({ groups })
    const second = await driver.commit({ groups })
    expect(first.groups.every(({ ok }) => ok)).toBe(true)
    expect(second.groups.every((verdict) => !verdict.ok && verdict.job?.state === 'waiting')).toBe(true)
    expect(bytes).toBeLessThan(LARGE.length)
  })

  test('does not read them to release them', async () => {
    const child = await driver.add('child')
    for (let n = 0; n < COUNT; n++) await driver.land(insert(`j${n}`, 'work', { data: LARGE, after: [child] }))
    const [held] = await driver.claim(1)
    bytes = 0
    await driver.land(complete(held!))
    expect(bytes).toBeLessThan(LARGE.length)
    expect((await store.tally(['mill']))[0]!.names['work']).toEqual({ waiting: COUNT })
  })

  test('does not read them to write a note, or to refuse a renewal', async () => {
    for (let n = 0; n < COUNT; n++) await driver.land(insert(`j${n}`, 'work', { data: LARGE }))
    const held = await driver.claim(COUNT)
    bytes = 0
    await driver.commit({ groups: held.map((job) => note(job, { logs: ['begun'] })) })
    const late = held.map(({ id, fence }) => ({ id, fence: fence - 1, lease: 1_000, started: true }))
    const { renewals } = await driver.commit({ renewals: late })
    expect(renewals.every((verdict) => !verdict.ok && verdict.job?.state === 'active')).toBe(true)
    expect(bytes).toBeLessThan(LARGE.length)
  })
})

test('a caller that reads page after page leaves turns of the event loop to others', async () => {
  let elapsed = 0
  const runtime = { ...systemRuntime(), elapsed: () => (elapsed += 10) } // as if every read took long
  const store = closing(sqlite(at('jobs.db'), { runtime }))
  await new Driver(store, 'w').addMany(10, 'work')
  let turns = 0
  let reading = true
  const count = (): void => {
    turns++
    if (reading) setImmediate(count)
  }
  setImmediate(count)
  let pages = 0
  for (let cursor: string | undefined; pages === 0 || cursor !== undefined; pages++) {
    const page = await store.find({ limit: 1, ...(cursor !== undefined && { cursor }) })
    cursor = page.cursor
  }
  reading = false
  expect(turns).toBeGreaterThanOrEqual(pages - 1)
})
