// server/store-protocol/reads.ts: reads of the store protocol, and of their answers what the caller may know.
import type { JobRecord } from '../../job/job.js'
import type { Details, DetailsQuery, Due, DueQuery, JobDetails, Notice, Page, Query, Store } from '../../store/store.js'
import type { QueueTally } from '../../store/tally.js'
import type { TallyRequest } from '../../store/wire/wire.js'
import { forbidden } from '../problem.js'
import { mayReadCell } from './cell-scope.js'
import { hideDetails, hideDue, hideJob, hideNotice, refuseHiddenSearch } from './hiding.js'
import type { Scope } from './scope.js'

type Reads = Pick<Store, 'get' | 'find' | 'details' | 'tally' | 'due'>

/** Jobs by id; undefined for those of other queues. */
export async function readJobs(
  store: Reads,
  scope: Scope,
  ids: readonly string[],
): Promise<readonly (JobRecord | undefined)[]> {
  const { everything, redactor } = scope
  const found = await store.get(ids)
  const known = everything ? found : found.map((job) => (job !== undefined && scope.holds(job.queue) ? job : undefined))
  return redactor === undefined ? known : known.map((job) => job && hideJob(redactor, job))
}

/** Jobs by a query. A page without its jobs of other queues may be empty, although there are more. */
export async function findJobs(store: Reads, scope: Scope, query: Query): Promise<Page<JobRecord>> {
  const { redactor } = scope
  if (redactor === undefined) return findInScope(store, scope, query)
  refuseHiddenSearch(redactor, query)
  const page = await findInScope(store, scope, query)
  return { ...page, items: page.items.map((job) => hideJob(redactor, job)) }
}

async function findInScope(store: Reads, scope: Scope, query: Query): Promise<Page<JobRecord>> {
  if (scope.everything) return store.find(query)
  if (query.queue === undefined && query.count === true) {
    throw forbidden(`The roles of '${scope.principal.name}' do not hold for every queue: count the jobs of one queue.`)
  }
  if (query.queue !== undefined && !scope.holds(query.queue))
    return query.count ? { items: [], count: 0 } : { items: [] }
  const page = await store.find(query)
  return { ...page, items: page.items.filter((job) => scope.holds(job.queue)) }
}

/** What is stored beside jobs, and cells. A job of another queue is answered as one that does not exist. */
export async function readDetails(store: Reads, scope: Scope, query: DetailsQuery): Promise<Details> {
  const { redactor } = scope
  const found = await detailsInScope(store, scope, query)
  return redactor === undefined ? found : hideDetails(redactor, found)
}

async function detailsInScope(store: Reads, scope: Scope, query: DetailsQuery): Promise<Details> {
  if (scope.everything) return store.details(query)
  const { jobs: ids = [], failures, revokedFrom } = query
  if (failures !== undefined && !scope.holds(failures.queue)) {
    throw forbidden(`The roles of '${scope.principal.name}' do not hold for the queue of these failures.`)
  }
  const known = await areKnown(store, scope, ids)
  const asked: DetailsQuery = {
    ...query,
    ...(query.jobs !== undefined && { jobs: ids.filter((_, at) => known[at]) }),
    ...(revokedFrom !== undefined && { revokedFrom: revokedFrom.filter((worker) => worker.startsWith(scope.prefix)) }),
  }
  const found = await store.details(asked)
  const dependents = [...new Set(found.jobs.flatMap((job) => job.dependents.map(({ dependent }) => dependent)))]
  const mayKnow = await areKnown(store, scope, dependents)
  const shownIds = new Set(dependents.filter((_, at) => mayKnow[at]))
  const shown = (job: JobDetails): JobDetails => ({
    ...job,
    dependents: job.dependents.filter(({ dependent }) => shownIds.has(dependent)),
  })
  return {
    ...found,
    jobs: inPlaces(ids, known, found.jobs.map(shown)),
    cells: found.cells.filter((cell) => mayReadCell(scope, cell)),
  }
}

/** Which of these jobs there are in queues in scope. Not remembered: an id may be used again, in another queue. */
async function areKnown(store: Reads, scope: Scope, ids: readonly string[]): Promise<readonly boolean[]> {
  if (ids.length === 0) return []
  return (await store.get(ids)).map((job) => job !== undefined && scope.holds(job.queue))
}

/** Puts an empty entry where a job was left out; ends where the answer was cut by its bytes. */
function inPlaces(ids: readonly string[], known: readonly boolean[], found: readonly JobDetails[]): JobDetails[] {
  const all: JobDetails[] = []
  let next = 0
  for (const [at, id] of ids.entries()) {
    if (!known[at]) all.push({ id, edges: [], dependents: [], logs: [], steps: [], related: false })
    else if (next < found.length) all.push(found[next++]!)
    else break
  }
  return all
}

/** Counts of queues. */
export async function readTally(
  store: Reads,
  scope: Scope,
  { queues, options }: TallyRequest,
): Promise<readonly QueueTally[]> {
  const asked = scope.everything ? queues : queues?.filter(scope.holds)
  if (asked?.length === 0 && queues?.length !== 0) return []
  const found = await store.tally(asked, undefined, options)
  return scope.everything ? found : found.filter(({ queue }) => scope.holds(queue))
}

/** What is due. */
export async function readDue(store: Reads, scope: Scope, query: DueQuery): Promise<Due> {
  const due = await store.due(scope.everything ? query : { ...query, queues: query.queues.filter(scope.holds) })
  return scope.redactor === undefined ? due : hideDue(due)
}

/** What of a notice the caller may know; undefined: nothing. */
export function filterNotice(scope: Scope, notice: Notice): Notice | undefined {
  const known = noticeInScope(scope, notice)
  return known === undefined || scope.redactor === undefined ? known : hideNotice(scope.redactor, known)
}

function noticeInScope(scope: Scope, notice: Notice): Notice | undefined {
  if (scope.everything) return notice
  const known: Notice = {
    ...notice,
    work: notice.work.filter(scope.holds),
    due: notice.due.filter(({ queue }) => scope.holds(queue)),
    revoked: notice.revoked.filter(({ worker }) => worker.startsWith(scope.prefix)),
    events: notice.events.filter(({ queue }) => scope.holds(queue)),
    ...(notice.held !== undefined && { held: notice.held.filter(({ queue }) => scope.holds(queue)) }),
  }
  const { work, due, revoked, events, held = [], missed, gap } = known
  const empty = work.length + due.length + revoked.length + events.length + held.length === 0
  return empty && missed !== true && !gap ? undefined : known
}
