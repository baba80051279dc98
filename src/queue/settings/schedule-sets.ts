// queue/settings/schedule-sets.ts: makes the schedules of one owner what a list says: adds, changes and removes.
import { MillraceError } from '../../job/errors/errors.js'
import type { Change } from '../../job/change.js'
import type { JobRecord, Time } from '../../job/job.js'
import { isDenied, remove, reschedule } from '../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { flag, invalid, isObject, mustBe } from '../../job/values/options.js'
import { SCHEDULE, readSpec, readableSpec } from '../../job/schedules/schedule.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { pages } from '../../store/read-pages.js'
import type { Session } from '../../store/session.js'
import type { Group } from '../../store/store.js'
import type { JobDefinitions } from '../define.js'
import { MAX_RACES } from '../operations/decide.js'
import type { QueueScope } from '../operations/operations.js'
import { hasNoTime, noTimeLeft, prepareSchedule } from './schedules.js'
import type { Prepare, PreparedSchedule, ScheduleOptions } from './schedules.js'

/** One schedule of a set: its key, and what `queue.schedule` takes. */
export type KeyedSchedule<Jobs extends JobDefinitions> = ScheduleOptions<Jobs> & {
  /** Its key. */
  readonly key: string
}

/** Options of `queue.syncSchedules`. */
export interface SyncOptions {
  /** Whose set it is: schedules of the same owner that are not in it are removed. Default `default`. */
  readonly owner?: string
  /** Writes nothing, and returns what would change. Default false. */
  readonly dryRun?: boolean
}

/** What `queue.syncSchedules` changed, or would change: keys, in order. */
export interface SyncedSchedules {
  /** Made. */
  readonly added: readonly string[]
  /** Changed, or taken over from no owner. */
  readonly changed: readonly string[]
  /** Removed: they belong to the owner, and are not in the set. */
  readonly removed: readonly string[]
  /** As they were. */
  readonly unchanged: readonly string[]
}

/** The most schedules of a set. */
const MAX_SET = 1000

/** The most changes of one group. A set that needs no more is applied whole or not at all. */
const MAX_CHANGES = 400

/** Checks a set; the prepared schedules are in its order. */
export function prepareSet(
  prepare: Prepare,
  list: readonly KeyedSchedule<JobDefinitions>[],
  options: SyncOptions,
  now: Time,
): readonly (PreparedSchedule | Promise<PreparedSchedule>)[] {
  const where = 'queue.syncSchedules'
  if (!Array.isArray(list)) throw mustBe(where, 'given an array of schedules', list)
  if (list.length > MAX_SET) {
    throw invalid(
      `${where}: ${list.length} schedules are too many for one set; ${MAX_SET} is the most. Use several owners.`,
    )
  }
  refuseUnknown(options, ['owner', 'dryRun'], where)
  const owner = ownerOf(options)
  flag(options.dryRun, `${where}: dryRun`)
  const keys = new Set<string>()
  return (list as readonly KeyedSchedule<JobDefinitions>[]).map((each) => {
    if (!isObject(each)) throw mustBe(`${where}: each schedule`, 'an object with a key', each)
    const { key, ...rest } = each
    if (keys.has(checkName(key, 'schedule key')))
      throw invalid(`${where}: the key '${key}' is in the set twice.`, { key })
    keys.add(key)
    return prepareSchedule(prepare, key, rest, now, { where, owner })
  })
}

function ownerOf({ owner = 'default' }: SyncOptions): string {
  return checkName(owner, 'schedule owner')
}

/** What is to be done about one key. */
interface Task {
  readonly key: string
  readonly what: 'added' | 'changed' | 'removed' | 'unchanged'
  readonly changes: readonly Change[]
}

/** Makes the schedules of an owner what the set says; plans again where others change them meanwhile. */
export function* syncSchedules(
  { queue, session, runtime }: QueueScope,
  set: readonly PreparedSchedule[],
  options: SyncOptions,
): Steps<SyncedSchedules> {
  const done = new Map<string, Task['what']>()
  for (let races = 0; races < MAX_RACES; races++) {
    const tasks = planOf(set, yield* rowsOf(session, queue), ownerOf(options), runtime.now())
    const verdicts = options.dryRun === true ? [] : yield* step(session.commitAll(groupsOf(tasks)))
    // What an earlier round did is no longer to be done, and stays as it was reported.
    for (const { key, what } of tasks) if (what !== 'unchanged' || !done.has(key)) done.set(key, what)
    const refused = verdicts.find((verdict) => !verdict.ok)
    if (refused === undefined) return report(done)
  }
  throw new MillraceError('STORE_BUSY', `The schedules of queue '${queue}' are being changed by others; try again.`)
}

function report(done: ReadonlyMap<string, Task['what']>): SyncedSchedules {
  const keys = (of: Task['what']): readonly string[] => [...done].filter(([, what]) => what === of).map(([key]) => key)
  return { added: keys('added'), changed: keys('changed'), removed: keys('removed'), unchanged: keys('unchanged') }
}

function* rowsOf(session: Session, queue: string): Steps<ReadonlyMap<string, JobRecord>> {
  const rows = new Map<string, JobRecord>()
  for (const page of pages(session, { queue, kind: SCHEDULE })) for (const row of yield* page) rows.set(row.id, row)
  return rows
}

function planOf(
  set: readonly PreparedSchedule[],
  rows: ReadonlyMap<string, JobRecord>,
  owner: string,
  now: Time,
): readonly Task[] {
  const ids = new Set(set.map(({ insert }) => insert.job.id))
  const tasks = set.map((prepared) => taskFor(prepared, rows.get(prepared.insert.job.id), owner, now))
  for (const row of rows.values()) {
    const spec = readableSpec(row)
    if (spec?.owner !== owner || ids.has(row.id)) continue
    const decision = remove(row)
    tasks.push({ key: spec.key, what: 'removed', changes: isDenied(decision) ? [] : decision })
  }
  return tasks
}

function taskFor({ insert }: PreparedSchedule, row: JobRecord | undefined, owner: string, now: Time): Task {
  const { key } = readSpec(insert.job as unknown as JobRecord)
  if (row === undefined) {
    if (hasNoTime(insert)) throw noTimeLeft(key, insert.job.queue)
    return { key, what: 'added', changes: [insert] }
  }
  const current = readableSpec(row)?.owner
  if (current !== undefined && current !== owner) {
    const message = `The schedule '${key}' of queue '${row.queue}' belongs to '${current}', not to '${owner}'. Nothing was changed.`
    throw new MillraceError('SCHEDULE_OWNED', message, { details: { key, owner: current } })
  }
  const decision = reschedule(row, insert.job, now)
  if (isDenied(decision)) throw noTimeLeft(key, row.queue)
  return { key, what: decision.length === 0 ? 'unchanged' : 'changed', changes: decision }
}

/** The changes of all tasks: in one group, if it is not too large. */
function groupsOf(tasks: readonly Task[]): readonly Group[] {
  const groups: Change[][] = []
  for (const { changes } of tasks) {
    const last = groups.at(-1)
    if (changes.length === 0) continue
    if (last !== undefined && last.length + changes.length <= MAX_CHANGES) last.push(...changes)
    else groups.push([...changes])
  }
  return groups
}
