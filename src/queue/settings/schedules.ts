// queue/settings/schedules.ts: creates, updates, removes and lists the schedules of a queue.
import { MillraceError } from '../../job/errors/errors.js'
import { create, OWN_ROW } from '../../job/change.js'
import type { Change, Insert } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord, Time } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import { isDenied, remove, reschedule } from '../../job/lifecycle.js'
import { MAX_NAME_LENGTH, checkName, refuseUnknown } from '../../job/values/names.js'
import { invalid, whole } from '../../job/values/options.js'
import { SCHEDULE, readProgress, readSpec, runId, scheduleId, writeSpec } from '../../job/schedules/schedule.js'
import type { ScheduleSpec } from '../../job/schedules/schedule.js'
import { nextTime, parseTimes, timeOptionNames, timesFrom } from '../../job/schedules/schedule-times.js'
import type { ScheduleTimes, Timing } from '../../job/schedules/schedule-times.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { pages } from '../../store/read-pages.js'
import type { Refused } from '../../store/store.js'
import type { InputOf, JobDefinitions, NameOf } from '../define.js'
import { LISTED_RUNS, lastRuns } from './schedule-runs.js'
import type { ScheduleRun } from './schedule-runs.js'
import { changeJobs, decideAndCommit, MAX_RACES } from '../operations/decide.js'
import { requestedPage, pageQuery } from '../operations/filter.js'
import type { PageOptions, PageWish } from '../operations/filter.js'
import type { QueueScope } from '../operations/operations.js'
import type { AddOptions } from '../add-options.js'
import type { Runtime } from '../../store/runtime.js'
import type { Session } from '../../store/session.js'

/** How the runs of a schedule are added: as with `add`, without the options that the schedule sets itself. */
export type RunOptions = Omit<AddOptions, (typeof setBySchedule)[number]>

/** The options that a schedule sets for its runs. */
const setBySchedule = ['id', 'delay', 'runAt', 'dedup', 'after', 'onChildFailure', 'repeat'] as const

/** What runs and when, for `queue.schedule`: the type of the data follows from the name. */
export type ScheduleOptions<Jobs extends JobDefinitions> = ScheduleTimes &
  {
    [Name in NameOf<Jobs>]: {
      /** The job's name. */
      readonly name: Name
      /** How its runs are added. Default: the defaults of the queue and the job. */
      readonly options?: RunOptions
    } & (undefined extends InputOf<Jobs[Name]>
      ? { readonly data?: InputOf<Jobs[Name]> }
      : { readonly data: InputOf<Jobs[Name]> })
  }[NameOf<Jobs>]

/** A schedule as stored. */
export interface Schedule<Name extends string = string, Data = unknown> {
  /** Its key. */
  readonly key: string
  /** The id of its row, which its runs have as `parentId`. */
  readonly id: string
  /** The name of its runs. */
  readonly name: Name
  /** The data of its runs. */
  readonly data: Data
  /** When it runs, with all defaults. */
  readonly times: Timing
  /** `paused`: it makes no runs. `ended`: its limit or its end is reached; it can be scheduled again. */
  readonly state: 'scheduled' | 'paused' | 'ended'
  /** When it was paused; undefined: it is not. */
  readonly pausedAt: Time | undefined
  /** The owner of the set that it belongs to (`queue.syncSchedules`); undefined: none. */
  readonly owner: string | undefined
  /** The number of runs it has created. */
  readonly count: number
  /** The last run it created: the id of that job, and its scheduled time. */
  readonly last: { readonly id: string; readonly at: Time } | undefined
  /** The last time it skipped, and why: `overlap`, `full`, or `duplicate` (the id exists). */
  readonly skipped: { readonly at: Time; readonly why: string } | undefined
  /** The next five times, or fewer if it ends. */
  readonly next: readonly Time[]
  /** When it was first scheduled, by the store's clock. */
  readonly createdAt: Time
  /** Its last runs, the newest first; only where `queue.schedules` was asked for `runs`. */
  readonly runs?: readonly ScheduleRun[]
}

/** Selects a page of schedules, and what is listed of each. */
export type SchedulePageOptions = PageWish & {
  /** Also lists the last runs of each schedule: so many, up to 10. Each schedule costs one read more. Default: none. */
  readonly runs?: number
}

