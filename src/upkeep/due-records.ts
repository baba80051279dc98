// upkeep/due-records.ts: reads the records of due jobs whose rule needs the payload, a few at a time.
import type { JobHeader, JobRecord } from '../job/job.js'
import type { Store } from '../store/store.js'

/** Jobs read at a time. All of them are in memory at once, and each may hold megabytes. */
const PORTION = 50

/** The records of some ids, a portion at a time, in order; without those that do not exist. */
export async function* recordsOf(
  store: Pick<Store, 'get'>,
  ids: readonly string[],
): AsyncGenerator<readonly JobRecord[], void, void> {
  for (let from = 0; from < ids.length; from += PORTION) {
    const found = await store.get(ids.slice(from, from + PORTION))
    yield found.filter((record) => record !== undefined)
  }
}

/** The records of due jobs, without those that were moved since. */
export async function* dueRecords(
  store: Pick<Store, 'get'>,
  jobs: readonly JobHeader[],
): AsyncGenerator<readonly JobRecord[], void, void> {
  const fences = new Map(jobs.map(({ id, fence }) => [id, fence]))
  for await (const records of recordsOf(store, [...fences.keys()])) {
    yield records.filter(({ id, fence }) => fences.get(id) === fence)
  }
}
