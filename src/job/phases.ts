// job/phases.ts: the phases of a job: their state in its memo, and how users see it.
import { withoutStack } from './errors/failure.js'
import type { ErrorInfo, JobRecord, Time } from './job.js'
import { isFinished } from './job.js'
import { decodeJson } from './values/json.js'
import type { JsonText } from './values/json.js'
import { memoOf, writeMemo } from './memo.js'
import type { PhaseState, PhaseStatus } from './memo.js'
import { checkName } from './values/names.js'
import { invalid } from './values/options.js'

/** The state of each phase, all of them in order. */
export type Phases = Readonly<Record<string, PhaseState>>

/** One phase of a job, as it was when the job was read. */
export interface JobPhase<Result = unknown> {
  /** Its status. In a job that has ended none is `pending` or `active`. */
  readonly status: PhaseStatus
  /** From 0 to 100. */
  readonly progress: number
  /** Its result, once completed; undefined where it returned nothing. */
  readonly result?: Result
  /** Its last error, where it failed and has not started again. */
  readonly error?: ErrorInfo
  /** When it last started: the store's clock, as the worker knows it. */
  readonly startedAt?: Time
  /** When it ended, by the same clock. */
  readonly endedAt?: Time
}

/** The phases of a job by name: the declared ones with their results, or any. */
export type JobPhases<Known = unknown> = unknown extends Known
  ? Readonly<Record<string, JobPhase>>
  : { readonly [Name in keyof Known]: JobPhase<Known[Name]> }

/** Throws for names that phases cannot have. */
export function checkPhaseNames(names: unknown, where: string): readonly string[] {
  if (!Array.isArray(names) || names.length === 0)
    throw invalid(`${where}: phases must be a list of names, one at the least.`)
  const seen = new Set<string>()
  for (const each of names as readonly unknown[]) {
    const name = checkName(each, 'phase name')
    if (seen.has(name)) throw invalid(`${where}: there are two phases '${name}'.`)
    if (/^\d+$/.test(name) || name === '__proto__') {
      const why = 'objects do not keep such a key in its place'
      throw invalid(`${where}: '${name}' cannot be the name of a phase: ${why}.`)
    }
    seen.add(name)
  }
  return [...seen]
}

/**
 * The phases at the start of an attempt: completed ones stay so, and all others start over. A phase that an attempt was
 * in when its worker died has failed once more. No phase has failed more often than attempts were started since the job
 * last started over: a retry by hand resets the count.
 */
export function resumed(job: Pick<JobRecord, 'memo' | 'attempt' | 'stalls'>, names: readonly string[]): Phases {
  const { phases = {} } = memoOf(job)
  return Object.fromEntries(
    names.map((name): [string, PhaseState] => {
      const before = Object.hasOwn(phases, name) ? phases[name] : undefined
      if (before === undefined) return [name, PENDING]
      if (before.status === 'completed') return [name, before]
      const cutOff = before.status === 'active' && (before.stalls ?? 0) < job.stalls
      const failures = Math.min((before.failures ?? 0) + (cutOff ? 1 : 0), job.attempt - 1)
      return [name, failures > 0 ? { status: 'pending', failures } : PENDING]
    }),
  )
}

/** Starts a phase; `stalls` is how often the job has stalled, and `at` when it starts, if that is known. */
export function begun(phases: Phases, name: string, stalls: number, at?: Time): Phases {
  const { failures } = phases[name]!
  return {
    ...phases,
    [name]: {
      status: 'active',
      ...(failures !== undefined && { failures }),
      ...(stalls > 0 && { stalls }),
      ...(at !== undefined && { startedAt: at }),
    },
  }
}

/** Records the progress of a phase. */
export function progressed(phases: Phases, name: string, progress: number): Phases {
  return { ...phases, [name]: { ...phases[name]!, progress } }
}

/** Completes a phase. Not written for the last one: its end and its result are those of the job. */
export function completed(phases: Phases, name: string, result: JsonText | undefined, at?: Time): Phases {
  const times = timesOf(phases[name]!, at)
  return { ...phases, [name]: { status: 'completed', ...(result !== undefined && { result }), ...times } }
}

