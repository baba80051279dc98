// Processes that are killed in the middle of a bulk operation: others continue, and each job is changed exactly once.
import { describe, expect, test } from 'vitest'
import { Queue } from 'millrace'
import type { Job, Operation, Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { closing } from '../setup.js'
import { newSchema, sharedServer } from '../stores/postgres/server/shared.js'
import { scene, start } from './processes.js'
import type { OperationInput, OperationMessage } from './programs/operation-worker.js'

const path = scene()
const JOBS = 5000

/** Where the queue of a test is. */
async function place(
  kind: 'SQLite' | 'PostgreSQL',
): Promise<{ readonly store: Store; readonly where: OperationInput }> {
  if (kind === 'SQLite') return { store: closing(sqlite(path('jobs.db'))), where: { path: path('jobs.db') } }
  const where = { url: await sharedServer(), schema: newSchema() }
  return { store: closing(postgres(where.url, { schema: where.schema })), where }
}

async function allJobs(queue: Queue): Promise<Job[]> {
  const all: Job[] = []
  for (let cursor: string | undefined; ;) {
    const page = await queue.list({ limit: 1000, cursor })
    all.push(...page.jobs)
    cursor = page.cursor
    if (cursor === undefined) return all
  }
}

async function fences(queue: Queue): Promise<ReadonlyMap<string, number>> {
  return new Map((await allJobs(queue)).map((job) => [job.id, job.toJSON()['fence'] as number]))
}

/** Resolves when so many jobs more were changed. */
async function more(operation: Operation, count: number): Promise<void> {
  const before = (await operation.refresh()).done
  await expect
    .poll(async () => (await operation.refresh()).done, { timeout: 60_000 })
    .toBeGreaterThanOrEqual(before + count)
}

describe.each(['SQLite', 'PostgreSQL'] as const)('on %s', (kind) => {
  test(
    'an operation whose processes are killed three times changes each of 5,000 jobs exactly once',
    { timeout: 180_000 },
    async () => {
      const { store, where } = await place(kind)
      const queue = closing(new Queue('work', { store, logger: false }))
      await queue.addBulk(Array.from({ length: JOBS }, (_, n) => ({ name: 'job', data: { n } })))
      const before = await fences(queue)
      // An update, because the jobs match before and after it: only the stored progress keeps them from a second one.
      const operation = await queue.operate({
        do: 'update',
        all: true,
        changes: { priority: 3 },
        rate: { max: 100, per: 20 },
      })
      for (let kill = 0; kill < 3; kill++) {
        const worker = start<OperationMessage>('operation-worker', where)
        await more(operation, 300)
        await worker.kill()
      }
      expect(operation.state).toBe('running')
      start<OperationMessage>('operation-worker', where)
      start<OperationMessage>('operation-worker', where)
      await operation.result()
      expect(operation.toJSON()).toMatchObject({ done: JOBS, unchanged: 0, refused: {}, state: 'completed' })
      const after = await fences(queue)
      expect(after.size).toBe(JOBS)
      expect([...after].filter(([id, fence]) => fence !== before.get(id)! + 1)).toEqual([])
    },
  )

  test('a call by filter whose process is killed is completed by a worker', { timeout: 180_000 }, async () => {
    const { store, where } = await place(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    await queue.addBulk(Array.from({ length: JOBS }, (_, n) => ({ name: 'job', data: { n } })))
    const caller = start<OperationMessage>('operation-worker', { ...where, cancels: true })
    await caller.received('running')
    await expect.poll(async () => (await queue.counts()).cancelled, { timeout: 60_000, interval: 1 }).toBeGreaterThan(0)
    await caller.kill()
    const [operation] = (await queue.operations()).operations
    const { done } = operation!
    start<OperationMessage>('operation-worker', where)
    await operation!.result()
    expect(operation!.toJSON()).toMatchObject({ done: JOBS, state: 'completed' })
    expect(done).toBeLessThan(JOBS)
    expect((await queue.counts()).cancelled).toBe(JOBS)
  })
})
