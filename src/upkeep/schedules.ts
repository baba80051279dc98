// upkeep/schedules.ts: fires due schedules, and moves them on even if the store refuses their runs.
import type { Change } from '../job/change.js'
import type { JobRecord, Time } from '../job/job.js'
import { fireSchedule } from '../job/lifecycle.js'
import { withOverflow } from '../queue/settings/overflow.js'
import type { OverflowSession } from '../queue/settings/overflow.js'
import { runSteps } from '../store/maybe-sync.js'

/** The result of a due row: whether it was moved here, and when it is due again. */
export interface DueResult {
  readonly landed: boolean
  readonly next?: Time | undefined
  /** The job's id, if a user transaction has a row locked that it needs. */
  readonly busy?: string
}

/**
 * Adds the runs of a due schedule and moves it on. If the store refuses the runs (the one before has not finished, the
 * queue is full, the id is taken), moves it on without them. If another process was faster, does nothing.
 */
export async function fireDueSchedule(job: JobRecord, now: Time, session: OverflowSession): Promise<DueResult> {
  const taken = new Set<string>()
  let group = fireSchedule(job, now)
  for (;;) {
    const first = await session.commit(group)
    const verdict = !first.ok && first.why === 'full' ? await runSteps(withOverflow(session, group, first)) : first
    if (verdict.ok) return { landed: true, next: nextOf(group) }
    const run = group[verdict.change]
    // Another process has moved or removed the schedule, or has a row locked for longer than a moment.
    if (run?.kind !== 'insert' || verdict.why === 'busy')
      return { landed: false, ...(verdict.why === 'busy' && { busy: job.id }) }
    const isIdTaken = verdict.why === 'duplicate' && verdict.id === run.job.id
    if (isIdTaken) taken.add(verdict.id)
    const why = isIdTaken || verdict.why !== 'duplicate' ? verdict.why : 'overlap'
    group = fireSchedule(job, now, { taken, all: !isIdTaken, why })
  }
}

function nextOf(group: readonly Change[]): Time | undefined {
  for (const change of group) {
    if (change.kind === 'move' && change.set.run && 'at' in change.set.run) return change.set.run.at
  }
  return undefined
}
