// stores/postgres/own-ids.ts: ids that this process has made, and that nobody else can be adding at the same time.

/** Ids made and not yet sent; beyond these, any id may be somebody else's as well. */
const MANY = 100_000

/** Ids that were made here. One that a user gives must be guarded, whatever it looks like. */
export class OwnIds {
  readonly #ids = new Set<string>()

  /** Keeps an id that was just made. */
  keep(id: string): string {
    if (this.#ids.size >= MANY) this.#ids.clear()
    this.#ids.add(id)
    return id
  }

  /** Whether an id was made here and is sent for the first time. */
  readonly take = (id: string): boolean => this.#ids.delete(id)
}
