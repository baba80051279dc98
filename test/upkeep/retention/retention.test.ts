// Retention: by state, by default, by process, by family.
import { describe, expect, it } from 'vitest'
import { FlowProducer, Queue, Worker } from 'millrace'
import type { Handler, Job, QueueOptions, RetentionOptions, Store, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { DEFAULT_KEEP, expired, postpone } from '../../../src/job/retention.js'
import { create } from '../../../src/job/lifecycle.js'
import { noteDelivery } from '../../../src/job/webhooks.js'
import { connect } from '../../../src/store/connection.js'
import { virtualClock } from '../../../src/testing/world/clock.js'
import type { VirtualClock } from '../../../src/testing/world/clock.js'
import { NOW, record } from '../../job/lifecycle.records.js'
import { collect, gate } from '../../setup.js'

interface Scene {
  readonly clock: VirtualClock
  readonly store: Store
  /** A queue in a process of its own, or in the first one. */
  queue(options?: Partial<QueueOptions> & { name?: string; apart?: boolean }): Queue
  worker(queue: Queue | string, handler?: Handler, options?: WorkerOptions): Promise<Worker>
  /** Lets days pass, and then everything happen that they brought. */
  pass(time: string): Promise<void>
}

/** Handlers that end at once, as the name of the job demands. */
const ending: Handler = (job) => {
  if (job.name === 'failing') throw new Error('as expected')
  return job.data
}

function scene(): Scene {
  const clock = virtualClock()
  const store = memory({ runtime: clock.runtime })
  return {
    clock,
    store,
    queue: ({ name = 'work', apart = false, ...options } = {}) =>
      new Queue(name, {
        store: apart ? (Object.create(store) as Store) : store,
        logger: false,
        defaults: { attempts: 1 },
        ...options,
      }),
    worker: async (queue, handler = ending, options = {}) => {
      const by = {
        logger: false,
        concurrency: 10,
        lease: '1h',
        upkeepEvery: '30s',
        pollEvery: '10m',
        ...options,
        autorun: false,
      } as object
      const worker =
        typeof queue === 'string'
          ? new Worker(queue, handler, { ...by, store: Object.create(store) as Store })
          : new Worker(queue, handler, by)
      await worker.run()
      return worker
    },
    pass: async (time) => {
      clock.block(time)
      await clock.advance('20m')
    },
  }
}

const ids = async (queue: Queue): Promise<string[]> => (await queue.list({ limit: 1000 })).jobs.map(({ id }) => id)

/** Adds one job that completes, one that fails and one that is cancelled. */
async function oneOfEach(queue: Queue, clock: VirtualClock): Promise<void> {
  const done = await queue.add('n', 1, { id: 'completed' })
  const failed = await queue.add('failing', 1, { id: 'failed' })
  await queue.add('n', 1, { id: 'cancelled', delay: '1h' })
  await queue.cancel('cancelled')
  await clock.until(Promise.allSettled([done.result(), failed.result()]))
}

describe('by default', () => {
  it('completed and cancelled jobs are kept for 7 days, failed ones for 30, and no job is stamped', async () => {
    const { clock, store, queue, worker, pass } = scene()
    const own = queue()
    await worker(own)
    await oneOfEach(own, clock)
    expect((await store.get(['completed', 'failed', 'cancelled'])).map((job) => [job?.keep, job?.dueAt])).toEqual(
      Array.from({ length: 3 }, () => [undefined, undefined]),
    )
    const seen = collect(own, ['removed', 'stale'])
    await pass('6d')
    expect(await ids(own)).toHaveLength(3)
    await pass('1d')
    expect(await ids(own)).toEqual(['failed'])
    await pass('22d')
    expect(await ids(own)).toEqual(['failed'])
    await pass('1d')
    expect(await ids(own)).toEqual([])
    expect(seen).toEqual(['removed', 'removed', 'removed'])
  })

  it('one that was added long ago and finished just now is kept for its time', async () => {
    const { clock, queue, worker, pass } = scene()
    const own = queue()
    const late = await own.add('n', 1, { id: 'late', delay: '8d' })
    await own.add('n', 2, { id: 'early' })
    await worker(own)
    await clock.advance('1m')
    await pass('8d')
    await late.refresh()
    expect(late.state).toBe('completed')
    expect(await ids(own)).toEqual(['late'])
    await pass('7d')
    expect(await ids(own)).toEqual([])
  })

  it('retention: false keeps jobs for ever, also for workers without options, and for jobs of others', async () => {
    const { clock, queue, worker, pass } = scene()
    const own = queue({ retention: false })
    const first = await worker(own)
    await worker('work')
    await oneOfEach(own, clock)
    await queue({ apart: true }).add('n', 1, { id: 'of another' })
    await clock.advance('1m')
    await clock.until(first.close())
    await pass('400d')
    expect((await ids(own)).toSorted()).toEqual(['cancelled', 'completed', 'failed', 'of another'])
  })

  it('takes thousands, page by page', async () => {
    const { clock, queue, worker, pass } = scene()
    const own = queue()
    await worker(own, ending, { concurrency: 100 })
    await own.addBulk(Array.from({ length: 1_700 }, () => ({ name: 'n' })))
    await clock.advance('1m')
    expect((await own.counts()).completed).toBe(1_700)
    await pass('7d')
    expect((await own.counts()).completed).toBe(0)
  })
})

describe('the retention of a queue and of a job', () => {
  it('depends on the state that a job ended in, before the rule for all states', async () => {
    const { clock, queue, worker } = scene()
    const own = queue({
      retention: { deleteAfter: '1h', failed: { deleteAfter: '3h', staleAfter: '2h' }, cancelled: false },
    })
    await worker(own)
    await oneOfEach(own, clock)
    const seen = collect(own, ['stale', 'removed'])
    await clock.advance('59m')
    expect(await ids(own)).toHaveLength(3)
    await clock.advance('2m')
    expect((await ids(own)).toSorted()).toEqual(['cancelled', 'failed'])
    await clock.advance('1h')
    expect(seen).toEqual(['removed', 'stale'])
    await clock.advance('1h')
    expect(await ids(own)).toEqual(['cancelled'])
    clock.block('400d')
    await clock.advance('20m')
    expect(await ids(own)).toEqual(['cancelled'])
  })

  it('removeOnComplete and removeOnFail of a job go first, whether they are sooner or later', async () => {
    const { clock, queue, worker, pass } = scene()
    const own = queue({ retention: { deleteAfter: '2h' } })
    const plain = queue({ name: 'plain' })
    await worker(own)
    await worker(plain)
    for (const each of [own, plain]) {
      await each.add('n', 1, { id: `${each.name} sooner`, removeOnComplete: '1h' })
      await each.add('failing', 1, { id: `${each.name} later`, removeOnFail: '90d' })
      await each.add('n', 1, { id: `${each.name} at once`, removeOnComplete: true })
    }
    await clock.advance('10m')
    expect([await ids(own), await ids(plain)]).toEqual([
      ['work sooner', 'work later'],
      ['plain sooner', 'plain later'],
    ])
    await clock.advance('1h')
    expect([await ids(own), await ids(plain)]).toEqual([['work later'], ['plain later']])
    await pass('80d')
    expect([await ids(own), await ids(plain)]).toEqual([['work later'], ['plain later']])
    await pass('10d')
    expect([await ids(own), await ids(plain)]).toEqual([[], []])
  })

  it('is refused where it makes no sense, by name', () => {
    const { queue } = scene()
    const refusals: [unknown, string][] = [
      [{ deleteAfter: -1 }, 'retention.deleteAfter'],
      [{ failed: { deleteAfter: 'soon' } }, 'retention.failed.deleteAfter'],
      [{ failed: 5 }, 'retention.failed must be'],
      [{ onDelete: 'log' }, 'retention.onDelete must be'],
      [{ staleAfter: '2h', deleteAfter: '1h' }, 'before they become stale'],
      [{ staleAfter: '10d' }, 'by default before they become stale'],
      [{ deletAfter: '1d' }, "did you mean 'deleteAfter'"],
      [true, 'retention must be'],
    ]
    for (const [retention, message] of refusals) {
      expect(() => queue({ retention: retention as RetentionOptions })).toThrow(message)
    }
  })
})

describe('callbacks', () => {
  it('a callback that throws is reported on error, and stops nothing', async () => {
    const { clock, queue, worker } = scene()
    const deleted: string[] = []
    const own = queue({
      retention: {
        staleAfter: '1h',
        deleteAfter: '2h',
        onStale: async () => Promise.reject(new Error('cannot archive')),
        onDelete: ({ id }) => {
          deleted.push(id)
          throw new Error(`cannot clean up after ${id}`)
        },
      },
    })
    const errors: string[] = []
    own.on('error', ({ id, error }) => errors.push(`${id} ${(error as { code?: string }).code}: ${error.message}`))
    await worker(own)
    await own.add('n', 1, { id: 'a' })
    await own.add('n', 1, { id: 'b' })
    await clock.advance('2h30m')
    expect(deleted.toSorted()).toEqual(['a', 'b'])
    expect(errors.toSorted()).toEqual([
      'a CALLBACK_FAILED: retention.onDelete threw for job a: cannot clean up after a',
      'a CALLBACK_FAILED: retention.onStale threw for job a: cannot archive',
      'b CALLBACK_FAILED: retention.onDelete threw for job b: cannot clean up after b',
      'b CALLBACK_FAILED: retention.onStale threw for job b: cannot archive',
    ])
  })

  it('only processes that gave them carry out the retention of a queue, and all other work goes on in the others', async () => {
    const { clock, queue, worker, pass } = scene()
    const reported: string[] = []
    const callbacks = {
      onStale: ({ id }: Job) => reported.push(`${id} stale`),
      onDelete: ({ id }: Job) => reported.push(id),
    }
    const mine = queue({ retention: { staleAfter: '1h', deleteAfter: '2h', ...callbacks } })
    const first = await worker(mine)
    const other = queue({ apart: true, retention: { staleAfter: '1h', deleteAfter: '2h' } })
    await worker(other)
    await worker('work')
    await clock.until(first.close())
    // More than a page of them are due, and no worker holds them.
    await other.addBulk(Array.from({ length: 600 }, (_, n) => ({ name: 'n', options: { id: `${n}` } })))
    await queue({ apart: true }).add('n', 1, { id: 'unstamped' })
    await clock.advance('2h30m')
    expect([(await other.counts()).completed, reported]).toEqual([601, []])
    const delayed = await other.add('n', 1, { delay: '10s', removeOnComplete: true })
    await clock.until(delayed.result(), '1m')
    await pass('8d')
    expect((await other.counts()).completed).toBe(601)
    const again = queue({ retention: { staleAfter: '1h', deleteAfter: '2h', ...callbacks }, apart: true })
    await worker(again)
    await clock.advance('3h')
    expect((await other.counts()).completed).toBe(0)
    expect(reported.filter((each) => !each.includes('stale')).toSorted()).toEqual(
      [...Array.from({ length: 600 }, (_, n) => `${n}`), 'unstamped'].toSorted(),
    )
    expect(new Set(reported).size).toBe(reported.length)
  })

  it('a queue that sets false for them has none any more, and all go on', async () => {
    const { clock, queue, worker } = scene()
    const gone = await worker(queue({ retention: { deleteAfter: '1h', onDelete: () => {} } }))
    await clock.until(gone.close())
    const other = queue({ apart: true, retention: { deleteAfter: '1h' } })
    await worker(other)
    await other.add('n')
    await clock.advance('3h')
    expect((await other.counts()).completed).toBe(1)
    await worker(queue({ apart: true, retention: { deleteAfter: '1h', onDelete: false } }))
    await clock.advance('2h')
    expect((await other.counts()).completed).toBe(0)
  })

  it('are called no more than a hundred at a time, and one that hangs delays no other', async () => {
    const { clock, queue, worker } = scene()
    const open = gate()
    let calling = 0
    let most = 0
    let called = 0
    const own = queue({
      retention: {
        deleteAfter: '1h',
        onDelete: async ({ id }) => {
          most = Math.max(most, ++calling)
          called++
          await (id === 'hangs' ? open.promise : clock.runtime.defer(() => {}))
          calling--
        },
      },
    })
    const hard = await worker(own, ending, { concurrency: 100 })
    await own.add('n', 1, { id: 'hangs' })
    await own.addBulk(Array.from({ length: 500 }, () => ({ name: 'n' })))
    await clock.advance('2h')
    expect([called, (await own.counts()).completed]).toEqual([501, 0])
    expect(most).toBeLessThanOrEqual(100)
    let closed = false
    const closing = hard.close({ timeout: '1m', grace: '1h' }).then(() => (closed = true))
    await clock.advance('10m')
    expect(closed).toBe(false)
    open.open()
    await clock.until(closing, '1s')
  })
})

describe('callbacks that take their time', () => {
  it('keep nothing else from being done that is due, and all are called in the end', async () => {
    const { clock, queue, worker } = scene()
    const open = gate()
    let calling = 0
    let most = 0
    const called: string[] = []
    const own = queue({
      retention: {
        deleteAfter: '1h',
        onDelete: async ({ id }) => {
          called.push(id)
          most = Math.max(most, ++calling)
          await open.promise
          calling--
        },
      },
    })
    const first = await worker(own, ending, { concurrency: 100 })
    await own.addBulk(Array.from({ length: 700 }, () => ({ name: 'n' })))
    await clock.advance('2h')
    expect([called.length, (await own.counts()).completed]).toEqual([100, 600])
    const delayed = await own.add('n', 1, { delay: '10s', removeOnComplete: true })
    await clock.until(delayed.result(), '15s')
    // Closing waits for them, and not for ever.
    await clock.until(first.close({ timeout: 0, grace: '5s' }), '1m')
    await worker(own, ending, { concurrency: 100 })
    open.open()
    await clock.advance('1h')
    expect([new Set(called).size, called.length, most, (await own.counts()).completed]).toEqual([700, 700, 100, 0])
  })

  it.each([true, false])(
    'are a hundred at a time for a family, too, whether its jobs are stamped (%s)',
    async (stamped) => {
      const { clock, store, queue, worker } = scene()
      let calling = 0
      let most = 0
      const called: string[] = []
      const onDelete = async ({ id }: Job): Promise<void> => {
        called.push(id)
        most = Math.max(most, ++calling)
        await new Promise<void>((resolve) => void clock.runtime.timer(2_000, resolve))
        calling--
      }
      const own = queue({ retention: { deleteAfter: '1h', onDelete } })
      await worker(own, ending, { concurrency: 100 })
      // What a process without that queue adds carries no rule.
      const flows = stamped
        ? new FlowProducer({ store, queues: [own] })
        : new FlowProducer({ store: Object.create(store) as Store })
      const child = (n: number): object => ({ name: 'n', queueName: 'work', data: n, options: { id: `${n}` } })
      const children = Array.from({ length: 350 }, (_, n) => child(n))
      await flows.add({ name: 'parent', queueName: 'work', data: 1, options: { id: 'parent' }, children } as never)
      await clock.advance('3h')
      expect(await ids(own)).toEqual([])
      expect([called.length, new Set(called).size, called.at(-1), most]).toEqual([351, 351, 'parent', 100])
    },
  )

  it('hold a bounded number of bytes', async () => {
    const { clock, queue, worker } = scene()
    const open = gate()
    let held = 0
    const onDelete = async ({ data }: Job): Promise<void> => {
      held += (data as string).length
      await open.promise
    }
    const own = queue({ retention: { deleteAfter: '1h', onDelete } })
    await worker(own, () => {}, { concurrency: 10 })
    for (let n = 0; n < 60; n++) await own.add('n', 'x'.repeat(1_000_000))
    await clock.advance('2h')
    expect(held).toBeGreaterThan(20_000_000)
    expect(held).toBeLessThan(42_000_000)
    open.open()
    await clock.advance('1h')
    expect([held, (await own.counts()).completed]).toEqual([60_000_000, 0])
  })
})

describe('what is not deleted under others', () => {
  it('a job whose delivery is pending stays until it was delivered, or for a day', async () => {
    const { clock, store, queue, worker, pass } = scene()
    const own = queue()
    const { main } = connect(store)
    const webhook = {
      url: 'https://a.example',
      on: ['completed'],
      attempts: 3,
      backoff: undefined,
      timeout: 1,
    } as const
    const plain = { kind: 'job', queue: 'work', version: 1, data: undefined, priority: 0, lifo: false } as const
    const none = { backoff: undefined, timeout: undefined, run: undefined, parentId: undefined, group: undefined }
    const add = (id: string, keep: object | undefined): unknown =>
      main.commit([
        create({
          ...plain,
          ...none,
          id,
          name: 'n',
          attempts: 1,
          dedup: undefined,
          keep,
          extras: { webhook },
          edges: [],
        }),
      ])
    const hour = { deleteAfter: 3_600_000, byQueue: true } as const
    for (const [id, keep] of [
      ['unstamped', undefined],
      ['stamped', { completed: hour }],
    ] as const) {
      await add(id, keep)
      await add(`${id} delivered`, keep)
    }
    await worker(own)
    await clock.advance('1m')
    for (const { id, fence, finishedAt } of (await store.get(['unstamped delivered', 'stamped delivered'])).filter(
      (job) => job !== undefined,
    )) {
      await main.commit([{ kind: 'note', id, fence, held: false, memo: `{"webhookSent":${finishedAt}}` }])
    }
    await clock.advance('2h')
    expect(await ids(own)).toEqual(['unstamped', 'unstamped delivered', 'stamped'])
    await pass('1d')
    expect(await ids(own)).toEqual(['unstamped', 'unstamped delivered'])
    await pass('6d')
    expect(await ids(own)).toEqual(['unstamped'])
    await pass('1d')
    expect(await ids(own)).toEqual([])
  })

  it('a job whose end is delivered again, by hand, stays until that has ended, or for a day', async () => {
    const { clock, store, queue, worker, pass } = scene()
    const own = queue()
    await worker(own)
    const webhook = { url: 'https://a.example', on: ['failed'] } as const
    const added = await own.add('n', 1, { webhook, removeOnComplete: '1h' })
    const lost = await own.add('n', 1, { webhook, removeOnComplete: '1h' })
    await clock.advance('30m')
    // Completions are not delivered, unless a delivery is requested by hand.
    const [delivery] = await Promise.all([own.redeliver(added.id), own.redeliver(lost.id)])
    expect((await own.get(added.id))!.webhook).toMatchObject({ sent: false, pending: true })
    await clock.advance('2h')
    expect(await ids(own)).toEqual([added.id, lost.id])
    const [job] = await store.get([added.id])
    const at = clock.runtime.now()
    const entry = { id: delivery, at, event: 'completed', url: webhook.url, attempt: 1 } as const
    await connect(store).main.commit(noteDelivery(job!, { entry, made: at, came: 'sent' })!)
    expect((await own.get(added.id))!.webhook).toMatchObject({ sent: true, pending: false })
    await clock.advance('2h')
    expect(await ids(own)).toEqual([lost.id])
    await pass('1d')
    expect(await ids(own)).toEqual([])
  })

  for (const retention of [undefined, { deleteAfter: '7d' }] as const) {
    const how = retention === undefined ? 'by default' : 'by what the queue says'
    it(`a chain is kept or removed as a whole, ${how}`, async () => {
      const { clock, queue, worker, pass } = scene()
      const own = queue({ ...(retention && { retention }) })
      await worker(own, async (job, ctx) => {
        if (job.name === 'last') return 'end'
        await ctx.complete(({ continueWith }) =>
          continueWith(job.name === 'first' ? 'second' : 'last', 'c', { id: job.data as string, delay: '3d' }),
        )
        return undefined
      })
      await own.add('first', 'b', { id: 'a' })
      await clock.advance('10m')
      await pass('3d')
      await pass('4d')
      expect(await ids(own)).toEqual(['a', 'b', 'c']) // the first is 7 days old, the chain has just ended
      await pass('6d')
      expect(await ids(own)).toEqual(['a', 'b', 'c'])
      await pass('2d')
      expect(await ids(own)).toEqual([])
    })
  }

  it('runs of a schedule are no family, and their chains are each their own', async () => {
    const { clock, queue, worker } = scene()
    const own = queue({ retention: { deleteAfter: '1h' } })
    await worker(own, async (job, ctx) => {
      if (job.name === 'last') return
      await ctx.complete(({ continueWith }) => continueWith('last', 1, { delay: '30m' }))
    })
    await own.schedule('hourly', { name: 'first', every: '1h' })
    await clock.advance('10h10m')
    // A run and what follows half an hour later go together, an hour after that: at most two runs stand at a time.
    const standing = (await own.list({ state: 'completed' })).jobs.map(({ name }) => name)
    expect(standing.length).toBeGreaterThan(0)
    expect(standing.length).toBeLessThanOrEqual(4)
    expect(await own.schedules()).toHaveLength(1)
  })

  it('a flow of more than a thousand is removed as a whole, children first, when all of it is old enough', async () => {
    const { clock, store, queue, worker } = scene()
    const deleted: string[] = []
    const own = queue({
      retention: { deleteAfter: '1h', failed: { deleteAfter: '5h' }, onDelete: ({ id }) => deleted.push(id) },
    })
    const flows = new FlowProducer({ store, queues: [own] })
    await worker(own, ending, { concurrency: 200 })
    const children = Array.from({ length: 1_200 }, (_, n) => ({
      name: 'n',
      queueName: 'work',
      data: n,
      options: { id: `${n}` },
    }))
    await flows.add({
      name: 'parent',
      queueName: 'work',
      data: 1,
      options: { id: 'parent' },
      children: [
        ...children,
        { name: 'failing', queueName: 'work', data: 1, options: { id: 'failed', onChildFailure: 'ignore' } },
      ],
    } as never)
    await own.add('n', 1, { id: 'alone' })
    await clock.advance('3h')
    expect((await own.counts()).completed).toBeGreaterThan(1_199)
    expect(deleted).toEqual(['alone'])
    await clock.advance('4h')
    expect(await ids(own)).toEqual([])
    expect(deleted.at(-1)).toBe('parent')
    expect(new Set(deleted).size).toBe(1_203)
  })
})

it('a postponed job is postponed in what is due, and is due no sooner than before', () => {
  const stale = record({ state: 'completed', finishedAt: 0, staleAt: NOW, deleteAt: NOW + 1_000_000 })
  expect(postpone(stale, 5, NOW).set).toEqual({ staleIn: 5 })
  const old = record({ state: 'completed', finishedAt: 0, staleAt: NOW - 5, stale: true, deleteAt: NOW })
  expect(postpone(old, 5, NOW).set).toEqual({ deleteIn: 5 })
})

it('a delivery that failed for the last time is waited for no longer', () => {
  const webhook = { url: 'https://a.example', on: ['failed'], attempts: 2, backoff: undefined, timeout: 1 } as const
  const keep = { failed: { deleteAfter: 1, byQueue: true } } as const
  const job = record({ state: 'failed', finishedAt: NOW - 1, keep, extras: { webhook } })
  expect(expired(job, {}, NOW)).toBe(false)
  expect(expired({ ...job, memo: `{"webhookGaveUp":${NOW - 2}}` }, {}, NOW)).toBe(false) // of an end before this one
  expect(expired({ ...job, memo: `{"webhookGaveUp":${NOW - 1}}` }, {}, NOW)).toBe(true)
  expect(expired({ ...job, memo: `{"webhookSent":${NOW - 1}}` }, {}, NOW)).toBe(true)
  expect(expired({ ...job, state: 'cancelled', keep: { cancelled: keep.failed } }, {}, NOW)).toBe(true)
})

it('the default that is stated is the one that holds', () => {
  const day = 86_400_000
  expect(Object.entries(DEFAULT_KEEP).map(([state, { deleteAfter }]) => [state, deleteAfter! / day])).toEqual([
    ['completed', 7],
    ['failed', 30],
    ['cancelled', 7],
  ])
})
