// stores/postgres/own-ids.ts: ids that this process has generated, which no other process can be inserting at the same time.

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

  /** Whether an id was generated here and is sent for the first time; forgets it. */
  readonly take = (id: string): boolean => this.#ids.delete(id)
}
