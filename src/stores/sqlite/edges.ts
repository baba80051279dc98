// stores/sqlite/edges.ts: the edges between dependents and chains, and how a chain has ended.
import type { NewEdge } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { Edge, EdgePolicy, EdgeState, FinishedState, JobState } from '../../job/job.js'
import { edgeTo } from '../../job/apply.js'
import type { ChainState, Reopened } from '../../job/apply.js'
import { nullable } from './rows.js'
import type { Found } from './rows.js'
import type { Transaction } from './transaction.js'

/**
 * Creates the new edges of a job beside its existing ones, one per chain, each in the state that follows from its
 * chain. Returns the id of a job that is missing, if there is one.
 */
export function newEdges(
  tx: Transaction,
  dependent: string,
  edges: readonly NewEdge[],
  existing: readonly Pick<Edge, 'chain'>[],
): readonly Edge[] | string {
  const known = new Set(existing.map(({ chain }) => chain))
  const created: Edge[] = []
  for (const { on, policy } of edges) {
    const found = tx.sql.chainOf.get(on) as [chain: string, name: string] | undefined
    if (found === undefined) return on
    const [chain, name] = found
    if (known.has(chain)) continue
    known.add(chain)
    const end = chainEnd(tx, chain)
    created.push({ dependent, chain, name, policy, ...edgeTo(end === 'gone' ? undefined : end) })
  }
  return created
}

/** Writes edges of a job, from position `first` on. */
export function addEdges({ sql, cache }: Transaction, seq: number, edges: readonly Edge[], first: number): void {
  for (const [at, { chain, name, policy, state, result, error }] of edges.entries()) {
    sql.addEdge.run(seq, first + at, chain, name, policy, state, nullable(result), textOf(error))
    if (state !== 'ended') cache.openEdges = true
  }
}

/** An edge with its position among the edges of its job. */
type PositionedEdge = Edge & { readonly position: number }

/** The broken and closed edges of a job, in order. */
export function badEdgesOf({ sql }: Transaction, { seq, job: { id: dependent } }: Found): readonly PositionedEdge[] {
  const rows = sql.badEdgesOf.all(seq) as [number, string, string, EdgePolicy, EdgeState][]
  return rows.map(([position, chain, name, policy, state]) => {
    return { position, dependent, chain, name, policy, state, result: undefined, error: undefined }
  })
}

/** Writes edges that were reopened. */
export function writeReopened({ sql, cache }: Transaction, seq: number, { changed }: Reopened<PositionedEdge>): void {
  for (const { edge, to } of changed) {
    sql.setEdge.run(to.state, nullable(to.result), textOf(to.error), seq, edge.position)
    cache.openEdges = true
  }
}

/** An error as column value. */
export function textOf(error: Edge['error']): string | null {
  return error === undefined ? null : JSON.stringify(error)
}

/**
 * How a chain ended, which is how its last job ended; undefined while one of its jobs is unfinished, `'gone'` if it has
 * no job.
 */
export function chainEnd({ sql }: Transaction, chain: string): ChainState {
  let last: ChainRow | undefined
  for (const row of sql.chainJobs.all(chain) as ChainRow[]) {
    const [seq, index, state] = row
    if (!isFinished(state)) return undefined
    if (last === undefined || index > last[1] || (index === last[1] && seq > last[0])) last = row
  }
  if (last === undefined) return 'gone'
  // Reads the outcome of the last job only: a chain may have many jobs.
  const [result, error] = sql.endOf.get(last[0]) as [result: string | null, error: string | null]
  const state = last[2] as FinishedState
  return { state, result: result ?? undefined, error: error === null ? undefined : JSON.parse(error) }
}

type ChainRow = [seq: number, index: number, state: JobState]
