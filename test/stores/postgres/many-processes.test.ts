// Eight processes on one database: limits, keys, pauses and dependencies are exact.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Queue } from 'millrace'
import { postgres } from 'millrace/postgres'
import type { JobRecord } from '../../../src/job/job.js'
import { Driver } from '../../../src/conformance/driver.js'
import { insert } from '../../../src/conformance/changes.js'
import type { Store } from '../../../src/store/store.js'
import { linesOf, repeated, soundAccountOf, states } from '../../faults/account.js'
import type { Shared, SharerInput, SharerMessage } from '../../faults/programs/postgres/shared-queue-worker.js'
import { scene, start } from '../../faults/processes.js'
import type { Process } from '../../faults/processes.js'
import { newQueue } from '../../setup.js'
import { newDatabase, newSchema } from './server/shared.js'
import { announced } from './server/clients.js'

const path = scene(afterAll)
const PROCESSES = 8

let store: Store
let processes: readonly Process<SharerMessage>[]
/** Of the test alone. */
let queue: Queue
let d: Driver
const errors: unknown[] = []

beforeAll(async () => {
  const url = await newDatabase()
  store = postgres(url)
  await store.open()
  processes = Array.from({ length: PROCESSES }, () =>
    start<SharerMessage>('postgres/shared-queue-worker', { url } satisfies SharerInput),
  )
  for (const each of processes) each.onEach((message) => message.kind === 'error' && errors.push(message.error))
  await Promise.all(processes.map((each) => each.received('ready')))
})

afterAll(async () => {
  const ends = await Promise.all(processes.map((each) => each.finish()))
  await store.close()
  expect(ends.map(({ code }) => code)).toEqual(processes.map(() => 0))
})

beforeEach(() => {
  queue = newQueue({ store, name: newSchema() })
  d = new Driver(store, queue.name)
  errors.length = 0
})

/** The arguments of all processes of this test. */
const shared = (): Shared => ({ queue: queue.name, ledger: path('ledger') })

/** Sends all of them a command, and waits for their answers. */
async function all<Kind extends SharerMessage['kind']>(
  order: object,
  kind: Kind,
): Promise<readonly (SharerMessage & { kind: Kind })[]> {
  for (const each of processes) each.send({ data: shared(), ...order })
  const failed = processes.map((each) =>
    each.received('error').then(({ error }) => Promise.reject(new Error(error.message))),
  )
  for (const each of failed) each.catch(() => {}) // those that come later are counted
  return Promise.race([Promise.all(processes.map((each) => each.received(kind))), ...failed])
}

const work = (more: Partial<Shared> = {}): Promise<unknown> =>
  all({ kind: 'work', data: { ...shared(), ...more } }, 'running')

/** Counts completions from now on; `done` resolves when there have been so many. */
async function completions(count: number): Promise<{ readonly done: Promise<void> }> {
  let completed = 0
  const done = new Promise<void>((resolve) => {
    queue.on('completed', () => {
      if (++completed === count) resolve()
    })
  })
  await announced(store)
  return { done }
}

const lines = (verb: string): readonly (readonly string[])[] =>
  linesOf(path('ledger')).filter(([first]) => first === verb)

/** Lets all processes stop; every job was claimed once, ran once and is settled. */
async function account(): Promise<readonly JobRecord[]> {
  await all({ kind: 'stop' }, 'stopped')
  expect(errors).toEqual([])
  const jobs = await ofQueue()
  expect(states(jobs)).toEqual({ completed: jobs.length })
  expect(repeated(lines('claimed').map(([, id, fence]) => `${id} ${fence}`))).toEqual([])
  const ran = lines('ended').map(([, , id]) => id!)
  expect(repeated(ran)).toEqual([])
  expect(ran.toSorted()).toEqual(jobs.map(({ id }) => id).toSorted())
  expect(jobs.filter(({ attempt, stalls }) => attempt !== 1 || stalls !== 0)).toEqual([])
  expect((await soundAccountOf(store)).jobs.length).toBeGreaterThanOrEqual(jobs.length)
  return jobs
}

/** The jobs of this test. */
async function ofQueue(): Promise<readonly JobRecord[]> {
  return (await store.find({ queue: queue.name, limit: 1000 })).items
}

/** How many ran at once at most, of a name, of some jobs or of all. */
function most(name?: string, among?: ReadonlySet<string>): number {
  let running = 0
  let highest = 0
  for (const [verb, which, id] of linesOf(path('ledger'))) {
    if (verb === 'claimed' || (name !== undefined && which !== name) || among?.has(id!) === false) continue
    running += verb === 'began' ? 1 : -1
    highest = Math.max(highest, running)
  }
  return highest
}

test('limits of a queue and of a name are never exceeded by one', async () => {
  await d.limit({ concurrency: 6, names: { narrow: { concurrency: 2 } } }, queue.name)
  const { done } = await completions(400)
  await work()
  await queue.addBulk(Array.from({ length: 400 }, (_, n) => ({ name: n % 2 === 0 ? 'narrow' : 'wide' })))
  await done
  const jobs = await account()
  expect(jobs).toHaveLength(400)
  expect(most()).toBeLessThanOrEqual(6)
  expect(most('narrow')).toBeLessThanOrEqual(2)
  expect(most()).toBeGreaterThan(2) // or it would prove nothing
  const { leases } = (await store.tally([queue.name]))[0]!
  expect(Object.values(leases).filter((count) => count !== 0)).toEqual([])
})

