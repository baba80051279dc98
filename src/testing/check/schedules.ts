// testing/check/schedules.ts: checks that every time of a schedule is run once, or skipped for a documented reason.
import type { Insert, Move } from '../../job/change.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { SCHEDULE, readSpec, timeOfRun } from '../../job/schedules/schedule.js'
import type { ScheduleProgress } from '../../job/schedules/schedule.js'
import { isMissed, latestTime, nextTime, timesFrom, timesWithin } from '../../job/schedules/schedule-times.js'
import type { Timing } from '../../job/schedules/schedule-times.js'
import type { Group } from '../../store/store.js'
import type { Landing } from './simulated-history.js'
import type { Report } from './violation.js'

interface TrackedSchedule {
  timing: Timing
  /** Its next time. */
  next: Time
  runs: number
  /** The last time for which it added a run. */
  last: Time
  paused: boolean
  /** Fences at which the store refused its runs. */
  readonly refused: Set<number>
}

/** Tracks schedules by their rows alone; other checks handle the jobs that they add. */
export class ScheduleChecks {
  readonly #report: Report
  readonly #known = new Map<string, TrackedSchedule>()
  /** Ids of all runs ever added: an id that occurs again is a doubled run, even if the first job was removed. */
  readonly #added = new Set<string>()

  constructor(report: Report) {
    this.#report = report
  }

  /** Applies a landing. */
  follow(landing: Landing): void {
    landing.batch.groups.forEach((group, at) => {
      const verdict = landing.receipt.groups[at]
      if (verdict === undefined) return
      if (verdict.ok) this.#group(group, verdict.inserted, landing)
      else if (verdict.why === 'duplicate' || verdict.why === 'full') this.#refused(group)
    })
  }

