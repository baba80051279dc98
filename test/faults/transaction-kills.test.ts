// Workers killed in the middle of a transaction: each job has one row of effect and one child, whatever happened.
import { expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import type { JobRecord } from '../../src/job/job.js'
import { sqlite } from '../../src/sqlite.js'
import { loadDriver } from '../../src/stores/sqlite/file/driver.js'
import { checkFile, soundAccountOf } from './account.js'
import type { CompleterInput, CompleterMessage, Held } from './programs/transaction-worker.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'
import { closing } from '../setup.js'

const path = scene()

interface Effect {
  readonly job: string
  readonly attempt: number
}

/** A store with a table of the user's beside it. */
async function begin(): Promise<{
  readonly queue: Queue
  effects(): readonly Effect[]
  account(): Promise<readonly JobRecord[]>
}> {
  const store = closing(sqlite(path('jobs.db')))
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 100, backoff: 1 } }))
  await store.open()
  const handle = new (await loadDriver())(path('jobs.db'))
  closing({ close: async () => void handle.close() })
  handle.exec('CREATE TABLE effects (job TEXT NOT NULL, attempt INTEGER NOT NULL)') // nothing keeps a job from two rows
  return {
    queue,
    effects: () => handle.prepare('SELECT job, attempt FROM effects').all() as Effect[],
    account: async () => (await soundAccountOf(store)).jobs,
  }
}

function employ(concurrency = 1): Process<CompleterMessage> {
  return start<CompleterMessage>('transaction-worker', { path: path('jobs.db'), concurrency } satisfies CompleterInput)
}

test.each(['inside', 'after'] as const)(
  'one that dies %s complete leaves nothing, and the job runs again',
  async (held) => {
    const { queue, effects } = await begin()
    const added = await queue.add('write', { held } satisfies Held)
    const doomed = employ()
    await doomed.received('held')
    expect(effects()).toEqual([])
    await doomed.kill()
    expect(effects()).toEqual([])
    expect((await queue.get(added.id))?.progress).toBeUndefined()
    const next = employ()
    await added.result()
    expect(effects()).toEqual([{ job: added.id, attempt: 2 }])
    expect((await queue.list({ name: 'child' })).jobs.map(({ data }) => data)).toEqual([added.id])
    expect(await next.finish()).toMatchObject({ code: 0 })
  },
)

test(
  'every job has one effect and one child while 12 workers are killed under load',
  { timeout: 120_000 },
  async () => {
    const KILLS = 12
    const { queue, effects, account } = await begin()
    const jobs = await queue.addBulk(Array.from({ length: 250 }, () => ({ name: 'write' })))
    const results = Promise.all(jobs.map((job) => job.result()))
    let kills = 0
    const work = async (): Promise<void> => {
      const worker = employ(4)
      await Promise.race([worker.received('done', ({ count }) => count >= 5), results])
      if (kills === KILLS) return
      kills++
      await worker.kill()
      await work()
    }
    await Promise.all([work(), work()])
    await results
    const ids = jobs.map(({ id }) => id).toSorted()
    expect(
      effects()
        .map(({ job }) => job)
        .toSorted(),
    ).toEqual(ids)
    const all = await account()
    expect(
      all
        .filter(({ name }) => name === 'child')
        .map(({ data }) => JSON.parse(data!) as string)
        .toSorted(),
    ).toEqual(ids)
    const settled = new Map(all.map(({ id, attempt, state }) => [id, { attempt, state }]))
    for (const { job, attempt } of effects()) expect(settled.get(job)).toEqual({ attempt, state: 'completed' })
    expect(await checkFile(path('jobs.db'))).toEqual(['ok'])
  },
)
