// A file that may not be written to: a clear error, and work goes on by itself once it may.
import { chmodSync, mkdirSync, readdirSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { heldOpen } from '../stores/sqlite/folder.js'
import { checkFile, linesOf, soundAccountOf, states } from './account.js'
import { scene, start } from './processes.js'
import type { WorkerInput, WorkerMessage } from './programs/worker.js'

const path = scene()
const db = (): string => path('in/jobs.db')

/** A file with some jobs, closed again: nothing but the file is left. */
async function prepare(jobs: number): Promise<void> {
  mkdirSync(path('in'))
  const store = sqlite(db())
  const queue = new Queue('work', { store, logger: false })
  await queue.addBulk(Array.from({ length: jobs }, () => ({ name: 'chore' })))
  await queue.close()
  await store.close()
}

/** Opens the way for everybody. */
function allow(): void {
  chmodSync(path('in'), 0o777)
  for (const name of readdirSync(path('in'))) chmodSync(path(`in/${name}`), 0o666)
}

describe.skipIf(process.platform === 'win32')('a store that was opened read-only', { timeout: 60_000 }, () => {
  test.each([
    ['the file may not be written to', () => chmodSync(db(), 0o444)],
    ['its folder may not be written to', () => chmodSync(path('in'), 0o555)],
    [
      'neither may',
      () => {
        chmodSync(db(), 0o444)
        chmodSync(path('in'), 0o555)
      },
    ],
  ])('a worker says so where %s, and does its work once it may', async (_, forbid) => {
    await prepare(5)
    expect(await heldOpen(path())).toEqual([]) // as long as it is, the log lies beside the file
    allow()
    forbid()
    const worker = start<WorkerMessage>('worker', {
      path: db(),
      ledger: path('ledger'),
      asNobody: true,
      worker: { reconnect: 50 },
    } satisfies WorkerInput)
    const { error } = await worker.received('error') // once; and it goes on trying
    expect(error.codes).toContain('DATABASE_NOT_WRITABLE')
    expect(worker.alive).toBe(true)

    allow()
    await worker.received('running')
    for (let n = 0; n < 5; n++) await worker.received('completed')
    expect(await worker.finish()).toMatchObject({ code: 0 })

    const store = sqlite(db())
    const { jobs } = await soundAccountOf(store)
    expect(states(jobs)).toEqual({ completed: 5 })
    expect(jobs.map(({ attempt }) => attempt)).toEqual([1, 1, 1, 1, 1])
    expect(linesOf(path('ledger')).filter(([verb]) => verb === 'began').length).toBe(5)
    await store.close()
    expect(await checkFile(db())).toEqual(['ok'])
  })
})
