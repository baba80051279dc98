import { describe, expect, it } from 'vitest'
import { Queue, Worker, defineJobs, job } from 'millrace'
import { webhooks } from 'millrace/webhooks'
import type { AddOptions, JobFilter } from 'millrace'
import { memory } from 'millrace/memory'
import { thrown } from '../thrown.js'
import { newQueue, newStore, newWorker } from '../setup.js'

const YEARS = 1000 * 60 * 60 * 24 * 365

describe('a bad name', () => {
  const bad = { empty: '', long: 'x'.repeat(256), 'control characters': 'a\nb', 'not a string': 7 as unknown as string }
  for (const [what, name] of Object.entries(bad)) {
    it(`is refused (${what}) for queues, jobs, ids and workers`, async () => {
      const queue = newQueue()
      expect(thrown(() => new Queue(name, { store: newStore() }))).toMatchObject({ code: 'INVALID_NAME' })
      await expect(queue.add(name)).rejects.toMatchObject({ code: 'INVALID_NAME' })
      await expect(queue.add('n', 1, { id: name })).rejects.toMatchObject({ code: 'INVALID_ID' })
      await expect(queue.add('n', 1, { dedup: { key: name } })).rejects.toMatchObject({ code: 'INVALID_NAME' })
      await expect(queue.add('n', 1, { after: [{ id: name }] })).rejects.toMatchObject({ code: 'INVALID_ID' })
      await expect(queue.get(name)).rejects.toMatchObject({ code: 'INVALID_ID' })
      expect(thrown(() => new Worker([name], () => {}, { store: newStore() }))).toMatchObject({ code: 'INVALID_NAME' })
      if (typeof name === 'string') {
        expect(thrown(() => defineJobs({ [name]: job() }))).toMatchObject({ code: 'INVALID_NAME' })
      }
      expect(await queue.counts()).toMatchObject({ waiting: 0 })
    })
  }
})