  #refused(group: Group): void {
    for (const change of group) if (change.kind === 'move') this.#known.get(change.id)?.refused.add(change.fence)
  }

  /** Inserted jobs are taken from the verdict, not from the batch. */
  #group(group: Group, inserted: readonly JobRecord[], landing: Landing): void {
    const runs = new Map<string, Time[]>()
    const fires = group.some((change) => change.kind === 'move' && this.#known.has(change.id) && makesProgress(change))
    for (const job of inserted) this.#run(job, runs, fires, landing.time)
    for (const change of group) {
      if (change.kind === 'insert' && change.job.kind === SCHEDULE) this.#scheduled(change)
    }
    for (const change of group) {
      const known = change.kind === 'move' ? this.#known.get(change.id) : undefined
      if (change.kind !== 'move' || known === undefined) continue
      if (change.to === 'removed' || change.to === 'cancelled') this.#known.delete(change.id)
      else if (!makesProgress(change)) {
        // It was triggered, or backfilled: its fence changes alone.
        const times = runs.get(change.id) ?? []
        if (times.length > 0) this.#backfilled(change, known, times, landing)
      } else if (change.set.data !== undefined) this.#changed(change, known, landing.time)
      else this.#round(change, known, runs.get(change.id) ?? [], landing)
      runs.delete(change.id)
    }
    for (const [id] of runs)
      this.#report('schedule', landing.time, id, 'A run was added, but the schedule did not advance.')
  }

  #scheduled({ job }: Insert): void {
    const { timing } = readSpec(job as unknown as Parameters<typeof readSpec>[0])
    const next = job.run !== undefined && 'at' in job.run ? job.run.at : 0
    this.#known.set(job.id, { timing, next, runs: 0, last: 0, paused: false, refused: new Set() })
  }

  #run(job: JobRecord, runs: Map<string, Time[]>, fires: boolean, at: Millis): void {
    const time = timeOfRun(job)
    if (time === undefined) return
    const schedule = job.parentId!
    // A backfill adds what retention has removed; that it adds nothing twice at one time is checked of every job.
    if (fires && this.#added.has(job.id))
      this.#report('schedule', at, job.id, 'It was added before: its time is doubled.')
    this.#added.add(job.id)
    runs.set(schedule, [...(runs.get(schedule) ?? []), time])
  }

  #changed({ id, set, to }: Move, known: TrackedSchedule, time: Millis): void {
    const { timing } = readSpec({ id, data: set.data } as Parameters<typeof readSpec>[0])
    known.timing = timing
    if (to === 'delayed') known.next = nextOf(set) ?? known.next
    else if (to === 'completed') known.next = Infinity
    if (known.next <= known.last)
      this.#report(
        'schedule',
        time,
        id,
        `It was changed to run next at ${known.next}, but had already run for ${known.last}.`,
      )
    known.runs = (JSON.parse(set.result ?? '{"runs":0}') as { runs: number }).runs
  }

  /** Runs for times that have passed, before its next one. */
  #backfilled({ id }: Move, known: TrackedSchedule, times: readonly Time[], { time, receipt: { now } }: Landing): void {
    const report = (message: string): void => this.#report('schedule', time, id, message)
    for (const each of times) {
      if (each > now) report(`A backfill added a run for ${each}, which is in the future.`)
      else if (each >= known.next) report(`A backfill added a run for ${each}, which the schedule has yet to make.`)
      else if (known.next < Infinity && timesWithin(known.timing, each, each, known.next, 1).length === 0)
        report(`A backfill added a run for ${each}, which is not one of its times.`)
    }
  }

  #round(
    { id, fence, set }: Move,
    known: TrackedSchedule,
    times: readonly Time[],
    { time, receipt: { now } }: Landing,
  ): void {
    const { timing, next: from } = known
    const report = (message: string): void => this.#report('schedule', time, id, message)
    const to = nextOf(set)
    const { paused, skipped } = JSON.parse(set.result ?? '{}') as Pick<ScheduleProgress, 'paused' | 'skipped'>
    if ((paused !== undefined) !== known.paused) {
      // Paused or resumed: no run, and its next time comes as it would have.
      known.paused = paused !== undefined
      if (to !== undefined && to < from) report(`It was paused or resumed, and went back from ${from} to ${to}.`)
      if (times.length > 0) report(`It added ${times.length} runs when it was paused or resumed.`)
      known.next = to ?? Infinity
      return
    }
    if (known.paused && times.length > 0) report(`It added ${times.length} runs, but is paused.`)
    known.runs += times.length
    known.last = Math.max(known.last, ...times)
    known.next = to ?? Infinity
    const until = to ?? now + 1
    for (const each of times) {
      if (each < from || each > now || nextTime(timing, each - 1, from) !== each) {
        report(`It added a run for ${each}, which is not one of its times from ${from} to ${now}.`)
      }
    }
    if (known.runs > (timing.limit ?? Infinity))
      report(`It added ${known.runs} runs, but its limit is ${timing.limit}.`)
    const last = latestTime(timing, from, until - 1)
    const [first = last] = times
    if (timing.catchUp === 'all' && times.length > 0) {
      const all = timesFrom(timing, from, times.length)
      const complete =
        all.every((each, at) => each === times[at]) && (to === undefined || nextTime(timing, all.at(-1)!, from) === to)
      if (!complete) report(`It advanced from ${from} to ${to} with runs for ${times.join(', ')}: a time was skipped.`)
    } else if (times.length > 1) report(`It added ${times.length} runs at once, but catchUp is not 'all'.`)
    else if (times.length === 1 && to !== undefined && first !== last) {
      report(`It added a run for ${first}, but the latest time before ${to} is ${last}.`)
    } else if (times.length === 0 && !known.refused.has(fence)) {
      const waits = timing.overlap === 'queue' && skipped?.why === 'overlap' && skipped.at >= from
      const missed = known.paused || waits || (timing.catchUp === 'none' && isMissed(timing, last, now))
      if (!missed) report(`It advanced from ${from} to ${to} without a run: a time was skipped.`)
    }
  }
}

/** Whether a move of a row is more than a trigger or a backfill does. */
function makesProgress({ set }: Move): boolean {
  return set.result !== undefined || set.data !== undefined
}

function nextOf({ run }: Move['set']): Time | undefined {
  return run && 'at' in run ? run.at : undefined
}
