// Ten processes look after the same schedules and are killed again and again: no time is lost, and none is doubled.
import { expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import type { Store } from '../../src/index.js'
import { postgres } from '../../src/postgres.js'
import { sqlite } from '../../src/sqlite.js'
import { newDatabase } from '../stores/postgres/server/shared.js'
import { closing } from '../setup.js'
import { soundAccountOf, states } from './account.js'
import type { WorkerInput as PostgresInput } from './programs/postgres/worker.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'
import type { WorkerInput, WorkerMessage } from './programs/worker.js'

const path = scene()

const PROCESSES = 10
const KILLS = 5
const KEYS = ['a', 'b', 'c'] as const
const EVERY = 150
const LIMIT = 30

const worker = { concurrency: 4, lease: 2000, upkeepEvery: 500 } as const

async function onSqlite(): Promise<{ store: Store; begin: () => Process<WorkerMessage> }> {
  const file = path('jobs.db')
  const input: WorkerInput = { path: file, ledger: path('ledger'), worker, store: { ring: 1_000_000 } }
  return { store: closing(sqlite(file, { ring: 1_000_000 })), begin: () => start('worker', input) }
}

async function onPostgres(): Promise<{ store: Store; begin: () => Process<WorkerMessage> }> {
  const url = await newDatabase()
  const input: PostgresInput = { url, ledger: path('ledger'), worker, store: { ring: 1_000_000 } }
  return { store: closing(postgres(url, { ring: 1_000_000 })), begin: () => start('postgres/worker', input) }
}

test.each([
  ['SQLite', onSqlite],
  ['PostgreSQL', onPostgres],
])('every time of a schedule is run once on %s, whoever is killed', { timeout: 120_000 }, async (_, make) => {
  const { store, begin } = await make()
  await store.open()
  const queue = closing(new Queue('work', { store, logger: false }))
  const completed: string[] = []
  const due: { readonly count: number; readonly done: () => void }[] = []
  queue.on('completed', ({ id }) => {
    if (!id.startsWith('run:')) return
    completed.push(id)
    for (const each of due) if (completed.length >= each.count) each.done()
  })
  const until = (count: number): Promise<void> =>
    new Promise((done) => (completed.length >= count ? done() : void due.push({ count, done })))

  const processes = Array.from({ length: PROCESSES }, begin)
  const running: Promise<unknown>[] = processes.map((each) => each.received('running'))
  await Promise.all(running)
  // All who schedule the same at once make one schedule of it.
  const again = closing(new Queue('work', { store, logger: false }))
  const made = await Promise.all(
    [queue, again].flatMap((each) =>
      KEYS.map((key) =>
        each.schedule(key, {
          every: EVERY,
          start: 0,
          limit: LIMIT,
          name: 'chore',
          catchUp: 'all',
          options: { attempts: 100 },
        }),
      ),
    ),
  )
  for (let kill = 1; kill <= KILLS; kill++) {
    await until((kill * KEYS.length * LIMIT) / (2 * KILLS))
    const victim = processes.shift()!
    await victim.kill()
    const successor = begin()
    processes.push(successor)
    running.push(successor.received('running'))
  }
  await until(KEYS.length * LIMIT)

  const schedules = await queue.schedules()
  expect(schedules.map(({ key, state, count, skipped }) => [key, state, count, skipped])).toEqual(
    KEYS.map((key) => [key, 'ended', LIMIT, undefined]),
  )
  for (const { key, id } of schedules) {
    const runs = (await queue.list({ schedule: key, limit: 1000 })).jobs
    const first = Math.min(...made.filter((each) => each.id === id).map(({ next }) => next[0]!))
    const expected = Array.from({ length: LIMIT }, (__, at) => first + at * EVERY)
    expect(runs.map(({ scheduledAt }) => scheduledAt).toSorted((a, b) => a! - b!)).toEqual(expected)
  }
  expect(new Set(completed).size).toBe(completed.length)
  await Promise.all(running)
  for (const end of await Promise.all(processes.map((each) => each.finish()))) expect(end).toMatchObject({ code: 0 })
  const { jobs, tallies } = await soundAccountOf(store)
  expect(states(jobs.filter(({ kind }) => kind === 'job'))).toEqual({ completed: KEYS.length * LIMIT })
  expect(tallies[0]?.lifetime).toMatchObject({ added: KEYS.length * LIMIT, completed: KEYS.length * LIMIT })
})
