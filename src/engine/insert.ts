// engine/insert.ts: adds a job with its edges.
import { createRecord, edgeTo } from '../job/apply.js'
import type { Insert, NewEdge, NewJob } from '../job/change.js'
import type { Edge } from '../job/job.js'
import type { Bounds } from '../job/limits.js'
import type { Refused } from '../store/store.js'
import { duplicate, missing } from './verdicts.js'
import type { Commit, Stored, Workspace } from './workspace.js'

/** Adds a job and returns its row, or returns why it is refused. Nothing is written before all checks have passed. */
export function insert({ workspace, now, notices }: Commit, { job, edges }: Insert): Stored | Refused {
  const bounds = workspace.bounds(job.queue)
  const bounded = isBounded(job, bounds)
  // The check of the id comes first. If nothing else can refuse the job, the insert itself makes it.
  if (job.dedup !== undefined || edges.length > 0 || bounded) {
    const existing = workspace.record(job.id)
    if (existing !== undefined) return duplicate(job.id, existing)
  }
  if (job.dedup !== undefined) {
    const holder = workspace.keyHolder(job.dedup.key)
    if (holder !== undefined) return duplicate(holder, workspace.record(holder))
  }
  const created = edges.length === 0 ? undefined : newEdges(workspace, job.id, edges, [])
  if (typeof created === 'string') return missing(created)
  const full = bounded ? checkBacklog(workspace, job, bounds) : undefined
  if (full !== undefined) return full

  const states = created?.map(({ state }) => state)
  const row = workspace.insert(createRecord(job, states, workspace.orders, workspace.highestFence, now))
  if (row === undefined) return duplicate(job.id, workspace.record(job.id))
  if (created !== undefined) workspace.addEdges(row, created, 0)
  if (job.dedup !== undefined) {
    const { key, window } = job.dedup
    workspace.takeKey(key, job.id, window === undefined ? undefined : now + window)
  }
  if (job.kind === 'job') workspace.count(row, 'added')
  notices.jobChanged(row.job, undefined, undefined)
  return row
}

/** Whether there is a limit on the backlog of a job's queue, or of some group if the job has one. */
export function isBounded({ kind, group }: NewJob, { backlog, groupBacklogs }: Bounds): boolean {
  return kind === 'job' && (backlog !== Infinity || (groupBacklogs && group !== undefined))
}

/** Refuses a job if the backlog of its queue or of its group is full. */
function checkBacklog(workspace: Workspace, { id, queue, group }: NewJob, bounds: Bounds): Refused | undefined {
  if (bounds.backlog !== Infinity && workspace.backlog(queue) >= bounds.backlog) {
    return { ok: false, change: 0, why: 'full', id }
  }
  const maxBacklog = group === undefined ? undefined : bounds.group(group)?.backlog
  if (maxBacklog === undefined || workspace.groupBacklog(queue, group!) < maxBacklog) return undefined
  const oldest = workspace.oldestOfGroup(queue, group!)
  return oldest === undefined
    ? { ok: false, change: 0, why: 'full', id }
    : { ok: false, change: 0, why: 'full', id, job: oldest }
}

/**
 * Creates the new edges of a job beside those to `existing` chains, one per chain, each in the state that follows from
 * its chain. Returns the id of a job that is missing, if there is one.
 */
export function newEdges(
  workspace: Workspace,
  dependent: string,
  edges: readonly NewEdge[],
  existing: readonly string[],
): readonly Edge[] | string {
  const known = new Set(existing)
  const created: Edge[] = []
  for (const { on, policy } of edges) {
    const dependency = workspace.chainOf(on)
    if (dependency === undefined) return on
    const { chainId: chain, name } = dependency
    if (known.has(chain)) continue
    known.add(chain)
    const end = workspace.chainState(chain)
    created.push({ dependent, chain, name, policy, ...edgeTo(end === 'gone' ? undefined : end) })
  }
  return created
}
