// queue/settings/schedules.ts: jobs that are added again and again: scheduling them, and listing the schedules there are.
import { MillraceError } from '../../job/errors.js'
import type { Insert } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord, Time } from '../../job/job.js'
import { decodeJson } from '../../job/json.js'
import { create, remove, reschedule } from '../../job/lifecycle.js'
import { MAX_NAME_LENGTH, checkName, refuseUnknown } from '../../job/names.js'
import { SCHEDULE, readProgress, readSpec, runId, scheduleId, writeSpec } from '../../job/schedule.js'
import { nextTime, parseTimes, timeOptionNames, timesFrom } from '../../job/schedule-times.js'
import type { ScheduleTimes, Timing } from '../../job/schedule-times.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Page, Refused } from '../../store/store.js'
import type { InputOf, JobDefinitions, NameOf } from '../define.js'
import type { JobOperations } from '../operations/job-operations.js'
import { pageIn, pageQuery } from '../operations/filter.js'
import type { PageOptions } from '../operations/filter.js'
import type { Place } from '../operations/by-filter.js'
import type { AddOptions } from '../add-options.js'
import type { Session } from '../../store/session.js'

/** How the runs of a schedule are added: as `add`, but for what the schedule itself decides. */
export type RunOptions = Omit<AddOptions, (typeof decided)[number]>

/** What a schedule decides about its runs. */
const decided = ['id', 'delay', 'runAt', 'dedup', 'after', 'onChildFailure', 'repeat'] as const

/** What is run when, for `queue.schedule`: the name and the data go together. */
export type ScheduleOptions<Jobs extends JobDefinitions> = ScheduleTimes &
  {
    [Name in NameOf<Jobs>]: {
      /** The job's name. */
      readonly name: Name
      /** How its runs are added. Default: as the queue and the job say. */
      readonly options?: RunOptions
    } & (undefined extends InputOf<Jobs[Name]>
      ? { readonly data?: InputOf<Jobs[Name]> }
      : { readonly data: InputOf<Jobs[Name]> })
  }[NameOf<Jobs>]

/** A schedule as it stands. */
export interface Schedule<Name extends string = string, Data = unknown> {
  /** The key it was scheduled under. */
  readonly key: string
  /** The id of its row, which its runs have as `parentId`. */
  readonly id: string
  /** The name of its runs. */
  readonly name: Name
  /** The data of its runs. */
  readonly data: Data
  /** When it runs, with all defaults. */
  readonly times: Timing
  /** `ended` when its limit is reached or its end is over; it can be scheduled again. */
  readonly state: 'scheduled' | 'ended'
  /** How many runs it has made. */
  readonly count: number
  /** The last run it made: the id of that job, and the time it was made for. */
  readonly last: { readonly id: string; readonly at: Time } | undefined
  /** The last time for which it could make none, and why: `overlap`, `full`, or `duplicate` (the id was taken). */
  readonly skipped: { readonly at: Time; readonly why: string } | undefined
  /** The next five times, or those that are left. */
  readonly next: readonly Time[]
  /** When it was first scheduled, by the store's clock. */
  readonly createdAt: Time
}

/** A page of schedules, and where the next begins; no `cursor` on the last page. */
export interface SchedulePage<Name extends string = string> {
  /** In the order in which they were made. */
  readonly schedules: readonly Schedule<Name>[]
  /** What to give for the next page. */
  readonly cursor?: string
}

/** Checks a job as `add` does. */
type Prepare = (
  name: string,
  data: unknown,
  options: AddOptions,
) => { readonly insert: Insert } | Promise<{ readonly insert: Insert }>

/** A schedule that was checked and only needs to be sent. */
export interface PreparedSchedule {
  readonly insert: Insert
  readonly mode: 'schedule'
}

/** Times that a listing shows. */
const SHOWN = 5
/** Schedules that are read at a time. */
const PAGE = 500

