// stores/memory/edges.ts: the edges between dependents and chains, indexed from both ends.
import type { Edge } from '../../job/job.js'
import type { UndoLog } from '../undo-log.js'

/** An edge as stored: its state changes in place. */
export type EdgeRow = { -readonly [Key in keyof Edge]: Edge[Key] }

const NONE: readonly EdgeRow[] = []

/** All edges of a table. */
export class Edges {
  readonly #undoLog: UndoLog
  readonly #byDependent = new Map<string, readonly EdgeRow[]>()
  readonly #byChain = new Map<string, Set<EdgeRow>>()

  constructor(undoLog: UndoLog) {
    this.#undoLog = undoLog
  }

  /** The dependencies of a job, in the order given. */
  of(dependent: string): readonly EdgeRow[] {
    return this.#byDependent.get(dependent) ?? NONE
  }

  /** The edges to a chain, whatever their state; undefined if there are none. */
  on(chain: string): ReadonlySet<EdgeRow> | undefined {
    return this.#byChain.get(chain)
  }

  /** All edges. */
  *values(): Generator<EdgeRow, undefined> {
    for (const edges of this.#byDependent.values()) yield* edges
  }

  /** Adds edges to a job, after the edges that it has. */
  add(dependent: string, edges: readonly EdgeRow[]): void {
    const before = this.#byDependent.get(dependent)
    this.#byDependent.set(dependent, before === undefined ? edges : [...before, ...edges])
    for (const edge of edges) {
      const others = this.#byChain.get(edge.chain)
      if (others === undefined) this.#byChain.set(edge.chain, new Set([edge]))
      else others.add(edge)
    }
    if (this.#undoLog.open) this.#undoLog.add(() => this.#restore(dependent, before))
  }

  #restore(dependent: string, before: readonly EdgeRow[] | undefined): void {
    this.drop(dependent)
    if (before !== undefined) this.add(dependent, before)
  }

  /** Removes the dependencies of a job. Edges of other jobs to its chain stay. */
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
    if (this.#undoLog.open) this.#undoLog.add(() => this.add(dependent, edges))
  }

  /** Sets the state of an edge. */
  setState(edge: EdgeRow, to: Pick<Edge, 'state' | 'result' | 'error'>): void {
    const { state, result, error } = edge
    edge.state = to.state
    edge.result = to.result
    edge.error = to.error
    if (this.#undoLog.open) this.#undoLog.add(() => void Object.assign(edge, { state, result, error }))
  }

  /** Whether a job has broken edges. */
  anyBroken(dependent: string): boolean {
    return this.of(dependent).some(({ state }) => state === 'broken')
  }

  /** Closes the broken edges of a job and returns how many there were. */
  closeBroken(dependent: string): number {
    let closed = 0
    for (const edge of this.of(dependent)) {
      if (edge.state !== 'broken') continue
      this.setState(edge, { ...edge, state: 'closed' })
      closed++
    }
    return closed
  }
}
