// Several real processes: streams report what others do, and a worker that starts takes over from those killed before it.
import { describe, expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { postgres } from '../../src/postgres.js'
import { sqlite } from '../../src/sqlite.js'
import type { WorkerCell } from '../../src/store/settings.js'
import type { Store } from '../../src/store/store.js'
import type { Database, ControlledInput, ControlledMessage } from './programs/controlled-worker.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'
import { newSchema, sharedServer } from '../stores/postgres/server/shared.js'
import { closing, event } from '../setup.js'
import { open } from '../queue/events/read-sse.js'

const path = scene()

/** Longer than any test: who waits for it fails. */
const LEASE = '10m'

interface Scene {
  readonly store: Store
  readonly queue: Queue
  /** Starts a worker in a process of its own, and waits until it runs. */
  worker(options?: ControlledInput['worker']): Promise<Process<ControlledMessage> & { readonly id: string }>
}

async function database(kind: 'SQLite' | 'PostgreSQL'): Promise<Scene> {
  const where: Database =
    kind === 'SQLite' ? { path: path('jobs.db') } : { url: await sharedServer(), schema: newSchema() }
  const store: Store = closing('path' in where ? sqlite(where.path) : postgres(where.url, { schema: where.schema }))
  const queue = closing(new Queue('work', { store, logger: false }))
  await store.open()
  return {
    store,
    queue,
    worker: async (worker = {}) => {
      const hand = start<ControlledMessage>('controlled-worker', {
        database: where,
        worker: { lease: LEASE, ...worker },
      } satisfies ControlledInput)
      const { worker: id } = await hand.received('running')
      return Object.assign(Object.create(hand) as typeof hand, { id })
    },
  }
}

/** Adds a job that ends only on command, and waits until a worker has begun it. */
async function hold(queue: Queue, hand: Process<ControlledMessage>, id: string): Promise<void> {
  await queue.add('chore', { held: true }, { id })
  await hand.received('started', (message) => message.id === id)
}

async function registered({ store }: Scene): Promise<readonly string[]> {
  const { cells } = await store.details({ cellsUnder: 'worker:' })
  return cells.map(({ value }) => (JSON.parse(value) as WorkerCell).id)
}

describe.each(['SQLite', 'PostgreSQL'] as const)('on %s', { timeout: 60_000 }, (kind) => {
  test('a stream reports what another process adds and completes, and resumes after the last event it sent', async () => {
    const { queue, worker } = await database(kind)
    const hand = await worker()
    const stream = open(queue, { events: ['waiting', 'active', 'completed'] })
    await stream.event('snapshot')
    hand.send({ kind: 'add', id: 'a' })
    const seen = await stream.until(({ event: type }) => type === 'completed')
    expect(seen.map((frame) => [frame.event, frame.data.id])).toEqual([
      ['waiting', 'a'],
      ['active', 'a'],
      ['completed', 'a'],
    ])
    expect(seen.at(-1)!.data.result).toBe(hand.pid)
    await stream.cancel()
    hand.send({ kind: 'add', id: 'b' })
    await hand.received('completed', ({ id }) => id === 'b')
    const later = open(queue, { events: ['completed'], lastEventId: seen[0]!.id! })
    const missed = (await later.until(({ data }) => data?.id === 'b')).filter((frame) => frame.event !== undefined)
    expect(missed.map(({ data }) => data.id)).toEqual(['a', 'b'])
    await hand.finish()
  })

  test('job.observe sees what another process does', async () => {
    const { queue, worker } = await database(kind)
    const job = await queue.add('chore')
    const states: string[] = []
    let hand: Promise<Process<ControlledMessage>> | undefined
    for await (const { state } of job.observe()) {
      states.push(state)
      if (state === 'waiting') hand ??= worker()
    }
    expect(states[0]).toBe('waiting')
    expect(states.at(-1)).toBe('completed')
    await (await hand!).finish()
  })

  test.each([
    ['retried', 'retry'],
    ['failed', 'fail'],
  ] as const)(
    "a job of a worker that was killed is %s at once by one that starts with recovery: '%s', and a living sibling's is not touched",
    async (_what, recovery) => {
      const here = await database(kind)
      const { queue, worker } = here
      const taken = recovery === 'retry' ? event(queue, 'stalled') : event(queue, 'failed')
      await queue.limit({ concurrency: 2 }) // by the time that this has landed, the others know that somebody listens
      const living = await worker()
      await hold(queue, living, 'its job')
      const dead = await worker()
      await hold(queue, dead, 'job')
      await dead.kill()
      const third = await worker({ recovery })
      const message = await taken
      expect(message.id).toBe('job')
      if (message.type === 'failed') {
        expect(message.error).toMatchObject({ code: 'WORKER_DIED', message: expect.stringContaining(dead.id) })
        expect(await queue.get('job')).toMatchObject({ state: 'failed', attempt: 1, attempts: 3 })
      } else {
        expect(message.worker).toBe(dead.id)
        await third.received('started', ({ id, attempt }) => id === 'job' && attempt === 2) // which the limit allows
        third.send({ kind: 'let go', id: 'job' })
        expect(await (await queue.get('job'))!.result()).toBe(third.pid)
      }
      await third.finish()
      expect(await registered(here)).toEqual([living.id])
      expect(await queue.get('its job')).toMatchObject({ state: 'active', worker: living.id, fence: 1, stalls: 0 })
      living.send({ kind: 'let go', id: 'its job' })
      await living.received('completed', ({ id, attempt }) => id === 'its job' && attempt === 1)
    },
  )
})
