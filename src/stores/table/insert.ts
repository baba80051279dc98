// stores/table/insert.ts: adds a job with its edges.
import type { Insert, NewEdge, NewJob, When } from '../../job/change.js'
import type { AttemptError, JobState, Time } from '../../job/job.js'
import { dueAt, released } from '../../job/lifecycle.js'
import type { Refused } from '../../store/store.js'
import type { EdgeRow } from './edges.js'
import type { News } from './news.js'
import type { Draft } from '../../job/record.js'
import { chainEnd } from './row.js'
import type { Row } from './row.js'
import { add, laneOf, nextOrd } from './table.js'
import type { Table } from './table.js'
import { duplicate, missing } from './verdict.js'

const NO_ERRORS: readonly AttemptError[] = Object.freeze([])

/** A moment by the clock of this commit. */
export function momentOf(when: When, now: Time): Time {
  return 'at' in when ? when.at : now + when.in
}

/** Adds a job and answers its row, or says why not; nothing is written before all is known to be well. */
export function insert(table: Table, { job, edges }: Insert, news: News): Row | Refused {
  const standing = table.rows.get(job.id)
  if (standing !== undefined) return duplicate(job.id, standing)
  const { now } = news
  if (job.dedup !== undefined) {
    const key = table.keys.holder(job.dedup.key, now)
    if (key !== undefined) return duplicate(key.id, table.rows.get(key.id))
  }
  const found = edges.length === 0 ? undefined : edgesOf(table, job.id, edges)
  if (typeof found === 'string') return missing(found)
  if (job.kind === 'job') {
    const queue = table.queues.get(job.queue)
    if (queue !== undefined && queue.backlog >= queue.backlogLimit) return { ok: false, why: 'full', id: job.id }
  }

  const row: Row = {
    seq: table.seq++,
    job: born(table, job, found, now),
    lane: laneOf(table, job.queue, job.name, job.version),
    chain: undefined,
  }
  add(table, row)
  if (found !== undefined) table.edges.add(job.id, found)
  if (job.dedup !== undefined) {
    const { key, window } = job.dedup
    table.keys.take({ key, id: job.id, until: window === undefined ? undefined : now + window })
  }
  if (job.kind === 'job') count(table, row)
  news.placed(row, undefined, undefined)
  return row
}

function count(table: Table, row: Row): void {
  const { lifetime } = row.lane.name.queue
  lifetime.added++
  if (table.journal.open) table.journal.add(() => void lifetime.added--)
}

/** The edges of a new job, one for each chain, each in the state that its chain gives it; or the id that is missing. */
function edgesOf(table: Table, dependent: string, edges: readonly NewEdge[]): readonly EdgeRow[] | string {
  const byChain = new Map<string, EdgeRow>()
  for (const { on, policy } of edges) {
    const dependency = table.rows.get(on)
    if (dependency === undefined) return on
    const chain = dependency.job.chainId
    if (byChain.has(chain)) continue
    const end = chainEnd(dependency)
    const state = end === undefined ? 'open' : end === 'completed' ? 'ended' : 'broken'
    byChain.set(chain, { dependent, chain, policy, state })
  }
  return [...byChain.values()]
}

function born(table: Table, job: NewJob, edges: readonly EdgeRow[] | undefined, now: Time): Draft {
  let pending = 0
  let broken = false
  if (edges !== undefined) {
    for (const edge of edges) {
      if (edge.state !== 'ended') pending++
      if (edge.state === 'broken') broken = true
    }
  }
  let runAt = job.run === undefined ? undefined : momentOf(job.run, now)
  let state: JobState = job.state
  if (pending > 0) state = 'waiting-children'
  else if (edges !== undefined || state === 'waiting-children') state = released(runAt, now)
  if (state === 'waiting') runAt = undefined

  const record: Draft = {
    id: job.id,
    kind: job.kind,
    queue: job.queue,
    name: job.name,
    version: job.version,
    data: job.data,
    state,
    priority: job.priority,
    ord: nextOrd(table, job.lifo),
    fence: table.highestFence,
    attempt: 0,
    attempts: job.attempts,
    backoff: job.backoff,
    timeout: job.timeout,
    worker: undefined,
    runAt,
    leaseUntil: undefined,
    brokenAt: broken ? now : undefined,
    staleAt: undefined,
    stale: false,
    deleteAt: undefined,
    dueAt: undefined,
    chainId: job.chainId,
    chainIndex: job.chainIndex,
    parentId: job.parentId,
    pending,
    stalls: 0,
    ahead: false,
    dedup: job.dedup,
    keep: job.keep,
    progress: undefined,
    result: undefined,
    error: undefined,
    errors: NO_ERRORS,
    createdAt: now,
    startedAt: undefined,
    finishedAt: undefined,
  }
  record.dueAt = dueAt(record)
  return record
}
