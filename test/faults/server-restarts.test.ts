// The server of a remote store, killed and started again while jobs are added and worked on: nothing is lost, doubled or
// reported as failed.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { Queue, Worker } from '../../src/index.js'
import { http } from '../../src/http.js'
import { closing, gate } from '../setup.js'
import { checkFile } from './account.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'
import type { StoreServerInput, StoreServerMessage } from './programs/store-server.js'

const path = scene()

const JOBS = 600
const KILLS = 5
const IN_FLIGHT = 40

/** Starts the server. */
async function serveOn(
  port: number,
): Promise<{ readonly process: Process<StoreServerMessage>; readonly url: string; readonly port: number }> {
  const input: StoreServerInput = { path: path('jobs.db'), port }
  const process = start<StoreServerMessage>('store-server', input)
  const { url, port: taken } = await process.received('listening')
  return { process, url, port: taken }
}

test('a drain and adds go on over a server that is killed again and again', { timeout: 180_000 }, async () => {
  let server = await serveOn(0)
  // A busy machine may take long to start a process.
  const store = closing(http(server.url, { patience: '60s' }))
  const queue = closing(new Queue('work', { store, logger: false }))
  const runs = new Map<string, number>()
  const errors: unknown[] = []
  let done = 0
  let marks: { readonly at: number; readonly reached: () => void }[] = []
  const reached = (at: number): Promise<void> => new Promise((resolve) => marks.push({ at, reached: resolve }))
  const worker = closing(
    new Worker(
      queue,
      (job) => {
        runs.set(job.id, (runs.get(job.id) ?? 0) + 1)
        return job.data
      },
      { concurrency: 10, lease: '120s', logger: false },
    ),
  )
  worker.on('error', () => {}) // that it lost its server for a while
  worker.on('failed', ({ error }) => errors.push(error))
  worker.on('lease-lost', (lost) => errors.push(lost))
  worker.on('completed', () => {
    done++
    for (const mark of marks) if (done >= mark.at) mark.reached()
    marks = marks.filter(({ at }) => done < at)
  })

  const ids: string[] = []
  let next = 0
  const produce = async (): Promise<void> => {
    while (next < JOBS) {
      const n = next++
      ids.push((await queue.add('job', n)).id)
    }
  }
  const adding = Promise.all(Array.from({ length: IN_FLIGHT }, produce))
  adding.catch(() => {})
  for (let kill = 1; kill <= KILLS; kill++) {
    await reached((kill * JOBS) / (KILLS + 2))
    await server.process.kill()
    server = await serveOn(server.port)
  }
  await adding
  if (done < JOBS) await reached(JOBS)

  expect(errors).toEqual([])
  expect(new Set(ids).size).toBe(JOBS)
  expect([...runs.values()].filter((times) => times !== 1)).toEqual([])
  const { items } = await store.find({ limit: 2 * JOBS })
  expect(items.map(({ id }) => id).toSorted()).toEqual(ids.toSorted())
  expect(items.filter(({ state, attempt, stalls }) => state !== 'completed' || attempt !== 1 || stalls !== 0)).toEqual(
    [],
  )
  await worker.close()
  await queue.close()
  await store.close()
  expect(await server.process.finish()).toMatchObject({ code: 0 })
  await checkFile(path('jobs.db'))
})

test('a lease outlives a server that is away for longer than renewals are apart', { timeout: 120_000 }, async () => {
  const first = await serveOn(0)
  let failures = 0
  let failed = (): void => {}
  const request = async (url: string, init: RequestInit): Promise<Response> => {
    try {
      return await fetch(url, init)
    } catch (error) {
      if (url.endsWith('/commit') && ++failures === 3) failed()
      throw error
    }
  }
  const store = closing(http(first.url, { patience: '60s', fetch: request }))
  const queue = closing(new Queue('work', { store, logger: false }))
  const running = gate()
  const release = gate()
  const lost: unknown[] = []
  const worker = closing(
    new Worker(
      queue,
      async (_job, ctx) => {
        running.open()
        await release.promise
        return ctx.signal.aborted
      },
      { lease: '60s', renewEvery: '100ms', logger: false },
    ),
  )
  worker.on('error', () => {})
  worker.on('lease-lost', (each) => lost.push(each))
  const job = await queue.add('long')
  await running.promise
  const renewalFailed = new Promise<void>((resolve) => (failed = resolve))
  await first.process.kill()
  await renewalFailed // its renewals meet no server, again and again
  const second = await serveOn(first.port)
  const before = (await store.get([job.id]))[0]!
  while ((await store.get([job.id]))[0]!.leaseUntil === before.leaseUntil) await nextTurn()
  release.open()
  expect(await job.result()).toBe(false)
  expect(lost).toEqual([])
  expect((await store.get([job.id]))[0]).toMatchObject({ attempt: 1, stalls: 0, state: 'completed' })
  await worker.close()
  await queue.close()
  await store.close()
  expect(await second.process.finish()).toMatchObject({ code: 0 })
})
