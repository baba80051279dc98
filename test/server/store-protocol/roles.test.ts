// What each role may do through the store protocol, with the queues and workers of the library.
import { describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { closing, event, gate } from '../../setup.js'
import { protocolWorld } from './world.js'

/** The codes of the calls that were refused, in order. */
const codes = (settled: readonly PromiseSettledResult<unknown>[]): readonly unknown[] =>
  settled.map((each) => (each.status === 'rejected' ? (each.reason as { code?: unknown }).code : 'fulfilled'))

const queueOn = (store: Store, name = 'mail'): Queue => closing(new Queue(name, { store, logger: false }))

describe('a token with the role produce', () => {
  it('adds jobs, flows and bulk, and waits for their results', async () => {
    const { store, remote } = await protocolWorld()
    const queue = queueOn(remote('producer'))
    closing(new Worker(queueOn(store), async (job) => job.name, { logger: false }))
    const job = await queue.add('send', { to: 'ann' })
    expect(await job.result()).toBe('send')
    const jobs = await queue.addBulk([{ name: 'a' }, { name: 'b', options: { after: job } }])
    expect(await jobs[1]!.result()).toBe('b')
  })

  it('replaces a job that holds a deduplication key and has not begun', async () => {
    const { store, remote } = await protocolWorld()
    const queue = queueOn(remote('producer'))
    const first = await queue.add('send', 1, { dedup: { key: 'k', mode: 'replace' }, delay: '1h' })
    await queue.add('send', 2, { dedup: { key: 'k', mode: 'replace' }, delay: '2h', priority: 7 })
    expect((await store.get([first.id]))[0]).toMatchObject({ data: '2', priority: 7 })
  })

  it('makes room in a group whose limit says so, and only there', async () => {
    const { store, remote } = await protocolWorld()
    await queueOn(store).limit({ group: { maxBacklog: 1, onFull: 'drop-oldest' } })
    const queue = queueOn(remote('producer'))
    const first = await queue.add('send', 1, { group: 'g' })
    await queue.add('send', 2, { group: 'g' })
    expect((await store.get([first.id]))[0]).toMatchObject({ state: 'cancelled', error: { code: 'JOB_DROPPED' } })
  })

  it('sends a signal to a job', async () => {
    const { store, remote } = await protocolWorld()
    const worker = queueOn(store)
    closing(new Worker(worker, async (_job, ctx) => ctx.waitForSignal('go'), { logger: false }))
    const queue = queueOn(remote('producer'))
    const job = await queue.add('send')
    expect(await queue.signal(job.id, 'go', 'now')).toBe(true)
    expect(await job.result()).toBe('now')
  })

  it('neither claims, cancels, pauses nor adds to other queues; and what is added beside that stands', async () => {
    const { store, remote } = await protocolWorld()
    const mine = remote('producer')
    const queue = queueOn(mine)
    const job = await queue.add('send')
    const settled = await Promise.allSettled([
      queue.claim({ lease: '10s' }),
      job.cancel(),
      queue.pause(),
      queueOn(mine, 'bills').add('pay'),
      queue.add('send', 'beside'),
    ])
    expect(codes(settled)).toEqual([...Array<string>(4).fill('FORBIDDEN'), 'fulfilled'])
    const { items } = await store.find({})
    expect(items.map(({ queue: where, state }) => `${where} ${state}`)).toEqual(['mail waiting', 'mail waiting'])
  })
})

describe('a token with the role work', () => {
  it('runs workers: steps, logs, progress, children, chains, retries, snoozes, signals, holds', async () => {
    const { store, remote } = await protocolWorld()
    const mine = remote('worker')
    const queue = queueOn(mine)
    const worker = closing(
      new Worker(
        queue,
        {
          async plain(job, ctx) {
            await ctx.progress({ half: true })
            await ctx.log('a line')
            return ctx.step('once', async () => job.data)
          },
          async parent(_job, ctx) {
            const [part] = await ctx.dependencies()
            return part?.status === 'completed' ? part.result : ctx.waitFor(await ctx.add('plain', 'child'))
          },
          async flaky(job) {
            if (job.attempt === 1) throw new Error('once')
            return job.attempt
          },
          async signalled(_job, ctx) {
            return ctx.waitForSignal('go', { timeout: '1h' })
          },
        },
        { logger: false },
      ),
    )
    expect(worker.id.startsWith('worker/')).toBe(true)
    const plain = await queue.add('plain', 'data')
    expect(await plain.result()).toBe('data')
    const flaky = await queue.add('flaky', null, { backoff: 0 })
    expect(await flaky.result()).toBe(2)
    const parent = await queue.add('parent')
    expect(await parent.result()).toBe('child')
    const waits = await queue.add('signalled')
    await queue.signal(waits.id, 'go', 7)
    expect(await waits.result()).toBe(7)
    expect(await store.get([plain.id])).toMatchObject([{ worker: worker.id, state: 'completed' }])
  })

  it('cannot settle, renew or write beside a job of another token, and learns that it lost it', async () => {
    const { remote } = await protocolWorld()
    const held = gate()
    const queue = queueOn(remote('worker'))
    closing(new Worker(queue, () => held.promise, { logger: false }))
    const active = event(queue, 'active')
    const { id } = await queue.add('send')
    await active
    const record = (await remote('other').get([id]))[0]!
    const { fence } = record
    const other = remote('other')
    const batch = { writer: 'w', seq: 1, renewals: [{ id, fence, lease: 1_000, started: true }], asks: [] }
    const move = { kind: 'move', id, fence, held: true, place: 'old', why: undefined, closesBroken: false } as const
    const groups = [
      [{ ...move, reaps: undefined, to: 'completed', set: { result: '1' } }],
      [{ kind: 'note', id, fence, held: true, progress: '1' }],
    ] as const
    const receipt = await other.commit({ ...batch, groups })
    expect(receipt.groups.map((each) => !each.ok && each.why)).toEqual(['fence', 'fence'])
    expect(receipt.renewals.map((each) => !each.ok && each.why)).toEqual(['fence'])
    expect(await other.get([id])).toEqual([record])
    held.open()
  })

  it('claims for no worker of another token, and nothing of other queues', async () => {
    const { remote } = await protocolWorld()
    const ask = { queues: ['mail'], handles: [{ name: undefined, lease: 1_000 }], want: 1, ahead: 0 }
    const batch = { writer: 'w', seq: 1, groups: [], renewals: [] }
    const claim = (worker: string, queues = ['mail']): Promise<unknown> =>
      remote('worker').commit({ ...batch, asks: [{ ...ask, worker, queues }] })
    expect(codes(await Promise.allSettled([claim('other/w')]))).toEqual(['FORBIDDEN'])
    expect(codes(await Promise.allSettled([claim('worker/w', ['mail', 'bills'])]))).toEqual(['FORBIDDEN'])
    await claim('worker/w')
  })
})

it('reads show nothing of other queues', async () => {
  const { store, remote } = await protocolWorld()
  const mail = await queueOn(store).add('send', 'mail')
  const bills = await queueOn(store, 'bills').add('pay', 'bills', { after: mail })
  await queueOn(store, 'bills').pause()
  const reader = remote('reader')
  expect((await reader.get([mail.id, bills.id])).map((job) => job?.id)).toEqual([mail.id, undefined])
  expect((await reader.find({})).items.map(({ id }) => id)).toEqual([mail.id])
  expect((await reader.find({ queue: 'bills' })).items).toEqual([])
  const { jobs } = await reader.details({ jobs: [bills.id, mail.id], cells: ['pause:bills'], cellsUnder: 'pause:' })
  expect(jobs.map(({ id, edges, dependents }) => [id, edges.length, dependents.length])).toEqual([
    [bills.id, 0, 0],
    [mail.id, 0, 0],
  ])
  expect((await reader.details({ cells: ['pause:bills'], cellsUnder: 'pause:' })).cells).toEqual([])
  expect((await reader.tally()).map(({ queue }) => queue)).toEqual(['mail'])
  expect(await reader.tally(['bills'])).toEqual([])
  const counted = await Promise.allSettled([reader.find({ count: true })])
  expect(codes(counted)).toEqual(['FORBIDDEN'])
})

it('notices tell nothing of other queues', async () => {
  const { store, remote } = await protocolWorld()
  const reader = remote('reader')
  const seen: string[] = []
  const got = gate()
  reader.watch({ events: true }, ({ work, events }) => {
    seen.push(...work, ...events.map(({ queue }) => queue))
    if (events.some(({ queue }) => queue === 'mail')) got.open()
  })
  await remote('producer').commit({ writer: 'w', seq: 1, groups: [], renewals: [], asks: [] })
  await reader.due({ queues: [], except: [], limit: 1 })
  for (let tries = 0; seen.length === 0 && tries < 1_000; tries++) {
    await queueOn(store, 'bills').add('pay')
    await queueOn(store).add('send')
    await new Promise((resolve) => setImmediate(resolve))
  }
  await got.promise
  expect(new Set(seen)).toEqual(new Set(['mail']))
})

it('a token of another queue adds no dependency on a job that it may not know, and learns nothing of it', async () => {
  const { store, remote } = await protocolWorld()
  const mail = await queueOn(store).add('send', 'secret')
  const queue = queueOn(remote('stranger'), 'bills')
  const results = await Promise.allSettled([
    queue.add('pay', null, { after: mail.id }),
    queue.add('pay', null, { after: 'no-such-job' }),
    queue.add('pay', null, { id: mail.id }),
  ])
  expect(codes(results)).toEqual(['DEPENDENCY_MISSING', 'DEPENDENCY_MISSING', 'DUPLICATE_ID'])
})

it('an operator of one queue does everything in it, and nothing in another', async () => {
  const { store, remote } = await protocolWorld()
  const mine = remote('operator')
  const queue = queueOn(mine)
  const job = await queue.add('send')
  await queue.pause()
  await queue.limit({ concurrency: 3 })
  await job.cancel({ reason: 'not needed' })
  await job.retry()
  await queue.schedule('daily', { every: '1d', name: 'send' })
  await job.remove()
  const bill = await queueOn(store, 'bills').add('pay')
  const other = queueOn(mine, 'bills')
  expect(await other.get(bill.id)).toBeUndefined()
  const refused = await Promise.allSettled([other.pause(), other.add('pay')])
  expect(codes(refused)).toEqual(['FORBIDDEN', 'FORBIDDEN'])
  expect((await store.find({ queue: 'bills' })).items).toHaveLength(1)
})
