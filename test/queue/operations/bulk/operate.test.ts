// Bulk operations: what they change, what they refuse and count, and how they are planned, paused, resumed and ended.
import { describe, expect, test } from 'vitest'
import { Queue, defineJobs, job, storeCounts, typed } from 'millrace'
import type { Job, Store } from 'millrace'
import { prometheus } from 'millrace/telemetry'
import { readSpec } from '../../../../src/queue/operations/bulk/spec.js'
import { closing, newQueue, newWorker } from '../../../setup.js'
import { open } from '../../events/read-sse.js'
import { kinds, stores } from '../../../stores.js'

const make = stores()

/** The error that a call rejects with. */
async function thrownBy(call: () => Promise<unknown>): Promise<unknown> {
  return call().then(
    () => Promise.reject(new Error('did not throw')),
    (error: unknown) => error,
  )
}

/** A queue, and how to start a worker on it that runs upkeep and none of the test's jobs. */
function stage(store: Store) {
  const queue = newQueue({ store })
  return { queue, upkeep: () => newWorker(queue, { other: () => {} }, { upkeepEvery: 100 }) }
}

async function addMany(queue: Queue, count: number, options: object = {}, name = 'job'): Promise<Job[]> {
  return queue.addBulk(Array.from({ length: count }, (_, n) => ({ name, data: { n }, options })))
}

