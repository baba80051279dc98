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
  const own = [job.id, job.chainId].find((id) => ways.has(id))
  if (own !== undefined) return [job.id, ...wayTo(own, ways), job.id]
  const details = known ?? (await way.details({ jobs: [job.id], parts: ['dependents', 'kin'] })).jobs[0]
  // Nobody waits for it, and it is alone in its chain.
  if (details === undefined || (!details.kin && !details.dependents.some(({ state }) => state === 'open'))) {
    return undefined
  }
  const fresh = new Set(planned.map((insert) => insert.job.id))
  const stored = [...ways.keys()].filter((id) => !fresh.has(id))
  const chains = await chainsOf(way, stored)
  const itself = chains.get(job.chainId)
  if (itself !== undefined) return [job.id, ...wayTo(itself, ways), job.id]
  const found = await upwards(way, job, chains, details)
  return found && [job.id, ...wayTo(found.waitedFor, ways), ...found.back]
}

/** The same for a job that is to come to be with others, and waits for some of them. */
export function cycleAmong(id: string, planned: readonly Insert[]): readonly string[] | undefined {
  const edges = planned.find(({ job }) => job.id === id)?.edges ?? []
  const ways = throughPlanned(
    edges.map(({ on }) => on),
    planned,
  )
  return ways.has(id) ? [id, ...wayTo(id, ways), id] : undefined
}

/** What is waited for, by id, and the planned job by which it is; undefined: by the job that is looked at. */
type Ways = ReadonlyMap<string, string | undefined>

/** The planned jobs through which something is waited for, from the first on. */
function wayTo(id: string, ways: Ways): readonly string[] {
  const path: string[] = []
  for (let by = ways.get(id); by !== undefined; by = ways.get(by)) path.push(by)
  return path.toReversed()
}

function throughPlanned(targets: readonly string[], planned: readonly Insert[]): Ways {
  const byId = new Map(planned.map((insert) => [insert.job.id, insert]))
  const ways = new Map<string, string | undefined>()
  const open: { readonly on: string; readonly by: string | undefined }[] = targets.map((on) => ({ on, by: undefined }))
  for (let at = 0; at < open.length; at++) {
    const { on, by } = open[at]!
    if (ways.has(on)) continue
    ways.set(on, by)
    for (const edge of byId.get(on)?.edges ?? []) open.push({ on: edge.on, by: on })
  }
  return ways
}

/** The chains that some jobs belong to, and the job by which each is known. */
async function chainsOf(way: Look, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const chains = new Map<string, string>()
  for (let from = 0; from < ids.length; from += READ) {
    for (const record of await way.getAll(ids.slice(from, from + READ))) {
      if (record !== undefined && !chains.has(record.chainId)) chains.set(record.chainId, record.id)
    }
  }
  return chains
}

/**
 * Goes from a job to those who wait for its chain, and to those who wait for theirs, until one is found that is waited for itself: the
 * job that it is known by, and the way from it back to the job.
 */
async function upwards(
  way: Look,
  job: Pick<JobRecord, 'id'>,
  chains: ReadonlyMap<string, string>,
  details: JobDetails,
): Promise<{ readonly waitedFor: string; readonly back: readonly string[] } | undefined> {
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
        const waitedFor = record === undefined ? undefined : chains.get(record.chainId)
        if (waitedFor !== undefined) return { waitedFor, back: backTo(record!.id, before) }
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
