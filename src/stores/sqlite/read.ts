// stores/sqlite/read.ts: reads details, counts and due jobs from the file.
import type { Edge, EdgePolicy, EdgeState, JobKind, JobRecord, JobState, LogLine, Time } from '../../job/job.js'
import { jobStates } from '../../job/job.js'
import { bytesOfRecord, FAILURES_COUNTED, FAILURES_EACH, READ_BYTES } from '../../store/read-pages.js'
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
import type { Lifetime, QueueHeads, QueueTally } from '../../store/tally.js'
import { cellsOf, detailsOf, failureCount, stepOf } from '../details.js'
import type { TakenTokens } from '../../job/limits.js'
import type { DetailsSource } from '../details.js'
import { headsOf } from '../heads.js'
import type { SqlRow, Statement, Value } from './file/driver.js'
import { cellOf } from './rows.js'
import type { Cache } from './cache.js'

/** Rows of a list read at a time: few enough that large rows do not pile up in memory. */
const ROWS_READ = 32

/** The first of these jobs, up to the bytes of one read. */
export function getSome(cache: Cache, ids: readonly string[]): readonly (JobRecord | undefined)[] {
  const found: (JobRecord | undefined)[] = []
  let bytes = 0
  for (const id of ids) {
    if (bytes >= READ_BYTES) break
    const job = cache.byId(id)?.job
    found.push(job)
    if (job !== undefined) bytes += bytesOfRecord(job)
  }
  return found
}

/** The details of jobs. */
export function details(cache: Cache, query: DetailsQuery): Details {
  return {
    jobs: detailsOf(query, (id) => sourceOf(cache, id)),
    ...cellsOf(
      query,
      (key) => cellAt(cache, key),
      (prefix, after) => cellsUnder(cache, prefix, after),
    ),
    ...(query.revokedFrom !== undefined && { revoked: revokedFrom(cache, query.revokedFrom) }),
    ...(query.failures !== undefined && { failures: failures(cache, query.failures) }),
  }
}

function failures(cache: Cache, { queue: name, after = '', limit }: FailuresQuery): FailureCount[] {
  const { sql } = cache
  const queue = cache.queue(name)
  const found: FailureCount[] = []
  if (queue === undefined) return found
  let left = FAILURES_COUNTED
  for (let from = after; found.length < limit;) {
    const fingerprint = sql.nextFingerprint.get(queue, from)?.[0] as string | undefined
    if (fingerprint === undefined) break
    const most = Math.max(FAILURES_EACH, left)
    const count = sql.countFingerprint.get(queue, fingerprint, most + 1)![0] as number
    const [oldest, newest] = [sql.oldestFailing, sql.newestFailing].map((statement) => {
      return cache.lightBySeq(statement.get(queue, fingerprint)![0] as number).job
    })
    left -= Math.min(count, most)
    found.push(failureCount(fingerprint, { count: Math.min(count, most), more: count > most }, oldest!, newest!))
    from = fingerprint
  }
  return found
}

function revokedFrom({ sql }: Cache, workers: readonly string[]): RevokedLease[] {
  const found = sql.orphansOf.all(JSON.stringify(workers)) as [string, number][]
  return found.map(([id, fence]) => ({ id, fence }))
}

function sourceOf({ sql }: Cache, id: string): DetailsSource | undefined {
  const seq = sql.seqOf.get(id)?.[0]
  if (seq === undefined) return undefined
  const chain = sql.chainOf.get(id)![0] as string
  return {
    edges: (after, outcomes) =>
      listed(outcomes ? sql.edgesAfter : sql.linksAfter, seq, after, ([position, on, ...rest]) => [
        position as number,
        edgeOf(id, on, rest),
      ]),
    dependents: (limit) => sql.edgesOn.all(chain, limit).map(([other, ...rest]) => edgeOf(other, chain, rest)),
    logs: (after, limit) => listed(sql.logsOf, seq, after, lineOf, limit),
    steps: (after) =>
      listed(sql.stepsOf, seq, after, ([n, ...step]) => [n as number, stepOf(...(step as Parameters<typeof stepOf>))]),
    related: () => sql.hasRelatives.get(chain, id) !== undefined,
  }
}

/** The entries of a list after a position, which is the first column; read on demand. */
function* listed<T>(
  statement: Statement,
  of: Value,
  after: number,
  as: (row: SqlRow) => T,
  limit = Infinity,
): Generator<T> {
  let from = after
  for (let left = limit; left > 0;) {
    const count = Math.min(ROWS_READ, left)
    const rows = statement.all(of, from, count)
    for (const row of rows) yield as(row)
    if (rows.length < count) return
    left -= rows.length
    from = rows.at(-1)![0] as number
  }
}

function lineOf([index, at, attempt, line]: SqlRow): LogLine {
  return { index: index as number, at: at as Time, attempt: attempt as number, line: line as string }
}

