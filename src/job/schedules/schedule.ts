// job/schedules/schedule.ts: the row of a schedule: what it holds, and what happens when it is due. Pure.
import type { NewJob } from '../change.js'
import { MillraceError } from '../errors/errors.js'
import { isFinished } from '../job.js'
import type { JobRecord, Millis, Time } from '../job.js'
import type { JsonText } from '../values/json.js'
import { isMissed, latestTime, nextTime } from './schedule-times.js'
import type { Overlap, Timing } from './schedule-times.js'

/** The kind and the name of schedule rows. The name of their runs is in their data, because it may change. */
export const SCHEDULE = 'schedule'

/** The fields of every run of a schedule, except those that depend on its time. */
type RunPattern = Omit<
  NewJob,
  'id' | 'kind' | 'queue' | 'state' | 'run' | 'chainId' | 'chainIndex' | 'parentId' | 'dedup'
>

/** A run that is not a job yet. */
export type RunSpec = Omit<NewJob, 'state' | 'chainId' | 'chainIndex'>

/** The data of a schedule's row. */
export interface ScheduleSpec {
  readonly key: string
  readonly timing: Timing
  readonly run: RunPattern
  /** The set of schedules that it belongs to (`queue.syncSchedules`); absent: none. */
  readonly owner?: string
}

/** The result of a schedule's row: its progress. */
export interface ScheduleProgress {
  /** Runs made. */
  readonly runs: number
  /** The last run made. */
  readonly last?: { readonly id: string; readonly at: Time }
  /** The last time at which a run was due and refused, and why. */
  readonly skipped?: { readonly at: Time; readonly why: string }
  /** When it was paused; absent: it is not. */
  readonly paused?: Time
}

/** Escapes a queue's name so that it holds no colon, and the parts of an id stay unambiguous. */
function escapeQueue(queue: string): string {
  return queue.replaceAll('%', '%25').replaceAll(':', '%3A')
}

/** The id of a schedule's row. */
export function scheduleId(queue: string, key: string): string {
  return `${SCHEDULE}:${escapeQueue(queue)}:${key}`
}

/** Whether an id is that of a schedule's row, which is no job. */
export function isScheduleId(id: string): boolean {
  return id.startsWith(`${SCHEDULE}:`)
}

/** The id of a run, made of its queue, time and key, so that no time can run twice. */
export function runId(queue: string, key: string, time: Time): string {
  return `run:${escapeQueue(queue)}:${new Date(time).toISOString()}:${key}`
}

/** The dedup key that prevents overlapping runs. It has four parts, unlike every key that a user can give. */
function overlapKey(queue: string, key: string): string {
  return JSON.stringify([SCHEDULE, queue, key, 'overlap'])
}

/** Whether a job holds the dedup key that prevents the next run of its schedule. */
export function holdsOverlapKey({ dedup }: Pick<JobRecord, 'dedup'>): boolean {
  if (dedup?.key.startsWith(`["${SCHEDULE}",`) !== true) return false
  return (JSON.parse(dedup.key) as readonly unknown[]).length === 4
}

/** Encodes the data of a schedule's row: equal text for equal schedules. */
export function writeSpec({ key, timing, run, owner }: ScheduleSpec): JsonText {
  // JSON has no Infinity, and no other number here needs this.
  const value = { key, timing, run: { ...run, attempts: run.attempts === Infinity ? null : run.attempts }, owner }
  return JSON.stringify(value)
}

/** Parses the data of a schedule's row. */
export function readSpec(row: JobRecord): ScheduleSpec {
  try {
    const { key, timing, run, owner } = JSON.parse(row.data ?? '') as ScheduleSpec
    if (typeof key !== 'string' || (timing.cron ?? timing.every) === undefined)
      throw new TypeError('It says too little.')
    const { data, backoff, timeout, keep } = run
    const pattern = { ...run, data, backoff, timeout, keep, attempts: run.attempts ?? Infinity }
    return { key, timing, run: pattern, ...(owner !== undefined && { owner }) }
  } catch (cause) {
    const message = `The row ${row.id} holds no schedule that this version can read. Schedule it again, or remove it.`
    throw new MillraceError('INVALID_SCHEDULE', message, { cause, details: { id: row.id } })
  }
}

/** As `readSpec`, but undefined for data that cannot be read: such a row must still be shown, replaced and removed. */
export function readableSpec(row: JobRecord): ScheduleSpec | undefined {
  try {
    return readSpec(row)
  } catch {
    return undefined
  }
}

