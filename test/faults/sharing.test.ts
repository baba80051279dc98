// Several processes on one file: limits, dedup keys and fences are exact, whichever process is first.
import { describe, expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { closing } from '../setup.js'
import { linesOf, repeated, soundAccountOf, states } from './account.js'
import type { AdderInput, AdderMessage } from './programs/add-and-work.js'
import type { HolderInput, HolderMessage } from './programs/claim-and-settle.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'
import type { Chore, WorkerInput, WorkerMessage } from './programs/worker.js'

const path = scene()
const db = (): string => path('jobs.db')

function newQueue(): Queue {
  const store = closing(sqlite(db()))
  return closing(new Queue('work', { store, logger: false }))
}

function newWorker(options: NonNullable<WorkerInput['worker']>): Process<WorkerMessage> {
  return start<WorkerMessage>('worker', { path: db(), ledger: path('ledger'), worker: options } satisfies WorkerInput)
}

const numbered = (count: number, prefix: string): readonly string[] =>
  Array.from({ length: count }, (_, n) => prefix + n)

describe('several processes on one file', { timeout: 60_000 }, () => {
  test('never run more jobs at a time than the limit of their queue, and as many as that', async () => {
    const [LIMIT, HELD, FREE] = [5, 30, 300]
    const queue = newQueue()
    const jobs = [
      ...(await queue.addBulk(numbered(HELD, '').map(() => ({ name: 'chore', data: { held: true } satisfies Chore })))),
      ...(await queue.addBulk(
        numbered(FREE, '').map((_, n) => ({ name: 'chore', data: { takes: n % 4 } satisfies Chore })),
      )),
    ]
    const workers = Array.from({ length: 3 }, () => newWorker({ concurrency: 4, maxGlobalConcurrency: LIMIT }))
    let running = 0
    let done = 0
    const all = new Promise<void>((resolve) => {
      for (const worker of workers) {
        worker.onEach((message) => {
          if (message.kind === 'completed' && ++done === jobs.length) resolve()
          if (message.kind !== 'started' || ++running < LIMIT) return
          // So many run now, none of them has ended, and those who ask for more get nothing: one after the other may end.
          for (const each of workers) each.send({ kind: 'let go', id: jobs[running - LIMIT]!.id })
        })
      }
    })
    await all
    await Promise.all(workers.map((worker) => worker.finish()))

    let now = 0
    const counts = linesOf(path('ledger')).flatMap(([verb]) => {
      if (verb !== 'began' && verb !== 'ended') return []
      return [(now += verb === 'began' ? 1 : -1)]
    })
    expect(Math.max(...counts)).toBe(LIMIT)
    expect(now).toBe(0)
    const account = await soundAccountOf(queue.store)
    expect(states(account.jobs)).toEqual({ completed: jobs.length })
    expect(Object.values(account.tallies[0]?.leases ?? {}).filter((leases) => leases > 0)).toEqual([])
  })

  test('that add the same key or the same id at the same time all get the one job', async () => {
    const queue = newQueue()
    await queue.store.open()
    const keys = numbered(60, 'key-')
    const ids = numbered(60, 'id-')
    const racers = Array.from({ length: 4 }, () =>
      start<AdderMessage>('add-and-work', { path: db(), ledger: path('ledger') } satisfies AdderInput),
    )
    await Promise.all(racers.map((racer) => racer.received('ready')))
    for (const racer of racers) racer.send({ kind: 'race', keys, ids })
    const ends = (await Promise.all(racers.map((racer) => racer.received('raced')))).map((message) => message.ends)

    for (let at = 0; at < keys.length + ids.length; at++) {
      const among = ends.map((each) => each[at]!)
      expect(new Set(among.map(({ id }) => id)).size).toBe(1)
      expect(among.filter(({ duplicate }) => !duplicate).length).toBe(1)
    }
    const { jobs } = await soundAccountOf(queue.store)
    expect(states(jobs)).toEqual({ waiting: keys.length + ids.length })
    await Promise.all(racers.map((racer) => racer.finish()))
  })

  test('refuse everything of one that has lost its jobs to another', async () => {
    const JOBS = 40
    const queue = newQueue()
    await queue.addBulk(numbered(JOBS, '').map(() => ({ name: 'chore' })))
    const holder = start<HolderMessage>('claim-and-settle', {
      path: db(),
      jobs: JOBS,
      lease: 300,
    } satisfies HolderInput)
    const { fences } = await holder.received('claimed')
    const worker = newWorker({ upkeepEvery: 200, concurrency: JOBS })
    for (let n = 0; n < JOBS; n++) await worker.received('completed')
    const before = await soundAccountOf(queue.store)
    holder.send({ kind: 'settle' })
    const { verdicts } = await holder.received('verdicts')
    expect([...new Set(Object.values(verdicts).flat())]).toEqual(['fence'])
    expect(Object.values(verdicts).flat().length).toBe(JOBS)
    expect((await soundAccountOf(queue.store)).jobs).toEqual(before.jobs)
    // Claimed, taken away, claimed again, completed.
    const expected = before.jobs.map(({ id }) => ({
      state: 'completed',
      attempt: 2,
      stalls: 1,
      fence: fences[id]! + 3,
    }))
    expect(before.jobs).toMatchObject(expected)
  })

  test('take over from one that is frozen, and it learns of that when it thaws', async () => {
    const queue = newQueue()
    const job = await queue.add('chore', { held: true } satisfies Chore)
    // It writes nothing by itself for a while, so that it is not frozen with the file in its hands.
    const frozen = newWorker({ lease: 1500, renewEvery: 1499, pollEvery: '1h' })
    const { worker: lost } = await frozen.received('running')
    await frozen.received('started')
    frozen.signal('SIGSTOP')
    const other = newWorker({ upkeepEvery: 200 })
    const { attempt } = await other.received('started')
    other.send({ kind: 'let go', id: job.id })
    await other.received('completed')
    const before = await soundAccountOf(queue.store)
    frozen.signal('SIGCONT')
    frozen.send({ kind: 'let go', id: job.id })
    await frozen.received('lease-lost')
    expect(attempt).toBe(2)
    expect(await frozen.finish()).toMatchObject({ code: 0 })
    const after = await soundAccountOf(queue.store)
    expect(after.jobs).toEqual(before.jobs)
    expect(after.jobs[0]?.worker).not.toBe(lost)
    const settled = linesOf(path('ledger')).filter(([verb]) => verb === 'settled')
    expect(repeated(settled.map(([, id]) => id!))).toEqual([])
    expect(settled.length).toBe(1)
  })
})
