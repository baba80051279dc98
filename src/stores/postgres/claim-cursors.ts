// stores/postgres/claim-cursors.ts: remembers how far this process has emptied each lane, so that claims skip dead rows.
import type { Ask } from '../../store/store.js'
import type { RecordRow } from './rows.js'

/** A lane's cursor is used once this many jobs have been claimed from it: before that it does not pay. */
const MIN_JOBS = 1_000

/** After this many claims, one claim reads the lane from its head again. */
const MAX_CLAIMS = 50

/** Lanes with cursors at most; at this number all are dropped. A claim sends the cursors of all lanes that it may read. */
const MAX_LANES = 1_000

/** A position in a lane: no job waits before it. */
interface Cursor {
  priority: number
  ord: number
  /** Jobs claimed from the lane since the cursor was created. */
  jobs: number
  /** Claims since the lane was last read from its head. */
  claims: number
}

/**
 * While any old transaction is open, vacuum cannot remove the dead rows at the head of a lane, and every claim would scan
 * all of them. A claim starts at the cursor of the last one instead: no job waits before it, unless a commit has placed one
 * there since. Answers and notifications report such placements.
 */
export class ClaimCursors {
  readonly #cursors = new Map<number, Cursor>()

  /** The cursors to send with a claim, by lane; `undefined` if there are none. */
  of({ want, ahead }: Ask): object | undefined {
    if (want + ahead <= 0) return undefined
    let cursors: Record<string, readonly [number, number]> | undefined
    for (const [lane, cursor] of this.#cursors) {
      if (cursor.jobs < MIN_JOBS) continue
      if (cursor.claims >= MAX_CLAIMS) {
        cursor.claims = 0
        continue
      }
      cursors ??= {}
      cursors[lane] = [cursor.priority, cursor.ord]
    }
    return cursors
  }

  /**
   * Moves the cursor of each lane to the last job claimed from it. A claim that got fewer jobs than it wanted drops all
   * cursors. `gated` are lanes in which the claim skipped groups, so that jobs still wait before the last one claimed.
   */
  claimed({ want, ahead }: Ask, rows: readonly RecordRow[], gated: readonly number[] = []): void {
    if (rows.length < want + ahead) return this.drop()
    for (const row of rows) {
      if (typeof row[0] === 'string') this.#advance(row[1] as number, row[7] as number, row[8] as number)
      else this.#advance(row[0] as number, row[2] as number, row[3] as number)
    }
    for (const lane of gated) this.#cursors.delete(lane)
    for (const cursor of this.#cursors.values()) cursor.claims++
  }

  /** Drops the cursors that jobs have been placed before. */
  placed(orders: readonly (readonly [lane: number, priority: number, ord: number])[]): void {
    for (const [lane, priority, ord] of orders) {
      const cursor = this.#cursors.get(lane)
      if (cursor === undefined) continue
      if (priority < cursor.priority || (priority === cursor.priority && ord < cursor.ord)) this.#cursors.delete(lane)
    }
  }

  /** Drops all cursors, for when placements may have been missed. */
  drop(): void {
    this.#cursors.clear()
  }

  #advance(lane: number, priority: number, ord: number): void {
    const cursor = this.#cursors.get(lane)
    if (cursor === undefined) {
      if (this.#cursors.size >= MAX_LANES) this.drop()
      this.#cursors.set(lane, { priority, ord, jobs: 1, claims: 0 })
      return
    }
    cursor.jobs++
    if (priority > cursor.priority || (priority === cursor.priority && ord > cursor.ord)) {
      cursor.priority = priority
      cursor.ord = ord
    }
  }
}
