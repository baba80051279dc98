// A file that another program holds locked: calls wait without holding the event loop, fail clearly, and go on after.
import { setTimeout } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { Queue, Worker } from '../../src/index.js'
import type { Store } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { closing, gate } from '../setup.js'
import { soundAccountOf, states } from './account.js'
import { errorToSend } from './programs/messages.js'
import type { LockerInput, LockerMessage } from './programs/lock-file.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'

const path = scene()
const db = (): string => path('jobs.db')

/** Another program that has locked the file. */
async function locked(input: Omit<LockerInput, 'path'> = {}): Promise<Process<LockerMessage>> {
  const locker = start<LockerMessage>('lock-file', { path: db(), ...input } satisfies LockerInput)
  await locker.received('locked')
  return locker
}

async function release(locker: Process<LockerMessage>): Promise<void> {
  locker.send({ kind: 'release' })
  await locker.received('released')
}

function queueOn(store: Store): Queue {
  return closing(new Queue('work', { store, logger: false }))
}

/** So many rounds of the event loop, with a timer in each. */
async function rounds(count: number): Promise<void> {
  for (let n = 0; n < count; n++) await setTimeout(1)
}

/** Collects the codes of errors that a worker emits, and waits for so many. */
function errorsOf(worker: Worker): { readonly codes: string[][]; readonly atLeast: (count: number) => Promise<void> } {
  const codes: string[][] = []
  const waiting: { readonly count: number; readonly done: () => void }[] = []
  worker.on('error', ({ error }) => {
    codes.push([...errorToSend(error).codes])
    for (const { count, done } of waiting) if (codes.length >= count) done()
  })
  return {
    codes,
    atLeast: (count) =>
      codes.length >= count ? Promise.resolve() : new Promise((done) => void waiting.push({ count, done })),
  }
}

describe('while another program holds the file locked', { timeout: 60_000 }, () => {
  test('an add waits without blocking the event loop, and commits when the lock is gone', async () => {
    const store = closing(sqlite(db(), { patience: '60s' }))
    const queue = queueOn(store)
    await queue.add('before')
    const locker = await locked()
    const order: string[] = []
    const adding = queue.add('during').then(() => order.push('added'))
    // The lock ends only through rounds of this very event loop: a blocked event loop would wait in vain.
    await rounds(60)
    expect(await queue.counts()).toMatchObject({ waiting: 1 }) // others may read meanwhile
    order.push('releasing')
    await release(locker)
    await adding
    expect(order).toEqual(['releasing', 'added'])
    expect((await soundAccountOf(store)).jobs.map(({ name }) => name)).toEqual(['before', 'during'])
  })

  test('an add that has run out of patience rejects with DATABASE_LOCKED, and nothing was written', async () => {
    const store = closing(sqlite(db(), { patience: 200 }))
    const queue = queueOn(store)
    await queue.add('before')
    const locker = await locked()
    let ticks = 0
    const ticking = setInterval(() => ticks++, 1)
    const error = await queue.add('during', {}, { id: 'refused' }).then(
      () => undefined,
      (thrown: unknown) => errorToSend(thrown),
    )
    clearInterval(ticking)
    expect(error?.codes[0]).toBe('DATABASE_LOCKED')
    expect(error?.message).toContain('Nothing was written')
    expect(ticks).toBeGreaterThan(2) // held for all of the patience, the loop would have turned once
    await release(locker)
    await queue.add('after')
    const { jobs } = await soundAccountOf(store)
    expect(jobs.map(({ name }) => name)).toEqual(['before', 'after'])
  })

  test('a worker reports it again and again, and settles once what it ran meanwhile', async () => {
    const store = closing(sqlite(db(), { patience: 100 }))
    const queue = queueOn(store)
    const jobs = await queue.addBulk(Array.from({ length: 6 }, (_, n) => ({ name: 'chore', data: n })))
    const running = gate()
    const allRun = gate()
    const ran: string[] = []
    const worker = closing(
      new Worker(
        queue,
        async (job) => {
          ran.push(job.id)
          if (ran.length === 3) running.open()
          await allRun.promise
          return job.data
        },
        { concurrency: 3, lease: 1500, reconnect: 50, logger: false },
      ),
    )
    const errors = errorsOf(worker)
    await running.promise
    const locker = await locked()
    allRun.open() // what they come to cannot be written now
    await errors.atLeast(6)
    const overdue = async (): Promise<number> =>
      (await store.due({ queues: ['work'], except: [], limit: 10 })).jobs.length
    while ((await overdue()) < 3) await rounds(5) // nor can their leases be renewed
    expect(errors.codes.filter((codes) => !codes.includes('DATABASE_LOCKED'))).toEqual([])
    expect(states((await soundAccountOf(store)).jobs)).toEqual({ active: 3, waiting: 3 })
    await release(locker)
    expect(await Promise.all(jobs.map((job) => job.result()))).toEqual([0, 1, 2, 3, 4, 5])
    const account = await soundAccountOf(store)
    expect(states(account.jobs)).toEqual({ completed: 6 })
    expect(account.jobs.map(({ attempt, stalls }) => [attempt, stalls])).toEqual(jobs.map(() => [1, 0]))
    expect(ran.toSorted()).toEqual(jobs.map(({ id }) => id).toSorted())
  })

  test('a worker that cannot even open the file reports that, and begins when it can', async () => {
    const locker = await locked({ alone: true })
    const store = closing(sqlite(db(), { patience: 100 }))
    const queue = queueOn(store)
    const worker = closing(new Worker(queue, (job) => job.data, { reconnect: 50, logger: false }))
    const errors = errorsOf(worker)
    await errors.atLeast(2)
    expect(errors.codes.filter((codes) => !codes.includes('DATABASE_LOCKED'))).toEqual([])
    const refused = await queue.add('during').then(
      () => undefined,
      (thrown: unknown) => errorToSend(thrown).codes,
    )
    expect(refused).toContain('DATABASE_LOCKED')
    await release(locker)
    const job = await queue.add('after', 'done')
    expect(await job.result()).toBe('done')
    expect((await soundAccountOf(store)).jobs.map(({ name }) => name)).toEqual(['after'])
  })

  test('several that wait for it get at it one after the other when it is free', async () => {
    const stores = Array.from({ length: 4 }, () => closing(sqlite(db(), { patience: '60s' })))
    const queues = stores.map(queueOn)
    await queues[0]!.add('before')
    const locker = await locked()
    const adding = queues.flatMap((queue) => Array.from({ length: 25 }, () => queue.add('during')))
    await rounds(20)
    await release(locker)
    await Promise.all(adding)
    const { jobs } = await soundAccountOf(stores[0]!)
    expect(states(jobs)).toEqual({ waiting: 101 })
  })
})
