// conformance/cases/schedules.ts: cases on schedules: one group inserts a run and moves the schedule's row to its next time.
import type { JobRecord } from '../../job/job.js'
import { due, reschedule } from '../../job/lifecycle.js'
import { readProgress, runId, scheduleId, writeSpec } from '../../job/schedules/schedule.js'
import type { Timing } from '../../job/schedules/schedule-times.js'
import { has, must, present, same } from '../check.js'
import { first, ids, second } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import { complete, insert, QUEUE, remove } from '../changes.js'

const MILL = { queues: [QUEUE], except: [], limit: 100 }
const HOUR = 3_600_000

/** The data of a schedule's row. */
function spec(key: string, timing: Partial<Timing>): string {
  const run = { name: 'grind', version: 1, data: '{"of":"rye"}', priority: 0, lifo: false, attempts: Infinity } as const
  return writeSpec({
    key,
    timing: { every: HOUR, catchUp: 'one', overlap: 'skip', ...timing },
    run: { ...run, backoff: undefined, timeout: undefined, group: undefined, keep: undefined, extras: undefined },
  })
}

/** Adds a schedule that runs every hour, first in one hour. */
async function scheduled(d: Driver, key: string, timing: Partial<Timing> = {}): Promise<JobRecord> {
  const { now } = await d.commit({})
  const options = { id: scheduleId(QUEUE, key), kind: 'schedule', run: { at: now + HOUR } } as const
  const [row] = await d.land(insertOf(options, spec(key, timing)))
  return present(row, 'the row of a schedule is returned like a job')
}

function insertOf(options: Parameters<typeof insert>[2] & object, data: string): ReturnType<typeof insert> {
  const made = insert('', 'schedule', options)
  return { ...made, job: { ...made.job, data } }
}

/** The id of the run that a schedule adds for its next time. */
function runOf(row: JobRecord, key: string): string {
  return runId(QUEUE, key, row.runAt ?? 0)
}