describe.each(kinds)('on %s', (kind) => {
  test('an operation changes all jobs that match, and keeps who asked, why and what came of it', async () => {
    const { queue, upkeep } = stage(await make(kind))
    await addMany(queue, 230)
    await addMany(queue, 3, {}, 'other-name')
    const operation = await queue.operate({
      do: 'cancel',
      where: { name: 'job' },
      reason: 'the importer was wrong',
      by: 'ann',
    })
    expect(operation).toMatchObject({ state: 'running', do: 'cancel', done: 0, matched: 230, finishedAt: undefined })
    upkeep()
    await operation.result()
    expect(operation).toMatchObject({
      state: 'completed',
      where: { name: 'job' },
      reason: 'the importer was wrong',
      by: 'ann',
      done: 230,
      unchanged: 0,
      refused: {},
    })
    expect(operation.finishedAt).toBeGreaterThanOrEqual(operation.createdAt)
    expect(await queue.counts()).toMatchObject({ cancelled: 230, waiting: 3 })
    const [cancelled] = (await queue.list({ state: 'cancelled', limit: 1 })).jobs
    expect(cancelled!.error).toMatchObject({ message: 'the importer was wrong' })
    const again = await queue.operation(operation.id)
    expect(again).toMatchObject({ id: operation.id, done: 230, state: 'completed' })
  })

  test('the worker that ends an operation logs it, with a warning where jobs were refused', async () => {
    const { queue } = stage(await make(kind))
    const lines: unknown[] = []
    const log = (level: string) => (details: object, message: string) => {
      if ('do' in details) lines.push([level, details, message])
    }
    const logger = { info: log('info'), warn: log('warn'), error: log('error') }
    newWorker(queue, { other: () => {} }, { upkeepEvery: 100, logger })
    await addMany(queue, 3)
    const [first] = await addMany(queue, 1, {}, 'first')
    await queue.add('last', {}, { after: first!.id })
    const cancel = await queue.operate({ do: 'cancel', where: { name: 'job' }, by: 'ann', reason: 'wrong' })
    await cancel.result()
    const remove = await queue.operate({ do: 'remove', where: { name: 'first' } })
    await remove.result()
    await expect.poll(() => lines.length).toBe(2)
    const about = (id: string): string => `millrace: operation ${id}`
    expect(lines).toEqual([
      [
        'info',
        {
          id: cancel.id,
          queue: queue.name,
          do: 'cancel',
          reason: 'wrong',
          by: 'ann',
          done: 3,
          unchanged: 0,
          refused: {},
        },
        `${about(cancel.id)} (cancel) of queue '${queue.name}' by 'ann' has ended: 3 changed`,
      ],
      [
        'warn',
        expect.objectContaining({ id: remove.id, refused: { JOB_HAS_DEPENDENTS: 1 } }),
        `${about(remove.id)} (remove) of queue '${queue.name}' has ended: 0 changed, refused 1 JOB_HAS_DEPENDENTS`,
      ],
    ])
  })

  test('the queue that holds the rows of operations is not among the counts and metrics of a store', async () => {
    const store = await make(kind)
    const { queue, upkeep } = stage(store)
    await addMany(queue, 2)
    upkeep()
    await (await queue.operate({ do: 'cancel', all: true })).result()
    expect(Object.keys(await storeCounts(store))).toEqual([queue.name])
    expect(await prometheus(store)()).not.toContain('millrace:')
    expect(await queue.totals()).toMatchObject({ added: 2, completed: 0, cancelled: 2 })
  })

  test('how long ago a filter says counts from when the operation was asked for, however late it is worked on', async () => {
    const store = await make(kind)
    const { queue } = stage(store)
    const before = Date.now()
    const { id, where } = await queue.operate({ do: 'cancel', where: { created: { from: '2h', to: '1h' } } })
    const [row] = await store.get([id])
    const { created } = readSpec(row!).query
    expect(created!.to! - created!.from!).toBe(3_600_000)
    expect(created!.to).toBeGreaterThanOrEqual(before - 3_600_000)
    expect(created!.to).toBeLessThanOrEqual(Date.now() - 3_600_000)
    expect(where).toEqual({ created: { from: '2h', to: '1h' } })
  })

  test('jobs that are added after an operation began stay as they are', async () => {
    const { queue, upkeep } = stage(await make(kind))
    await addMany(queue, 150)
    const operation = await queue.operate({ do: 'cancel', all: true })
    await expect.poll(async () => (await queue.add('late')).createdAt > operation.createdAt).toBe(true)
    const before = (await queue.counts()).waiting
    upkeep()
    await operation.result()
    expect(operation.done).toBeGreaterThanOrEqual(150)
    const { waiting, cancelled } = await queue.counts()
    expect(waiting).toBeGreaterThan(0)
    expect(waiting + cancelled).toBe(before)
    expect(cancelled).toBe(operation.done)
  })

  test('a job that fails again after the operation restarted it is not restarted twice', async () => {
    const { queue } = stage(await make(kind))
    let runs = 0
    const worker = newWorker(
      queue,
      () => {
        runs++
        throw new Error('always')
      },
      { upkeepEvery: 100, concurrency: 20 },
    )
    await addMany(queue, 120, { attempts: 1 })
    await expect.poll(async () => (await queue.counts()).failed, { timeout: 20_000 }).toBe(120)
    const operation = await queue.operate({ do: 'retry', where: { state: 'failed' } })
    await operation.result()
    expect(operation).toMatchObject({ done: 120, refused: {} })
    await expect.poll(() => runs, { timeout: 20_000 }).toBe(240)
    await worker.close()
    expect(runs).toBe(240)
  })

  test('a job that fails after an operation began is left to the next one', async () => {
    const { queue, upkeep } = stage(await make(kind))
    const [early, late] = await addMany(queue, 2)
    await queue.fail(early!.id, new Error('early'))
    const operation = await queue.operate({ do: 'retry', where: { state: 'failed' } })
    await expect.poll(() => Date.now()).toBeGreaterThan(operation.createdAt + 1)
    await queue.fail(late!.id, new Error('late'))
    upkeep()
    await operation.result()
    expect(operation.done).toBe(1)
    expect(await late!.refresh()).toMatchObject({ state: 'failed' })
    expect(await early!.refresh()).toMatchObject({ state: 'waiting' })
  })

  test('a retry restarts jobs that wait for each other, whichever was added first, and counts those that stay', async () => {
    const { queue, upkeep } = stage(await make(kind))
    const first = await queue.add('first')
    const outside = await queue.add('outside')
    const second = await queue.add('second', undefined, { after: first })
    const stuck = await queue.add('stuck', undefined, { after: outside })
    const worker = upkeep()
    await queue.fail(first.id, new Error('no'))
    await queue.fail(outside.id, new Error('no'))
    await expect.poll(async () => (await queue.counts()).failed).toBe(4)
    const where = { name: ['second', 'first', 'stuck'] }
    expect(await queue.plan({ do: 'retry', where })).toMatchObject({
      count: 3,
      exact: true,
      refused: { DEPENDENCY_FAILED: 1 },
      refusals: [{ id: stuck.id, code: 'DEPENDENCY_FAILED' }],
    })
    const operation = await (await queue.operate({ do: 'retry', where })).result()
    expect(operation).toMatchObject({
      done: 2,
      refused: { DEPENDENCY_FAILED: 1 },
      refusals: [{ id: stuck.id, name: 'stuck', state: 'failed', code: 'DEPENDENCY_FAILED' }],
    })
    expect((await queue.get(second.id))!.state).toBe('waiting-children')
    await worker.close()
  })

  test('a retry whose dedup key is taken is refused, and does not keep its page from the rest', async () => {
    const { queue, upkeep } = stage(await make(kind))
    const old = await queue.add('job', 1, { dedup: { key: 'k' } })
    await addMany(queue, 5)
    await queue.cancel({ all: true })
    const taken = await queue.add('taken', 2, { dedup: { key: 'k' } })
    upkeep()
    const operation = await (await queue.operate({ do: 'retry', where: { state: 'cancelled' } })).result()
    expect(operation).toMatchObject({ done: 5, refused: { DEDUP_TAKEN: 1 }, refusals: [{ id: old.id }] })
    expect(operation.refusals[0]!.message).toContain(taken.id)
  })

  test('jobs are removed together with those that wait for them; one that others wait for stays', async () => {
    const { queue, upkeep } = stage(await make(kind))
    const base = await queue.add('base')
    await queue.add('top', undefined, { after: base })
    const kept = await queue.add('base')
    await queue.add('elsewhere', undefined, { after: kept })
    upkeep()
    const operation = await (await queue.operate({ do: 'remove', where: { name: ['base', 'top'] } })).result()
    expect(operation.refusals).toMatchObject([{ id: kept.id }])
    expect(operation).toMatchObject({ done: 2, refused: { JOB_HAS_DEPENDENTS: 1 } })
    const all = await (await queue.operate({ do: 'remove', where: { name: 'base' }, cascade: true })).result()
    expect(all).toMatchObject({ done: 1, refused: {} })
    expect((await queue.list()).jobs).toEqual([])
  })

  test('a cancelled job takes its children along, where it cascades', async () => {
    const { queue, upkeep } = stage(await make(kind))
    const worker = newWorker(queue, { parent: async (_job, ctx) => ctx.waitFor(await ctx.add('child')) })
    const parents = await addMany(queue, 3, {}, 'parent')
    await expect.poll(async () => (await queue.counts())['waiting-children']).toBe(3)
    await worker.close()
    upkeep()
    const operation = await (await queue.operate({ do: 'cancel', where: { name: 'parent' }, cascade: true })).result()
    expect(operation.done).toBe(parents.length)
    expect(await queue.counts()).toMatchObject({ cancelled: 6, waiting: 0 })
  })

  test('an update changes jobs that have not started, and none of another version or name', async () => {
    const store = await make(kind)
    const older = newQueue({ store, jobs: defineJobs({ mail: job({ input: typed<{ to: string }>() }) }) })
    const queue = newQueue({
      store,
      jobs: defineJobs({
        mail: job({
          input: typed<{ to: string }>(),
          version: 2,
          upgrade: { 1: (data: unknown) => data as { to: string } },
        }),
      }),
    })
    const old = await older.add('mail', { to: 'a' })
    await queue.addBulk(Array.from({ length: 4 }, () => ({ name: 'mail' as const, data: { to: 'b' } })))
    newWorker(closing(new Queue('work', { store, logger: false })), { other: () => {} }, { upkeepEvery: 100 })
    const operation = await (
      await queue.operate({ do: 'update', all: true, changes: { data: { to: 'c' }, priority: 3 } })
    ).result()
    expect(operation).toMatchObject({ done: 4, refused: { OTHER_VERSION: 1 }, refusals: [{ id: old.id }] })
    const mails = (await queue.list()).jobs
    expect(mails.map(({ data, priority }) => [data, priority])).toEqual([
      [{ to: 'a' }, 0],
      ...Array.from({ length: 4 }, () => [{ to: 'c' }, 3]),
    ])
  })

  test('delayed jobs are promoted, and no more of them in a period than the rate allows', async () => {
    const { queue, upkeep } = stage(await make(kind))
    await addMany(queue, 25, { delay: '1 day' })
    const operation = await queue.operate({ do: 'promote', all: true, rate: { max: 10, per: '1 day' } })
    upkeep()
    await expect.poll(async () => (await operation.refresh()).done).toBe(10)
    expect(await operation.refresh()).toMatchObject({ state: 'running', done: 10 })
    expect(await queue.counts()).toMatchObject({ waiting: 10, delayed: 15 })
    const fast = await (await queue.operate({ do: 'promote', all: true, rate: { max: 6, per: 5 } })).result()
    expect(fast.done).toBe(15)
  })

  test('the end of an operation is an event of its queue, in every process and in streams, and of no other', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('events', { store, logger: false }))
    const events: unknown[] = []
    const others: unknown[] = []
    queue.on('operation-ended', ({ at: _at, ...event }) => events.push(event))
    queue.on('completed', (event) => others.push(event))
    closing(new Queue('other', { store, logger: false })).on('operation-ended', (event) => others.push(event))
    const stream = open(queue, { events: ['operation-ended'], snapshot: false })
    await queue.addBulk(Array.from({ length: 3 }, () => ({ name: 'job' })))
    const cancel = await queue.operate({ do: 'cancel', all: true, by: 'ann', reason: 'wrong' })
    const paused = await queue.operate({ do: 'retry', all: true })
    await paused.pause()
    expect(await paused.cancel()).toBe(true)
    await queue.claim() // a queue that claims by hand does the upkeep
    await cancel.result()
    await expect.poll(() => events.length).toBe(2)
    const common = { type: 'operation-ended', queue: 'events', name: '', unchanged: 0, refused: {} }
    expect(events).toEqual([
      { ...common, id: paused.id, state: 'cancelled', do: 'retry', done: 0 },
      { ...common, id: cancel.id, state: 'completed', do: 'cancel', by: 'ann', reason: 'wrong', done: 3 },
    ])
    const frames = await stream.until(({ data }) => (data as { id?: string } | undefined)?.id === cancel.id)
    expect(frames.map(({ event }) => event).filter((type) => type === 'operation-ended')).toHaveLength(2)
    await stream.cancel()
    expect(others).toEqual([])
  })

  test('a queue that claims by hand logs the operations that its upkeep ends', async () => {
    const lines: string[] = []
    const log = (_details: object, message: string): void => void lines.push(message)
    const logger = { info: log, warn: log, error: log }
    const queue = closing(new Queue('by-hand', { store: await make(kind), logger }))
    await queue.add('job')
    const operation = await queue.operate({ do: 'cancel', where: { name: 'job' } })
    expect(await queue.claim({ names: ['other'] })).toEqual([])
    await operation.result()
    await expect.poll(() => lines.filter((line) => line.includes(operation.id))).toHaveLength(1)
  })

  test('a paused operation does nothing until it is resumed, and a cancelled one nothing any more', async () => {
    const { queue, upkeep } = stage(await make(kind))
    await addMany(queue, 10)
    const operation = await queue.operate({ do: 'cancel', all: true })
    expect(await operation.pause()).toBe(true)
    expect(await operation.pause()).toBe(false)
    expect(operation.state).toBe('paused')
    upkeep()
    const other = await (await queue.operate({ do: 'update', all: true, changes: { priority: 1 } })).result()
    expect(other).toMatchObject({ done: 10, state: 'completed' })
    expect(await operation.refresh()).toMatchObject({ state: 'paused', done: 0 })
    expect(await operation.resume()).toBe(true)
    expect(await operation.resume()).toBe(false)
    await operation.result()
    expect(operation).toMatchObject({ done: 10, state: 'completed' })
    expect(await operation.cancel()).toBe(false)
    expect(await thrownBy(() => operation.pause())).toMatchObject({ code: 'INVALID_STATE' })

    await addMany(queue, 10)
    const slow = await queue.operate({ do: 'cancel', all: true, rate: { max: 4, per: '1 day' } })
    await expect.poll(async () => (await slow.refresh()).done).toBe(4)
    const ended = slow.result()
    expect(await (await queue.operation(slow.id))!.cancel()).toBe(true)
    expect(await ended).toMatchObject({ state: 'cancelled', done: 4 })
    expect((await queue.counts()).waiting).toBe(6)
  })

  test('operations are listed by page, the newest first, and those of other queues are not among them', async () => {
    const store = await make(kind)
    const { queue } = stage(store)
    const other = closing(new Queue('other', { store, logger: false }))
    const ids: string[] = []
    for (let n = 0; n < 3; n++) ids.unshift((await queue.operate({ do: 'promote', all: true })).id)
    const foreign = await other.operate({ do: 'promote', all: true })
    const first = await queue.operations({ limit: 2 })
    expect(first.operations.map(({ id }) => id)).toEqual(ids.slice(0, 2))
    const second = await queue.operations({ limit: 2, cursor: first.cursor! })
    expect(second.operations.map(({ id }) => id)).toEqual(ids.slice(2))
    expect(await queue.operation(foreign.id)).toBeUndefined()
    const { id } = await queue.add('job')
    expect(await queue.operation(id)).toBeUndefined()
    // Rows of operations are no jobs.
    expect(await queue.get(ids[0]!)).toBeUndefined()
    expect((await queue.list()).jobs).toHaveLength(1)
    expect((await queue.counts()).delayed).toBe(0)
    expect(await thrownBy(() => queue.cancel(ids[0]!))).toMatchObject({ code: 'JOB_NOT_FOUND' })
  })

  test('a plan counts by name and state, shows samples, and writes nothing', async () => {
    const { queue } = stage(await make(kind))
    await addMany(queue, 30, {}, 'a')
    await addMany(queue, 5, { delay: '1h' }, 'b')
    const chained = await queue.add('c')
    await queue.add('d', undefined, { after: chained })
    const plan = await queue.plan({ do: 'remove', where: { name: ['a', 'b', 'c'] }, reason: 'why', by: 'ann' })
    expect(plan).toMatchObject({
      do: 'remove',
      count: 36,
      exact: true,
      names: { a: { waiting: 30 }, b: { delayed: 5 }, c: { waiting: 1 } },
      examined: 36,
      refused: { JOB_HAS_DEPENDENTS: 1 },
      refusals: [{ id: chained.id, code: 'JOB_HAS_DEPENDENTS' }],
    })
    expect(plan.samples).toHaveLength(10)
    expect(plan.samples[0]).toMatchObject({ name: 'a', state: 'waiting' })
    expect(await queue.operate({ do: 'remove', where: { name: ['a', 'b', 'c'] }, dryRun: true })).toEqual(plan)
    expect((await queue.operations()).operations).toEqual([])
    expect(await queue.counts()).toMatchObject({ waiting: 31, delayed: 5, 'waiting-children': 1 })
  })

  test('what cannot be meant is refused, and nothing is written', async () => {
    const { queue } = stage(await make(kind))
    await queue.add('job')
    const refused = (request: object): Promise<unknown> => thrownBy(() => queue.operate(request as never))
    const state = 'failed'
    expect(await refused({ do: 'retry' })).toMatchObject({ code: 'NO_FILTER' })
    expect(await refused({ do: 'retry', where: {} })).toMatchObject({ code: 'NO_FILTER' })
    expect(await thrownBy(() => queue.plan({ do: 'remove', where: {} }))).toMatchObject({ code: 'NO_FILTER' })
    const invalid = [
      { do: 'retry', where: { state }, all: true },
      { do: 'retry', where: { state: 'completed' } },
      { do: 'retry', where: { state: ['failed', 'completed'] } },
      { do: 'retry', where: { state: undefined } },
      { do: 'mend', where: { state } },
      { do: 'retry', where: { state }, rate: { max: 0, per: '1s' } },
      { do: 'retry', where: { state }, rate: { max: 5, per: 0 } },
      { do: 'retry', where: { state }, reason: '' },
      { do: 'retry', where: { state }, dryRun: 'yes' },
      { do: 'update', all: true },
      { do: 'update', all: true, changes: {} },
      { do: 'remove', all: true, cascade: 'yes' },
    ]
    for (const request of invalid) expect(await refused(request)).toMatchObject({ code: 'INVALID_OPTION' })
    const unknown = [
      { do: 'retry', where: { stat: 'failed' } },
      { do: 'retry', where: { state }, cascade: true },
      { do: 'cancel', all: true, changes: { priority: 1 } },
      { do: 'retry', where: { state }, rate: { max: 5, every: 1 } },
    ]
    for (const request of unknown) expect(await refused(request)).toMatchObject({ code: 'UNKNOWN_OPTION' })
    expect(await refused({ do: 'retry', where: { state }, by: '' })).toMatchObject({ code: 'INVALID_NAME' })
    expect(await thrownBy(() => queue.operations({ limit: 0 }))).toMatchObject({ code: 'INVALID_OPTION' })
    expect((await queue.operations()).operations).toEqual([])
  })

  test('the end of an operation is not awaited for ever', async () => {
    const { queue } = stage(await make(kind))
    const operation = await queue.operate({ do: 'cancel', all: true })
    expect(await thrownBy(() => operation.result({ timeout: 20 }))).toMatchObject({ code: 'RESULT_TIMEOUT' })
  })
})
