// stores/table/edges.ts: who waits for which chain, found from either end.
import type { Edge, EdgeState } from '../../job/job.js'
import type { Journal } from './journal.js'

/** An edge as it is stored: its state changes in place. */
export type EdgeRow = { -readonly [Key in keyof Edge]: Edge[Key] }

const NONE: readonly EdgeRow[] = []

/** All edges of a table. */
export class Edges {
  readonly #journal: Journal
  readonly #byDependent = new Map<string, readonly EdgeRow[]>()
  readonly #byChain = new Map<string, Set<EdgeRow>>()

  constructor(journal: Journal) {
    this.#journal = journal
  }

  /** What a job depends on, in the order given. */
  of(dependent: string): readonly EdgeRow[] {
    return this.#byDependent.get(dependent) ?? NONE
  }

  /** Who depends on a chain, whatever has become of it; undefined where nobody does. */
  on(chain: string): ReadonlySet<EdgeRow> | undefined {
    return this.#byChain.get(chain)
  }

  /** Every edge. */
  *values(): Generator<EdgeRow, undefined> {
    for (const edges of this.#byDependent.values()) yield* edges
  }

  /** Stores the edges of a new job. */
  add(dependent: string, edges: readonly EdgeRow[]): void {
    this.#byDependent.set(dependent, edges)
    for (const edge of edges) {
      const others = this.#byChain.get(edge.chain)
      if (others === undefined) this.#byChain.set(edge.chain, new Set([edge]))
      else others.add(edge)
    }
    if (this.#journal.open) this.#journal.add(() => this.drop(dependent))
  }

  /** Takes out what a job depends on; who depends on it keeps its edge. */
  drop(dependent: string): void {
    const edges = this.#byDependent.get(dependent)
    if (edges === undefined) return
    this.#byDependent.delete(dependent)
    for (const edge of edges) {
      const others = this.#byChain.get(edge.chain)
      if (others === undefined) continue
      others.delete(edge)
      if (others.size === 0) this.#byChain.delete(edge.chain)
    }
    if (this.#journal.open) this.#journal.add(() => this.add(dependent, edges))
  }

  /** Takes an edge to another state. */
  turn(edge: EdgeRow, state: EdgeState): void {
    const before = edge.state
    edge.state = state
    if (this.#journal.open) this.#journal.add(() => void (edge.state = before))
  }

  /** Closes the broken edges of a job and answers how many there were. */
  closeBroken(dependent: string): number {
    let closed = 0
    for (const edge of this.of(dependent)) {
      if (edge.state !== 'broken') continue
      this.turn(edge, 'closed')
      closed++
    }
    return closed
  }
}
