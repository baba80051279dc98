// What operators see, find and steer by: every option that is wrong is refused by code, with the way out, and nothing is
// written, on every store.
import { describe, expect, test } from 'vitest'
import { Queue } from 'millrace'
import type { Store } from 'millrace'
import { closing, newWorker } from '../setup.js'
import { kinds, stores } from '../stores.js'

const make = stores()

type Call = readonly [what: string, code: string, way: RegExp, call: () => unknown]

function calls(queue: Queue, store: Store, id: string): readonly Call[] {
  const any = queue as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>
  const add = (options: object) => () => any['add']!('job', {}, options)
  const schedule = queue.schedule('kept') as unknown as Record<string, (options: object) => Promise<unknown>>
  const worker = newWorker(queue, () => {}, { autorun: false })
  const run = (options: object) => () => worker.run(options as never)
  const never = new Date(NaN)
  const many = Array.from({ length: 11 }, (_, n) => `tag-${n}`)
  return [
    ['too many tags', 'INVALID_TAGS', /10 is the most/, add({ tags: many })],
    ['a long tag', 'INVALID_TAGS', /64 is the most/, add({ tags: ['x'.repeat(65)] })],
    ['one tag', 'INVALID_TAGS', /a list such as/, add({ tags: 'user:7' })],
    ['expires in the past', 'INVALID_DATE', /Give a later date/, add({ expires: new Date(0) })],
    ['expires before its delay', 'INVALID_OPTION', /expires/, add({ expires: '1s', delay: '1h' })],
    ['expires that is no date', 'INVALID_DATE', /valid Date/, add({ expires: never })],
    ['a count of kept jobs', 'INVALID_OPTION', /from 1 up/, add({ removeOnComplete: { count: -1 } })],
    ['an unknown rule of keeping', 'UNKNOWN_OPTION', /age, count/, add({ removeOnComplete: { last: 5 } })],
    [
      'bulk tags',
      'INVALID_TAGS',
      /10 is the most/,
      () => any['addBulk']!([{ name: 'ok' }, { name: 'job', options: { tags: many } }]),
    ],
    [
      'tags of a schedule',
      'INVALID_TAGS',
      /10 is the most/,
      () => any['schedule']!('new', { every: '1h', name: 'job', options: { tags: many } }),
    ],
    [
      'expires of a schedule',
      'INVALID_DATE',
      /later date/,
      () => any['schedule']!('new', { every: '1h', name: 'job', options: { expires: new Date(0) } }),
    ],
    [
      'overlap',
      'INVALID_SCHEDULE',
      /'queue'/,
      () => any['schedule']!('new', { every: '1h', name: 'job', overlap: 'wait' }),
    ],
    [
      'jitter',
      'INVALID_DURATION',
      /duration/,
      () => any['schedule']!('new', { every: '1h', name: 'job', jitter: 'some' }),
    ],
    ['an owner', 'INVALID_NAME', /empty/, () => any['syncSchedules']!([], { owner: '' })],
    ['a trigger', 'INVALID_OPTION', /'allow'/, () => schedule['trigger']!({ overlap: 'wait' })],
    ['a backfill in reverse', 'INVALID_RANGE', /Exchange/, () => schedule['backfill']!({ from: 2000, to: 1000 })],
    [
      'a backfill of the future',
      'INVALID_OPTION',
      /in the future/,
      () => schedule['backfill']!({ from: 0, to: Date.now() + 9e9 }),
    ],
    ['a backfill of too much', 'BACKFILL_TOO_LARGE', /shorter ranges/, () => schedule['backfill']!({ from: 0 })],
    ['a backfill from nowhere', 'INVALID_DATE', /valid Date/, () => schedule['backfill']!({})],
    ['too many runs', 'INVALID_OPTION', /from 1 to 100/, () => schedule['runs']!({ limit: 500 })],
    ['a hold for no time', 'INVALID_DURATION', /longer than 0/, () => any['hold']!(0)],
    ['a hold for years', 'INVALID_DURATION', /queue\.pause/, () => any['hold']!('400 days')],
    ['a hold of two', 'INVALID_OPTION', /Two calls/, () => any['hold']!('1s', { name: 'job', group: 'g' })],
    [
      'a range in reverse',
      'INVALID_RANGE',
      /from: '2h', to: '1h'/,
      () => any['list']!({ created: { from: 2, to: 1 } }),
    ],
    [
      'a range by filter',
      'INVALID_RANGE',
      /begin before/,
      () => any['remove']!({ finished: { from: '1h', to: '2h' } }),
    ],
    ['an empty range', 'INVALID_OPTION', /`from`, `to`, or both/, () => any['retry']!({ started: {} })],
    ['a bad date', 'INVALID_DATE', /ISO date/, () => any['cancel']!({ created: { from: never } })],
    [
      'a cursor of another filter',
      'INVALID_CURSOR',
      /another queue, filter/,
      async () => {
        const { cursor } = await queue.list({ limit: 1 })
        return queue.list({ cursor, state: 'failed' })
      },
    ],
    ['a cursor of operations', 'INVALID_CURSOR', /page/, () => any['operations']!({ cursor: 'x' })],
    ['a cursor of schedules', 'INVALID_CURSOR', /page/, () => any['schedules']!({ cursor: 'x' })],
    ['a cursor of errors', 'INVALID_CURSOR', /without a cursor/, () => any['errors']!({ cursor: 'x' })],
    ['a search for nothing', 'INVALID_OPTION', /left out/, () => any['list']!({ search: {} })],
    ['tags of a filter', 'INVALID_OPTION', /empty list/, () => any['cancel']!({ tags: [] })],
    ['no filter', 'NO_FILTER', /all: true/, () => any['remove']!({})],
    ['an operation without a filter', 'NO_FILTER', /all: true/, () => any['operate']!({ do: 'remove' })],
    ['an operation with an empty one', 'NO_FILTER', /all: true/, () => any['operate']!({ do: 'cancel', where: {} })],
    [
      'an operation with both',
      'INVALID_OPTION',
      /not both/,
      () => any['operate']!({ do: 'cancel', where: { name: 'a' }, all: true }),
    ],
    [
      'a rate',
      'INVALID_OPTION',
      /from 1 up/,
      () => any['operate']!({ do: 'cancel', all: true, rate: { max: 0, per: '1s' } }),
    ],
    [
      'a reason',
      'INVALID_OPTION',
      /500 characters/,
      () => any['operate']!({ do: 'cancel', all: true, reason: 'x'.repeat(501) }),
    ],
    [
      'who asks',
      'INVALID_NAME',
      /255 is the most/,
      () => any['operate']!({ do: 'cancel', all: true, by: 'x'.repeat(256) }),
    ],
    ['a claim of nothing', 'INVALID_OPTION', /at least one name/, () => any['claim']!({ names: [] })],
    ['a claim of too many', 'INVALID_OPTION', /1 to 1000/, () => any['claim']!({ max: 1001 })],
    ['a claim with a short lease', 'INVALID_OPTION', /lease/, () => any['claim']!({ lease: 0 })],
    ['a run without an end', 'INVALID_OPTION', /give until/, run({})],
    ['a run until a number', 'INVALID_OPTION', /a Date/, run({ until: 5 })],
    ['a run of no jobs', 'INVALID_OPTION', /from 1 up/, run({ maxJobs: 0 })],
    ['a series in reverse', 'INVALID_RANGE', /Exchange/, () => any['series']!({ from: 2000, to: 1000 })],
    ['a mark without text', 'INVALID_OPTION', /1 to 200/, () => any['mark']!('')],
    ['fields of a stream', 'INVALID_OPTION', /must be one of/, () => any['eventStream']!({ jobId: id, fields: ['x'] })],
    ['a name of a worker', 'INVALID_NAME', /empty/, () => newWorker(queue, () => {}, { workerName: '' })],
    ['a graph of no job', 'JOB_NOT_FOUND', /nobody/, () => any['graph']!('nobody')],
    ['days of series', 'INVALID_OPTION', /1h/, () => new Queue('other', { store, series: { keep: '5m' } })],
  ]
}

describe.each(kinds)('on %s', (kind) => {
  test('each option that is wrong is refused with the way out, and nothing is written', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('bad', { store, logger: false }))
    const { id } = await queue.add('job', { n: 1 }, { delay: '1h', tags: ['a'] })
    await queue.add('job', { n: 2 }, { delay: '1h' })
    await queue.schedule('kept', { every: '1m', name: 'job' })
    const state = async () => ({
      jobs: (await queue.list()).jobs.map((job) => job.toJSON()),
      counts: await queue.counts(),
      schedules: await queue.schedules(),
      holds: await queue.holds(),
      operations: (await queue.operations()).operations.length,
      marks: (await queue.series()).marks,
      workers: (await queue.workers()).length,
      totals: await queue.totals(),
    })
    const before = await state()
    for (const [what, code, way, call] of calls(queue, store, id)) {
      const thrown: unknown = await (async () => call())().then(
        () => undefined,
        (error: unknown) => error,
      )
      expect(thrown, what).toMatchObject({ code, message: expect.stringMatching(way) as string })
    }
    expect(await state()).toEqual(before)
  })
})
