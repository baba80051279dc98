// queue/settings/overflow.ts: drops the oldest jobs of a full group whose limit is set to `drop-oldest`.
import type { Change } from '../../job/change.js'
import { drop } from '../../job/lifecycle.js'
import { headerOf } from '../../job/record.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Group, RefusedOtherwise, Verdict } from '../../store/store.js'
import { MAX_RACES } from '../operations/decide.js'
import { whenFull } from './limits.js'
import type { Session } from '../../store/session.js'

/** What overflow handling uses of a session. */
export type OverflowSession = Pick<Session, 'commit' | 'details'>

/** Maximum number of jobs that one commit drops. */
const MAX_DROPPED = 1000

/** The jobs to drop for others, in the commit that inserts those. */
export class Overflow {
  readonly #dropped = new Map<string, readonly Change[]>()

  /** The changes that drop them. They precede the inserts. */
  get changes(): readonly Change[] {
    return [...this.#dropped.values()].flat()
  }

  /** Whether a change is one of these. */
  includes(change: Change): boolean {
    for (const changes of this.#dropped.values()) if (changes.includes(change)) return true
    return false
  }

  /** Drops none. */
  clear(): void {
    this.#dropped.clear()
  }

  /**
   * Drops one more job for an insert that was refused as `full`; returns whether it can. Only if the group is set to
   * `drop-oldest`, and never a job that the same commit inserts.
   */
  *dropOldest(
    group: Group,
    { change, job: oldest }: RefusedOtherwise,
    session: Pick<Session, 'details'>,
  ): Steps<boolean> {
    const refused = group[change]
    if (oldest === undefined || refused?.kind !== 'insert' || refused.job.group === undefined) return false
    if (this.#dropped.has(oldest.id) || this.#dropped.size >= MAX_DROPPED) return false
    if (group.some((each) => each.kind === 'insert' && each.job.id === oldest.id)) return false
    if ((yield* whenFull(session, refused.job.queue, refused.job.group)) !== 'drop-oldest') return false
    this.#dropped.set(oldest.id, drop(headerOf(oldest))) // there may be many, and their payloads are not needed
    return true
  }
}

/**
 * Sends a group that was refused as `full` again, with as many jobs dropped as allowed. Returns the last verdict, whose
 * `change` is an index of the group given.
 */
export function* withOverflow(session: OverflowSession, group: Group, refused: Verdict): Steps<Verdict> {
  const overflow = new Overflow()
  let sent = group
  let verdict = refused
  for (let races = 0; !verdict.ok && races < MAX_RACES;) {
    if (overflow.includes(sent[verdict.change]!)) {
      overflow.clear() // it was moved or started: the backlog may have room now
      races++
    } else if (verdict.why !== 'full' || !(yield* overflow.dropOldest(sent, verdict, session))) break
    sent = [...overflow.changes, ...group]
    verdict = yield* step(session.commit(sent))
  }
  return verdict.ok ? verdict : { ...verdict, change: verdict.change - (sent.length - group.length) }
}
