// queue/settings/schedule-firing.ts: fires due schedules, and moves them on even if the store refuses their runs.
import type { Change } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord, Time } from '../../job/job.js'
import { fireSchedule } from '../../job/lifecycle.js'
import { looksAtRuns } from '../../job/schedules/schedule.js'
import type { RefusedRuns } from '../../job/schedules/schedule.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store, Verdict } from '../../store/store.js'
import { withOverflow } from './overflow.js'
import type { OverflowSession } from './overflow.js'
import { unfinishedRuns } from './schedule-runs.js'

/** The result of a due row: whether it was moved here, and when it is due again. */
export interface DueResult {
  readonly landed: boolean
  readonly next?: Time | undefined
  /** The job's id, if a user transaction has a row locked that it needs. */
  readonly busy?: string
}

/** Where schedules are fired: a session, and reads of their runs. */
export interface FiringSession extends OverflowSession {
  readonly find: Store['find']
  get(id: string): Promise<JobRecord | undefined>
}

/** How often a firing decides again because the schedule, or runs that it waits for or cancels, have moved meanwhile. */
const TRIES = 10

/**
 * Adds the runs of a due schedule and moves it on. If the store refuses the runs (the one before has not finished, the
 * queue is full, the id is taken), moves it on without them. If another process was faster, does nothing.
 */
export function* fireDueSchedule(due: JobRecord, now: Time, session: FiringSession): Steps<DueResult> {
  let job = due
  let taken = new Set<string>()
  let refused: RefusedRuns | undefined
  for (let tries = 0; ;) {
    const unfinished = looksAtRuns(job) ? yield* unfinishedRuns(session, job.id) : []
    const group = fireSchedule(job, now, refused, unfinished)
    const first: Verdict = yield* step(session.commit(group))
    const verdict: Verdict = !first.ok && first.why === 'full' ? yield* withOverflow(session, group, first) : first
    if (verdict.ok) return { landed: true, next: nextOf(group) }
    if (verdict.why === 'busy') return { landed: false, busy: job.id }
    const change = group[verdict.change]
    const isRun = change?.kind === 'insert'
    if (!isRun && (change?.kind === 'release' || change?.kind === 'put' || change?.id === job.id)) {
      // Another process has fired, changed or removed the schedule; or a caller has triggered it, which leaves it due.
      const current: JobRecord | undefined = verdict.why === 'fence' ? yield* step(session.get(job.id)) : undefined
      const isDue = current !== undefined && !isFinished(current.state) && (current.dueAt ?? Infinity) <= now
      if (!isDue || ++tries === TRIES) return { landed: false }
      job = current
      taken = new Set()
      refused = undefined
      continue
    }
    // A run before it has ended or was removed meanwhile.
    if (!isRun || verdict.why === 'missing') {
      if (++tries === TRIES) return { landed: false }
      continue
    }
    const isIdTaken = verdict.why === 'duplicate' && verdict.id === change.job.id
    if (isIdTaken) taken.add(verdict.id)
    const why = isIdTaken || verdict.why !== 'duplicate' ? verdict.why : 'overlap'
    refused = { taken, all: !isIdTaken, why }
  }
}

function nextOf(group: readonly Change[]): Time | undefined {
  for (const change of group) {
    if (change.kind === 'move' && change.set.run && 'at' in change.set.run) return change.set.run.at
  }
  return undefined
}
