// stores/postgres/own-ids.ts: ids that this process has generated, which no other process can be inserting at the same time.
import type { Batch } from '../../store/store.js'

/** Whether this process generated an id, so that no other process can be inserting it at the same time. */
export type IsOwnId = (id: string) => boolean

/** Unsent ids to remember at most. At this number all are dropped, and the dropped ids are guarded like a user's. */
const MAX_IDS = 100_000

/** The ids generated here. An id that a user supplies must be guarded against concurrent inserts, whatever it looks like. */
export class OwnIds {
  readonly #ids = new Set<string>()

  /** Remembers and returns a newly generated id. */
  keep(id: string): string {
    if (this.#ids.size >= MAX_IDS) this.#ids.clear()
    this.#ids.add(id)
    return id
  }

  /** Returns whether ids of new jobs in a batch were generated here and are sent for the first time; forgets them. */
  take({ groups }: Pick<Batch, 'groups'>): IsOwnId {
    const own = new Set<string>()
    for (const group of groups) {
      for (const change of group)
        if (change.kind === 'insert' && this.#ids.delete(change.job.id)) own.add(change.job.id)
    }
    return (id) => own.has(id)
  }
}
