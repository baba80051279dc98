// Counts over time, on every store: every process counts what it does, and the counts add up in rows.
import { describe, expect, test } from 'vitest'
import { Queue, SERIES_BUCKETS, UnrecoverableError } from 'millrace'
import type { Runtime, SeriesRow, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import { count, countsFor } from '../../../src/job/series.js'
import type { CountsByName } from '../../../src/job/series.js'
import { connect } from '../../../src/store/connection.js'
import {
  expireSeries,
  foldSeries,
  freshPut,
  readRows,
  readTotal,
  seriesKey,
} from '../../../src/store/series/series-cells.js'
import type { SeriesStore } from '../../../src/store/series/series-cells.js'
import { virtualClock } from '../../../src/testing/world/clock.js'
import { kinds, stores } from '../../stores.js'
import { observed } from '../../observed-store.js'
import { closing, event, newQueue, newWorker } from '../../setup.js'

const storeOf = stores()

const cellsOf = (store: Store): SeriesStore => {
  const { renewals } = connect(store)
  return { details: (query) => store.details(query), commit: (group) => renewals.commit(group) }
}

const total = (rows: readonly SeriesRow[], what: 'added' | 'completed' | 'failed' | 'retried' | 'cancelled') =>
  rows.reduce((sum, row) => sum + row[what], 0)

describe.each(kinds)('on %s', (kind) => {
  const scene = async () => {
    const store = await storeOf(kind)
    return { store, queue: closing(new Queue('work', { store, logger: false })) }
  }

  test('every outcome is counted by name, with times of waiting and running', async () => {
    const { queue } = await scene()
    await queue.add('mail', 1, { attempts: 2, backoff: 1 })
    await queue.add('index', 1)
    await queue.add('sweep', 1)
    const last = await queue.add('never', 1)
    await last.cancel()
    const drained = event(queue, 'drained')
    newWorker(queue, {
      mail: async (each) => {
        if (each.attempt === 1) throw new Error('again')
      },
      index: async () => {
        throw new UnrecoverableError('no')
      },
      sweep: async () => {},
    })
    await drained
    await expect.poll(async () => total((await queue.series()).rows, 'completed')).toBe(2)
    const { rows, step } = await queue.series({ by: 'name' })
    expect(step).toBe('minute')
    const sum = (name: string, what: Parameters<typeof total>[1]) =>
      total(
        rows.filter((row) => row.name === name),
        what,
      )
    expect([sum('mail', 'added'), sum('mail', 'retried'), sum('mail', 'completed')]).toEqual([1, 1, 1])
    expect([sum('index', 'failed'), sum('never', 'cancelled'), sum('sweep', 'completed')]).toEqual([1, 1, 1])
    const mail = rows.filter(({ name }) => name === 'mail')
    const all = (which: 'wait' | 'run') => mail.flatMap((row) => row[which].buckets).reduce((a, b) => a + b, 0)
    expect([all('wait'), all('run')]).toEqual([2, 2])
    expect(mail[0]!.wait.buckets).toHaveLength(SERIES_BUCKETS.length + 1)
  })

  test('counts of many writers are folded into minutes, hours, days and a total, once', async () => {
    const { store, queue } = await scene()
    const cells = cellsOf(store)
    for (let round = 1; round <= 3; round++) {
      await queue.addBulk([{ name: 'a' }, { name: 'b' }])
      await queue.series()
    }
    await Promise.all([foldSeries(cells, 'work'), foldSeries(cells, 'work'), foldSeries(cells, 'work')])
    await foldSeries(cells, 'work')
    const fresh = await store.details({ cellsUnder: seriesKey.allFresh('work') })
    expect(fresh.cells).toEqual([])
    for (const step of ['minute', 'hour', 'day'] as const) {
      expect(total((await queue.series({ step })).rows, 'added')).toBe(6)
    }
    const counts = await readTotal(store, 'work')
    expect([...counts].map(([name, [added]]) => [name, added])).toEqual([
      ['a', 3],
      ['b', 3],
    ])
  })

  test('jobs that others take the place of are counted as cancelled', async () => {
    const { queue } = await scene()
    await queue.limit({ group: { maxBacklog: 2, onFull: 'drop-oldest' } })
    for (let n = 0; n < 5; n++) await queue.add('mail', n, { group: 'one' })
    const { rows } = await queue.series({ by: 'name' })
    expect([total(rows, 'added'), total(rows, 'cancelled')]).toEqual([5, 3])
    expect(rows.map(({ name }) => name)).toEqual(['mail'])
    expect(await queue.totals()).toMatchObject({ added: 5, cancelled: 3 })
  })

  test('rows that are too old are removed, and those that are kept stay', async () => {
    const { store, queue } = await scene()
    const cells = cellsOf(store)
    await queue.add('a')
    await queue.mark('deploy 4f2')
    const { rows, marks } = await queue.series()
    expect(marks).toMatchObject([{ text: 'deploy 4f2' }])
    await foldSeries(cells, 'work')
    const now = rows[0]!.at
    const hour = 3_600_000
    await expireSeries(cells, 'work', 30 * 24 * hour, now + 3 * 24 * hour)
    expect((await queue.series({ step: 'minute' })).rows).toEqual([])
    expect((await queue.series({ step: 'hour' })).rows).toHaveLength(1)
    await expireSeries(cells, 'work', 30 * 24 * hour, now + 33 * 24 * hour)
    const after = await queue.series({ step: 'day' })
    expect([after.rows, after.marks]).toEqual([[], []])
  })

  test('a queue whose name begins with that of another has counts of its own', async () => {
    const { store, queue } = await scene()
    const other = closing(new Queue('work:x', { store, logger: false }))
    await other.add('a')
    expect((await queue.series()).rows).toEqual([])
    expect(total((await other.series()).rows, 'added')).toBe(1)
  })
})

describe.each(['SQLite', 'PostgreSQL'] as const)('in transactions that the user ends, on %s', (kind) => {
  test('what is rolled back is not counted, and what is committed is', async () => {
    const store = await storeOf(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    const undone = store.transact!(async (tx) => {
      await queue.addBulk([{ name: 'a' }, { name: 'b' }], { tx })
      throw new Error('undo')
    })
    await expect(undone).rejects.toThrow('undo')
    await store.transact!(async (tx) => void (await queue.addBulk([{ name: 'b' }, { name: 'c' }], { tx })))
    await queue.close()
    const counts = await readTotal(store, 'work')
    expect(Object.fromEntries([...counts].map(([name, [added]]) => [name, added]))).toEqual({ b: 1, c: 1 })
  })
})

test('what a transaction adds is counted in the minute of the transaction, however long the process did nothing', async () => {
  const clock = virtualClock()
  const store = sqlite(':memory:', { runtime: clock.runtime })
  const queue = closing(new Queue('work', { store, logger: false }))
  await queue.ping()
  await clock.advance('3h')
  await queue.transaction(async () => void (await queue.add('a')))
  const { rows } = await queue.series()
  expect(rows.map(({ at, added }) => [at, added])).toEqual([[Math.floor(clock.runtime.now() / 60_000) * 60_000, 1]])
  await queue.close()
  await store.close()
})

test('a total counts everything once, on however many pages, and while another process folds', async () => {
  const store = await storeOf('memory')
  const cells = cellsOf(store)
  await store.open()
  const names = Array.from({ length: 40 }, (_, n) => `a name of some length, number ${n}`)
  for (let n = 0; n < 600; n++) {
    const counts: CountsByName = new Map()
    for (const name of names) count(countsFor(counts, name), 'added')
    await cells.commit([freshPut('work', n, `writer ${n}`, counts)])
  }
  const added = async (from: Pick<SeriesStore, 'details'>) =>
    [...(await readTotal(from, 'work')).values()].reduce((sum, [each]) => sum + each!, 0)
  let pages = 0
  const folding: Pick<SeriesStore, 'details'> = {
    details: async (query) => {
      const page = await store.details(query)
      if (++pages === 1) await foldSeries(cells, 'work')
      return page
    },
  }
  expect(await added(folding)).toBe(600 * 40)
  expect(pages).toBeGreaterThan(2)
  expect(await added(store)).toBe(600 * 40)
})

test('what a transaction rolls back is not counted', async () => {
  const store = await storeOf('SQLite')
  const queue = closing(new Queue('work', { store, logger: false }))
  const undone = queue.transaction(async () => {
    await queue.add('a')
    throw new Error('undo')
  })
  await expect(undone).rejects.toThrow('undo')
  await queue.transaction(async () => void (await queue.add('b')))
  const { rows } = await queue.series({ by: 'name' })
  expect(rows.map(({ name, added }) => [name, added])).toEqual([['b', 1]])
})

test('a count that the store may have taken without an answer is not written twice', async () => {
  let lose = true
  const inner = memory()
  const store: Store = {
    ...inner,
    commit: async (batch) => {
      const receipt = await inner.commit(batch)
      const isSeries = batch.groups.some(([change]) => change?.kind === 'put' && change.key.startsWith('series:'))
      if (!isSeries || !lose) return receipt
      throw Object.assign(new Error('connection lost'), { code: 'ECONNRESET' })
    },
  }
  const queue = newQueue({ store })
  await queue.add('a')
  await queue.series()
  lose = false
  await queue.series()
  expect(total((await queue.series()).rows, 'added')).toBe(1)
})

test('counts of processes that end soon are folded, however many processes there were', async () => {
  const store = memory()
  const cells = cellsOf(store)
  for (let process = 1; process <= 60; process++) {
    // A store object of its own stands for a process of its own.
    const queue = new Queue('work', { store: Object.create(store) as Store, logger: false })
    await queue.add('a')
    await queue.close()
  }
  const { cells: fresh } = await store.details({ cellsUnder: seriesKey.allFresh('work') })
  expect(fresh.length).toBeLessThan(20)
  expect((await readTotal(cells, 'work')).get('a')?.[0]).toBe(60)
})

test('a fold and an expiry go on until nothing is left, however large the rows are', async () => {
  const store = memory()
  const cells = cellsOf(store)
  const counts: CountsByName = new Map()
  for (let n = 0; n < 1_000; n++) count(countsFor(counts, `${'n'.repeat(200)}${n}`), 'added')
  for (let minute = 1; minute <= 30; minute++) await cells.commit([freshPut('work', minute, 'x', counts)])
  await foldSeries(cells, 'work')
  expect((await store.details({ cellsUnder: seriesKey.allFresh('work') })).cells).toEqual([])
  expect((await readRows(cells, 'work', 'minute', 0, 100)).size).toBe(30)
  await expireSeries(cells, 'work', 30 * 86_400_000, 4 * 86_400_000)
  expect((await readRows(cells, 'work', 'minute', 0, 100)).size).toBe(0)
  const total = await readTotal(cells, 'work')
  expect([...total.values()].reduce((sum, [added]) => sum + added!, 0)).toBe(30_000)
})

test('a bounded run has written its counts when it resolves', async () => {
  const store = memory()
  const queue = newQueue({ store })
  await queue.add('a')
  const worker = newWorker(queue, async () => {}, { autorun: false })
  await worker.run({ until: 'drained' })
  expect((await readTotal(store, 'work')).get('a')?.slice(0, 2)).toEqual([1, 1])
})

test('a queue that claims by hand has written its counts when it is closed', async () => {
  const store = memory()
  const queue = new Queue('work', { store, logger: false })
  await queue.add('a')
  const [claimed] = await queue.claim({ names: ['a'], lease: '1 minute' })
  await claimed!.complete()
  await queue.close()
  expect((await readTotal(store, 'work')).get('a')?.slice(0, 2)).toEqual([1, 1])
})

test.each([
  ['memory', (runtime: Runtime): Store => memory({ runtime })],
  ['SQLite', (runtime: Runtime): Store => sqlite(':memory:', { runtime })],
])('a job that was delayed has waited since it was due, on %s', async (_, make) => {
  const clock = virtualClock()
  const store = make(clock.runtime)
  const queue = newQueue({ store })
  await queue.add('late', 1, { delay: '1h' })
  await queue.add('first', 1)
  const worker = newWorker(queue, async () => {}, { autorun: false })
  await worker.run()
  await clock.advance('2h')
  const { rows } = await queue.series({ from: clock.runtime.now() - 86_400_000, step: 'hour', by: 'name' })
  const done = rows.filter(({ completed }) => completed > 0)
  const waits = done.map(({ name, completed, wait }) => [name, completed, wait.sum < 60_000])
  expect(waits).toEqual([
    ['first', 1, true],
    ['late', 1, true],
  ])
  await worker.close()
  await queue.close()
  await store.close()
})

test('a process in which nothing happens writes nothing of its series', async () => {
  const clock = virtualClock()
  let puts = 0
  const store = observed(memory({ runtime: clock.runtime }), ({ groups }) => {
    puts += groups.flat().filter((change) => change.kind === 'put' && change.key.startsWith('series:')).length
  })
  const queue = newQueue({ store })
  const worker = newWorker(queue, async () => {}, { autorun: false })
  await worker.run()
  await queue.add('a')
  await clock.advance('1 minute')
  expect(puts).toBeGreaterThan(0)
  await clock.advance('30 minutes') // upkeep folds once
  puts = 0
  await clock.advance('3h')
  await queue.health()
  await worker.close()
  expect(puts).toBe(0)
})

test('with series off, nothing is written and nothing is told', async () => {
  const keys: string[] = []
  const store = observed(memory(), ({ groups }) => {
    for (const change of groups.flat()) if (change.kind === 'put') keys.push(change.key)
  })
  const queue = newQueue({ store, series: false })
  await queue.add('a')
  expect((await queue.series()).rows).toEqual([])
  expect((await queue.health()).lastMinute).toBeUndefined()
  expect(keys.filter((key) => key.startsWith('series:'))).toEqual([])
})

test('closing a queue writes what it counted', async () => {
  const store = memory()
  await newQueue({ store }).add('a')
  const first = newQueue({ store })
  await first.close()
  const counts = await readTotal(store, 'work')
  expect(counts.get('a')?.[0]).toBe(1)
})

test.each([
  [{ from: 10, to: 5 }, /from .* must be before to .* Exchange them/],
  [{ step: 'minute', from: 0, to: 90_000_001 }, /1500 is the most.*longer step/],
  [{ from: Number.NaN }, /from must be a valid Date/],
  [{ step: 'week' }, /step must be one of/],
  [{ by: 'job' }, /by must be one of/],
  [{ since: 5 }, /since/],
] as const)('%j is refused, with the way out', async (options, message) => {
  await expect(newQueue().series(options as never)).rejects.toThrow(message)
})

test('a mark without a text, or with a long one, is refused, and so is keeping rows for minutes', async () => {
  const queue = newQueue()
  for (const text of ['', 'x'.repeat(201), 5 as never])
    await expect(queue.mark(text)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(() => newQueue({ series: { keep: '5m' } })).toThrow(/at least '1h'/)
  expect(() => newQueue({ series: { days: 5 } as never })).toThrow(/days/)
})
