// job/timeline.ts: what a job did and when: its attempts, and one ordered list of its waits, runs, phases, steps and lines.
import { endedAttempts } from './history.js'
import { ERRORS_KEPT, isFinished } from './job.js'
import type { AttemptEnd, ErrorInfo, FinishedState, JobRecord, LogLine, Millis, StepResult, Time } from './job.js'
import { decodeJson } from './values/json.js'
import { phasesOf } from './phases.js'
import type { PhaseStatus } from './memo.js'

/** How an attempt ended, or that it has not: see `AttemptEnd` for the others. */
export type AttemptOutcome = AttemptEnd | 'completed' | 'running'

/** One attempt at a job. Times are by the store's clock. */
export interface AttemptInfo {
  /** The fence of its claim: no two attempts of a job share one, and later ones have higher ones. */
  readonly fence: number
  /**
   * Which attempt it was, from 1. An attempt that was given back, as by a snooze, has the same number as the one after
   * it.
   */
  readonly attempt: number
  /** When it was claimed. */
  readonly startedAt: Time
  /** When it ended; absent while it runs. */
  readonly endedAt?: Time
  /** How it ended. */
  readonly outcome: AttemptOutcome
  /** The worker that ran it. */
  readonly worker?: string
  /** When the job was to run again, of an attempt that was retried or snoozed. */
  readonly runAt?: Time
  /** The error that it left. */
  readonly error?: ErrorInfo
}

/** A step of a handler that has ended. */
export interface JobStep<Result = unknown> {
  /** Its name. */
  readonly name: string
  /** `step` of `ctx.step`, `sleep` of `ctx.sleep`. */
  readonly kind: 'step' | 'sleep'
  /** What it returned. */
  readonly result: Result | undefined
  /** When it started: its end less its length, as its worker measured that; of a sleep, when the job fell asleep. */
  readonly startedAt?: Time
  /** When its result was stored, by the store's clock; of a sleep, when the job fell asleep. */
  readonly endedAt?: Time
}

/** From when to when something lasted. */
export interface TimelinePeriod {
  /** When it began. */
  readonly at: Time
  /** When it ended; absent while it goes on. */
  readonly until?: Time
}

/** One entry of a timeline. `at` is when it began; `until` is when it ended, absent while it goes on. */
export type TimelineEntry =
  /** The job was added. */
  | { readonly kind: 'added'; readonly at: Time }
  /**
   * It did not run, because it waited for its turn (`queued`), for its date (`delayed`), for the backoff after a failure,
   * in a sleep or a snooze, or for other jobs or a signal (`dependencies`).
   */
  | { readonly kind: WaitKind; readonly at: Time; readonly until?: Time }
  /** A worker ran it. */
  | ({ readonly kind: 'attempt' } & TimelinePeriod & Pick<AttemptInfo, 'attempt' | 'outcome' | 'worker' | 'error'>)
  /** A phase of its handler, as it last ran. */
  | {
      readonly kind: 'phase'
      /** When it began. */
      readonly at: Time
      /** When it ended. */
      readonly until?: Time
      /** Its name. */
      readonly name: string
      /** How far it came. */
      readonly status: PhaseStatus
    }
  /** A step of its handler. */
  | { readonly kind: 'step'; readonly at: Time; readonly until: Time; readonly name: string }
  /** A line of its log. */
  | { readonly kind: 'log'; readonly at: Time; readonly attempt: number; readonly line: string }
  /** It ended. */
  | { readonly kind: FinishedState; readonly at: Time }

/** Why a job did not run. */
export type WaitKind = 'queued' | 'delayed' | 'backoff' | 'sleep' | 'dependencies'

/** How long a job spent on what, in milliseconds. */
export interface TimelineTotals {
  /** In attempts. */
  readonly ran: Millis
  /** Not in attempts: the sum of the following. */
  readonly waited: Millis
  /** Ready to run, in the queue. */
  readonly queued: Millis
  /** Until its date. */
  readonly delayed: Millis
  /** After failures. */
  readonly backoff: Millis
  /** In sleeps and snoozes. */
  readonly sleep: Millis
  /** Waiting for other jobs, or for a signal. */
  readonly dependencies: Millis
}

