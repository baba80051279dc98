// A schedule takes the data of the job it names, and one definition of its times.
import { expectTypeOf, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Backfill, Schedule, SchedulePage, ScheduleRun, SyncedSchedules, Timing } from 'millrace'
import { memory } from 'millrace/memory'
import type { sqlite } from 'millrace/sqlite'
import type { jobs } from './jobs.js'
import { queue, untyped } from './jobs.js'

test('name and data go together', () => {
  void queue.schedule('k', { every: '1h', name: 'charge', data: { cents: 5 } })
  void queue.schedule('k', { cron: '@daily', tz: 'UTC', name: 'resize', data: { path: '', size: '' } })
  void queue.schedule('k', { every: '1h', name: 'sweep' })
  void queue.schedule('k', { every: '1h', name: 'report', data: { since: 5 } })
  // @ts-expect-error data is missing
  void queue.schedule('k', { every: '1h', name: 'charge' })
  // @ts-expect-error that is the data of another job
  void queue.schedule('k', { every: '1h', name: 'charge', data: { path: '', size: '' } })
  // @ts-expect-error there is no such job
  void queue.schedule('k', { every: '1h', name: 'chrage', data: { cents: 5 } })
  void untyped.schedule('k', { every: '1h', name: 'anything', data: { at: 'all' } })
})

test('the runs of schedules are listed by page', () => {
  void queue.schedules({ limit: 10, runs: 10 }).then(({ schedules }) => {
    expectTypeOf(schedules[0]!.runs).toEqualTypeOf<readonly ScheduleRun[] | undefined>()
  })
  // @ts-expect-error without a limit or a cursor it is no page
  void queue.schedules({ runs: 10 })
})

test('times are given in one way', () => {
  // @ts-expect-error neither cron nor every
  void queue.schedule('k', { name: 'sweep' })
  // @ts-expect-error both
  void queue.schedule('k', { cron: '* * * * *', every: 5, name: 'sweep' })
  // @ts-expect-error a distance has no zone
  void queue.schedule('k', { every: 5, tz: 'UTC', name: 'sweep' })
  // @ts-expect-error there is no such way to catch up
  void queue.schedule('k', { every: 5, catchUp: 'some', name: 'sweep' })
  void queue.schedule('k', {
    every: 5,
    start: new Date(),
    end: 5,
    limit: 1,
    catchUp: 'all',
    overlap: 'allow',
    name: 'sweep',
  })
})

test('the options of runs are those of add, but for what the schedule decides', () => {
  void queue.schedule('k', { every: 5, name: 'sweep', options: { attempts: 5, priority: 1, removeOnComplete: true } })
  // @ts-expect-error the schedule decides when
  void queue.schedule('k', { every: 5, name: 'sweep', options: { delay: 5 } })
  // @ts-expect-error and which id
  void queue.schedule('k', { every: 5, name: 'sweep', options: { id: 'mine' } })
})

test('add repeats', async () => {
  const added = await queue.add(
    'charge',
    { cents: 5 },
    { repeat: { cron: '* * * * *', tz: 'UTC', key: 'k', limit: 5 } },
  )
  expectTypeOf(added.name).toEqualTypeOf<'charge'>()
  // @ts-expect-error neither cron nor every
  void queue.add('charge', { cents: 5 }, { repeat: { key: 'k' } })
})

test('what is listed is typed', async () => {
  const [schedule] = await queue.schedules()
  expectTypeOf(schedule!.name).toEqualTypeOf<keyof typeof jobs>()
  expectTypeOf(schedule!.times).toEqualTypeOf<Timing>()
  expectTypeOf(schedule!.next).toEqualTypeOf<readonly number[]>()
  expectTypeOf(await queue.schedule('k', { every: 5, name: 'sweep' })).toExtend<Schedule>()
  expectTypeOf(await queue.unschedule('k')).toEqualTypeOf<boolean>()
  void queue.list({ schedule: 'k' })
  const page = await queue.schedules({ limit: 5 })
  expectTypeOf(page).toEqualTypeOf<SchedulePage<keyof typeof jobs>>()
  expectTypeOf((await queue.schedules({ cursor: '5' })).schedules[0]!.name).toEqualTypeOf<keyof typeof jobs>()
  // @ts-expect-error no such option
  void queue.schedules({ state: 'ended' })
})

test('a handle of a schedule is typed', async () => {
  const handle = queue.schedule('k')
  expectTypeOf((await handle.get())!.name).toEqualTypeOf<keyof typeof jobs>()
  expectTypeOf(await handle.trigger({ overlap: 'queue' })).toEqualTypeOf<string>()
  expectTypeOf(await handle.backfill({ from: new Date(), to: 5 })).toEqualTypeOf<Backfill>()
  expectTypeOf(await handle.runs({ limit: 5 })).toEqualTypeOf<readonly ScheduleRun[]>()
  // @ts-expect-error from is needed
  void handle.backfill({ to: 5 })
  // @ts-expect-error runs of a backfill neither skip nor cancel one another
  void handle.backfill({ from: 5, overlap: 'skip' })
  // @ts-expect-error no such overlap
  void handle.trigger({ overlap: 'wait' })
})

test('a set of schedules is typed by the names of their jobs', async () => {
  const synced = await queue.syncSchedules([
    { key: 'a', every: 5, name: 'sweep', jitter: '1s', overlap: 'queue' },
    { key: 'b', cron: '@daily', name: 'charge', data: { cents: 5 } },
  ])
  expectTypeOf(synced).toEqualTypeOf<SyncedSchedules>()
  // @ts-expect-error the data of another job
  void queue.syncSchedules([{ key: 'b', cron: '@daily', name: 'charge', data: { euros: 5 } }])
  // @ts-expect-error without a key
  void queue.syncSchedules([{ every: 5, name: 'sweep' }], { owner: 'me', dryRun: true })
})

test('times without a run are events', () => {
  queue.on('schedule-missed', (event) => {
    expectTypeOf(event.why).toEqualTypeOf<'overlap' | 'full' | 'late' | 'paused'>()
    expectTypeOf(event.name).toEqualTypeOf<keyof typeof jobs>()
    expectTypeOf(event.scheduledAt).toEqualTypeOf<number>()
  })
})

test('holds are typed by the names of jobs', async () => {
  void queue.hold('30s', { name: 'charge', by: 'ann' })
  expectTypeOf((await queue.holds())[0]!.name).toEqualTypeOf<keyof typeof jobs | undefined>()
  expectTypeOf(await queue.unhold({ group: 'acme' })).toEqualTypeOf<boolean>()
  // @ts-expect-error no such job
  void queue.hold('30s', { name: 'refund' })
  new Worker(queue, {
    sweep: (_job, ctx) => ctx.hold('5m', { of: 'queue' }),
    // @ts-expect-error no such scope
    charge: (_job, ctx) => ctx.hold('5m', { of: 'worker' }),
  })
})

test('a transaction is taken where the store has them', () => {
  const inMemory = new Queue('q', { store: memory() })
  // @ts-expect-error memory has no transactions
  void inMemory.schedule('k', { every: 5, name: 'n', tx: {} })
  // @ts-expect-error nor here
  void inMemory.unschedule('k', { tx: {} })
  const inFile = new Queue('q', { store: {} as ReturnType<typeof sqlite<string>> })
  void inFile.transaction(async (tx) => {
    await inFile.schedule('k', { every: 5, name: 'n', tx })
    await inFile.unschedule('k', { tx })
    await inFile.schedules({ tx })
  })
})
