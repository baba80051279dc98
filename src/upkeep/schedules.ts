// upkeep/schedules.ts: carries out what due schedules come to, whatever the store has against their runs.
import type { Change } from '../job/change.js'
import type { JobRecord, Time } from '../job/job.js'
import { fireSchedule } from '../job/lifecycle.js'
import { withOverflow } from '../queue/settings/overflow.js'
import type { OverflowSession } from '../queue/settings/overflow.js'
import { stepwise } from '../store/maybe-sync.js'
import type { Refused } from '../store/store.js'

/** What came of a due schedule: whether it was moved on from here, and to when. */
export interface FiredSchedule {
  readonly landed: boolean
  readonly next?: Time | undefined
  /** The job, where a user's transaction holds what it needs. */
  readonly busy?: string
}

/**
 * Makes the runs of a due schedule and moves it on. If its runs are refused (the one before has not finished, the queue is
 * full, somebody took the id), it goes on without them; if somebody else was faster, there is nothing to do.
 */
export async function fireDueSchedule(job: JobRecord, now: Time, way: OverflowSession): Promise<FiredSchedule> {
  const taken = new Set<string>()
  let group = fireSchedule(job, now)
  for (;;) {
    const said = await way.commit(group)
    const verdict = !said.ok && said.why === 'full' ? await stepwise(withOverflow(way, group, said)) : said
    if (verdict.ok) return { landed: true, next: nextOf(group) }
    const inserts = group.filter((change) => change.kind === 'insert')
    if (inserts.length === 0 || isAboutSchedule(verdict))
      return { landed: false, ...(verdict.why === 'busy' && { busy: job.id }) }
    const own = verdict.why === 'duplicate' && inserts.some((insert) => insert.job.id === verdict.id)
    if (own) taken.add(verdict.id)
    const why = own || verdict.why !== 'duplicate' ? verdict.why : 'overlap'
    group = fireSchedule(job, now, { taken, all: !own, why })
  }
}

/** Somebody else has moved or removed the schedule, or holds it for longer than a moment. */
function isAboutSchedule({ why }: Refused): boolean {
  return why === 'fence' || why === 'missing' || why === 'busy'
}

function nextOf(group: readonly Change[]): Time | undefined {
  for (const change of group) {
    if (change.kind === 'move' && change.set.run && 'at' in change.set.run) return change.set.run.at
  }
  return undefined
}
