// stores/postgres/claim-cursors.ts: where lanes have been emptied by this process, so that claims need not pass over what is gone.
import type { Ask } from '../../store/store.js'
import type { RecordRow } from './rows.js'

/** Jobs claimed from a lane, one after the other, from which on it pays. */
const MANY = 1_000

/** Claims after which the whole lane is read again, whatever is known. */
const CLAIMS = 50

interface Floor {
  priority: number
  ord: number
  /** Jobs claimed, and claims made, since the lane was last read from its beginning. */
  jobs: number
  claims: number
}

/**
 * While somebody keeps an old transaction open, PostgreSQL cannot clear away what lies at the head of a lane, and every
 * claim would pass over all of it. A claim may begin behind the last one instead: nothing waits below, unless it was
 * placed there since, which commits tell.
 */
export class ClaimCursors {
  readonly #floors = new Map<number, Floor>()

  /** The floors of all lanes, for an ask; none where none pays. */
  of({ want, ahead }: Ask): object | undefined {
    if (want + ahead <= 0) return undefined
    let floors: Record<string, readonly [number, number]> | undefined
    for (const [lane, floor] of this.#floors) {
      if (floor.jobs < MANY) continue
      if (floor.claims >= CLAIMS) {
        floor.claims = 0
        continue
      }
      floors ??= {}
      floors[lane] = [floor.priority, floor.ord]
    }
    return floors
  }

  /** Jobs were claimed: the lanes are known to be empty up to the last of each, if there were enough; but those in which groups were passed over. */
  claimed({ want, ahead }: Ask, rows: readonly RecordRow[], gated: readonly number[] = []): void {
    if (rows.length < want + ahead) return this.drop()
    for (const row of rows) {
      if (typeof row[0] === 'string') this.#raise(row[1] as number, row[7] as number, row[8] as number)
      else this.#raise(row[0] as number, row[2] as number, row[3] as number)
    }
    for (const lane of gated) this.#floors.delete(lane)
    for (const floor of this.#floors.values()) floor.claims++
  }

  /** Jobs were placed in lanes. */
  placed(places: readonly (readonly [lane: number, priority: number, ord: number])[]): void {
    for (const [lane, priority, ord] of places) {
      const floor = this.#floors.get(lane)
      if (floor === undefined) continue
      if (priority < floor.priority || (priority === floor.priority && ord < floor.ord)) this.#floors.delete(lane)
    }
  }

  /** Nobody knows what was placed where. */
  drop(): void {
    this.#floors.clear()
  }

  #raise(lane: number, priority: number, ord: number): void {
    const floor = this.#floors.get(lane)
    if (floor === undefined) {
      this.#floors.set(lane, { priority, ord, jobs: 1, claims: 0 })
      return
    }
    floor.jobs++
    if (priority > floor.priority || (priority === floor.priority && ord > floor.ord)) {
      floor.priority = priority
      floor.ord = ord
    }
  }
}