/** Parses the progress of a schedule. */
export function readProgress(row: JobRecord): ScheduleProgress {
  return row.result === undefined ? { runs: 0 } : (JSON.parse(row.result) as ScheduleProgress)
}

/** Encodes the progress of a schedule. */
export function writeProgress(progress: ScheduleProgress): JsonText {
  return JSON.stringify(progress)
}

/** Why no run was made for a time: the one before had not ended, the queue was full, no worker was there, or a pause. */
const missedReasons = ['overlap', 'full', 'late', 'paused'] as const

/** A time, or several in a row, for which no run was made. */
export interface MissedTimes {
  /** Why. */
  readonly why: (typeof missedReasons)[number]
  /** The first of them. */
  readonly since: Time
  /** The last of them. */
  readonly at: Time
}

/** What a due schedule does: the runs to add, its next time (none: it has ended), and its progress. */
export interface ScheduleFiring {
  readonly runs: readonly RunSpec[]
  /** Unfinished runs to cancel first. */
  readonly cancels: readonly JobRecord[]
  /** The chains that the run waits for. */
  readonly after: readonly string[]
  readonly missed: MissedTimes | undefined
  readonly next: Time | undefined
  readonly progress: ScheduleProgress
}

/** Runs that the store refused: `taken` are ids that exist already; `all` is set if none may be added. */
export interface RefusedRuns {
  readonly taken: ReadonlySet<string>
  readonly all: boolean
  readonly why: string
}

/** How many of a schedule's last jobs a firing looks at, to find those that have not ended. */
export const RUNS_LOOKED_AT = 20

/** How many runs may wait for the one before with `overlap: 'queue'`: one, or several with `catchUp: 'all'`. */
const MAX_WAITING = 1
const MAX_WAITING_ALL = 10

/** Whether a firing has to know the runs of the schedule that have not ended. */
export function looksAtRuns(row: JobRecord): boolean {
  const overlap = readableSpec(row)?.timing.overlap
  return overlap === 'queue' || overlap === 'cancel'
}

/** Whether so many runs wait that no further one may. */
export function isQueueFull({ catchUp }: Timing, unfinished: readonly JobRecord[]): boolean {
  const waiting = unfinished.filter(({ state, startedAt }) => state === 'waiting-children' && startedAt === undefined)
  return waiting.length >= (catchUp === 'all' ? MAX_WAITING_ALL : MAX_WAITING)
}

/** The most runs of one schedule in one commit. If there are more, it is due again at once. */
const MAX_RUNS = 100

/**
 * The runs that a due schedule adds, and its next time; the same for all callers with the same row at the same moment.
 * Where the store refused some runs, the schedule continues without them.
 */
export function firingOf(
  row: JobRecord,
  now: Time,
  given?: RefusedRuns,
  unfinished: readonly JobRecord[] = [],
): ScheduleFiring {
  const { key, timing, run } = readSpec(row)
  const before = readProgress(row)
  const first = row.runAt ?? now
  const left = (timing.limit ?? Infinity) - before.runs
  const isPaused = before.paused !== undefined
  const times = isPaused ? [] : timesDue(timing, first, now).slice(0, left)
  const isFull = timing.overlap === 'queue' && times.length > 0 && isQueueFull(timing, unfinished)
  const refused = given ?? (isFull ? { taken: new Set<string>(), all: true, why: 'overlap' } : undefined)
  const made =
    refused?.all === true ? [] : times.filter((time) => refused?.taken.has(runId(row.queue, key, time)) !== true)
  // A reason to refuse all of them also applies to the times that have passed since.
  const passed = timing.catchUp !== 'all' || refused?.all === true || times.length === 0
  const next = nextTime(timing, passed ? Math.max(now, first) : times.at(-1)!, first)
  const runs = before.runs + made.length
  const latest = made.at(-1)
  return {
    runs: made.map((time) => runAt(row, key, timing, run, time)),
    cancels: timing.overlap === 'cancel' && made.length > 0 ? unfinished : [],
    after: timing.overlap === 'queue' ? chainsOf(unfinished) : [],
    missed: missedBy(isPaused ? 'paused' : refused === undefined ? 'late' : refused.why, made, {
      since: times[0] ?? first,
      at: times.at(-1) ?? latestTime(timing, first, now),
    }),
    next: runs >= (timing.limit ?? Infinity) ? undefined : next,
    progress: {
      ...before,
      runs,
      ...(latest !== undefined && { last: { id: runId(row.queue, key, latest), at: latest } }),
      ...(refused !== undefined && { skipped: { at: times.at(-1) ?? first, why: refused.why } }),
    },
  }
}