/** Fails a phase. */
export function failed(phases: Phases, name: string, error: ErrorInfo, at?: Time): Phases {
  const { progress, failures = 0 } = phases[name]!
  return {
    ...phases,
    [name]: {
      status: 'failed',
      ...(progress !== undefined && { progress }),
      error: withoutStack(error),
      failures: failures + 1,
      ...timesOf(phases[name]!, at),
    },
  }
}

/** The times of a phase that ends. */
function timesOf({ startedAt }: PhaseState, endedAt: Time | undefined): Pick<PhaseState, 'startedAt' | 'endedAt'> {
  return { ...(startedAt !== undefined && { startedAt }), ...(endedAt !== undefined && { endedAt }) }
}

/** Marks a phase as cancelled that did not complete although the job is completed. */
export function cutOff(phases: Phases, name: string): Phases {
  return { ...phases, [name]: { ...phases[name]!, status: 'cancelled' } }
}

/**
 * The memo of a job that its worker completes without its last phase, which had started and would otherwise seem to
 * have completed with the job; undefined where there is nothing to write.
 */
export function leftOpen(job: Pick<JobRecord, 'memo'>): JsonText | undefined {
  const { phases, ...rest } = memoOf(job)
  const last = phases === undefined ? undefined : Object.keys(phases).at(-1)
  if (last === undefined || phases![last]!.status !== 'active') return undefined
  return writeMemo({ ...rest, phases: cutOff(phases!, last) })
}

/** The progress of a job, from 0 to 100, whose phase number `index` (from 0) of `count` is at `progress`. */
export function overall(index: number, count: number, progress: number): number {
  return Math.round(((index + progress / 100) / count) * 100)
}

/** Whether a job has phases: declared ones, or ones that its handler has started. */
export function hasPhases({ extras, memo }: JobRecord): boolean {
  return extras?.phases !== undefined || (memo !== undefined && memoOf({ memo }).phases !== undefined)
}

/** The phases of a job as users see them, in order. */
export function phasesOf(job: JobRecord): Readonly<Record<string, JobPhase>> {
  const { phases } = memoOf(job)
  const names = phases === undefined ? (job.extras?.phases ?? []) : Object.keys(phases)
  return Object.fromEntries(
    names.map((name, at) => [name, shown(job, phases?.[name] ?? PENDING, at === names.length - 1)]),
  )
}

/** The progress of a job with phases, from 0 to 100. */
export function overallOf(job: JobRecord): number {
  const phases = Object.values(phasesOf(job))
  const at = phases.findIndex(({ status }) => status !== 'completed')
  return at === -1 ? 100 : overall(at, phases.length, phases[at]!.progress)
}

/**
 * The state of a phase, adjusted to the state of its job. When something other than its handler ends a job, nothing
 * about phases is written, so that no write of the handler at that moment can be lost: phases that had not completed
 * then ended with the job.
 */
function shown(job: JobRecord, phase: PhaseState, last: boolean): JobPhase {
  const status = statusIn(job, phase.status, last)
  const result = last && job.state === 'completed' ? job.result : phase.result
  const error = status === 'failed' ? (phase.error ?? (job.error && withoutStack(job.error))) : phase.error
  // A phase that ended with its job has that end; and no phase ends after its job, whatever its worker's clock showed.
  const { startedAt, endedAt = isFinished(job.state) ? job.finishedAt : undefined } = phase
  const within = (at: Time): Time => Math.min(at, job.finishedAt ?? at)
  const times =
    startedAt === undefined || status === 'pending'
      ? undefined
      : { startedAt: within(startedAt), ...(endedAt !== undefined && { endedAt: within(endedAt) }) }
  return {
    status,
    progress: status === 'completed' ? 100 : (phase.progress ?? 0),
    ...(status === 'completed' && result !== undefined && { result: decodeJson(result) }),
    ...(error !== undefined && { error }),
    ...times,
  }
}

function statusIn({ state, worker }: JobRecord, status: PhaseStatus, last: boolean): PhaseStatus {
  if (status === 'completed') return status
  // The last phase ends with the job, if the worker that ran it completed the job.
  if (last && status === 'active' && state === 'completed' && worker !== undefined) return 'completed'
  if (isFinished(state)) return state === 'failed' && status !== 'pending' ? 'failed' : 'cancelled'
  return status === 'active' && state !== 'active' ? 'pending' : status
}

const PENDING: PhaseState = Object.freeze({ status: 'pending' })
