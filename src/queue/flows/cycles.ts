// queue/flows/cycles.ts: finds jobs that wait for one another for ever: refuses such waits, explains existing ones.
import type { Insert, NewEdge } from '../../job/change.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { JobRecord } from '../../job/job.js'
import { portions, READ_SIZE, readDetails } from '../../store/read-pages.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { JobDetails } from '../../store/store.js'
import type { Session } from '../../store/session.js'

/** What the search for cycles uses of a session. */
type Reader = Pick<Session, 'details' | 'getAll'>

/** Maximum number of jobs that a text names. */
const MAX_NAMED = 10

/**
 * Finds the cycle that would exist if a job waited for `targets`: each job in it waits for the chain of the next, and
 * the last is the first again. Undefined if there is none. `planned` are jobs that the same commit inserts.
 *
 * Searches among the dependents of the job, not among its targets: mostly there are none, or one parent. Of more dependents
 * of one chain than `DEPENDENTS_LISTED` it sees those alone.
 */
export async function findCycle(
  session: Reader,
  job: Pick<JobRecord, 'id' | 'chainId'>,
  targets: readonly string[],
  planned: readonly Insert[] = [],
  known?: JobDetails,
): Promise<readonly string[] | undefined> {
  const paths = pathsThroughPlanned(targets, planned)
  const direct = [job.id, job.chainId].find((id) => paths.has(id))
  if (direct !== undefined) return [job.id, ...plannedPathTo(direct, paths), job.id]
  const details = known ?? (await session.details({ jobs: [job.id], parts: ['dependents', 'related'] })).jobs[0]
  // No job waits for it, and it is alone in its chain.
  if (details === undefined || (!details.related && !details.dependents.some(({ state }) => state === 'open'))) {
    return undefined
  }
  const plannedIds = new Set(planned.map((insert) => insert.job.id))
  const stored = [...paths.keys()].filter((id) => !plannedIds.has(id))
  const chains = await targetsByChain(session, stored)
  const itself = chains.get(job.chainId)
  if (itself !== undefined) return [job.id, ...plannedPathTo(itself, paths), job.id]
  const found = await searchDependents(session, job, chains, details)
  return found && [job.id, ...plannedPathTo(found.target, paths), ...found.back]
}

/** The same for a job that is inserted together with others and waits for some of them. */
export function cycleAmong(id: string, planned: readonly Insert[]): readonly string[] | undefined {
  const edges = planned.find(({ job }) => job.id === id)?.edges ?? []
  const paths = pathsThroughPlanned(
    edges.map(({ on }) => on),
    planned,
  )
  return paths.has(id) ? [id, ...plannedPathTo(id, paths), id] : undefined
}

/** What is waited for, by id, each with the planned job that waits for it; undefined: the job under test itself. */
type Paths = ReadonlyMap<string, string | undefined>

/** The planned jobs on the path to what is waited for, first one first. */
function plannedPathTo(id: string, paths: Paths): readonly string[] {
  const path: string[] = []
  for (let via = paths.get(id); via !== undefined; via = paths.get(via)) path.push(via)
  return path.toReversed()
}

function pathsThroughPlanned(targets: readonly string[], planned: readonly Insert[]): Paths {
  const byId = new Map(planned.map((insert) => [insert.job.id, insert]))
  const paths = new Map<string, string | undefined>()
  const frontier: { readonly on: string; readonly via: string | undefined }[] = targets.map((on) => ({
    on,
    via: undefined,
  }))
  for (let at = 0; at < frontier.length; at++) {
    const { on, via } = frontier[at]!
    if (paths.has(on)) continue
    paths.set(on, via)
    for (const edge of byId.get(on)?.edges ?? []) frontier.push({ on: edge.on, via: on })
  }
  return paths
}

/** The chains of these jobs, each with the first of the jobs in it. */
async function targetsByChain(session: Reader, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const chains = new Map<string, string>()
  for (const some of portions(ids, READ_SIZE)) {
    for (const record of await session.getAll(some)) {
      if (record !== undefined && !chains.has(record.chainId)) chains.set(record.chainId, record.id)
    }
  }
  return chains
}

/**
 * Walks from a job to the dependents of its chain, and on to their dependents, until one is in a chain of `chains`.
 * Returns the target in that chain, and the path from the dependent back to the job.
 */
async function searchDependents(
  session: Reader,
  job: Pick<JobRecord, 'id'>,
  chains: ReadonlyMap<string, string>,
  details: JobDetails,
): Promise<{ readonly target: string; readonly back: readonly string[] } | undefined> {
  /** For each dependent, the job it waits for. */
  const waitsFor = new Map<string, string>()
  for (let level: readonly JobDetails[] = [details]; level.length > 0;) {
    const next: string[] = []
    for (const { id, dependents } of level) {
      for (const { dependent, state } of dependents) {
        if (state !== 'open' || waitsFor.has(dependent) || dependent === job.id) continue
        waitsFor.set(dependent, id)
        next.push(dependent)
      }
    }
    const found: JobDetails[] = []
    for (const ids of portions(next, READ_SIZE)) {
      for (const record of await session.getAll(ids)) {
        const target = record === undefined ? undefined : chains.get(record.chainId)
        if (target !== undefined) return { target, back: pathTo(record!.id, waitsFor) }
      }
      found.push(...(await runSteps(readDetails(session, { jobs: ids, parts: ['dependents'] }))))
    }
    level = found
  }
  return undefined
}

function pathTo(from: string, waitsFor: ReadonlyMap<string, string>): string[] {
  const path: string[] = []
  for (let id: string | undefined = from; id !== undefined; id = waitsFor.get(id)) path.push(id)
  return path
}

/** Throws if a wait would never end. */
export async function refuseCycle(
  session: Reader,
  call: string,
  job: JobRecord,
  edges: readonly NewEdge[],
  planned: readonly Insert[],
  known?: JobDetails,
): Promise<void> {
  const cycle = await findCycle(
    session,
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

/** Describes a cycle, for people. */
export function describeCycle(cycle: readonly string[]): string {
  const [first, ...rest] = cycle
  if (rest.length === 1) return `${first} waits for its own chain`
  const named =
    rest.length <= MAX_NAMED ? rest : [...rest.slice(0, MAX_NAMED - 1), `${rest.length - MAX_NAMED} more`, rest.at(-1)!]
  return `${first} waits for ${named.join(', which waits for ')}`
}