describe('bad options of add', () => {
  const cases: readonly [string, AddOptions, string][] = [
    ['a negative delay', { delay: -1 }, 'INVALID_DURATION'],
    ['a delay that is not a number', { delay: NaN }, 'INVALID_DURATION'],
    ['a delay past the limit', { delay: 101 * YEARS }, 'INVALID_DURATION'],
    ['a delay that cannot be read', { delay: 'soon' }, 'INVALID_DURATION'],
    ['a date that is none', { runAt: new Date('never') }, 'INVALID_DATE'],
    ['a date and a delay', { runAt: new Date(), delay: 1 }, 'INVALID_OPTION'],
    ['a priority that is not an integer', { priority: 1.5 }, 'INVALID_PRIORITY'],
    ['a priority out of range', { priority: 2 ** 40 }, 'INVALID_PRIORITY'],
    ['no attempts', { attempts: 0 }, 'INVALID_ATTEMPTS'],
    ['half an attempt', { attempts: 1.5 }, 'INVALID_ATTEMPTS'],
    ['an unknown backoff', { backoff: { type: 'exponentail' as 'exponential', delay: 1 } }, 'INVALID_BACKOFF'],
    ['a timeout of nothing', { timeout: 0 }, 'INVALID_DURATION'],
    ['a flag that is none', { lifo: 'yes' as unknown as boolean }, 'INVALID_OPTION'],
    ['an unknown dedup mode', { dedup: { key: 'k', mode: 'replce' as 'replace' } }, 'INVALID_OPTION'],
    ['an unknown dedup scope', { dedup: { key: 'k', scope: 'queues' as 'queue' } }, 'INVALID_OPTION'],
    ['an unknown dedup option', { dedup: { key: 'k', widow: 1 } as never }, 'UNKNOWN_OPTION'],
    ['an unknown policy', { after: 'x', onChildFailure: 'retry' as 'fail' }, 'INVALID_OPTION'],
    ['a dependency that is none', { after: 7 as unknown as string }, 'INVALID_OPTION'],
    ['a misspelt policy', { after: { job: 'x', onFailuer: 'ignore' } as never }, 'UNKNOWN_OPTION'],
    ['a policy in the wrong place', { after: { id: 'x', onFailure: 'ignore' } as never }, 'INVALID_OPTION'],
    ['an unknown policy for nobody', { onChildFailure: 'bogus' as 'fail' }, 'INVALID_OPTION'],
    ['a dependency that was not awaited', { after: Promise.resolve() as never }, 'INVALID_OPTION'],
    ['a dependency that does not exist', { after: 'nobody' }, 'DEPENDENCY_MISSING'],
  ]
  for (const [what, options, code] of cases) {
    it(`${what} is refused with ${code}, and nothing is written`, async () => {
      const queue = newQueue()
      await expect(queue.add('n', 1, options)).rejects.toMatchObject({ code })
      await expect(queue.addBulk([{ name: 'n' }, { name: 'n', data: 1, options }])).rejects.toMatchObject({ code })
      const written = code === 'DEPENDENCY_MISSING' ? 1 : 0
      expect((await queue.list()).jobs).toHaveLength(written)
    })
  }

  it('an unknown one is refused with the nearest known name', async () => {
    const queue = newQueue()
    await expect(queue.add('n', 1, { prioritty: 1 } as AddOptions)).rejects.toMatchObject({
      code: 'UNKNOWN_OPTION',
      message: expect.stringContaining("did you mean 'priority'?"),
    })
    await expect(queue.add('n', 1, [] as AddOptions)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.addBulk([null] as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.list(null as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => memory({ rnig: 1 } as never))).toMatchObject({ code: 'UNKNOWN_OPTION' })
    expect(thrown(() => memory({ ring: 0 }))).toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.add('n', 1, 'now' as unknown as AddOptions)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  it('defaults are refused where they are given', () => {
    const store = memory()
    expect(thrown(() => new Queue('q', { store, defaults: { attempts: 0 } }))).toMatchObject({
      code: 'INVALID_ATTEMPTS',
    })
    expect(thrown(() => job({ attempts: -1 }))).toMatchObject({ code: 'INVALID_ATTEMPTS' })
    expect(thrown(() => new Queue('q', { store, defaults: { delay: 1 } as never }))).toMatchObject({
      code: 'UNKNOWN_OPTION',
    })
    expect(thrown(() => job({ atempts: 1 } as never))).toMatchObject({ code: 'UNKNOWN_OPTION' })
  })
})

describe('bad data', () => {
  const cyclic: Record<string, unknown> = {}
  cyclic['self'] = cyclic
  const bad: readonly [string, unknown][] = [
    ['a function', { run: () => {} }],
    ['undefined in an array', { a: [undefined] }],
    ['a Date', { when: new Date() }],
    ['a cycle', cyclic],
    ['a BigInt', { n: 1n }],
    ['-0', [-0]],
    ['NaN', { n: NaN }],
    ['a NUL character', { s: 'a\0b' }],
    ['a lone surrogate', { s: '\ud800' }],
    ['Infinity', { n: Infinity }],
  ]
  for (const [what, data] of bad) {
    it(`${what} is refused by its place, and nothing is written`, async () => {
      const queue = newQueue()
      await expect(queue.add('n', data)).rejects.toMatchObject({
        code: 'INVALID_DATA',
        message: expect.stringContaining('data'),
      })
      expect((await queue.list()).jobs).toEqual([])
    })
  }

  it('over the limit is refused with its size', async () => {
    const queue = newQueue({ maxDataBytes: 100 })
    await expect(queue.add('n', 'x'.repeat(100))).rejects.toMatchObject({ code: 'DATA_TOO_LARGE' })
    await queue.add('n', 'x'.repeat(98))
    expect((await queue.list()).jobs).toHaveLength(1)
  })
})

describe('bad queues and workers', () => {
  it('an unknown job name is refused with the nearest', async () => {
    const queue = newQueue({ jobs: defineJobs({ 'send-email': job() }) })
    await expect(queue.add('send-emial' as 'send-email')).rejects.toMatchObject({
      code: 'UNKNOWN_JOB',
      message: expect.stringContaining("did you mean 'send-email'?"),
    })
    expect(thrown(() => new Worker(queue, { 'send-emial': () => {} } as never))).toMatchObject({ code: 'UNKNOWN_JOB' })
  })

  it('a queue without a store, or with unknown options, is refused', () => {
    expect(thrown(() => new Queue('q', {} as never))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => new Queue('q', undefined as never))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => new Queue('q', { store: memory(), jbos: {} } as never))).toMatchObject({
      code: 'UNKNOWN_OPTION',
    })
    expect(thrown(() => new Queue('q', { store: memory(), maxDataBytes: 0 }))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => new Queue('q', { store: memory(), retention: { deleteAfter: -1 } }))).toMatchObject({
      code: 'INVALID_DURATION',
    })
  })

  it('bad worker options are refused', () => {
    const store = memory()
    const make = (options: object, handlers: unknown = () => {}): unknown =>
      thrown(() => new Worker('q', handlers as never, { store, ...options }))
    expect(make({ concurrency: 0 })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({ concurency: 1 })).toMatchObject({
      code: 'UNKNOWN_OPTION',
      message: expect.stringContaining("'concurrency'"),
    })
    expect(make({ maxGlobalConcurrency: 1.5 })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({ lease: '1ms' })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({ lease: '1s', renewEvery: '2s' })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({ upkeepEvery: '31s' })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({ backoff: { mine: 5 } })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({ reconnect: { type: 'sometimes' } })).toMatchObject({ code: 'INVALID_BACKOFF' })
    expect(make({ middleware: [1] })).toMatchObject({ code: 'INVALID_OPTION' })
    for (const wrong of [5, 'x', true, () => {}, null]) {
      if (wrong !== null) expect(make({ middleware: wrong })).toMatchObject({ code: 'INVALID_OPTION' })
      if (wrong !== true) expect(make({ autorun: wrong })).toMatchObject({ code: 'INVALID_OPTION' })
      expect(make({ backoff: wrong })).toMatchObject({ code: 'INVALID_OPTION' })
      expect(make({ logger: wrong })).toMatchObject({ code: 'INVALID_OPTION' })
      expect(thrown(() => new Queue('q', { store, logger: wrong as never }))).toMatchObject({ code: 'INVALID_OPTION' })
      expect(thrown(() => new Worker('q', () => {}, wrong as never))).toMatchObject({ code: 'INVALID_OPTION' })
    }
    expect(make({ logger: { warn: () => {} } })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({ jobs: 'x' })).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => webhooks({ secrets: 'one and only' as never }))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(make({}, {})).toMatchObject({ code: 'INVALID_HANDLER' })
    expect(make({}, null)).toMatchObject({ code: 'INVALID_HANDLER' })
    expect(make({}, { n: 'run' })).toMatchObject({ code: 'INVALID_HANDLER' })
    expect(make({}, { n: { run: () => {}, leese: 1 } })).toMatchObject({ code: 'UNKNOWN_OPTION' })
    expect(make({}, { n: { run: () => {}, backoff: { type: 'fixed', delay: -1 } } })).toMatchObject({
      code: 'INVALID_DURATION',
    })
    const queue = newQueue()
    expect(thrown(() => new Worker(queue, () => {}, { store }))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => queue.on('complete' as 'completed', () => {}))).toMatchObject({
      message: expect.stringContaining("did you mean 'completed'?"),
    })
    expect(thrown(() => queue.on('completed', undefined as never))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => new Queue('q', { store, jobs: ['a'] as never }))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => new Worker('q', () => {}))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => new Worker([], () => {}, { store }))).toMatchObject({ code: 'INVALID_OPTION' })
  })

  it('an id that was not awaited, and other objects without a condition, are no filter for all jobs', async () => {
    const queue = newQueue()
    await queue.add('n')
    await queue.add('n', 1, { delay: 1000 })
    for (const which of [Promise.resolve('id'), new Date(), new Map(), new Error('no')]) {
      const wrong = { code: 'INVALID_OPTION', message: expect.stringContaining('Give a job id') as string }
      await expect(queue.cancel(which as never)).rejects.toMatchObject(wrong)
      await expect(queue.retry(which as never)).rejects.toMatchObject(wrong)
      await expect(queue.promote(which as never)).rejects.toMatchObject(wrong)
      await expect(queue.update(which as never, { priority: 1 })).rejects.toMatchObject(wrong)
      await expect(queue.remove(which as never)).rejects.toMatchObject(wrong)
    }
    expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 1 })
    expect(await queue.remove({ all: true })).toBe(2)
  })

  it('a call that would change all jobs is refused, unless all of them are meant', async () => {
    const queue = newQueue()
    await queue.add('n', 1, { delay: 1000 })
    await queue.cancel((await queue.add('n')).id)
    const before = await queue.counts()
    const calls = (which: object) => [
      () => queue.cancel(which as JobFilter),
      () => queue.retry(which as JobFilter),
      () => queue.retry(which as JobFilter, { dryRun: true }),
      () => queue.promote(which as JobFilter),
      () => queue.update(which as JobFilter, { priority: 1 }),
      () => queue.remove(which as JobFilter),
    ]
    const message = expect.stringContaining('{ all: true }') as string
    for (const call of calls({})) await expect(call()).rejects.toMatchObject({ code: 'NO_FILTER', message })
    for (const which of [{ all: true, state: 'delayed' }, { all: 'yes' }]) {
      for (const call of calls(which)) await expect(call()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
    expect(await queue.counts()).toEqual(before)
    expect(await queue.count({})).toEqual({ count: 2, exact: true }) // it changes nothing
    expect([await queue.update({ all: true }, { priority: 1 }), await queue.promote({ all: true })]).toEqual([1, 1])
    expect(await queue.cancel({ all: true })).toBe(1)
    expect(await queue.retry({ all: true }, { dryRun: true })).toBe(2)
    expect(await queue.retry({ all: true })).toBe(2)
  })

  it('messages name all options of a call, and what is wrong with dates and lists', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, () => {}, { autorun: false })
    const never = new Date(NaN)
    const messages: readonly (readonly [call: () => Promise<unknown>, code: string, text: string])[] = [
      [() => queue.cancel({ all: true }, { colour: 1 } as never), 'UNKNOWN_OPTION', 'it knows cascade, reason, tx'],
      [() => queue.remove({ all: true }, { colour: 1 } as never), 'UNKNOWN_OPTION', 'it knows cascade, tx'],
      [() => queue.retry({ all: true }, { colour: 1 } as never), 'UNKNOWN_OPTION', 'it knows rate, dryRun, tx'],
      [() => queue.operate({ do: 'retry', all: true, colour: 1 } as never), 'UNKNOWN_OPTION', 'by, dryRun, tx'],
      [() => queue.hold('1s', { of: 'name' } as never), 'UNKNOWN_OPTION', 'one of ctx.hold'],
      [() => queue.hold('1s', { by: '' }), 'INVALID_NAME', 'name of who holds'],
      [() => queue.claim({ names: [] }), 'INVALID_OPTION', 'not an empty array'],
      [() => worker.run({ until: 5 } as never), 'INVALID_OPTION', "'drained' or a Date, not 5"],
      [() => worker.run({ until: never }), 'INVALID_DATE', 'not an invalid Date'],
      [() => queue.list({ created: { from: never } }), 'INVALID_DATE', 'not an invalid Date'],
      [() => queue.series({ from: never }), 'INVALID_DATE', 'not an invalid Date'],
      [() => queue.series({ from: 2000, to: 1000 }), 'INVALID_RANGE', 'Exchange them'],
      [() => queue.operations({ cursor: 'x' }), 'INVALID_CURSOR', "'x'"],
    ]
    for (const [call, code, text] of messages) {
      await expect(call()).rejects.toMatchObject({ code, message: expect.stringContaining(text) as string })
    }
  })

  it('bad filters, lists and updates are refused', async () => {
    const queue = newQueue()
    await expect(queue.cancel({ state: 'wating' as 'waiting' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.cancel({ nmae: 'x' } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
    await expect(queue.remove({ name: undefined })).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining('name is undefined'),
    })
    await expect(queue.cancel(7 as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.list({ limit: 0 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.list({ order: 'random' as 'oldest' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    const added = await queue.add('n')
    await expect(added.update({ priority: 0.5 })).rejects.toMatchObject({ code: 'INVALID_PRIORITY' })
    await expect(added.update({ prio: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
    await expect(queue.update({ all: true }, { delay: -1 })).rejects.toMatchObject({ code: 'INVALID_DURATION' })
    await expect(added.result({ timeoutt: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
    await expect(added.result({ timeout: 'later' })).rejects.toMatchObject({ code: 'INVALID_DURATION' })
  })
})
