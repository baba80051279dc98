// queue/graph.ts: the jobs around one job and the edges between them: its flow, its chain, and what waits for what.
import { isFinished } from '../job/job.js'
import type { EdgeError, EdgePolicy, EdgeState, JobRecord, JobState, Millis, Time } from '../job/job.js'
import { isScheduleId } from '../job/schedules/schedule.js'
import { isSignalId } from '../job/signals.js'
import { attemptsOf } from '../job/timeline.js'
import { step } from '../store/maybe-sync.js'
import type { Steps } from '../store/maybe-sync.js'
import { pages, portions, READ_SIZE } from '../store/read-pages.js'
import type { JobDetails, Query } from '../store/store.js'
import type { Session } from '../store/session.js'
import { criticalPath, layersOf } from './graph-layers.js'

/** The most jobs that a graph holds. */
const GRAPH_NODES = 500

/** The most jobs that are counted by state beside those that a graph holds. */
const GRAPH_COUNTED = 10_000

/** A job in a graph. */
export interface GraphNode {
  /** Its id. */
  readonly id: string
  /** Its name. */
  readonly name: string
  /** Its queue; absent for a job that has been removed. */
  readonly queue?: string
  /** Its state; `removed` for a dependency that is no longer stored. */
  readonly state: JobState | 'removed'
  /** Its layer, from 0: each edge leads to a higher one, unless jobs wait for one another in a cycle. */
  readonly layer: number
  /** Its chain: the id of the first job of it. */
  readonly chainId: string
  /** Its position in the chain, from 0. */
  readonly chainIndex: number
  /** The job that added it as a child. */
  readonly parentId?: string
  /** Attempts started. */
  readonly attempt?: number
  /** Attempts allowed. */
  readonly attempts?: number
  /** When it was added. */
  readonly createdAt?: Time
  /** When its last attempt started. */
  readonly startedAt?: Time
  /** When it ended. */
  readonly finishedAt?: Time
  /** How long its attempts took so far. */
  readonly ran: Millis
  /** Its error, if it failed or was cancelled for a reason. */
  readonly error?: EdgeError
}

/** An edge of a graph: `to` comes after `from`. */
export type GraphEdge =
  /** `to` waits for the chain of `from`; `state` says whether it has ended, and how. */
  | {
      readonly kind: 'dependency'
      readonly from: string
      readonly to: string
      readonly state: EdgeState
      readonly policy: EdgePolicy
    }
  /** `to` continues the chain of `from`. */
  | { readonly kind: 'chain'; readonly from: string; readonly to: string }
  /** `from` added `to` as a child, and does not wait for it. */
  | { readonly kind: 'child'; readonly from: string; readonly to: string }

/** Jobs that a graph does not hold. */
export interface FoldedJobs {
  /** The job in the graph that they are next to. */
  readonly of: string
  /** What they are to it. */
  readonly as: 'children' | 'chain' | 'dependencies' | 'dependents'
  /** How many they are. */
  readonly count: number
  /** How many of them are in each state; `removed`: no longer stored. Jobs that were not counted are in none. */
  readonly states: Readonly<Partial<Record<JobState | 'removed', number>>>
  /** There may be more: counting ended at 10,000 jobs. */
  readonly atLeast: boolean
}

/** The jobs around one job. */
export interface JobGraph {
  /** The job that was asked for. */
  readonly id: string
  /** At most 500 jobs, those nearest to that job first. */
  readonly nodes: readonly GraphNode[]
  /** The edges between them. */
  readonly edges: readonly GraphEdge[]
  /** The jobs that are left out. */
  readonly folded: readonly FoldedJobs[]
  /** The ids of the jobs on the path through the graph that took the longest so far, in order. */
  readonly critical: readonly string[]
  /** How long the attempts on that path took so far. */
  readonly criticalTime: Millis
}

/** Relatives of one job that are to be visited. */
interface Relatives {
  readonly of: string
  readonly as: FoldedJobs['as']
  readonly ids: readonly string[]
  /** There are more, which are not read. */
  readonly cut?: boolean
  /** Reads those after `ids`. */
  readonly rest?: () => Generator<Steps<readonly JobRecord[]>, void, void>
}

/** Reads the graph around a job. */
export function* readGraph(session: Session, root: JobRecord, now: Time): Steps<JobGraph> {
  const reader = new GraphReader(session)
  yield* reader.read(root)
  return reader.graph(root.id, now)
}

