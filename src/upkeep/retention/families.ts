// upkeep/retention/families.ts: the jobs that are kept or removed together: a chain, the children of its jobs, and theirs.
import type { JobHeader, JobRecord } from '../../job/job.js'
import { readDetails } from '../../store/read-pages.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { JobDetails, Page, Query, Store } from '../../store/store.js'
import { recordsOf } from '../due-records.js'

/** Jobs read at a time. */
const PAGE = 500

/** All jobs of a family, parents before children; or one of them that is not to go yet. */
export type Family = { readonly members: readonly (JobHeader | JobRecord)[] } | { readonly stays: JobHeader }

/** Those of some jobs that belong to others, by their ids; the rest stand alone. */
export async function kinOf(
  store: Store,
  jobs: readonly JobHeader[],
): Promise<{
  readonly kin: ReadonlySet<string>
  /** Somebody waits for them. */
  readonly awaited: ReadonlySet<string>
}> {
  const details = await lookAt(store, jobs)
  const parents = [...new Set(jobs.flatMap(({ parentId }) => parentId ?? []))]
  const living = new Set<string>()
  for await (const found of recordsOf(store, parents)) {
    for (const each of found) if (isParent(each)) living.add(each.id)
  }
  const kin = new Set(details.filter((each) => each.kin).map(({ id }) => id))
  for (const { id, parentId } of jobs) if (parentId !== undefined && living.has(parentId)) kin.add(id)
  const awaited = details.filter(({ dependents }) => dependents.some(({ state }) => state === 'open'))
  return { kin, awaited: new Set(awaited.map(({ id }) => id)) }
}

/** Who waits for some jobs, and whether they have relatives: nothing else of what lies beside them is read. */
function lookAt(store: Store, jobs: readonly JobHeader[]): Promise<readonly JobDetails[]> {
  return stepwise(readDetails(store, { jobs: jobs.map(({ id }) => id), parts: ['dependents', 'kin'] }))
}

/** The uppermost job that a job is a child of, or itself. Runs of a schedule are no family of it. */
export async function topOf(store: Store, job: JobHeader): Promise<JobHeader> {
  let top = job
  while (top.parentId !== undefined) {
    const [parent] = await store.get([top.parentId])
    if (!isParent(parent)) break
    top = parent
  }
  return top
}

/** Reads a family from its uppermost job on, as long as each may go; `keep` says what is kept of each in memory. */
export async function familyOf(
  store: Store,
  top: JobHeader,
  mayGo: (job: JobRecord) => Promise<boolean>,
  keep: (job: JobRecord) => JobHeader | JobRecord,
): Promise<Family> {
  const members: (JobHeader | JobRecord)[] = []
  const read = async (query: Query): Promise<JobRecord | undefined> => {
    let cursor: string | undefined
    do {
      const page: Page<JobRecord> = await store.find({ ...query, limit: PAGE, ...(cursor !== undefined && { cursor }) })
      for (const job of page.items) {
        if (!(await mayGo(job))) return job
        members.push(keep(job))
      }
      cursor = page.cursor
    } while (cursor !== undefined)
    return undefined
  }
  // What is youngest tells soonest that a chain is to stay.
  const [last] = (await store.find({ chain: top.chainId, order: 'newest', limit: 1 })).items
  if (last !== undefined && !(await mayGo(last))) return { stays: last }
  const stays = await read({ chain: top.chainId })
  if (stays !== undefined) return { stays }
  // What a child is continued with is a child of the same parent: chains need no further look.
  for (let from = 0; from < members.length; from += PAGE) {
    for (const { id, kin, dependents } of await lookAt(store, members.slice(from, from + PAGE))) {
      if (dependents.some(({ state }) => state === 'open')) return { stays: members.find((each) => each.id === id)! }
      const child = kin ? await read({ parent: id }) : undefined
      if (child !== undefined) return { stays: child }
    }
  }
  return { members }
}

function isParent(job: JobRecord | undefined): job is JobRecord {
  return job !== undefined && job.kind === 'job'
}
