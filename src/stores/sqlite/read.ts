// stores/sqlite/read.ts: what the file can be asked, finding jobs aside: details, counts, and what is due.
import type { Edge, EdgePolicy, EdgeState, JobRecord, JobState, LogLine, Time } from '../../job/job.js'
import { jobStates } from '../../job/job.js'
import type {
  Cell,
  Details,
  DetailsQuery,
  Due,
  DueQuery,
  JobDetails,
  Lifetime,
  QueueTally,
  RevokedLease,
} from '../../store/store.js'
import type { Ground } from './ground.js'
import { cellOf } from './put.js'

/** No bound, for a `LIMIT`. */
const ALL = -1

/** What lies beside jobs. */
export function details(ground: Ground, query: DetailsQuery): Details {
  return {
    jobs: (query.jobs ?? []).map((id) => jobDetails(ground, id, query.logs)),
    cells: cells(ground, query),
    ...(query.revokedFrom !== undefined && { revoked: revokedFrom(ground, query.revokedFrom) }),
  }
}

function revokedFrom({ sql }: Ground, workers: readonly string[]): RevokedLease[] {
  const found = sql.orphansOf.all(JSON.stringify(workers)) as [string, number][]
  return found.map(([id, fence]) => ({ id, fence }))
}

function jobDetails(ground: Ground, id: string, { after = 0, limit = ALL }: DetailsQuery['logs'] = {}): JobDetails {
  const { sql } = ground
  const seq = sql.seqOf.get(id)?.[0]
  if (seq === undefined) return { id, edges: [], dependents: [], logs: [], steps: [], kin: false }
  const own = sql.chainOf.get(id)![0] as string
  const edges = sql.edgesOf.all(seq).map(([chain, ...rest]) => edgeOf(id, chain, rest))
  const dependents = sql.edgesOn.all(own).map(([other, ...rest]) => edgeOf(other, own, rest))
  const logs = sql.logsOf
    .all(seq, after, limit)
    .map((row) => row as [number, Time, number, string])
    .map(([index, at, attempt, line]): LogLine => ({ index, at, attempt, line }))
  const steps = sql.stepsOf
    .all(seq)
    .map(([name, result]) => ({ name: name as string, result: (result as string | null) ?? undefined }))
  return { id, edges, dependents, logs, steps, kin: sql.kinOf.get(own, id) !== undefined }
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

function cells({ sql }: Ground, query: DetailsQuery): readonly Cell[] {
  const found = new Map<string, Cell>()
  const add = (cell: Cell): void => void found.set(cell.key, cell)
  for (const key of query.cells ?? []) {
    const row = sql.cell.get(key)
    if (row !== undefined) add(cellOf(row))
  }
  if (query.cellsUnder !== undefined) for (const row of sql.cellsUnder.all(query.cellsUnder)) add(cellOf(row))
  return [...found.values()].toSorted((a, b) => (a.key < b.key ? -1 : 1))
}

const states: ReadonlySet<unknown> = new Set(jobStates)

/** The counts of the queues named, or of all; only those that have ever held a job. */
export function tally(ground: Ground, names: readonly string[] | undefined): readonly QueueTally[] {
  const all = names === undefined ? ground.sql.queues.all().map(([, name]) => name as string) : [...new Set(names)]
  const tallies: QueueTally[] = []
  for (const queue of all) {
    const id = ground.queue(queue)
    const found = id === undefined ? undefined : tallyOf(ground, id, queue)
    if (found !== undefined) tallies.push(found)
  }
  return tallies
}

function tallyOf({ sql }: Ground, id: number, queue: string): QueueTally | undefined {
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
export function due(ground: Ground, { queues, except, limit }: DueQuery, now: Time): Due {
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
  const jobs = ripe.slice(0, limit).map(({ seq }): JobRecord => ground.bySeq(seq).job)
  if (ripe.length > limit) next = ripe[limit]!.at
  return next === undefined ? { now, jobs } : { now, jobs, next }
}
