// stores/sqlite/edges.ts: who waits for which chain, and how a chain has ended.
import type { NewEdge } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { Edge, EdgePolicy, EdgeState, FinishedState, JobState } from '../../job/job.js'
import { edgeTo } from '../apply.js'
import type { ChainState, Reopened } from '../apply.js'
import { nullable } from './rows.js'
import type { Found } from './rows.js'
import type { Transaction } from './transaction.js'

/**
 * New edges of a job beside those that stand, one for each chain, each in the state that its chain gives it; or the id that
 * is missing.
 */
export function newEdges(
  tx: Transaction,
  dependent: string,
  edges: readonly NewEdge[],
  standing: readonly Pick<Edge, 'chain'>[],
): readonly Edge[] | string {
  const known = new Set(standing.map(({ chain }) => chain))
  const made: Edge[] = []
  for (const { on, policy } of edges) {
    const found = tx.sql.chainOf.get(on) as [chain: string, name: string] | undefined
    if (found === undefined) return on
    const [chain, name] = found
    if (known.has(chain)) continue
    known.add(chain)
    const end = chainEnd(tx, chain)
    made.push({ dependent, chain, name, policy, ...edgeTo(end === 'gone' ? undefined : end) })
  }
  return made
}

/** Writes edges of a job, from a place on. */
export function addEdges({ sql, ground }: Transaction, seq: number, edges: readonly Edge[], first: number): void {
  for (const [at, { chain, name, policy, state, result, error }] of edges.entries()) {
    sql.addEdge.run(seq, first + at, chain, name, policy, state, nullable(result), textOf(error))
    if (state !== 'ended') ground.openEdges = true
  }
}

/** An edge with its place among those of its job. */
type PlacedEdge = Edge & { readonly place: number }

/** The edges of a job that ended badly, in their order. */
export function badEdgesOf({ sql }: Transaction, { seq, job: { id: dependent } }: Found): readonly PlacedEdge[] {
  const rows = sql.badEdgesOf.all(seq) as [number, string, string, EdgePolicy, EdgeState][]
  return rows.map(([place, chain, name, policy, state]) => {
    return { place, dependent, chain, name, policy, state, result: undefined, error: undefined }
  })
}

/** Writes edges that were opened again. */
export function turnEdges({ sql, ground }: Transaction, seq: number, { turned }: Reopened<PlacedEdge>): void {
  for (const { edge, to } of turned) {
    sql.turnEdge.run(to.state, nullable(to.result), textOf(to.error), seq, edge.place)
    ground.openEdges = true
  }
}

/** An error as a column holds it. */
export function textOf(error: Edge['error']): string | null {
  return error === undefined ? null : JSON.stringify(error)
}

/** How a chain ended: as its last job did; undefined while one of its jobs is unfinished, `'gone'` where there is none. */
export function chainEnd({ sql }: Transaction, chain: string): ChainState {
  let last: ChainRow | undefined
  for (const row of sql.chainJobs.all(chain) as ChainRow[]) {
    const [seq, index, state] = row
    if (!isFinished(state)) return undefined
    if (last === undefined || index > last[1] || (index === last[1] && seq > last[0])) last = row
  }
  if (last === undefined) return 'gone'
  // What the others returned is not read: there may be many of them.
  const [result, error] = sql.endOf.get(last[0]) as [result: string | null, error: string | null]
  const state = last[2] as FinishedState
  return { state, result: result ?? undefined, error: error === null ? undefined : JSON.parse(error) }
}

type ChainRow = [seq: number, index: number, state: JobState]