test('limits and rates of a queue, of names and of groups hold together, and are never exceeded by one', async () => {
  const [JOBS, MAX, PER] = [160, 40, 1_000]
  await d.limit(
    {
      concurrency: 7,
      rate: { max: MAX, per: PER },
      names: { narrow: { concurrency: 2 } },
      group: { concurrency: 2 },
      groups: { single: { concurrency: 1 }, rare: { rate: { max: 3, per: PER } } },
    },
    queue.name,
  )
  const { done } = await completions(JOBS)
  await work({ pollEvery: 100 })
  const groups = ['one', 'two', 'three', 'single', 'rare']
  await queue.addBulk(
    Array.from({ length: JOBS }, (_, n) => {
      const name = n % 3 === 0 ? 'narrow' : 'slow'
      return { name, options: n % 40 === 7 ? {} : { group: n % 16 === 5 ? 'rare' : groups[n % 4]! } }
    }),
  )
  await done
  const jobs = await account()
  expect(most()).toBeLessThanOrEqual(7)
  expect(most('narrow')).toBeLessThanOrEqual(2)
  const ofGroup = (group: string): readonly JobRecord[] => jobs.filter((job) => job.group === group)
  const highest = groups.map((group) => most(undefined, new Set(ofGroup(group).map(({ id }) => id))))
  expect(highest.map((count, n) => count <= (groups[n] === 'single' ? 1 : 2))).toEqual(groups.map(() => true))
  expect([Math.max(...highest), most()].every((count) => count > 1)).toBe(true) // or it would prove nothing
  const tooSoon = (some: readonly JobRecord[], max: number): readonly number[] => {
    const times = some.map(({ startedAt }) => startedAt!).toSorted((a, b) => a - b)
    return times.filter((at, n) => n >= max && at - times[n - max]! < PER)
  }
  expect(tooSoon(jobs, MAX)).toEqual([])
  expect(tooSoon(ofGroup('rare'), 3)).toEqual([])
})

test('a limit of one lets one run at a time', async () => {
  await d.limit({ concurrency: 1 }, queue.name)
  const { done } = await completions(30)
  await queue.addBulk(Array.from({ length: 30 }, () => ({ name: 'single' })))
  await work()
  await done
  await account()
  expect(most()).toBe(1)
})

test('every key is taken once, however many add it at the same moment', async () => {
  const keys = Array.from({ length: 60 }, (_, n) => `key ${n}`)
  const added = await all({ kind: 'add', keys }, 'added')
  const fresh = added.flatMap((each) => each.fresh)
  expect(fresh).toHaveLength(keys.length)
  expect(repeated(fresh)).toEqual([])
  // All were given the same jobs, in the order of their keys.
  expect(new Set(added.map(({ ids }) => ids.join())).size).toBe(1)
  expect(await queue.counts()).toMatchObject({ waiting: keys.length })
  const { done } = await completions(keys.length)
  await work()
  await done
  await account()
})

test('after a pause nothing more is claimed, and what runs goes on', async () => {
  const { done } = await completions(500)
  const { done: one } = await completions(1)
  // Half a second of work for all of them; jobs with one attempt are not leased ahead.
  await queue.addBulk(Array.from({ length: 500 }, () => ({ name: 'slow', options: { attempts: 1 } })))
  await work()
  await one
  await queue.pause()
  const claimed = async (): Promise<number> => {
    return (await ofQueue()).filter(({ attempt }) => attempt > 0).length
  }
  const begun = await claimed()
  const ended = new Promise<void>((resolve) => {
    const look = async (): Promise<void> => void ((await queue.counts()).active === 0 && (stop(), resolve()))
    const stop = queue.on('completed', () => void look())
    void look()
  })
  await ended
  expect(await claimed()).toBe(begun)
  expect(begun).toBeLessThan(500)
  await queue.resume()
  await done
  await account()
})

test('a parent of many children is released once, by whichever ends last', async () => {
  const children = await queue.addBulk(Array.from({ length: 80 }, () => ({ name: 'child' })))
  const after = children.map(({ id }) => id)
  const inserts = Array.from({ length: 5 }, () => insert(d.id(), 'parent', { queue: queue.name, after }))
  const parents = await d.land(...inserts)
  const { done } = await completions(85)
  await work()
  await done
  const jobs = await account()
  for (const { id, fence } of parents) {
    // Added, released, claimed, completed: each once.
    expect(jobs.find((job) => job.id === id)).toMatchObject({ pending: 0, fence: fence + 3 })
  }
  const order = linesOf(path('ledger'))
  const last = order.findLastIndex(([verb, name]) => verb === 'ended' && name === 'child')
  const first = order.findIndex(([verb, name]) => verb === 'began' && name === 'parent')
  expect(first).toBeGreaterThan(last)
})
