// conformance/invariants.ts: invariants that every store must satisfy at any moment of a walk.
import type { Edge, JobRecord } from '../job/job.js'
import { isFinished } from '../job/job.js'
import { dueAt } from '../job/lifecycle.js'
import type { JobDetails } from '../store/store.js'
import type { QueueTally } from '../store/tally.js'
import { equal } from './check.js'

/** Everything that the invariants are checked on. */
export interface StoreSnapshot {
  readonly jobs: readonly JobRecord[]
  /** Details of the same jobs, in the same order. */
  readonly details: readonly JobDetails[]
  readonly tallies: readonly QueueTally[]
}

/** Every broken invariant, as a sentence. */
export function brokenInvariants({ jobs, details, tallies }: StoreSnapshot): readonly string[] {
  const found: string[] = []
  const running = new Set(jobs.filter(({ state }) => !isFinished(state)).map(({ chainId }) => chainId))
  for (const [index, job] of jobs.entries()) {
    for (const rule of brokenRules(job)) found.push(`job ${job.id}, which is ${job.state}: ${rule}`)
    for (const rule of edgeRules(job, details[index]?.edges ?? [], running)) found.push(`job ${job.id}: ${rule}`)
  }
  return [...found, ...keyRules(jobs), ...tallyRules(jobs, tallies)]
}

/** The rules that a record breaks. */
function brokenRules(job: JobRecord): readonly string[] {
  const leased = job.state === 'active'
  const rules: readonly (readonly [boolean, string])[] = [
    [job.dueAt === dueAt(job), 'dueAt is derived from the other times'],
    [leased === (job.leaseUntil !== undefined), 'an active job has a lease, and no other has'],
    [!leased || job.worker !== undefined, 'an active job has a worker'],
    [leased || !job.ahead, 'only a leased job is leased ahead'],
    [isFinished(job.state) === (job.finishedAt !== undefined), 'a finished job has an end, and no other has'],
    [job.state !== 'waiting-children' || job.pending > 0, 'a job waits for children only as long as there are any'],
    [
      job.pending === 0 || job.state === 'waiting-children' || isFinished(job.state),
      'a job does not run before its children',
    ],
    [job.state !== 'delayed' || job.runAt !== undefined, 'a delayed job has a date'],
    [job.attempt >= 0 && job.attempt <= job.attempts, 'attempts stay within their bound'],
    [!job.stale || isFinished(job.state), 'only a finished job is stale'],
  ]
  return rules.filter(([holds]) => !holds).map(([, rule]) => rule)
}

function edgeRules(job: JobRecord, edges: readonly Edge[], running: ReadonlySet<string>): readonly string[] {
  const count = (state: Edge['state']): number => edges.filter((edge) => edge.state === state).length
  const found: string[] = []
  if (job.pending !== count('open') + count('broken')) found.push('pending counts the edges that are open or broken')
  if (job.state === 'waiting-children' && count('broken') > 0 !== (job.brokenAt !== undefined)) {
    found.push('a job with broken edges is broken, and no other is')
  }
  for (const edge of edges) {
    if (edge.state === 'open' && !running.has(edge.chain))
      found.push(`chain ${edge.chain} has ended, but its edge is open`)
  }
  return found
}

function keyRules(jobs: readonly JobRecord[]): readonly string[] {
  const holders = new Map<string, string>()
  const found: string[] = []
  for (const { id, dedup, state } of jobs) {
    if (dedup === undefined || dedup.window !== undefined || isFinished(state)) continue
    const other = holders.get(dedup.key)
    if (other !== undefined) found.push(`jobs ${other} and ${id} both hold the key ${dedup.key}`)
    holders.set(dedup.key, id)
  }
  return found
}

function tallyRules(jobs: readonly JobRecord[], tallies: readonly QueueTally[]): readonly string[] {
  const counted: Record<string, number> = {}
  for (const { queue, name, state, kind } of jobs) {
    const key = `${queue} ${name} ${state}`
    if (kind === 'job') counted[key] = (counted[key] ?? 0) + 1
  }
  const tallied: Record<string, number> = {}
  for (const { queue, names } of tallies) {
    for (const [name, states] of Object.entries(names)) {
      for (const [state, count] of Object.entries(states)) if (count !== 0) tallied[`${queue} ${name} ${state}`] = count
    }
  }
  return equal(tallied, counted)
    ? []
    : [`tallies are ${JSON.stringify(tallied)}, but there are ${JSON.stringify(counted)}`]
}
