// upkeep/retention/families.ts: finds the jobs that are removed together: a chain, its children, and theirs.
import type { JobHeader, JobRecord } from '../../job/job.js'
import { headerOf } from '../../job/record.js'
import { PAGE_SIZE, pages, readDetails } from '../../store/read-pages.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { JobDetails, Query, Store } from '../../store/store.js'
import { recordsOf } from '../due-records.js'

/** All jobs of a family, parents before children; or one of them that may not be removed yet. */
export type Family = { readonly members: readonly JobHeader[] } | { readonly stays: JobHeader }

/** The ids of those jobs that belong to a family; the others stand alone. */
export async function linksOf(
  store: Store,
  jobs: readonly JobHeader[],
): Promise<{
  readonly linked: ReadonlySet<string>
  /** Those that another job waits for. */
  readonly awaited: ReadonlySet<string>
}> {
  const details = await readLinks(store, jobs)
  const parents = [...new Set(jobs.flatMap(({ parentId }) => parentId ?? []))]
  const living = new Set<string>()
  for await (const found of recordsOf(store, parents)) {
    for (const each of found) if (isParent(each)) living.add(each.id)
  }
  const linked = new Set(details.filter((each) => each.related).map(({ id }) => id))
  for (const { id, parentId } of jobs) if (parentId !== undefined && living.has(parentId)) linked.add(id)
  const awaited = details.filter(({ dependents }) => dependents.some(({ state }) => state === 'open'))
  return { linked, awaited: new Set(awaited.map(({ id }) => id)) }
}

/** Reads the dependents of jobs and whether they have relatives, and nothing else of their details. */
function readLinks(store: Store, jobs: readonly JobHeader[]): Promise<readonly JobDetails[]> {
  return runSteps(readDetails(store, { jobs: jobs.map(({ id }) => id), parts: ['dependents', 'related'] }))
}

/** The topmost ancestor of a job, or itself. A schedule is not the parent of its runs here. */
export async function topOf(store: Store, job: JobHeader): Promise<JobHeader> {
  let top = job
  while (top.parentId !== undefined) {
    const [parent] = await store.get([top.parentId])
    if (!isParent(parent)) break
    top = parent
  }
  return top
}

/** Reads a family from its topmost job down, as long as each may be removed. Keeps no payloads: a family may be large. */
export async function familyOf(
  store: Store,
  top: JobHeader,
  mayGo: (job: JobRecord) => Promise<boolean>,
): Promise<Family> {
  const members: JobHeader[] = []
  const read = async (query: Query): Promise<JobRecord | undefined> => {
    for (const page of pages(store, query)) {
      for (const job of await runSteps(page)) {
        if (!(await mayGo(job))) return job
        members.push(headerOf(job))
      }
    }
    return undefined
  }
  // Checks the youngest job first: it is the most likely one that must stay.
  const [last] = (await store.find({ chain: top.chainId, order: 'newest', limit: 1 })).items
  if (last !== undefined && !(await mayGo(last))) return { stays: last }
  const stays = await read({ chain: top.chainId })
  if (stays !== undefined) return { stays }
  // The continuation of a child is a child of the same parent, so chains need no further read.
  for (let from = 0; from < members.length; from += PAGE_SIZE) {
    for (const { id, related, dependents } of await readLinks(store, members.slice(from, from + PAGE_SIZE))) {
      if (dependents.some(({ state }) => state === 'open')) return { stays: members.find((each) => each.id === id)! }
      const child = related ? await read({ parent: id }) : undefined
      if (child !== undefined) return { stays: child }
    }
  }
  return { members }
}

function isParent(job: JobRecord | undefined): job is JobRecord {
  return job !== undefined && job.kind === 'job'
}