/** A page of schedules; no `cursor` on the last. */
export interface SchedulePage<Name extends string = string> {
  /** In the order in which they were created. */
  readonly schedules: readonly Schedule<Name>[]
  /** Pass it for the next page. */
  readonly cursor?: string
}

/** Checks a job as `add` does. */
export type Prepare = (
  name: string,
  data: unknown,
  options: AddOptions,
) => { readonly insert: Insert } | Promise<{ readonly insert: Insert }>

/** A schedule that is checked and ready to send. */
export interface PreparedSchedule {
  readonly insert: Insert
  readonly mode: 'schedule'
}

/** How many times a listing shows. */
const SHOWN_TIMES = 5

/** Checks a repeated job of `queue.add`; returns its schedule to send. */
export function prepareRepeat(
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

/** Checks the options of `queue.schedule`. */
export function prepareSchedule(
  prepare: Prepare,
  key: string,
  options: ScheduleOptions<JobDefinitions>,
  now: Time,
  { where = 'queue.schedule', owner }: { readonly where?: string; readonly owner?: string } = {},
): PreparedSchedule | Promise<PreparedSchedule> {
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
  return prepareRuns(
    prepare,
    { key, name, data, options: run, ...(owner !== undefined && { owner }) },
    times,
    where,
    now,
  )
}

interface Runs {
  readonly key: string
  readonly name: string
  readonly data: unknown
  readonly options: AddOptions
  readonly owner?: string
}

function prepareRuns(
  prepare: Prepare,
  { key, name, data, options, owner }: Runs,
  times: ScheduleTimes,
  where: string,
  now: Time,
): PreparedSchedule | Promise<PreparedSchedule> {
  checkName(key, 'schedule key')
  refuseUnknown(options, Object.keys(options ?? {}), `${where}: options`)
  for (const option of setBySchedule) {
    if (options[option] === undefined) continue
    const message = `${where}: ${option} cannot be given for what is repeated: the schedule decides it for each run.`
    throw invalid(message, { option })
  }
  const timing = parseTimes(times, where)
  const run = prepare(name, data, options)
  return run instanceof Promise
    ? run.then((each) => scheduleInsert(each.insert, { key, timing, ...(owner !== undefined && { owner }) }, now))
    : scheduleInsert(run.insert, { key, timing, ...(owner !== undefined && { owner }) }, now)
}

/** The insert of a schedule, made from the insert of one run. */
function scheduleInsert({ job }: Insert, spec: Omit<ScheduleSpec, 'run'>, now: Time): PreparedSchedule {
  const { key, timing } = spec
  const { queue, expires } = job
  if (expires !== undefined && 'at' in expires) {
    throw invalid(`The schedule '${key}': expires must be a duration, which counts from each run's time, not a date.`)
  }
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
  // Runs belong to no trace, and the same schedule from another trace is equal.
  const { trace: _trace, ...carried } = extras ?? {}
  const run = { ...rest, extras: Object.keys(carried).length === 0 ? undefined : carried }
  const first = nextTime(timing, now, now)
  const insert = create({
    ...OWN_ROW,
    id: scheduleId(queue, key),
    kind: SCHEDULE,
    queue,
    name: SCHEDULE,
    data: writeSpec({ ...spec, run }),
    run: { at: first ?? now },
    // A schedule without a next time must not be inserted, but may already exist: an edge to a missing job has the
    // insert refused.
    edges: first === undefined ? [{ on: NO_JOB, policy: 'fail' }] : [],
  })
  return { insert, mode: 'schedule' }
}

/** Whether the insert of a schedule is refused for having no time left. */
export function hasNoTime({ edges }: Insert): boolean {
  return edges.length > 0
}

/** The error for a schedule whose end is over. */
export function noTimeLeft(key: string, queue: string): MillraceError {
  const message = `The schedule '${key}' of queue '${queue}' has no time left to run at: its end is over.`
  return new MillraceError('INVALID_SCHEDULE', message, { details: { field: 'end', key } })
}

/** No job has this id. */
const NO_JOB = ''

/** Updates the existing schedule to match a refused one, and returns its record. */
export function* updateExistingSchedule(
  session: Session,
  runtime: Runtime,
  insert: Insert,
  verdict: Refused,
): Steps<JobRecord> {
  const { id, queue } = insert.job
  const { key } = readSpec(insert.job as unknown as JobRecord)
  if (verdict.why === 'missing') {
    throw noTimeLeft(key, queue)
  }
  let job = verdict.why === 'duplicate' ? verdict.job : undefined
  if (verdict.why !== 'duplicate' || (job !== undefined && (job.kind !== SCHEDULE || job.queue !== queue))) {
    const message = `Job ${id} has the id that the schedule '${key}' of queue '${queue}' needs. Choose another key.`
    throw new MillraceError('DUPLICATE_ID', message, { details: { id } })
  }
  const decide = (row: JobRecord): readonly Change[] => {
    const decision = reschedule(row, insert.job, runtime.now())
    if (isDenied(decision)) throw noTimeLeft(key, queue)
    return decision
  }
  for (let races = 0; races < MAX_RACES; races++) {
    if (job !== undefined) {
      const decided = yield* decideAndCommit(session, job, decide)
      if (decided?.done === false) return decided.job
      if (decided !== undefined) return (yield* step(session.get(id))) ?? decided.job
    }
    const reinserted = yield* step(session.commit([insert]))
    if (reinserted.ok) return reinserted.inserted[0]!
    if (reinserted.why !== 'duplicate') return yield* updateExistingSchedule(session, runtime, insert, reinserted)
    job = reinserted.job
  }
  throw new MillraceError(
    'STORE_BUSY',
    `The schedule '${key}' of queue '${queue}' is being changed by others; try again.`,
  )
}

/** Sends a schedule and returns it as stored. */
export function* putSchedule({ session, runtime }: QueueScope, { insert }: PreparedSchedule): Steps<Schedule> {
  const verdict = yield* step(session.commit([insert]))
  return toSchedule(
    verdict.ok ? verdict.inserted[0]! : yield* updateExistingSchedule(session, runtime, insert, verdict),
  )
}

/** Removes a schedule; its runs stay. */
export function* dropSchedule({ queue, session }: QueueScope, key: string): Steps<boolean> {
  const id = scheduleId(queue, checkName(key, 'schedule key'))
  const record = yield* step(session.get(id))
  if (record?.kind !== SCHEDULE) return false
  return (yield* changeJobs(session, [record], remove)) > 0
}

/** The schedules of a queue, in the order in which they were created: one page if requested, or all. */
export function* schedulesOf(
  { queue, session }: QueueScope,
  options: PageOptions & Pick<SchedulePageOptions, 'runs'>,
): Steps<SchedulePage | SchedulePage['schedules']> {
  const { runs, ...wish } = options
  if (runs !== undefined) whole(runs, 'queue.schedules: runs', 1, LISTED_RUNS)
  const page = requestedPage(wish, 'queue.schedules')
  if (page === undefined) {
    if (runs === undefined) return yield* allSchedules(queue, session)
    throw invalid(`queue.schedules: runs are listed by page: { limit: 100, runs: ${runs} }.`)
  }
  const { items, cursor } = yield* step(session.find({ queue, kind: SCHEDULE, ...pageQuery(page, 'queue.schedules') }))
  const schedules: Schedule[] = []
  for (const row of items) {
    const schedule = toSchedule(row)
    schedules.push(runs === undefined ? schedule : { ...schedule, runs: yield* lastRuns(session, row.id, runs) })
  }
  return cursor === undefined ? { schedules } : { schedules, cursor }
}

function* allSchedules(queue: string, session: Session): Steps<readonly Schedule[]> {
  const found: Schedule[] = []
  for (const page of pages(session, { queue, kind: SCHEDULE })) found.push(...(yield* page).map(toSchedule))
  return found
}

/** A schedule as callers see it. */
export function toSchedule(row: JobRecord): Schedule {
  const { key, timing, run, owner } = readSpec(row)
  const { runs, last, skipped, paused } = readProgress(row)
  const ended = isFinished(row.state)
  const left = Math.min(SHOWN_TIMES, (timing.limit ?? Infinity) - runs)
  return {
    key,
    id: row.id,
    name: run.name,
    data: run.data === undefined ? undefined : decodeJson(run.data),
    times: timing,
    state: ended ? 'ended' : paused !== undefined ? 'paused' : 'scheduled',
    pausedAt: paused,
    owner,
    count: runs,
    last,
    skipped,
    next: ended ? [] : timesFrom(timing, row.runAt, left),
    createdAt: row.createdAt,
  }
}
