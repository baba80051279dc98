// queue/operations/bulk/plan.ts: what a bulk operation would do, without doing it.
import { SAMPLES_KEPT } from '../../../job/bulk.js'
import type { BulkAction, BulkRefusal } from '../../../job/bulk.js'
import { isFinished } from '../../../job/job.js'
import type { JobRecord, JobState, Time } from '../../../job/job.js'
import { ignoresFailure } from '../../../job/dependencies.js'
import { step } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import { pages, readDetails } from '../../../store/read-pages.js'
import type { Session } from '../../../store/session.js'
import { countsBy, countsIn, sumOf } from './options.js'
import type { RequestScope } from './options.js'
import { prepare, refusal, waitsForFailed } from './prepare.js'
import type { BulkSpec } from './spec.js'

/** What a bulk operation would do. */
export interface OperationPlan {
  /** The action. */
  readonly do: BulkAction
  /** How many jobs match. */
  readonly count: number
  /** Whether `count` and `names` are exact; if not, there are more: only the first 10,000 are counted one by one. */
  readonly exact: boolean
  /** The same by name and state. */
  readonly names: Readonly<Record<string, { readonly [State in JobState]?: number }>>
  /** The ten oldest of them. */
  readonly samples: readonly PlannedJob[]
  /** How many of them were looked at for `refused`: the oldest, up to 1000. */
  readonly examined: number
  /** How many of those could not be changed now, by the code of the error; a taken dedup key only shows when it is tried. */
  readonly refused: Readonly<Record<string, number>>
  /** The first ten of those, and why. */
  readonly refusals: readonly BulkRefusal[]
}

/** A job that a bulk operation would visit. */
export interface PlannedJob {
  /** Its id. */
  readonly id: string
  /** Its name. */
  readonly name: string
  /** Its state. */
  readonly state: JobState
  /** When it was added. */
  readonly createdAt: Time
}

/** How many jobs are looked at one by one for refusals, and how many are counted where the store has no counters. */
const EXAMINED = 1000
const COUNTED = 10_000

/** The most dependencies of examined jobs that are looked up. */
const LOOKED_UP = 200

/** Plans an operation. Writes nothing. */
export function* planBulk(scope: RequestScope, spec: BulkSpec): Steps<OperationPlan> {
  const { session } = scope
  const known = countsIn(spec.query, yield* countsBy(scope))
  const counts: Record<string, Record<string, number>> = Object.create(null)
  const samples: JobRecord[] = []
  const refused: BulkRefusal[] = []
  let [read, examined, cut] = [0, 0, false]
  for (const page of pages(session, spec.query)) {
    if (read >= (known === undefined ? COUNTED : EXAMINED)) {
      cut = true
      break
    }
    const jobs = yield* page
    read += jobs.length
    samples.push(...jobs.slice(0, SAMPLES_KEPT - samples.length))
    for (const { name, state } of jobs) (counts[name] ??= {})[state] = (counts[name][state] ?? 0) + 1
    const looked = jobs.slice(0, EXAMINED - examined)
    examined += looked.length
    if (looked.length > 0) refused.push(...(yield* refusedAmong(session, spec, looked)))
  }
  // Counters and pages are read one after the other. Where all pages were read, these are what the plan shows.
  const names = cut && known !== undefined ? known : Object.fromEntries(Object.entries(counts))
  const codes: Record<string, number> = {}
  for (const { code } of refused) codes[code] = (codes[code] ?? 0) + 1
  return {
    do: spec.do,
    count: sumOf(names),
    exact: !cut || known !== undefined,
    names,
    samples: samples.map(({ id, name, state, createdAt }) => ({ id, name, state, createdAt })),
    examined,
    refused: codes,
    refusals: refused.slice(0, SAMPLES_KEPT),
  }
}

function* refusedAmong(session: Session, spec: BulkSpec, jobs: readonly JobRecord[]): Steps<readonly BulkRefusal[]> {
  const { refused } = yield* prepare(session, spec, jobs, 0)
  return spec.do === 'retry' ? [...refused, ...(yield* blockedAmong(session, jobs))] : refused
}

/** Failed jobs that cannot start over because of a dependency that is not among these jobs. */
function* blockedAmong(session: Session, jobs: readonly JobRecord[]): Steps<readonly BulkRefusal[]> {
  const ids = new Set(jobs.map(({ id }) => id))
  const blocked: BulkRefusal[] = []
  const lasts = new Map<string, JobRecord | undefined>()
  const details = yield* readDetails(session, { jobs: [...ids], parts: ['edges'] })
  for (const [at, { edges }] of details.entries()) {
    for (const { chain, state, policy } of edges) {
      if ((state !== 'broken' && state !== 'closed') || ignoresFailure(policy)) continue
      if (!lasts.has(chain)) {
        if (lasts.size === LOOKED_UP) return blocked
        lasts.set(chain, (yield* step(session.find({ chain, order: 'newest', limit: 1 }))).items[0])
      }
      const last = lasts.get(chain)
      if (last !== undefined && (!isFinished(last.state) || last.state === 'completed' || ids.has(last.id))) continue
      blocked.push(refusal(jobs[at]!, waitsForFailed(jobs[at]!, chain)))
      break
    }
  }
  return blocked
}