/** Walks from a job to its relatives, those nearest first. */
class GraphReader {
  readonly #session: Session
  readonly #records = new Map<string, JobRecord>()
  readonly #edges = new Map<string, JobDetails>()
  /** Dependencies that are not stored, by chain, with their names. */
  readonly #removed = new Map<string, string>()
  /** Chains whose jobs were looked for. */
  readonly #chains = new Set<string>()
  /** Jobs that were read and are not visited yet. */
  readonly #known = new Map<string, JobRecord>()
  readonly #folded: FoldedJobs[] = []
  /** Jobs that were counted: one may be a relative of several. */
  readonly #counts = new Set<string>()

  constructor(session: Session) {
    this.#session = session
  }

  *read(root: JobRecord): Steps<void> {
    this.#records.set(root.id, root)
    const left: Relatives[] = []
    for (let near: readonly string[] = [root.id]; near.length > 0;) {
      const found: string[] = []
      for (const ids of portions(near, READ_SIZE)) {
        for (const relatives of yield* this.#relativesOf(ids)) {
          found.push(...(yield* this.#visit(relatives.ids)))
          left.push(relatives)
        }
      }
      near = found
    }
    // Pages of jobs hold many that would have to be read by their ids.
    for (const relatives of left) if (relatives.rest !== undefined) yield* this.#fold(relatives)
    for (const relatives of left) if (relatives.rest === undefined) yield* this.#fold(relatives)
  }

  /** The relatives of some jobs: what they belong to before what belongs to them. */
  *#relativesOf(ids: readonly string[]): Steps<readonly Relatives[]> {
    const all: Relatives[] = []
    const parts = ['edges', 'dependents', 'related'] as const
    for (let left = ids; left.length > 0;) {
      const { jobs } = yield* step(this.#session.details({ jobs: left, parts, edges: { limit: GRAPH_COUNTED } }))
      for (const details of jobs) all.push(...(yield* this.#relativesIn(details)))
      left = left.slice(jobs.length)
    }
    return all
  }

  *#relativesIn(details: JobDetails): Steps<readonly Relatives[]> {
    const { id: of, edges, dependents, related, more, moreDependents = false } = details
    const job = this.#records.get(of)!
    this.#edges.set(of, details)
    const all: Relatives[] = []
    const parent = job.parentId === undefined || isScheduleId(job.parentId) ? [] : [job.parentId]
    const waits = edges.filter(({ chain }) => !isSignalId(chain))
    for (const { chain, name } of waits) this.#removed.set(chain, name)
    if (parent.length > 0) all.push({ of, as: 'dependents', ids: parent })
    if ((related || job.chainId !== of) && !this.#chains.has(job.chainId)) {
      this.#chains.add(job.chainId)
      all.push(yield* this.#found(of, 'chain', { chain: job.chainId }))
    }
    all.push({ of, as: 'dependencies', ids: waits.map(({ chain }) => chain), cut: more?.edges !== undefined })
    all.push({ of, as: 'dependents', ids: dependents.map(({ dependent }) => dependent), cut: moreDependents })
    if (related) all.push(yield* this.#found(of, 'children', { parent: of, kind: 'job' }))
    return all
  }

  /** The first jobs that a query finds; they are kept, so that they are not read again. */
  *#found(of: string, as: FoldedJobs['as'], query: Query): Steps<Relatives> {
    const room = GRAPH_NODES - this.#records.size
    if (room <= 0) return { of, as, ids: [], rest: () => pages(this.#session, query) }
    const { items, cursor } = yield* step(this.#session.find({ ...query, limit: room }))
    for (const job of items) this.#known.set(job.id, job)
    return {
      of,
      as,
      ids: items.map(({ id }) => id),
      ...(cursor !== undefined && { rest: () => pages(this.#session, { ...query, cursor }) }),
    }
  }

  /** Visits jobs as long as there is room. Returns those that are new. */
  *#visit(ids: readonly string[]): Steps<readonly string[]> {
    const fresh = ids.filter((id) => !this.#records.has(id)).slice(0, GRAPH_NODES - this.#records.size)
    const unread = fresh.filter((id) => !this.#known.has(id))
    for (const portion of portions(unread, READ_SIZE)) {
      for (const job of yield* step(this.#session.getAll(portion))) if (job !== undefined) this.#known.set(job.id, job)
    }
    const added: string[] = []
    for (const id of fresh) {
      const job = this.#known.get(id)
      if (job === undefined || job.kind !== 'job' || this.#records.has(id)) continue
      this.#records.set(id, job)
      this.#known.delete(id)
      added.push(id)
    }
    return added
  }

  /** Counts the relatives of a job that found no room. */
  *#fold({ of, as, ids, cut = false, rest }: Relatives): Steps<void> {
    const left = ids.filter((id) => !this.#records.has(id) && !this.#counts.has(id))
    const states: Partial<Record<JobState | 'removed', number>> = {}
    let count = 0
    let atLeast = cut
    const add = (id: string, state: JobState | 'removed'): void => {
      this.#counts.add(id)
      count++
      states[state] = (states[state] ?? 0) + 1
    }
    for (const portion of portions(left, READ_SIZE)) {
      if (this.#counts.size >= GRAPH_COUNTED) {
        atLeast = true
        break
      }
      const records = yield* step(this.#session.getAll(portion))
      for (const [at, job] of records.entries()) {
        if (job !== undefined && job.kind !== 'job') continue
        if (job !== undefined || this.#records.size >= GRAPH_NODES) add(portion[at]!, job?.state ?? 'removed')
      }
    }
    for (const page of rest?.() ?? []) {
      if (this.#counts.size >= GRAPH_COUNTED) {
        atLeast = true
        break
      }
      for (const { id, state } of yield* page) if (!this.#records.has(id) && !this.#counts.has(id)) add(id, state)
    }
    if (count > 0 || (atLeast && as !== 'dependencies')) this.#folded.push({ of, as, count, states, atLeast })
  }

  graph(id: string, now: Time): JobGraph {
    const bare = [...this.#records.values()].map((job) => nodeOf(job, now))
    const edges = this.#edgesBetween()
    for (const edge of edges) {
      if (this.#records.has(edge.from) || bare.some((node) => node.id === edge.from)) continue
      bare.push(removedNode(edge.from, this.#removed.get(edge.from) ?? ''))
    }
    const layers = layersOf(bare, edges)
    const nodes = bare.map((node): GraphNode => ({ ...node, layer: layers.layer.get(node.id)! }))
    const { path, time } = criticalPath(nodes, edges, layers.order)
    return { id, nodes, edges, folded: this.#folded, critical: path, criticalTime: time }
  }

  #edgesBetween(): readonly GraphEdge[] {
    const chains = new Map<string, JobRecord[]>()
    for (const job of this.#records.values()) {
      const chain = chains.get(job.chainId)
      if (chain === undefined) chains.set(job.chainId, [job])
      else chain.push(job)
    }
    const edges: GraphEdge[] = []
    for (const chain of chains.values()) {
      chain.sort((a, b) => a.chainIndex - b.chainIndex)
      for (let at = 1; at < chain.length; at++) {
        edges.push({ kind: 'chain', from: chain[at - 1]!.id, to: chain[at]!.id })
      }
    }
    const waits = new Set<string>()
    let room = GRAPH_NODES - this.#records.size
    const removed = new Set<string>()
    for (const { id: to, edges: dependencies } of this.#edges.values()) {
      for (const { chain, state, policy } of dependencies) {
        if (isSignalId(chain)) continue
        const last = chains.get(chain)?.at(-1)
        // A dependency that is neither stored nor left out has been removed; what remained of it is its edge.
        if (last === undefined && (this.#counts.has(chain) || (!removed.has(chain) && --room < 0))) continue
        if (last === undefined) removed.add(chain)
        edges.push({ kind: 'dependency', from: last?.id ?? chain, to, state, policy })
        waits.add(`${chain} ${to}`)
      }
    }
    for (const { id, chainId, chainIndex, parentId } of this.#records.values()) {
      if (parentId === undefined || chainIndex > 0 || !this.#records.has(parentId)) continue
      if (!waits.has(`${chainId} ${parentId}`)) edges.push({ kind: 'child', from: parentId, to: id })
    }
    return edges
  }
}

function nodeOf(job: JobRecord, now: Time): Omit<GraphNode, 'layer'> {
  const { id, queue, name, state, chainId, chainIndex, parentId, attempt, attempts, createdAt } = job
  const { startedAt, finishedAt, error } = job
  const shown = isFinished(state) && state !== 'completed' ? error : undefined
  return {
    ...{ id, name, queue, state, chainId, chainIndex, attempt, attempts, createdAt },
    ...(parentId !== undefined && { parentId }),
    ...(startedAt !== undefined && { startedAt }),
    ...(finishedAt !== undefined && { finishedAt }),
    ran: attemptsOf(job).reduce((sum, each) => sum + Math.max(0, (each.endedAt ?? now) - each.startedAt), 0),
    ...(shown !== undefined && {
      error: { name: shown.name, message: shown.message, ...(shown.code !== undefined && { code: shown.code }) },
    }),
  }
}

function removedNode(id: string, name: string): Omit<GraphNode, 'layer'> {
  return { id, name, state: 'removed', chainId: id, chainIndex: 0, ran: 0 }
}
