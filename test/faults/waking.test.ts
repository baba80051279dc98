// One process adds, another that was idle begins: by a push, or by the net under it where nothing can be pushed.
import { mkdirSync, rmSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { closing } from '../setup.js'
import { soundAccountOf, states } from './account.js'
import { scene, start } from './processes.js'
import type { WorkerInput, WorkerMessage } from './programs/worker.js'

const path = scene()
const db = (): string => path('jobs.db')

/** A queue here, and a worker elsewhere that never looks by itself and has nothing to do. */
async function idle(input: Pick<WorkerInput, 'watching'> = {}) {
  const store = closing(sqlite(db()))
  const queue = closing(new Queue('work', { store, logger: false }))
  const worker = start<WorkerMessage>('worker', {
    path: db(),
    ledger: path('ledger'),
    worker: { pollEvery: '1h', lease: '2h' },
    ...input,
  } satisfies WorkerInput)
  await worker.received('running')
  const roundTrip = async (): Promise<void> => {
    const { id } = await queue.add('chore')
    await worker.received('started', (message) => message.id === id)
    await worker.received('completed', (message) => message.id === id)
  }
  return { store, queue, worker, roundTrip }
}

describe('a job that is added in one process starts in another that is idle', { timeout: 60_000 }, () => {
  test('where files can be watched', async () => {
    const { store, roundTrip, worker } = await idle()
    for (let n = 0; n < 30; n++) await roundTrip()
    await worker.finish()
    expect(states((await soundAccountOf(store)).jobs)).toEqual({ completed: 30 })
  })

  test('where the watched file has been removed meanwhile', async () => {
    const { roundTrip } = await idle()
    await roundTrip()
    rmSync(`${db()}-wake`)
    for (let n = 0; n < 5; n++) await roundTrip()
  })

  test('where the file to be watched cannot be made', async () => {
    mkdirSync(`${db()}-wake`)
    const { roundTrip } = await idle()
    for (let n = 0; n < 5; n++) await roundTrip()
  })

  test('where watching is refused', async () => {
    const { roundTrip } = await idle({ watching: 'refused' })
    for (let n = 0; n < 5; n++) await roundTrip()
  })

  test('where the file watcher reports nothing', async () => {
    const { roundTrip } = await idle({ watching: 'silent' })
    for (let n = 0; n < 5; n++) await roundTrip()
  })

  test('and a process that waits for its result receives its end', async () => {
    const { queue, worker } = await idle()
    const job = await queue.add('chore')
    expect(await job.result()).toEqual({ by: worker.pid })
    const events: string[] = []
    for (const type of ['waiting', 'active', 'completed'] as const)
      queue.on(type, (message) => events.push(message.type))
    const ended = new Promise((resolve) => queue.on('completed', resolve))
    await queue.add('chore')
    await ended
    expect(events).toEqual(['waiting', 'active', 'completed'])
  })
})
