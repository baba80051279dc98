// stores/memory/edges.ts: who waits for which chain, found from either end.
import type { Edge } from '../../job/job.js'
import type { UndoLog } from './undo-log.js'

/** An edge as it is stored: its state changes in place. */
export type EdgeRow = { -readonly [Key in keyof Edge]: Edge[Key] }

const NONE: readonly EdgeRow[] = []

/** All edges of a table. */
export class Edges {
  readonly #journal: UndoLog
  readonly #byDependent = new Map<string, readonly EdgeRow[]>()
  readonly #byChain = new Map<string, Set<EdgeRow>>()

  constructor(journal: UndoLog) {
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

  /** Stores edges of a job, after those that it has. */
  add(dependent: string, edges: readonly EdgeRow[]): void {
    const before = this.#byDependent.get(dependent)
    this.#byDependent.set(dependent, before === undefined ? edges : [...before, ...edges])
    for (const edge of edges) {
      const others = this.#byChain.get(edge.chain)
      if (others === undefined) this.#byChain.set(edge.chain, new Set([edge]))
      else others.add(edge)
    }
    if (this.#journal.open) this.#journal.add(() => this.#takeBack(dependent, before))
  }

  #takeBack(dependent: string, before: readonly EdgeRow[] | undefined): void {
    this.drop(dependent)
    if (before !== undefined) this.add(dependent, before)
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
  turn(edge: EdgeRow, to: Pick<Edge, 'state' | 'result' | 'error'>): void {
    const { state, result, error } = edge
    edge.state = to.state
    edge.result = to.result
    edge.error = to.error
    if (this.#journal.open) this.#journal.add(() => void Object.assign(edge, { state, result, error }))
  }

  /** Whether a job has broken edges. */
  anyBroken(dependent: string): boolean {
    return this.of(dependent).some(({ state }) => state === 'broken')
  }

  /** Closes the broken edges of a job and answers how many there were. */
  closeBroken(dependent: string): number {
    let closed = 0
    for (const edge of this.of(dependent)) {
      if (edge.state !== 'broken') continue
      this.turn(edge, { ...edge, state: 'closed' })
      closed++
    }
    return closed
  }
}
