// queue/settings/overflow.ts: drops the oldest jobs of a full group whose limit is set to `drop-oldest`.
import type { Change, Insert } from '../../job/change.js'
import type { JobHeader } from '../../job/job.js'
import { drop } from '../../job/lifecycle.js'
import { headerOf } from '../../job/record.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Group, Refused, RefusedOtherwise, Verdict } from '../../store/store.js'
import { whenFull } from './limits.js'
import type { Session } from '../../store/session.js'

/** What overflow handling uses of a session. */
export type OverflowSession = Pick<Session, 'commit' | 'details'>

/** Maximum number of jobs that one commit drops. */
const MAX_DROPPED = 1000
/** Maximum restarts when a job to drop was moved or started. */
const RACES = 100

/** The jobs to drop for others, in the commit that inserts those. */
export class Overflow {
  readonly #dropped = new Map<string, JobHeader>()

  /** The changes that drop them. They precede the inserts. */
  get changes(): readonly Change[] {
    return [...this.#dropped.values()].flatMap(drop)
  }

  /** Whether a refusal concerns one of the dropped jobs rather than the inserts. */
  isAbout({ why, id }: Refused): boolean {
    return why !== 'full' && this.#dropped.has(id)
  }

  /** Drops none. */
  clear(): void {
    this.#dropped.clear()
  }

  /**
   * Drops one more job for inserts that were refused as `full`; returns whether it can. Only if the group is set to
   * `drop-oldest`, and never a job that the same commit inserts.
   */
  *dropOldest(
    { id, job: oldest }: RefusedOtherwise,
    inserts: readonly Insert[],
    session: Pick<Session, 'details'>,
  ): Steps<boolean> {
    const refused = inserts.find(({ job }) => job.id === id)?.job
    if (oldest === undefined || refused?.group === undefined) return false
    if (this.#dropped.has(oldest.id) || this.#dropped.size >= MAX_DROPPED) return false
    if (inserts.some(({ job }) => job.id === oldest.id)) return false
    if ((yield* whenFull(session, refused.queue, refused.group)) !== 'drop-oldest') return false
    this.#dropped.set(oldest.id, headerOf(oldest)) // there may be many, and their payloads are not needed
    return true
  }
}

/** Sends a group that was refused as `full` again, with as many jobs dropped as allowed; returns the last verdict. */
export function* withOverflow(session: OverflowSession, group: Group, refused: Verdict): Steps<Verdict> {
  const overflow = new Overflow()
  const inserts = group.filter((change) => change.kind === 'insert')
  let verdict = refused
  for (let races = 0; !verdict.ok && races < RACES;) {
    if (overflow.isAbout(verdict)) {
      overflow.clear() // it was moved or started: the backlog may have room now
      races++
    } else if (verdict.why !== 'full' || !(yield* overflow.dropOldest(verdict, inserts, session))) return verdict
    verdict = yield* step(session.commit([...overflow.changes, ...group]))
  }
  return verdict
}
