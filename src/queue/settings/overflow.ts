// queue/settings/overflow.ts: what happens at the bound of a group's backlog: its oldest jobs make room, where the group says so.
import type { Change, Insert } from '../../job/change.js'
import type { JobHeader } from '../../job/job.js'
import { drop } from '../../job/lifecycle.js'
import { headerOf } from '../../job/record.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Group, Refused, RefusedOtherwise, Verdict } from '../../store/store.js'
import { whenFull } from './limits.js'
import type { Session } from '../../store/session.js'

/** What making room needs of the store. */
export type OverflowSession = Pick<Session, 'commit' | 'details'>

/** Jobs that one commit drops at most. */
const MOST_DROPPED = 1000
/** How often it is begun anew because one that was to be dropped had been moved, or had begun. */
const RACES = 100

/** The jobs that are dropped for others, in the very commit that inserts these. */
export class Overflow {
  readonly #dropped = new Map<string, JobHeader>()

  /** What drops them. It goes before the inserts. */
  get changes(): readonly Change[] {
    return [...this.#dropped.values()].flatMap(drop)
  }

  /** Whether a verdict is about one of them, and not about what they are dropped for. */
  isAbout({ why, id }: Refused): boolean {
    return why !== 'full' && this.#dropped.has(id)
  }

  /** Drops none. */
  clear(): void {
    this.#dropped.clear()
  }

  /**
   * Drops one more for inserts that were refused as `full`; answers whether that can be. Not where the group does not
   * say so, nor a job that would itself come to be by the same commit.
   */
  *make(
    { id, job: oldest }: RefusedOtherwise,
    inserts: readonly Insert[],
    way: Pick<Session, 'details'>,
  ): Steps<boolean> {
    const refused = inserts.find(({ job }) => job.id === id)?.job
    if (oldest === undefined || refused?.group === undefined) return false
    if (this.#dropped.has(oldest.id) || this.#dropped.size >= MOST_DROPPED) return false
    if (inserts.some(({ job }) => job.id === oldest.id)) return false
    if ((yield* whenFull(way, refused.queue, refused.group)) !== 'drop-oldest') return false
    this.#dropped.set(oldest.id, headerOf(oldest)) // there may be many, and their payloads are not needed
    return true
  }
}

/** Sends a group again that was refused as `full`, with as much room as its groups can make; answers the last verdict. */
export function* withOverflow(way: OverflowSession, group: Group, refused: Verdict): Steps<Verdict> {
  const room = new Overflow()
  const inserts = group.filter((change) => change.kind === 'insert')
  let verdict = refused
  for (let races = 0; !verdict.ok && races < RACES;) {
    if (room.isAbout(verdict)) {
      room.clear() // it was moved, or began: there may be room now
      races++
    } else if (verdict.why !== 'full' || !(yield* room.make(verdict, inserts, way))) return verdict
    verdict = yield* step(way.commit([...room.changes, ...group]))
  }
  return verdict
}
