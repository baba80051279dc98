// testing/check/operations.ts: checks that bulk operations change each job once, count what they change, skip none, and
// keep to their rate.
import type { Insert } from '../../job/change.js'
import type { JobState, Millis, Time } from '../../job/job.js'
import { isScheduleId } from '../../job/schedules/schedule.js'
import { isSignalId } from '../../job/signals.js'
import type { Group } from '../../store/store.js'
import type { Landing } from './simulated-history.js'
import type { Tracked } from './ledger.js'
import type { Report } from './violation.js'

/** The prefix of the queues of their rows. */
const QUEUES = 'millrace:operations:'

/** Whether an id is that of a bulk operation, which is no job. */
export function isOperationId(id: string): boolean {
  return id.startsWith('millrace:operation:')
}

/** What the row of an operation says it is to do. */
interface Spec {
  readonly do: string
  readonly query: { readonly states?: readonly JobState[]; readonly names?: readonly string[] }
  readonly rate?: { readonly max: number; readonly per: Millis }
}

/** How far the row of an operation says it is. */
interface Progress {
  readonly done: number
  readonly unchanged: number
  readonly refused: Readonly<Record<string, number>>
  readonly paused?: true
}

interface TrackedOperation {
  readonly spec: Spec
  readonly began: Time
  progress: Progress
  /** The jobs that it has changed. */
  readonly changed: Set<string>
  /** The jobs that matched when it began, with their fences at that time. */
  readonly matched: ReadonlyMap<string, number>
}

/** Tracks bulk operations by their rows and the commits that change them. */
export class OperationChecks {
  readonly #report: Report
  readonly #known = new Map<string, TrackedOperation>()

  constructor(report: Report) {
    this.#report = report
  }

  /** Call it after the ledger has applied the landing. */
  landed(landing: Landing, jobs: ReadonlyMap<string, Tracked>): void {
    landing.batch.groups.forEach((group, at) => {
      if (landing.receipt.groups[at]?.ok === true) this.#group(group, landing, jobs)
    })
  }

  #group(group: Group, { time, receipt: { now } }: Landing, jobs: ReadonlyMap<string, Tracked>): void {
    for (const change of group) {
      if (change.kind === 'insert' && change.job.queue.startsWith(QUEUES)) this.#began(change, now, jobs)
    }
    const row = group.find((change) => change.kind === 'move' && this.#known.has(change.id))
    if (row?.kind !== 'move') return
    const known = this.#known.get(row.id)!
    const report = (message: string): void => this.#report('operation', time, row.id, message)
    const moved = group.flatMap((change) => (change.kind === 'move' && change.id !== row.id ? [change.id] : []))
    for (const id of moved) {
      if (known.changed.has(id)) report(`It changed ${id} a second time.`)
      known.changed.add(id)
    }
    if (row.set.result !== undefined) {
      const before = known.progress
      known.progress = JSON.parse(row.set.result) as Progress
      const counted = known.progress.done - before.done
      if (counted !== moved.length) report(`It counted ${counted} jobs in a commit that changed ${moved.length}.`)
      if (before.paused && moved.length > 0) report(`It changed ${moved.length} jobs while it was paused.`)
    } else if (moved.length > 0) report(`It changed ${moved.length} jobs without counting them.`)
    this.#checkRate(known, now, report)
    if (row.to === 'completed') this.#checkEnd(known, jobs, report)
  }

  #began({ job }: Insert, now: Time, jobs: ReadonlyMap<string, Tracked>): void {
    const spec = JSON.parse(job.data ?? '{}') as Spec
    const queue = job.queue.slice(QUEUES.length)
    const { states, names } = spec.query
    const matched = [...jobs.values()].filter(({ id, queue: of, name, state }) => {
      if (of !== queue || state === 'removed' || isSignalId(id) || isScheduleId(id)) return false
      return states?.includes(state) !== false && names?.includes(name) !== false
    })
    this.#known.set(job.id, {
      spec,
      began: now,
      progress: { done: 0, unchanged: 0, refused: {} },
      changed: new Set(),
      matched: new Map(matched.map(({ id, fence }) => [id, fence])),
    })
  }

  /** Commits may be applied late, never early: so many periods, so many jobs. One more bears the difference of clocks. */
  #checkRate(
    { spec: { rate }, began, progress: { done } }: TrackedOperation,
    now: Time,
    report: (message: string) => void,
  ): void {
    if (rate === undefined) return
    const most = rate.max * (2 + Math.floor((now - began) / rate.per))
    if (done > most)
      report(`It changed ${done} jobs in ${now - began} ms, but its rate is ${rate.max} in ${rate.per} ms.`)
  }

  /** A job that nobody has changed since must have been visited. */
  #checkEnd(
    { matched, progress: { unchanged, refused } }: TrackedOperation,
    jobs: ReadonlyMap<string, Tracked>,
    report: (message: string) => void,
  ): void {
    const left = [...matched].filter(([id, fence]) => {
      const job = jobs.get(id)
      return job !== undefined && job.state !== 'removed' && job.fence === fence
    })
    const visited = unchanged + Object.values(refused).reduce((sum, count) => sum + count, 0)
    if (left.length > visited) {
      report(`It ended and left ${left.length} jobs as they were, but visited ${visited} of them: ${left[0]![0]} …`)
    }
  }
}