/** The chains of jobs, each once. */
export function chainsOf(jobs: readonly JobRecord[]): readonly string[] {
  return [...new Set(jobs.map(({ chainId }) => chainId))]
}

/** The times for which no run was made. An id that is taken has run before. */
function missedBy(why: string, made: readonly Time[], times: Omit<MissedTimes, 'why'>): MissedTimes | undefined {
  const known = missedReasons.find((each) => each === why)
  return made.length > 0 || known === undefined ? undefined : { why: known, ...times }
}

/** The change of an existing schedule to new data; undefined if the data is the same. */
export function rescheduled(
  row: JobRecord,
  data: JsonText | undefined,
  now: Time,
): { readonly next: Time | undefined; readonly progress: ScheduleProgress; readonly ended: boolean } | undefined {
  if (row.data === data) return undefined
  const { timing } = readSpec({ ...row, data })
  const goesOn = !isFinished(row.state) // one that has ended starts over
  const before = goesOn ? readableSpec(row)?.timing : undefined
  const { paused } = readProgress(row)
  const progress = goesOn ? readProgress(row) : { runs: 0, ...(paused !== undefined && { paused }) }
  // An unchanged interval keeps counting from the same moment.
  const anchor = before?.every !== undefined && before.every === timing.every ? (row.runAt ?? now) : now
  const ended = progress.runs >= (timing.limit ?? Infinity)
  // A clock that is behind must not repeat past runs.
  const after = Math.max(now, readProgress(row).last?.at ?? 0)
  return { next: nextTime(timing, after, anchor), progress, ended }
}

/** The row of a schedule as its `Job` handle shows it: with the name and the data of its runs, and no result. */
export function asJob(record: JobRecord): JobRecord {
  if (record.kind !== SCHEDULE) return record
  const run = readableSpec(record)?.run
  if (run === undefined) return record
  const { name, version, data } = run
  return { ...record, name, version, data, result: undefined }
}

/** The scheduled time of a run; undefined if the job is no run of a schedule. */
export function timeOfRun({ id, queue, parentId }: Pick<JobRecord, 'id' | 'queue' | 'parentId'>): Time | undefined {
  const before = `run:${escapeQueue(queue)}:`
  if (parentId === undefined || !isScheduleId(parentId) || !id.startsWith(before)) return undefined
  const time = Date.parse(id.slice(before.length, id.indexOf('Z:', before.length) + 1))
  return Number.isNaN(time) ? undefined : time
}

/** The times to make runs for. */
function timesDue(timing: Timing, first: Time, now: Time): readonly Time[] {
  if (timing.catchUp === 'all') {
    // Runs that may not overlap would refuse one another in one commit.
    const most = timing.overlap === 'allow' ? MAX_RUNS : 1
    const times: Time[] = []
    for (let time: Time | undefined = first; time !== undefined && time <= now && times.length < most;) {
      times.push(time)
      time = nextTime(timing, time, first)
    }
    return times
  }
  const latest = latestTime(timing, first, now)
  return timing.catchUp === 'none' && isMissed(timing, latest, now) ? [] : [latest]
}

/** The run for a time. It starts then, or by its jitter later. */
export function runAt(row: JobRecord, key: string, timing: Timing, run: RunPattern, time: Time): RunSpec {
  const id = runId(row.queue, key, time)
  const { jitter } = timing
  return {
    ...runNow(row, key, timing.overlap, run, id),
    run: jitter === undefined ? undefined : { at: time + part(id, jitter) },
  }
}

/** A run that starts now. */
export function runNow(row: JobRecord, key: string, overlap: Overlap, run: RunPattern, id: string): RunSpec {
  return {
    ...run,
    id,
    kind: 'job',
    queue: row.queue,
    run: undefined,
    parentId: row.id,
    dedup: overlap === 'skip' ? { key: overlapKey(row.queue, key) } : undefined,
  }
}

/** A part of a span that follows from a text (FNV-1a), so that a run that is decided again starts at the same moment. */
function part(text: string, span: Millis): Millis {
  let hash = 0x811c9dc5
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
  return Math.floor((((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32) * (span + 1))
}
