// queue/flows/cycles.ts: jobs that wait for one another for ever: refused before they do, and told of where they do already.
import type { Insert, NewEdge } from '../../job/change.js'
import { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import { readDetails } from '../../store/read-pages.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { JobDetails } from '../../store/store.js'
import { READ } from '../operations/filter.js'
import type { Session } from '../../store/session.js'

/** What looking for cycles needs of the store. */
type Look = Pick<Session, 'details' | 'getAll'>

/** Jobs that a text names at most. */
const NAMED = 10

/**
 * The jobs over which the chain of a job would wait for itself, if that job waited for others: each waits for the chain of
 * the next, and the last is the first again. Undefined if there are none. `planned` are jobs that come to be with the wait.
 *
 * It is looked for among those who wait for the job, and not among those it would wait for: mostly nobody, or one parent.
 */
export async function findCycle(
  way: Look,
  job: Pick<JobRecord, 'id' | 'chainId'>,
  targets: readonly string[],
  planned: readonly Insert[] = [],
  known?: JobDetails,
): Promise<readonly string[] | undefined> {
  const ways = throughPlanned(targets, planned)
  const own = ways.get(job.id) ?? ways.get(job.chainId)
  if (own !== undefined) return [job.id, ...own, job.id]
  const details = known ?? (await way.details({ jobs: [job.id], parts: ['dependents', 'kin'] })).jobs[0]
  // Nobody waits for it, and it is alone in its chain.
  if (details === undefined || (!details.kin && !details.dependents.some(({ state }) => state === 'open'))) {
    return undefined
  }
  const fresh = new Set(planned.map((insert) => insert.job.id))
  const stored = [...ways.keys()].filter((id) => !fresh.has(id))
  const chains = await chainsOf(way, ways, stored)
  const itself = chains.get(job.chainId)
  if (itself !== undefined) return [job.id, ...itself, job.id]
  return upwards(way, job, chains, details)
}

/** The same for a job that is to come to be with others, and waits for some of them. */
export function cycleAmong(id: string, planned: readonly Insert[]): readonly string[] | undefined {
  const edges = planned.find(({ job }) => job.id === id)?.edges ?? []
  const own = throughPlanned(
    edges.map(({ on }) => on),
    planned,
  ).get(id)
  return own === undefined ? undefined : [id, ...own, id]
}

/** What is waited for, by id, with the planned jobs through which it is. */
type Ways = ReadonlyMap<string, readonly string[]>

function throughPlanned(targets: readonly string[], planned: readonly Insert[]): Ways {
  const byId = new Map(planned.map((insert) => [insert.job.id, insert]))
  const ways = new Map<string, readonly string[]>()
  const open: { readonly on: string; readonly via: readonly string[] }[] = targets.map((on) => ({ on, via: [] }))
  for (let at = 0; at < open.length; at++) {
    const { on, via } = open[at]!
    if (ways.has(on)) continue
    ways.set(on, via)
    for (const edge of byId.get(on)?.edges ?? []) open.push({ on: edge.on, via: [...via, on] })
  }
  return ways
}

/** The same by the chains that these jobs belong to. */
async function chainsOf(way: Look, ways: Ways, ids: readonly string[]): Promise<Ways> {
  const chains = new Map<string, readonly string[]>()
  for (let from = 0; from < ids.length; from += READ) {
    for (const record of await way.getAll(ids.slice(from, from + READ))) {
      if (record !== undefined && !chains.has(record.chainId)) chains.set(record.chainId, ways.get(record.id)!)
    }
  }
  return chains
}

/** Goes from a job to those who wait for its chain, and to those who wait for theirs. */
async function upwards(
  way: Look,
  job: Pick<JobRecord, 'id'>,
  chains: Ways,
  details: JobDetails,
): Promise<readonly string[] | undefined> {
  /** For whom each of them waits. */
  const before = new Map<string, string>()
  for (let level: readonly JobDetails[] = [details]; level.length > 0;) {
    const next: string[] = []
    for (const { id, dependents } of level) {
      for (const { dependent, state } of dependents) {
        if (state !== 'open' || before.has(dependent) || dependent === job.id) continue
        before.set(dependent, id)
        next.push(dependent)
      }
    }
    const found: JobDetails[] = []
    for (let from = 0; from < next.length; from += READ) {
      const ids = next.slice(from, from + READ)
      for (const record of await way.getAll(ids)) {
        const via = record === undefined ? undefined : chains.get(record.chainId)
        if (via !== undefined) return [job.id, ...via, ...backTo(record!.id, before)]
      }
      found.push(...(await stepwise(readDetails(way, { jobs: ids, parts: ['dependents'] }))))
    }
    level = found
  }
  return undefined
}

function backTo(from: string, before: ReadonlyMap<string, string>): string[] {
  const path: string[] = []
  for (let id: string | undefined = from; id !== undefined; id = before.get(id)) path.push(id)
  return path
}

/** Refuses a wait that would never end. */
export async function refuseCycle(
  way: Look,
  call: string,
  job: JobRecord,
  edges: readonly NewEdge[],
  planned: readonly Insert[],
  known?: JobDetails,
): Promise<void> {
  const cycle = await findCycle(
    way,
    job,
    edges.map(({ on }) => on),
    planned,
    known,
  )
  if (cycle === undefined) return
  throw new MillraceError('WAIT_CYCLE', `${call} of job ${job.id} would wait for ever: ${describeCycle(cycle)}.`, {
    details: { id: job.id, cycle },
  })
}

/** Who waits for whom, for people. */
export function describeCycle(cycle: readonly string[]): string {
  const [first, ...rest] = cycle
  if (rest.length === 1) return `${first} waits for its own chain`
  const named = rest.length <= NAMED ? rest : [...rest.slice(0, NAMED - 1), `${rest.length - NAMED} more`, rest.at(-1)!]
  return `${first} waits for ${named.join(', which waits for ')}`
}