/** Cases of schedules: rows like jobs, but never waiting, claimed or counted. */
export const schedules = area('schedules', {
  'a run and the next time of its schedule land together': async (h) => {
    const d = first(h)
    const row = await scheduled(d, 'k')
    has(row, { kind: 'schedule', state: 'delayed', dueAt: row.runAt }, 'a schedule is due at its next time')
    await h.advance(HOUR)
    same(await d.upkeep(), [row.id], 'a schedule whose time has come is due')
    const run = await d.job(runOf(row, 'k'))
    has(
      run,
      { kind: 'job', state: 'waiting', name: 'grind', data: '{"of":"rye"}', attempts: Infinity, parentId: row.id },
      'the run is a job like any other',
    )
    const after = await d.job(row)
    has(after, { state: 'delayed', fence: row.fence + 1, data: row.data }, 'the schedule has moved on')
    same(after.runAt, (row.runAt ?? 0) + HOUR, 'the schedule is at its next time')
    same(readProgress(after).runs, 1, 'the progress of a schedule is kept')
    same((await h.store.due(MILL)).next, after.dueAt, 'the next time is returned')
  },

  'of several that handle one time, one adds the run': async (h) => {
    const [a, b] = [first(h), await second(h)]
    const row = await scheduled(a, 'k', { overlap: 'allow' })
    await h.advance(HOUR)
    const seen = await a.due()
    const group = due(present(seen.jobs[0], 'the schedule is due'), seen.now)
    must((await a.send(group)).ok, 'the first adds the run')
    const refused = await b.refuse('fence', 'the second finds that the schedule has moved on', group)
    same(refused.id, row.id, 'it is refused over the schedule')
    same((await a.lifetime()).added, 1, 'one run was added')
  },

  'a group whose run exists already is refused whole': async (h) => {
    const d = first(h)
    const row = await scheduled(d, 'k', { overlap: 'allow' })
    const existing = await d.add('mine', { id: runOf(row, 'k') })
    await h.advance(HOUR)
    await d.upkeep()
    same(await d.job(row), row, 'the schedule is unchanged')
    same(await d.job(existing), existing, 'so is the job that has the id')
    same(ids((await h.store.due(MILL)).jobs), [row.id], 'the schedule is still due')
  },

  'a run that may not overlap keeps the next one out until it has finished': async (h) => {
    const d = first(h)
    const row = await scheduled(d, 'k')
    await h.advance(HOUR)
    await d.upkeep()
    const run = await d.claimOne({ lease: 10 * HOUR })
    await h.advance(HOUR)
    const before = await d.job(row)
    await d.upkeep()
    same(await d.job(row), before, 'a group that would overlap is refused whole')
    same((await d.lifetime()).added, 1, 'no second run was added')
    await d.land(complete(run))
    await d.upkeep()
    same((await d.lifetime()).added, 2, 'the key is free once the run has finished')
    same((await d.job(row)).fence, before.fence + 1, 'and the schedule continues')
  },

  'schedules are due among jobs, the longest due first': async (h) => {
    const d = first(h)
    const late = await scheduled(d, 'late')
    const job = await d.add('work', { run: { in: HOUR / 2 } })
    const early = await d.add('schedule', { id: 'early', kind: 'schedule', run: { in: HOUR / 4 } })
    same((await h.store.due(MILL)).next, early.runAt, 'a schedule is among what comes next')
    await h.advance(HOUR)
    same(ids((await h.store.due(MILL)).jobs), [early.id, job.id, late.id], 'what is due is in the order of its times')
    same(
      ids((await h.store.due({ ...MILL, except: [early.id], limit: 1 })).jobs),
      [job.id],
      'limits and exceptions hold for schedules too',
    )
  },

  'a schedule is never claimed': async (h) => {
    const d = first(h)
    await scheduled(d, 'k')
    await d.add('schedule', { kind: 'schedule' })
    await h.advance(2 * HOUR)
    same(await d.claim(10), [], 'a schedule is no work, whatever its state')
    same(await d.claim(10, { names: ['schedule'] }), [], 'not even by its name')
    await d.upkeep()
    same((await d.claim(10)).length, 1, 'its run is')
  },

  'schedules are not counted, and no full queue keeps them out': async (h) => {
    const d = first(h)
    await d.limit({ backlog: 1 })
    await d.add('work')
    const row = await scheduled(d, 'k')
    same(await d.counts(), { work: { waiting: 1 } }, 'a schedule counts in no state')
    same((await d.lifetime()).added, 1, 'a schedule was not added as a job')
    await h.advance(HOUR)
    const seen = await d.due()
    const group = due(present(seen.jobs[0], 'the schedule is due'), seen.now)
    await d.refuse('full', 'its runs are kept out like any job', group)
    same(await d.job(row), row, 'and then the schedule is unchanged')
  },

  'a schedule that has ended is kept, and can start again': async (h) => {
    const d = first(h)
    const row = await scheduled(d, 'k', { limit: 1 })
    const waiter = await d.add('waits', { after: [row] })
    await h.advance(HOUR)
    await d.upkeep()
    const ended = await d.job(row)
    has(
      ended,
      { state: 'completed', dueAt: undefined, fence: row.fence + 1 },
      'a schedule without times left has ended',
    )
    must(ended.finishedAt !== undefined, 'it has the time of its end')
    must(await d.exists(runOf(row, 'k')), 'its last run was added in the same group')
    has(await d.job(waiter), { state: 'waiting' }, 'a dependent of a schedule waits for its end')
    same((await d.lifetime()).completed, 0, 'the end of a schedule is not counted as that of a job')
    const { now } = await d.commit({})
    const again = insertOf({ id: row.id, kind: 'schedule', run: { in: 0 } }, spec('k', { limit: 5 }))
    const decision = reschedule(ended, again.job, now)
    must(!('denied' in decision), 'a schedule that has ended may be scheduled again')
    await d.land(decision)
    const restarted = await d.job(row)
    has(
      restarted,
      { state: 'delayed', data: again.job.data, finishedAt: undefined },
      'a schedule that starts again has not ended',
    )
    same(
      [readProgress(restarted).runs, restarted.dueAt],
      [0, restarted.runAt],
      'its runs count from 0, and it is due again',
    )
  },

  'many runs of one schedule land together, and are found by it in their order': async (h) => {
    const d = first(h)
    const row = await scheduled(d, 'k', { catchUp: 'all', overlap: 'allow' })
    await h.advance(5 * HOUR)
    await d.upkeep()
    const runs = [0, 1, 2, 3, 4].map((hours) => runId(QUEUE, 'k', (row.runAt ?? 0) + hours * HOUR))
    same(ids((await h.store.find({ parent: row.id })).items), runs, 'the runs of a schedule are found by it')
    same(ids(await d.claim(10)), runs, 'runs added together keep their order')
    same((await d.job(row)).fence, row.fence + 1, 'one group, one move')
  },

  'a removed schedule adds no run': async (h) => {
    const d = first(h)
    const row = await scheduled(d, 'k')
    await h.advance(HOUR)
    const seen = await d.due()
    await d.land(remove(row))
    await d.refuse('missing', 'a removed schedule is not run', due(present(seen.jobs[0], 'it was due'), seen.now))
    must(!(await d.exists(runOf(row, 'k'))), 'no run is added')
    const added = await scheduled(d, 'k')
    must(added.fence > row.fence, 'a schedule of the same key has a higher fence')
  },
})
