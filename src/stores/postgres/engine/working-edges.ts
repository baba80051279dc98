// stores/postgres/engine/working-edges.ts: the edges of a working set, by the chain that they lead to and by their dependent.
import type { Edge, EdgeState } from '../../../job/job.js'
import { listIn, WorkingEdge } from './working-rows.js'
import type { Journal, WorkingRow } from './working-rows.js'
import type { WorkingSet } from './working-set.js'

/** Edges, loaded or added by the batch. */
export class WorkingEdges {
  readonly all: WorkingEdge[] = []
  /** Jobs whose broken edges are closed, whether or not those were loaded. */
  readonly closed = new Set<string>()
  readonly #rows: ReadonlyMap<string, WorkingRow>
  readonly #journal: Journal
  readonly #to = new Map<string, WorkingEdge[]>()
  readonly #of = new Map<string, WorkingEdge[]>()

  constructor({ edges, edgesOf }: WorkingSet['fixed'], rows: ReadonlyMap<string, WorkingRow>, journal: Journal) {
    this.#rows = rows
    this.#journal = journal
    for (const [dependent, position, chain, name, policy, state] of edgesOf) {
      this.#add({ dependent, chain, name, policy, state, result: undefined, error: undefined }, position, false)
    }
    for (const [chain, dependent, position, state] of edges) {
      if (this.of(dependent).some((edge) => edge.position === position)) continue
      // What a release does not need is left out: the name and the policy.
      const edge: Edge = { dependent, chain, name: '', policy: 'fail', state, result: undefined, error: undefined }
      this.#add(edge, position, false)
    }
  }

  #add(edge: Edge, position: number, isNew: boolean): void {
    const added = new WorkingEdge(edge, position, this.#rows.get(edge.dependent), isNew)
    this.all.push(added)
    listIn(this.#to, edge.chain).push(added)
    listIn(this.#of, edge.dependent).push(added)
  }

  /** The edges of a dependent. */
  of(dependent: string): readonly WorkingEdge[] {
    return this.#of.get(dependent) ?? []
  }

  /** The edges to a chain that have not ended, in the insertion order of their dependents. */
  on(chain: string): readonly WorkingEdge[] {
    const all = this.#to.get(chain)
    if (all === undefined) return []
    const open = all.filter(({ state, row }) => state !== 'ended' && row?.removed === false)
    return open.length > 1 ? open.toSorted((a, b) => a.row!.seq - b.row!.seq) : open
  }

  /** Adds edges to a job, which has `existing` edges. */
  append(row: WorkingRow, edges: readonly Edge[], existing: number): void {
    this.#journal.save(row)
    for (const [at, edge] of edges.entries()) {
      this.#add(edge, existing + at + 1, true)
      if (edge.state === 'broken') row.brokenEdges++
      this.#journal.undo(() => {
        this.all.pop()
        this.#to.get(edge.chain)!.pop()
        this.#of.get(edge.dependent)!.pop()
      })
    }
  }

  /** Sets the state of an edge, and counts the broken edges of its dependent. */
  set(edge: WorkingEdge, to: Pick<Edge, 'state' | 'result' | 'error'>): void {
    const { state, result, error, changed, row } = edge
    if (row !== undefined && (state === 'broken') !== (to.state === 'broken')) {
      this.#journal.save(row)
      row.brokenEdges += to.state === 'broken' ? 1 : -1
    }
    Object.assign(edge, { state: to.state, result: to.result, error: to.error, changed: true })
    this.#journal.undo(() => void Object.assign(edge, { state, result, error, changed }))
  }

  /** Closes the broken edges of a job. Returns how many there were. */
  closeBroken(row: WorkingRow): number {
    const { id } = row.job
    const broken = row.brokenEdges
    if (broken === 0) return 0
    if (!this.closed.has(id)) {
      this.closed.add(id)
      this.#journal.undo(() => void this.closed.delete(id))
    }
    for (const edge of this.of(id)) {
      if (edge.state === 'broken') this.set(edge, { state: 'closed', result: edge.result, error: edge.error })
    }
    this.#journal.save(row)
    row.brokenEdges = 0
    return broken
  }

  /** The states in which the edges of a new job were added. */
  firstStates(id: string): readonly EdgeState[] {
    return this.of(id).map(({ firstState }) => firstState)
  }
}
