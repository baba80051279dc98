// stores/postgres/read.ts: encodes queries for the SQL functions that read, and decodes their answers.
import { jobStates } from '../../job/job.js'
import type { Edge, EdgePolicy, EdgeState, JobState } from '../../job/job.js'
import type { TakenTokens } from '../../job/limits.js'
import { headerOf } from '../../job/record.js'
import { READ_BYTES } from '../../store/read-pages.js'
import type { Details, DetailsQuery, Due, JobDetails } from '../../store/store.js'
import type { Lifetime, QueueTally } from '../../store/tally.js'
import { stepOf } from '../details.js'
import { headsOf } from '../heads.js'
import type { HeadRows } from '../heads.js'
import type { SettingsCache } from '../job-settings.js'
import type { Value } from './drivers/driver.js'
import { recordOf } from './rows.js'
import type { RecordRow } from './rows.js'

/** The function and arguments that read the first of some jobs; a single job may be of any size. */
export function getCall(ids: readonly string[]): readonly ['get_one' | 'get_many', readonly Value[]] {
  const json = JSON.stringify(ids)
  return ids.length <= 1 ? ['get_one', [json]] : ['get_many', [json, READ_BYTES]]
}

/** Encodes a query for `details`. */
export function detailsText({ cellsUnder, bytes = READ_BYTES, ...query }: DetailsQuery): string {
  return JSON.stringify({ ...query, under: cellsUnder, bytes })
}

type EdgeRow = readonly [
  dependent: string,
  chain: string,
  policy: EdgePolicy,
  state: EdgeState,
  name: string,
  result: string | null,
  error: string | null,
  position: number,
]

/** The answer of `details`. */
export interface DetailsAnswer {
  readonly jobs: readonly {
    readonly id: string
    readonly edges: readonly EdgeRow[]
    readonly dependents: readonly EdgeRow[]
    readonly moreDependents: boolean
    readonly logs: readonly (readonly [at: number, attempt: number, line: string, index: number])[]
    readonly steps: readonly (readonly [name: string, result: string | null, ran: number | null, at: number | null])[]
    readonly related: boolean
    readonly more: JobDetails['more'] & {}
  }[]
  readonly cells: readonly (readonly [key: string, value: string, version: number, at: number])[]
  readonly moreCells: string | null
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

/** Decodes the details of jobs. */
export function detailsOf({ jobs, cells, moreCells }: DetailsAnswer): Details {
  return {
    jobs: jobs.map(({ id, edges, dependents, moreDependents, logs, steps, related, more }) => ({
      id,
      edges: edges.map(edgeOf),
      dependents: dependents.map(edgeOf),
      ...(moreDependents && { moreDependents }),
      logs: logs.map(([at, attempt, line, index]) => ({ index, at, attempt, line })),
      steps: steps.map((step) => stepOf(...step)),
      related,
      ...(Object.keys(more).length > 0 && { more }),
    })),
    cells: cells.map(([key, value, version, at]) => ({ key, value, version, at })),
    ...(moreCells !== null && { moreCells }),
  }
}

/** The answer of `tally` for a queue. */
export interface TallyAnswer {
  readonly queue: string
  readonly names: readonly (readonly [name: string, what: string, n: number])[]
  readonly orphans: readonly (readonly [name: string, n: number])[]
  readonly life: Readonly<Partial<Record<keyof Lifetime, number>>>
}

const states: ReadonlySet<string> = new Set(jobStates)

/** Decodes the counts of queues; leaves out queues that never held a job. */
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

/** The answer of `heads` for a queue. */
export interface HeadsAnswer extends Omit<HeadRows, 'rates'> {
  readonly queue: string
  readonly rates: readonly (readonly [scope: string, at: readonly number[], n: readonly number[]])[]
}

/** Adds the heads of queues to their counts. */
export function withHeads(tallies: readonly QueueTally[], answers: readonly HeadsAnswer[]): readonly QueueTally[] {
  const found = new Map(answers.map(({ queue, rates, ...rows }) => [queue, { ...rows, rates: rates.map(tokensOf) }]))
  return tallies.flatMap((tally) => {
    const rows = found.get(tally.queue)
    return rows === undefined ? [] : [{ ...tally, heads: headsOf(rows) }]
  })
}

function tokensOf([scope, at, n]: HeadsAnswer['rates'][number]): readonly [string, TakenTokens] {
  return [scope, at.map((time, index) => [time, n[index]!] as const)]
}

/** The answer of `due`. */
export interface DueAnswer {
  readonly now: number
  readonly jobs: readonly RecordRow[]
  readonly next: number | null
}

/** Decodes the jobs that are due. */
export function dueOf({ now, jobs: rows, next }: DueAnswer, settings: SettingsCache): Due {
  const jobs = rows.map((row) => headerOf(recordOf(row, settings)))
  return next === null ? { now, jobs } : { now, jobs, next }
}
