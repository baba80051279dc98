// stores/postgres/read.ts: what the reading functions of the schema answer, as the port says it.
import { jobStates } from '../../job/job.js'
import type { Edge, EdgePolicy, EdgeState, JobRecord, JobState } from '../../job/job.js'
import type { Details, Due, Lifetime, Page, Query, QueueTally } from '../../store/store.js'
import type { Settings } from '../settings.js'
import { recordOf, seqOf } from './rows.js'
import type { RecordRow } from './rows.js'

/** Jobs in a page, unless the query says otherwise. */
const PAGE = 100

/** A query as `find_v1` takes it: one more than a page, to see whether there is another. */
export function asked(query: Query): string {
  return JSON.stringify({ ...query, limit: (query.limit ?? PAGE) + 1 })
}

/** One page of the jobs that match. Its cursor is the number of its last job. */
export function pageOf(rows: readonly RecordRow[], query: Query, settings: Settings): Page<JobRecord> {
  const limit = query.limit ?? PAGE
  const page = rows.slice(0, limit)
  const items = page.map((row) => recordOf(row, settings))
  return rows.length > limit && page.length > 0 ? { items, cursor: String(seqOf(page.at(-1)!)) } : { items }
}

type EdgeRow = readonly [
  dependent: string,
  chain: string,
  policy: EdgePolicy,
  state: EdgeState,
  name: string,
  result: string | null,
  error: string | null,
]

/** What `details_v1` answers. */
export interface DetailsAnswer {
  readonly jobs: readonly {
    readonly id: string
    readonly edges: readonly EdgeRow[]
    readonly dependents: readonly EdgeRow[]
    readonly logs: readonly (readonly [at: number, attempt: number, line: string, index: number])[]
    readonly steps: readonly (readonly [name: string, result: string | null])[]
    readonly kin: boolean
  }[]
  readonly cells: readonly (readonly [key: string, value: string, version: number, at: number])[]
}

const edgeOf = ([dependent, chain, policy, state, name, result, error]: EdgeRow): Edge => ({
  dependent,
  chain,
  name,
  policy,
  state,
  result: result ?? undefined,
  error: error === null ? undefined : (JSON.parse(error) as Edge['error']),
})

/** What lies beside jobs. */
export function detailsOf({ jobs, cells }: DetailsAnswer): Details {
  return {
    jobs: jobs.map(({ id, edges, dependents, logs, steps, kin }) => ({
      id,
      edges: edges.map(edgeOf),
      dependents: dependents.map(edgeOf),
      logs: logs.map(([at, attempt, line, index]) => ({ index, at, attempt, line })),
      steps: steps.map(([name, result]) => ({ name, result: result ?? undefined })),
      kin,
    })),
    cells: cells.map(([key, value, version, at]) => ({ key, value, version, at })),
  }
}

/** What `tally_v1` answers for a queue. */
export interface TallyAnswer {
  readonly queue: string
  readonly names: readonly (readonly [name: string, what: string, n: number])[]
  readonly orphans: readonly (readonly [name: string, n: number])[]
  readonly life: Readonly<Partial<Record<keyof Lifetime, number>>>
}

const states: ReadonlySet<string> = new Set(jobStates)

/** The counts of queues that have ever held a job. */
export function talliesOf(answers: readonly TallyAnswer[]): readonly QueueTally[] {
  return answers.flatMap(({ queue, names: counted, orphans, life }) => {
    const names: Record<string, Partial<Record<JobState, number>>> = Object.create(null)
    const leases: Record<string, number> = Object.create(null)
    const lifetime = { added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0, ...life }
    let used = lifetime.added > 0
    for (const [name, what, n] of counted) {
      if (n <= 0) continue
      if (states.has(what)) (names[name] ??= {})[what as JobState] = n
      else if (what === 'schedule') used = true
      if (what === 'active') leases[name] = (leases[name] ?? 0) + n
    }
    for (const [name, n] of orphans) leases[name] = (leases[name] ?? 0) + n
    return used ? [{ queue, names, leases, lifetime }] : []
  })
}

/** What `due_v1` answers. */
export interface DueAnswer {
  readonly now: number
  readonly jobs: readonly RecordRow[]
  readonly next: number | null
}

/** What wants attention. */
export function dueOf({ now, jobs: rows, next }: DueAnswer, settings: Settings): Due {
  const jobs = rows.map((row) => recordOf(row, settings))
  return next === null ? { now, jobs } : { now, jobs, next }
}