function edgeOf(dependent: unknown, chain: unknown, [name, policy, state, result, error]: readonly unknown[]): Edge {
  return {
    dependent: dependent as string,
    chain: chain as string,
    name: name as string,
    policy: policy as EdgePolicy,
    state: state as EdgeState,
    result: (result as string | null) ?? undefined,
    error: error === null ? undefined : (JSON.parse(error as string) as Edge['error']),
  }
}

function cellAt({ sql }: Cache, key: string): Cell | undefined {
  const row = sql.cell.get(key)
  return row === undefined ? undefined : cellOf(row)
}

/** The cells of a prefix that come after a key; read on demand. */
function* cellsUnder({ sql }: Cache, prefix: string, after: string): Generator<Cell> {
  for (let from = after; ;) {
    const rows = sql.cellsUnder.all(prefix, from, ROWS_READ)
    for (const row of rows) yield cellOf(row)
    if (rows.length < ROWS_READ) return
    from = rows.at(-1)![0] as string
  }
}

const states: ReadonlySet<unknown> = new Set(jobStates)

/**
 * The counts of the queues named, or of all queues; only of queues that have ever held a job. With a time, also the
 * heads of their indexes.
 */
export function tally(cache: Cache, names: readonly string[] | undefined, now?: Time): readonly QueueTally[] {
  const all = names === undefined ? cache.sql.queues.all().map(([, name]) => name as string) : [...new Set(names)]
  const tallies: QueueTally[] = []
  for (const queue of all) {
    const id = cache.queue(queue)
    const found = id === undefined ? undefined : tallyOf(cache, id, queue)
    if (found !== undefined) tallies.push(now === undefined ? found : { ...found, heads: readHeads(cache, id!, now) })
  }
  return tallies
}

function readHeads(cache: Cache, queue: number, now: Time): QueueHeads {
  const { sql } = cache
  const nameOf = (lane: unknown): string => cache.lane(lane as number).name
  const waiting = sql.readyLanes.all(queue).flatMap(([lane]) =>
    [sql.nextOfLane, sql.firstOfLane].flatMap((head) => {
      const row = head.get(lane!)
      return row === undefined ? [] : [[nameOf(lane), row[0] as Time, row[1] as Time | null] as const]
    }),
  )
  const running = sql.runningIn.all(queue).filter(([, , ahead]) => ahead === 0)
  return headsOf({
    now,
    waiting,
    running: running.map(([lane, startedAt, , group]) => [nameOf(lane), startedAt as Time, group as string | null]),
    due: sql.dueIn.all(queue, now) as [JobKind, JobState, Time][],
    lease: sql.leaseIn.get(queue)?.[0] as Time | undefined,
    rates: sql.ratesIn.all(queue).map(([key, tokens]) => [key as string, JSON.parse(tokens as string) as TakenTokens]),
  })
}

function tallyOf({ sql }: Cache, id: number, queue: string): QueueTally | undefined {
  const names: Record<string, Partial<Record<JobState, number>>> = Object.create(null)
  const leases: Record<string, number> = Object.create(null)
  const lifetime = { added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0 }
  for (const [what, n] of sql.lifetimeOf.all(id)) lifetime[what as keyof Lifetime] = n as number
  let used = lifetime.added > 0
  for (const [name, what, n] of sql.tallyOf.all(id) as [string, string, number][]) {
    if (states.has(what)) (names[name] ??= {})[what as JobState] = n
    else if (what === 'schedule') used = true
    if (what === 'active' || what === 'orphaned') leases[name] = (leases[name] ?? 0) + n
  }
  return used ? { queue, names, leases, lifetime } : undefined
}

/** The due jobs of some queues, longest due first, and when the next job becomes due. */
export function due(cache: Cache, { queues, except, limit }: DueQuery, now: Time): Due {
  const { sql } = cache
  const skipped = new Set(except)
  const dueJobs: { readonly seq: number; readonly at: Time }[] = []
  let next: Time | undefined
  for (const name of new Set(queues)) {
    const queue = cache.queue(name)
    if (queue === undefined) continue
    for (const [until, after] of [
      [sql.dueUntil, sql.dueAfter],
      [sql.leasedUntil, sql.leasedAfter],
    ] as const) {
      for (const [seq, at, id] of until.all(queue, now, limit + 1 + skipped.size) as [number, Time, string][]) {
        if (!skipped.has(id)) dueJobs.push({ seq, at })
      }
      const later = (after.all(queue, now, 1 + skipped.size) as [Time, string][]).find(([, id]) => !skipped.has(id))
      if (later !== undefined && (next === undefined || later[0] < next)) next = later[0]
    }
  }
  dueJobs.sort((a, b) => a.at - b.at || a.seq - b.seq)
  const jobs = dueJobs.slice(0, limit).map(({ seq }) => cache.headerBySeq(seq))
  if (dueJobs.length > limit) next = dueJobs[limit]!.at
  return next === undefined ? { now, jobs } : { now, jobs, next }
}
