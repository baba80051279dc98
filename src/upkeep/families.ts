// upkeep/families.ts: the jobs that are kept or removed together: a chain, the children of its jobs, and theirs.
import type { JobRecord } from '../job/job.js'
import type { Page, Query, Store } from '../store/store.js'

/** Jobs read at a time. */
const PAGE = 500

/** All jobs of a family, parents before children; or one of them that is not to go yet. */
export type Family = { readonly members: readonly JobRecord[] } | { readonly stays: JobRecord }

/** Those of some jobs that belong to others, by their ids; the rest stand alone. */
export async function kinOf(
  store: Store,
  jobs: readonly JobRecord[],
): Promise<{
  readonly kin: ReadonlySet<string>
  /** Somebody waits for them. */
  readonly awaited: ReadonlySet<string>
}> {
  const { jobs: details } = await store.details({ jobs: jobs.map(({ id }) => id) })
  const parents = [...new Set(jobs.flatMap(({ parentId }) => parentId ?? []))]
  const found = parents.length === 0 ? [] : await store.get(parents)
  const living = new Set(found.filter(isParent).map(({ id }) => id))
  const kin = new Set(details.filter((each) => each.kin).map(({ id }) => id))
  for (const { id, parentId } of jobs) if (parentId !== undefined && living.has(parentId)) kin.add(id)
  const awaited = details.filter(({ dependents }) => dependents.some(({ state }) => state === 'open'))
  return { kin, awaited: new Set(awaited.map(({ id }) => id)) }
}

/** The uppermost job that a job is a child of, or itself. Runs of a schedule are no family of it. */
export async function topOf(store: Store, job: JobRecord): Promise<JobRecord> {
  let top = job
  while (top.parentId !== undefined) {
    const [parent] = await store.get([top.parentId])
    if (!isParent(parent)) break
    top = parent
  }
  return top
}

/** Reads a family from its uppermost job on, as long as each may go. */
export async function familyOf(
  store: Store,
  top: JobRecord,
  mayGo: (job: JobRecord) => Promise<boolean>,
): Promise<Family> {
  const members: JobRecord[] = []
  const read = async (query: Query): Promise<JobRecord | undefined> => {
    let cursor: string | undefined
    do {
      const page: Page<JobRecord> = await store.find({ ...query, limit: PAGE, ...(cursor !== undefined && { cursor }) })
      for (const job of page.items) {
        if (!(await mayGo(job))) return job
        members.push(job)
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
    const { jobs } = await store.details({ jobs: members.slice(from, from + PAGE).map(({ id }) => id) })
    for (const { id, kin, dependents } of jobs) {
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
