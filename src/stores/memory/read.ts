// stores/memory/read.ts: reads details, counts and due jobs from a table.
import { jobStates } from '../../job/job.js'
import type { Edge, JobState, LogLine, Time } from '../../job/job.js'
import type { TakenTokens } from '../../job/limits.js'
import { REVOKED_LISTED } from '../../store/store.js'
import type {
  Cell,
  Details,
  DetailsQuery,
  Due,
  DueQuery,
  FailureCount,
  FailuresQuery,
  RevokedLease,
} from '../../store/store.js'
import { DUE_READ, HEADS_READ } from '../../store/tally.js'
import type { QueueHeads, QueueTally } from '../../store/tally.js'
import { cellsOf, detailsOf, failureCount } from '../details.js'
import type { DetailsSource } from '../details.js'
import { headsOf, RATES_READ } from '../heads.js'
import { merge } from '../merge.js'
import { headerOf } from '../../job/record.js'
import { listed } from './row.js'
import type { NameRow, QueueRow, Row } from './row.js'
import type { Table } from './table.js'

/** The details of jobs. */
export function details(table: Table, query: DetailsQuery): Details {
  return {
    jobs: detailsOf(query, (id) => sourceOf(table, id)),
    ...cellsOf(
      query,
      (key) => table.cells.get(key),
      (prefix, after) => cellsUnder(table, prefix, after),
    ),
    ...(query.revokedFrom !== undefined && { revoked: revokedFrom(table, query.revokedFrom) }),
    ...(query.failures !== undefined && { failures: failures(table, query.failures) }),
  }
}

function failures({ find }: Table, { queue, after = '', limit }: FailuresQuery): FailureCount[] {
  const { fingerprints } = find
  return fingerprints
    .texts(queue, after)
    .slice(0, limit)
    .map((fingerprint) => {
      const rows = fingerprints.rows(queue, fingerprint)!
      return failureCount(fingerprint, { count: rows.size, more: false }, rows.min!.job, rows.max!.job)
    })
}

function revokedFrom({ orphans }: Table, workers: readonly string[]): RevokedLease[] {
  const found: RevokedLease[] = []
  for (const { id, fence, worker } of orphans.values()) {
    if (found.length === REVOKED_LISTED) break
    if (worker !== undefined && workers.includes(worker)) found.push({ id, fence })
  }
  return found
}

function sourceOf(table: Table, id: string): DetailsSource | undefined {
  const row = table.rows.get(id)
  return (
    row && {
      edges: (after, outcomes) => edgesFrom(table.edges.of(id), after, outcomes ? edgeOf : linkOf),
      dependents: (limit) => firstOf(table.edges.on(row.job.chainId) ?? [], limit).map(linkOf),
      logs: (after, limit) => linesOf(table.logs.get(id) ?? [], after, limit),
      steps: (after) => numbered(table.steps.get(id) ?? [], after, ([, step]) => step),
      related: () => (table.chains.get(row.job.chainId)?.rows.size ?? 0) > 1 || table.children.has(id),
    }
  )
}

/** The first entries, at most so many. */
function firstOf<T>(all: Iterable<T>, limit: number): readonly T[] {
  const found: T[] = []
  for (const each of all) {
    if (found.length >= limit) break
    found.push(each)
  }
  return found
}

/** Entries after a position, each with its position; the first is 1. */
function* numbered<From, To>(all: Iterable<From>, after: number, as: (each: From) => To): Generator<[number, To]> {
  let position = 0
  for (const each of all) if (++position > after) yield [position, as(each)]
}

/** Edges after a position, each with its position; skips the edges before it without reading them. */
function* edgesFrom(all: readonly Edge[], after: number, as: (edge: Edge) => Edge): Generator<[number, Edge]> {
  for (let position = Math.max(0, after) + 1; position <= all.length; position++) {
    yield [position, as(all[position - 1]!)]
  }
}

/** Log lines are numbered without gaps. */
function linesOf(logs: readonly LogLine[], after: number, limit: number): LogLine[] {
  const from = Math.max(0, after - (logs[0]?.index ?? 1) + 1)
  return logs.slice(from, from + limit)
}

/** A copy of an edge, because the stored one changes in place. */
function edgeOf({ dependent, chain, name, policy, state, result, error }: Edge): Edge {
  return { dependent, chain, name, policy, state, result, error }
}

