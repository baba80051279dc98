// stores/sqlite/read.ts: what the file can be asked, finding jobs aside: details, counts, and what is due.
import type { Edge, EdgePolicy, EdgeState, JobRecord, JobState, LogLine, Time } from '../../job/job.js'
import { jobStates } from '../../job/job.js'
import { bytesOfRecord, READ_BYTES } from '../../store/read-pages.js'
import type {
  Cell,
  Details,
  DetailsQuery,
  Due,
  DueQuery,
  Lifetime,
  QueueTally,
  RevokedLease,
} from '../../store/store.js'
import { cellsOf, detailsOf } from '../details.js'
import type { Beside } from '../details.js'
import type { SqlRow, Statement, Value } from './driver.js'
import type { Cache } from './cache.js'
import { cellOf } from './put.js'

/** Rows of a list read at a time: few enough that large ones do not pile up. */
const PORTION = 32

/** The first of some jobs, until they reach the bytes of one read. */
export function getSome(ground: Cache, ids: readonly string[]): readonly (JobRecord | undefined)[] {
  const found: (JobRecord | undefined)[] = []
  let bytes = 0
  for (const id of ids) {
    if (bytes >= READ_BYTES) break
    const job = ground.byId(id)?.job
    found.push(job)
    if (job !== undefined) bytes += bytesOfRecord(job)
  }
  return found
}

/** What lies beside jobs. */
export function details(ground: Cache, query: DetailsQuery): Details {
  return {
    jobs: detailsOf(query, (id) => beside(ground, id)),
    ...cellsOf(
      query,
      (key) => cellAt(ground, key),
      (prefix, after) => cellsUnder(ground, prefix, after),
    ),
    ...(query.revokedFrom !== undefined && { revoked: revokedFrom(ground, query.revokedFrom) }),
  }
}

function revokedFrom({ sql }: Cache, workers: readonly string[]): RevokedLease[] {
  const found = sql.orphansOf.all(JSON.stringify(workers)) as [string, number][]
  return found.map(([id, fence]) => ({ id, fence }))
}

function beside({ sql }: Cache, id: string): Beside | undefined {
  const seq = sql.seqOf.get(id)?.[0]
  if (seq === undefined) return undefined
  const chain = sql.chainOf.get(id)![0] as string
  return {
    edges: (after, outcomes) =>
      listed(outcomes ? sql.edgesAfter : sql.linksAfter, seq, after, ([place, on, ...rest]) => [
        place as number,
        edgeOf(id, on, rest),
      ]),
    dependents: () => sql.edgesOn.all(chain).map(([other, ...rest]) => edgeOf(other, chain, rest)),
    logs: (after, limit) => listed(sql.logsOf, seq, after, lineOf, limit),
    steps: (after) =>
      listed(sql.stepsOf, seq, after, ([n, name, result]) => [
        n as number,
        { name: name as string, result: (result as string | null) ?? undefined },
      ]),
    kin: () => sql.kinOf.get(chain, id) !== undefined,
  }
}

/** The entries of a list behind a place, which is the first column: read as far as they are asked for. */
function* listed<T>(
  statement: Statement,
  of: Value,
  after: number,
  as: (row: SqlRow) => T,
  limit = Infinity,
): Generator<T> {
  let from = after
  for (let left = limit; left > 0;) {
    const count = Math.min(PORTION, left)
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

/** Cells whose keys begin so, behind a key: read as far as they are asked for. */
function* cellsUnder({ sql }: Cache, prefix: string, after: string): Generator<Cell> {
  for (let from = after; ;) {
    const rows = sql.cellsUnder.all(prefix, from, PORTION)
    for (const row of rows) yield cellOf(row)
    if (rows.length < PORTION) return
    from = rows.at(-1)![0] as string
  }
}

const states: ReadonlySet<unknown> = new Set(jobStates)

/** The counts of the queues named, or of all; only those that have ever held a job. */
export function tally(ground: Cache, names: readonly string[] | undefined): readonly QueueTally[] {
  const all = names === undefined ? ground.sql.queues.all().map(([, name]) => name as string) : [...new Set(names)]
  const tallies: QueueTally[] = []
  for (const queue of all) {
    const id = ground.queue(queue)
    const found = id === undefined ? undefined : tallyOf(ground, id, queue)
    if (found !== undefined) tallies.push(found)
  }
  return tallies
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

/** What is due in some queues, the longest due first, and when the next one comes. */
export function due(ground: Cache, { queues, except, limit }: DueQuery, now: Time): Due {
  const { sql } = ground
  const skipped = new Set(except)
  const ripe: { readonly seq: number; readonly at: Time }[] = []
  let next: Time | undefined
  for (const name of new Set(queues)) {
    const queue = ground.queue(name)
    if (queue === undefined) continue
    for (const [until, after] of [
      [sql.dueUntil, sql.dueAfter],
      [sql.leasedUntil, sql.leasedAfter],
    ] as const) {
      for (const [seq, at, id] of until.all(queue, now, limit + 1 + skipped.size) as [number, Time, string][]) {
        if (!skipped.has(id)) ripe.push({ seq, at })
      }
      const ahead = (after.all(queue, now, 1 + skipped.size) as [Time, string][]).find(([, id]) => !skipped.has(id))
      if (ahead !== undefined && (next === undefined || ahead[0] < next)) next = ahead[0]
    }
  }
  ripe.sort((a, b) => a.at - b.at || a.seq - b.seq)
  const jobs = ripe.slice(0, limit).map(({ seq }) => ground.headerBySeq(seq))
  if (ripe.length > limit) next = ripe[limit]!.at
  return next === undefined ? { now, jobs } : { now, jobs, next }
}
