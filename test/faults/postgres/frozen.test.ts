// A network that delivers nothing any more: connections stay open, bytes are accepted, and no answer ever comes.
import { afterEach, expect, test } from 'vitest'
import { Queue, Worker } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { startProxy } from '../../stores/postgres/server/proxy.js'
import type { Proxy } from '../../stores/postgres/server/proxy.js'
import { newDatabase } from '../../stores/postgres/server/shared.js'
import { closing, event } from '../../setup.js'
import { scene } from '../processes.js'
import { busyRun } from './busy-run.js'

const path = scene()
let proxy: Proxy | undefined

afterEach(() => {
  proxy?.close()
  proxy = undefined
})

/** A proxy in front of the server of a URL. */
async function inFrontOf(url: string): Promise<Proxy> {
  proxy = await startProxy(Number(new URL(url).port))
  return proxy
}

test(
  'connections that are half open are noticed by ourselves and replaced, and the account is exact',
  { timeout: 120_000 },
  async () => {
    const url = await newDatabase()
    const between = await inFrontOf(url)
    const run = await busyRun({
      url,
      workersUrl: between.through(url),
      ledger: path('ledger'),
      store: { patience: 1000 },
    })
    for (let round = 0; round < 3; round++) {
      between.freeze('standing')
      await run.more(200) // through other connections, since nothing comes through these
    }
    await run.finish()
  },
)

test(
  'a network that leads nowhere for a while is waited for, and what it held arrives late without harm',
  { timeout: 120_000 },
  async () => {
    const url = await newDatabase()
    const between = await inFrontOf(url)
    const run = await busyRun({
      url,
      workersUrl: between.through(url),
      ledger: path('ledger'),
      store: { patience: 500 },
    })
    for (let round = 0; round < 3; round++) {
      await run.more(100)
      between.freeze()
      for (let errors = 0; errors < 4; errors++) await run.trouble()
      await between.pass() // originals of batches that were sent again elsewhere land now, or are refused
    }
    await run.more(100)
    await run.finish()
  },
)

test('connections that are cut and refused for a while cost nothing', { timeout: 120_000 }, async () => {
  const url = await newDatabase()
  const between = await inFrontOf(url)
  const run = await busyRun({ url, workersUrl: between.through(url), ledger: path('ledger') })
  for (let round = 0; round < 5; round++) {
    await run.more(100)
    const trouble = run.trouble()
    between.refuse()
    between.cut()
    await trouble
    await between.pass()
  }
  await run.more(100)
  await run.finish()
})

test(
  'an idle worker notices by its own heartbeat that the server is gone, and receives jobs again',
  { timeout: 60_000 },
  async () => {
    const url = await newDatabase()
    const between = await inFrontOf(url)
    const there = closing(postgres(url))
    const here = closing(postgres(between.through(url), { patience: 500 }))
    const adding = closing(new Queue('work', { store: there, logger: false }))
    const working = closing(new Queue('work', { store: here, logger: false }))
    const options = { pollEvery: '1h', logger: false } as const
    const worker = closing(new Worker(working, (job) => job.data, options))
    await event(worker, 'worker-started')
    const done = (id: string): Promise<unknown> => event(worker, 'completed', (each) => each.id === id)
    const before = done('before')
    await adding.add('chore', {}, { id: 'before' })
    await before

    const noticed = between.next()
    const after = done('after')
    between.freeze('standing')
    await noticed
    await adding.add('chore', {}, { id: 'after' })
    await after
  },
)

test('an error that a resend resolves is still reported, once by the queue and by the worker', async () => {
  const url = await newDatabase()
  const between = await inFrontOf(url)
  const store = closing(postgres(between.through(url), { patience: 500, connections: 2 }))
  const queue = closing(new Queue('work', { store, logger: false }))
  const worker = closing(new Worker(queue, (job) => job.data, { autorun: false, logger: false }))
  await worker.run()
  const reported: string[] = []
  queue.on('error', ({ error }) => void reported.push(error.message))
  worker.on('error', ({ error }) => void reported.push(error.message))
  await (await queue.add('chore')).result()
  expect(reported).toEqual([])
  between.freeze('standing')
  const added = await queue.add('chore', 'late')
  expect(await added.result()).toBe('late')
  const message = expect.stringMatching(/The postgres store failed \(.*\)\. What was sent is sent again/) as string
  expect(reported).toEqual([message, message])
})