/** Checks a job that is to be added again and again; what is sent is its schedule. */
export function prepareSchedule(
  prepare: Prepare,
  name: string,
  data: unknown,
  options: AddOptions,
  now: Time,
): PreparedSchedule | Promise<PreparedSchedule> {
  const { repeat, id, ...rest } = options
  const where = 'queue.add options: repeat'
  refuseUnknown(repeat!, [...timeOptionNames, 'key'], where)
  const { key = id ?? name, ...times } = repeat!
  return prepareRuns(prepare, { key, name, data, options: rest }, times, where, now)
}

/** Checks what `queue.schedule` was given. */
export function prepareScheduled(
  prepare: Prepare,
  key: string,
  options: ScheduleOptions<JobDefinitions>,
  now: Time,
): PreparedSchedule | Promise<PreparedSchedule> {
  const where = 'queue.schedule'
  refuseUnknown(options, [...timeOptionNames, 'name', 'data', 'options'], where)
  const {
    name,
    data,
    options: run = {},
    ...times
  } = options as ScheduleTimes & {
    readonly name: string
    readonly data?: unknown
    readonly options?: AddOptions
  }
  return prepareRuns(prepare, { key, name, data, options: run }, times, where, now)
}

interface Runs {
  readonly key: string
  readonly name: string
  readonly data: unknown
  readonly options: AddOptions
}

function prepareRuns(
  prepare: Prepare,
  { key, name, data, options }: Runs,
  times: ScheduleTimes,
  where: string,
  now: Time,
): PreparedSchedule | Promise<PreparedSchedule> {
  checkName(key, 'schedule key')
  refuseUnknown(options, Object.keys(options ?? {}), `${where}: options`)
  for (const option of decided) {
    if (options[option] === undefined) continue
    const message = `${where}: ${option} cannot be given for what is repeated: the schedule decides it for each run.`
    throw new MillraceError('INVALID_OPTION', message, { details: { option } })
  }
  const timing = parseTimes(times, where)
  const run = prepare(name, data, options)
  return run instanceof Promise
    ? run.then((each) => scheduleInsert(each.insert, key, timing, now))
    : scheduleInsert(run.insert, key, timing, now)
}

/** The insert of a schedule, made of that of one run. */
function scheduleInsert({ job }: Insert, key: string, timing: Timing, now: Time): PreparedSchedule {
  const { queue } = job
  const longest = runId(queue, key, now).length
  if (longest > MAX_NAME_LENGTH) {
    const message = `The schedule key '${key}' and the name of queue '${queue}' make ids of ${longest} characters, and ${MAX_NAME_LENGTH} is the most. Shorten the key.`
    throw new MillraceError('INVALID_NAME', message, { details: { key, queue } })
  }
  const {
    id: _id,
    kind: _kind,
    queue: _queue,
    state: _state,
    run: _run,
    chainId: _chain,
    chainIndex: _index,
    parentId: _parent,
    dedup: _dedup,
    extras,
    ...rest
  } = job
  // Runs belong to no trace; and a schedule that is said again in another one is the same.
  const { trace: _trace, ...carried } = extras ?? {}
  const run = { ...rest, extras: Object.keys(carried).length === 0 ? undefined : carried }
  const first = nextTime(timing, now, now)
  const insert = create({
    id: scheduleId(queue, key),
    kind: SCHEDULE,
    queue,
    name: SCHEDULE,
    version: 1,
    data: writeSpec({ key, timing, run }),
    priority: 0,
    lifo: false,
    attempts: 1,
    backoff: undefined,
    timeout: undefined,
    run: { at: first ?? now },
    parentId: undefined,
    group: undefined,
    dedup: undefined,
    keep: undefined,
    extras: undefined,
    // One without a time left must not come to be, but may stand: it waits for a job that cannot be, and is refused.
    edges: first === undefined ? [{ on: NOWHERE, policy: 'fail' }] : [],
  })
  return { insert, mode: 'schedule' }
}

/** No job has this id. */
const NOWHERE = ''

/** How often a change is judged anew because the schedule was moved in between. */
const RACES = 100

