// upkeep/due-records.ts: reads the payloads of due jobs whose rule needs them, a few at a time.
import type { JobHeader, JobRecord } from '../job/job.js'
import type { Store } from '../store/store.js'

/** Jobs read at a time: all of them are in memory at once, and each may hold megabytes. */
const PORTION = 50

/** The records of some ids, a portion at a time, in order; those that are gone are left out. */
export async function* recordsOf(
  store: Pick<Store, 'get'>,
  ids: readonly string[],
): AsyncGenerator<readonly JobRecord[], void, void> {
  for (let from = 0; from < ids.length; from += PORTION) {
    const found = await store.get(ids.slice(from, from + PORTION))
    yield found.filter((record) => record !== undefined)
  }
}

/** The records of due jobs; one that was moved since is left out, for it is no longer what was due. */
export async function* dueRecords(
  store: Pick<Store, 'get'>,
  jobs: readonly JobHeader[],
): AsyncGenerator<readonly JobRecord[], void, void> {
  const fences = new Map(jobs.map(({ id, fence }) => [id, fence]))
  for await (const records of recordsOf(store, [...fences.keys()])) {
    yield records.filter(({ id, fence }) => fences.get(id) === fence)
  }
}