/** What a job did and when. */
export interface Timeline {
  /** In the order in which they began. */
  readonly entries: readonly TimelineEntry[]
  /** How long it waited and ran, up to now. */
  readonly totals: TimelineTotals
  /** Whether the beginning is missing: earlier attempts or lines are no longer kept, or there were too many steps. */
  readonly truncated: boolean
}

/** All attempts that are known of a job, oldest first: those that are kept, and the last one. */
export function attemptsOf(job: JobRecord): readonly AttemptInfo[] {
  const ended = endedAttempts(job).map(({ at, ...rest }): AttemptInfo => ({ ...rest, endedAt: at }))
  const { fence, attempt, startedAt, finishedAt, worker, state } = job
  if (startedAt === undefined) return ended
  const running = state === 'active'
  // A job that its lease holder completed keeps its worker, and writes no entry.
  const completed = state === 'completed' && worker !== undefined && finishedAt !== undefined
  if (!running && !completed) return ended
  const last: AttemptInfo = {
    fence: running ? fence : Math.max(fence - 1, (ended.at(-1)?.fence ?? 0) + 1),
    attempt,
    startedAt,
    ...(completed && { endedAt: finishedAt }),
    outcome: running ? 'running' : 'completed',
    ...(worker !== undefined && { worker }),
  }
  return [...ended, last].slice(-ERRORS_KEPT)
}

/** The steps of a job as users see them. */
export function stepsOf(steps: readonly StepResult[]): readonly JobStep[] {
  return steps.map(({ name: key, result, ran, endedAt }): JobStep => {
    const colon = key.indexOf(':')
    return {
      name: key.slice(colon + 1),
      kind: key.slice(0, colon) === 'sleep' ? 'sleep' : 'step',
      result: result === undefined ? undefined : decodeJson(result),
      ...(ran !== undefined && endedAt !== undefined && { startedAt: endedAt - ran, endedAt }),
    }
  })
}

/** What a timeline is made of, besides the record. */
export interface TimelineSource {
  readonly steps: readonly StepResult[]
  readonly logs: readonly LogLine[]
  /** Whether there are more steps. */
  readonly cut: boolean
  /** Whether the job has dependencies. */
  readonly depends: boolean
}

/** What a job did and when, up to `now`. */
export function timelineOf(job: JobRecord, { steps, logs, cut, depends }: TimelineSource, now: Time): Timeline {
  const attempts = attemptsOf(job)
  const isComplete = attempts.length < ERRORS_KEPT
  const entries: TimelineEntry[] = [
    { kind: 'added', at: job.createdAt },
    ...waitsOf(job, attempts, isComplete, depends),
  ]
  for (const { attempt, outcome, worker, error, startedAt, endedAt } of attempts) {
    entries.push({
      kind: 'attempt',
      at: startedAt,
      ...(endedAt !== undefined && { until: endedAt }),
      ...{ attempt, outcome },
      ...(worker !== undefined && { worker }),
      ...(error !== undefined && { error }),
    })
  }
  for (const [name, { status, startedAt, endedAt }] of Object.entries(phasesOf(job))) {
    if (startedAt === undefined) continue
    entries.push({ kind: 'phase', at: startedAt, ...(endedAt !== undefined && { until: endedAt }), name, status })
  }
  for (const { name, kind, startedAt, endedAt } of stepsOf(steps)) {
    if (kind === 'sleep' || startedAt === undefined || endedAt === undefined) continue // a sleep is a wait
    entries.push({ kind: 'step', at: startedAt, until: endedAt, name })
  }
  for (const { at, attempt, line } of logs) entries.push({ kind: 'log', at, attempt, line })
  if (isFinished(job.state) && job.finishedAt !== undefined) entries.push({ kind: job.state, at: job.finishedAt })
  const ordered = entries.toSorted((a, b) => a.at - b.at || rank(a) - rank(b))
  const truncated = !isComplete || cut || (logs[0]?.index ?? 1) > 1
  return { entries: ordered, totals: totalsOf(ordered, now), truncated }
}