/** What stands where a schedule was refused, once it is what the new one says. */
export function* standingSchedule(
  desk: JobOperations,
  insert: Insert,
  verdict: Refused,
  way: Session,
): Steps<JobRecord> {
  const { id, queue } = insert.job
  const { key } = readSpec(insert.job as unknown as JobRecord)
  if (verdict.why === 'missing') {
    const message = `The schedule '${key}' of queue '${queue}' has no time left to run at: its end is over.`
    throw new MillraceError('INVALID_SCHEDULE', message, { details: { field: 'end', key } })
  }
  let job = verdict.why === 'duplicate' ? verdict.job : undefined
  if (verdict.why !== 'duplicate' || (job !== undefined && (job.kind !== SCHEDULE || job.queue !== queue))) {
    const message = `Job ${id} has the id that the schedule '${key}' of queue '${queue}' needs. Choose another key.`
    throw new MillraceError('DUPLICATE_ID', message, { details: { id } })
  }
  for (let races = 0; races < RACES; races++) {
    if (job === undefined) {
      const again = yield* step(way.commit([insert]))
      if (again.ok) return again.inserted[0]!
      if (again.why !== 'duplicate') return yield* standingSchedule(desk, insert, again, way)
      job = again.job
      continue
    }
    const decision = reschedule(job, insert.job, desk.connection.runtime.now())
    if ('denied' in decision) {
      const message = `The schedule '${key}' of queue '${queue}' ${decision.denied}.`
      throw new MillraceError('INVALID_SCHEDULE', message, { details: { field: 'end', key } })
    }
    if (decision.length === 0) return job
    const moved = yield* step(way.commit(decision))
    if (moved.ok) return (yield* step(way.get(id))) ?? job
    job = moved.why === 'fence' ? yield* step(way.get(id)) : undefined
  }
  throw new MillraceError(
    'STORE_BUSY',
    `The schedule '${key}' of queue '${queue}' is being changed by others; try again.`,
  )
}

/** Sends a schedule, and answers it as it stands then. */
export function* putSchedule({ desk, way }: Place, { insert }: PreparedSchedule): Steps<Schedule> {
  const verdict = yield* step(way.commit([insert]))
  return viewOf(verdict.ok ? verdict.inserted[0]! : yield* standingSchedule(desk, insert, verdict, way))
}

/** Takes a schedule away; its runs stay. */
export function* dropSchedule({ queue, desk, way }: Place, key: string): Steps<boolean> {
  const id = scheduleId(queue, checkName(key, 'schedule key'))
  const record = yield* step(way.get(id))
  if (record?.kind !== SCHEDULE) return false
  return (yield* desk.actingOnAll([record], remove, way)) > 0
}

/** The schedules of a queue, in the order in which they were made: a page, if one is asked for, or all. */
export function* schedulesOf(
  { queue, way }: Place,
  options: PageOptions,
): Steps<SchedulePage | SchedulePage['schedules']> {
  const wanted = pageIn(options, 'queue.schedules')
  if (wanted === undefined) return yield* allSchedules(queue, way)
  const { items, cursor } = yield* step(way.find({ queue, kind: SCHEDULE, ...pageQuery(wanted, 'queue.schedules') }))
  const schedules = items.map(viewOf)
  return cursor === undefined ? { schedules } : { schedules, cursor }
}

function* allSchedules(queue: string, way: Session): Steps<readonly Schedule[]> {
  const found: Schedule[] = []
  let cursor: string | undefined
  do {
    const from = cursor === undefined ? {} : { cursor }
    const page: Page<JobRecord> = yield* step(way.find({ queue, kind: SCHEDULE, limit: PAGE, ...from }))
    found.push(...page.items.map(viewOf))
    cursor = page.cursor
  } while (cursor !== undefined)
  return found
}

function viewOf(row: JobRecord): Schedule {
  const { key, timing, run } = readSpec(row)
  const { runs, last, skipped } = readProgress(row)
  const ended = isFinished(row.state)
  const left = Math.min(SHOWN, (timing.limit ?? Infinity) - runs)
  return {
    key,
    id: row.id,
    name: run.name,
    data: run.data === undefined ? undefined : decodeJson(run.data),
    times: timing,
    state: ended ? 'ended' : 'scheduled',
    count: runs,
    last,
    skipped,
    next: ended ? [] : timesFrom(timing, row.runAt, left),
    createdAt: row.createdAt,
  }
}
