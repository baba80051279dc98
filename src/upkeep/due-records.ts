// upkeep/due-records.ts: reads the records of due jobs whose rule needs the payload, a few at a time.
import type { JobHeader, JobRecord } from '../job/job.js'
import { SIGNAL, readSignal } from '../job/signals.js'
import { bytesOfRecord, READ_BYTES, READ_SIZE } from '../store/read-pages.js'
import type { Store } from '../store/store.js'

/** The first portion: enough that a few due jobs take one read. */
const FIRST = 8

/** How many jobs may be read now; 0 ends the reading. */
type Room = () => Promise<number>

/**
 * The records of some ids, a portion at a time, in order; without those that do not exist. The size of a job is known
 * only once it is read, so portions begin small and grow as long as jobs of that size fit into one answer.
 */
export async function* recordsOf(
  store: Pick<Store, 'get'>,
  ids: readonly string[],
  room: Room = async () => READ_SIZE,
): AsyncGenerator<readonly JobRecord[], void, void> {
  let most = FIRST
  for (let from = 0; from < ids.length;) {
    const size = Math.min(most, await room())
    if (size <= 0) return
    const records = (await store.get(ids.slice(from, from + size))).filter((record) => record !== undefined)
    yield records
    from += size
    const bytes = records.reduce((sum, record) => sum + bytesOfRecord(record), 0)
    const fitting = bytes === 0 ? READ_SIZE : Math.floor((READ_BYTES * records.length) / bytes)
    most = Math.max(1, Math.min(2 * most, READ_SIZE, fitting))
  }
}

/** The records of due jobs, without those that were moved since. */
export async function* dueRecords(
  store: Pick<Store, 'get'>,
  jobs: readonly JobHeader[],
  room?: Room,
): AsyncGenerator<readonly JobRecord[], void, void> {
  const fences = new Map(jobs.map(({ id, fence }) => [id, fence]))
  for await (const records of recordsOf(store, [...fences.keys()], room)) {
    yield records.filter(({ id, fence }) => fences.get(id) === fence)
  }
}

/** The ids of those signals among the rows whose jobs are in the store. */
export async function ownedSignals(store: Store, rows: readonly JobRecord[]): Promise<ReadonlySet<string>> {
  const signals = rows.filter(({ kind }) => kind === SIGNAL)
  const createdAtById = new Map<string, number>()
  for await (const owners of recordsOf(store, [...new Set(signals.map(({ parentId }) => parentId!))])) {
    for (const { id, createdAt } of owners) createdAtById.set(id, createdAt)
  }
  return new Set(
    signals.filter((row) => createdAtById.get(row.parentId!) === readSignal(row).jobCreatedAt).map(({ id }) => id),
  )
}