/** Of entries that begin at the same time: a line is written in a step, and that in a phase, and that in an attempt. */
function rank({ kind }: TimelineEntry): number {
  if (kind === 'added') return 0
  if (kind === 'attempt') return 2
  if (kind === 'phase') return 3
  if (kind === 'step') return 4
  if (kind === 'log') return 5
  return kind === 'completed' || kind === 'failed' || kind === 'cancelled' ? 6 : 1
}

/** The waits between the attempts of a job, before the first one and after the last one. */
function waitsOf(
  job: JobRecord,
  attempts: readonly AttemptInfo[],
  isComplete: boolean,
  depends: boolean,
): readonly TimelineEntry[] {
  const waits: TimelineEntry[] = []
  const wait = (kind: WaitKind, at: Time, until: Time | undefined): void => {
    if (until === undefined || until > at) waits.push({ kind, at, ...(until !== undefined && { until }) })
  }
  /** Adds the wait between two attempts: first for a date, if there is one, then in the queue. */
  const between = (kind: WaitKind, at: Time, date: Time | undefined, until: Time | undefined): void => {
    const early = date !== undefined && (until === undefined || date < until) ? Math.max(at, date) : undefined
    if (kind === 'queued') wait('queued', at, until)
    else if (date === undefined) wait(kind, at, until)
    else {
      wait(kind, at, early ?? until)
      if (early !== undefined) wait('queued', early, until)
    }
  }
  /** Adds the wait before the first attempt: until it could be claimed, if that is known, and then in the queue. */
  const before = (until: Time | undefined): void => {
    const ready = readyAt(job, attempts)
    const kind = depends ? 'dependencies' : 'delayed'
    between(ready === undefined ? 'queued' : kind, job.createdAt, ready, until)
  }
  for (const [n, { startedAt }] of attempts.entries()) {
    const last = attempts[n - 1]
    if (last !== undefined) between(waitAfter(last.outcome), last.endedAt ?? startedAt, last.runAt, startedAt)
    else if (isComplete) before(startedAt)
  }
  if (job.state === 'active') return waits
  const last = attempts.at(-1)
  const since = last === undefined ? job.createdAt : (last.endedAt ?? job.createdAt)
  if (isFinished(job.state)) {
    if (job.finishedAt !== undefined) {
      if (last === undefined) before(job.finishedAt)
      else wait(waitAfter(last.outcome), since, job.finishedAt)
    }
  } else if (job.state === 'waiting-children') wait('dependencies', since, undefined)
  else if (job.state === 'delayed') wait(last === undefined ? 'delayed' : waitAfter(last.outcome), since, undefined)
  else if (last === undefined) before(undefined)
  else between(waitAfter(last.outcome), since, last.runAt, undefined)
  return waits
}

/** When a job could be claimed first, if that was after its add; known until it begins to wait again. */
function readyAt({ createdAt, runAt }: JobRecord, attempts: readonly AttemptInfo[]): Time | undefined {
  if (runAt === undefined || runAt <= createdAt || attempts.length > 1) return undefined
  const [first] = attempts
  return first === undefined || runAt <= first.startedAt ? runAt : undefined
}

/** What a job waits for after an attempt. */
function waitAfter(outcome: AttemptOutcome): WaitKind {
  if (outcome === 'retried') return 'backoff'
  if (outcome === 'snoozed') return 'sleep'
  return outcome === 'waited' ? 'dependencies' : 'queued'
}

function totalsOf(entries: readonly TimelineEntry[], now: Time): TimelineTotals {
  const totals = { attempt: 0, queued: 0, delayed: 0, backoff: 0, sleep: 0, dependencies: 0 }
  for (const entry of entries) {
    if (!(entry.kind in totals)) continue
    const { until = now } = entry as { readonly until?: Time }
    totals[entry.kind as keyof typeof totals] += Math.max(0, until - entry.at)
  }
  const { attempt: ran, ...waits } = totals
  const waited = waits.queued + waits.delayed + waits.backoff + waits.sleep + waits.dependencies
  return { ran, waited, ...waits }
}