/** A copy of an edge without its result and error. */
function linkOf({ dependent, chain, name, policy, state }: Edge): Edge {
  return { dependent, chain, name, policy, state, result: undefined, error: undefined }
}

function cellsUnder({ cells }: Table, prefix: string, after: string): readonly Cell[] {
  const keys = [...cells.keys()].filter((key) => key.startsWith(prefix) && key > after)
  return keys.toSorted((a, b) => (a < b ? -1 : 1)).map((key) => cells.get(key)!)
}

/**
 * The counts of the queues named, or of all queues; only of queues that have ever held a job. With a time, also the
 * heads of their indexes.
 */
export function tally(table: Table, names: readonly string[] | undefined, now?: Time): readonly QueueTally[] {
  const queues = names === undefined ? table.queues.values() : new Set(names.map((name) => table.queues.get(name)))
  const tallies: QueueTally[] = []
  for (const queue of queues) {
    if (queue === undefined || !isUsed(queue)) continue
    const counts = tallyOf(queue)
    tallies.push(now === undefined ? counts : { ...counts, heads: readHeads(queue, now) })
  }
  return tallies
}

function readHeads(queue: QueueRow, now: Time): QueueHeads {
  const waiting = Array.from(queue.ready, ({ rows }) => rows.min!)
  for (const row of first(listed(queue, 'waiting').ascend(), HEADS_READ)) waiting.push(row)
  const running = [...first(queue.leased.ascend(), HEADS_READ)].filter(({ job }) => !job.ahead)
  const due = [...first(queue.timed.ascend(), DUE_READ)].filter(({ job }) => job.dueAt! <= now)
  return headsOf({
    now,
    waiting: waiting.map(({ job }) => [job.name, job.createdAt, job.runAt]),
    running: running.map(({ job }) => [job.name, job.startedAt!, job.group]),
    due: due.map(({ job }) => [job.kind, job.state, job.dueAt!]),
    lease: queue.leased.min?.job.dueAt,
    rates: [...first(ratesIn(queue), RATES_READ)],
  })
}

function* ratesIn({ rates }: QueueRow): Generator<readonly [string, TakenTokens]> {
  for (const [key, { tokens }] of rates) if (!key.startsWith('g')) yield [key, tokens]
}

/** At most so many of the first entries. */
function* first<T>(entries: Iterable<T>, most: number): Generator<T> {
  let left = most
  for (const entry of entries) {
    if (left-- === 0) return
    yield entry
  }
}

function isUsed(queue: QueueRow): boolean {
  return queue.lifetime.added > 0 || queue.schedules.size > 0
}

function tallyOf(queue: QueueRow): QueueTally {
  const names: Record<string, Partial<Record<JobState, number>>> = Object.create(null)
  const leases: Record<string, number> = Object.create(null)
  for (const name of queue.names.values()) {
    const counts = countsOf(name)
    if (counts !== undefined) names[name.name] = counts
    if (name.leases > 0) leases[name.name] = name.leases
  }
  return { queue: queue.name, names, leases, lifetime: { ...queue.lifetime } }
}

function countsOf(name: NameRow): Partial<Record<JobState, number>> | undefined {
  let counts: Partial<Record<JobState, number>> | undefined
  for (const [index, state] of jobStates.entries()) {
    const count = name.counts[index]!
    if (count > 0) (counts ??= {})[state] = count
  }
  return counts
}

/** The due jobs of some queues, longest due first, and when the next job becomes due. */
export function due(table: Table, { queues, except, limit }: DueQuery, now: Time): Due {
  const skipped = new Set(except)
  const streams: Iterator<Row>[] = []
  for (const name of new Set(queues)) {
    const queue = table.queues.get(name)
    if (queue !== undefined) streams.push(queue.leased.ascend(), queue.timed.ascend())
  }
  const jobs = []
  for (const { job } of merge(streams, (a, b) => a.job.dueAt! - b.job.dueAt! || a.seq - b.seq)) {
    if (skipped.has(job.id)) continue
    if (job.dueAt! > now || jobs.length >= limit) return { now, jobs, next: job.dueAt! }
    jobs.push(headerOf(job))
  }
  return { now, jobs }
}
