// store/read-pages.ts: how much one read returns, and how to read the rest.
import type { ErrorInfo, JobRecord, JobState, Millis } from '../job/job.js'
import { step } from './maybe-sync.js'
import type { Steps } from './maybe-sync.js'
import type { Cell, Details, DetailsQuery, JobDetails, Page, Query, TimeRange } from './store.js'

/** Bytes of text in one answer, about: the most that a page of jobs, or of details, holds. */
export const READ_BYTES = 8 * 2 ** 20

/** How many failing jobs one answer counts in all; each fingerprint is counted to `FAILURES_EACH` at least. */
export const FAILURES_COUNTED = 5_000

/** How many failing jobs of a fingerprint are counted at least, if there are so many. */
export const FAILURES_EACH = 100

/** The states of the jobs that are listed in the order in which they ended. */
export const endStates: readonly JobState[] = ['failed', 'cancelled']

/** The most rows that one page of a filtered query looks at. */
export const ROWS_LOOKED = 1_000

/**
 * By how much the time at which a job was added may be out of the order of insertion: a range of time is looked for
 * between the first and the last job added then, and by so much before and after.
 */
const CLOCK_SLACK: Millis = 600_000

/** Whether a query is one of those that look at a bounded number of rows: it has a field from `tags` on, or counts. */
export function isFiltered(query: Query): boolean {
  return (
    query.tags !== undefined ||
    query.anyTag !== undefined ||
    query.worker !== undefined ||
    query.idPrefix !== undefined ||
    query.created !== undefined ||
    query.started !== undefined ||
    query.finished !== undefined ||
    query.errorCode !== undefined ||
    query.fingerprint !== undefined ||
    query.order === 'finished' ||
    query.count === true
  )
}

/**
 * The times between which the jobs of a query were added, as far as its ranges show: a job is added before it starts
 * and before it finishes.
 */
export function addedWithin({ created, started, finished }: Query): TimeRange {
  const ends = [created?.to, started?.to, finished?.to].filter((to) => to !== undefined)
  return {
    ...(created?.from !== undefined && { from: created.from - CLOCK_SLACK }),
    ...(ends.length > 0 && { to: Math.min(...ends) + CLOCK_SLACK }),
  }
}

/** Jobs per page, where all pages are read. */
export const PAGE_SIZE = 500

/** Jobs per read by id, with their payloads: such a read has no limit in bytes. */
export const READ_SIZE = 50

/** The fields of a job that may be large; a header has none of them. */
type Payload = Partial<Pick<JobRecord, 'data' | 'memo' | 'progress' | 'result' | 'error' | 'errors' | 'history'>>

/** About how many bytes of text a job adds to a page: its payload, and a little for the rest. */
export function bytesOfRecord({ data, memo, progress, result, error, errors, history }: Payload): number {
  let bytes = 500 + lengthOf(data) + lengthOf(memo) + lengthOf(progress) + lengthOf(result)
  if (history !== undefined) bytes += history.length
  if (error !== undefined) bytes += bytesOfError(error)
  // Most jobs have none: this runs several times for every job.
  if (errors !== undefined && errors.length > 0) for (const each of errors) bytes += 100 + bytesOfError(each)
  return bytes
}

/** Counts its causes and aggregated errors as well. */
function bytesOfError({ message, stack, cause, errors }: ErrorInfo): number {
  let bytes = lengthOf(message) + lengthOf(stack)
  if (cause !== undefined) bytes += bytesOfError(cause)
  if (errors !== undefined) for (const each of errors) bytes += bytesOfError(each)
  return bytes
}

function lengthOf(text: string | undefined): number {
  return text === undefined ? 0 : text.length
}

/**
 * The pages of a query, each to be read with `yield*` or `runSteps` before the next is asked for:
 * `for (const page of pages(session, query)) for (const job of yield* page) …`
 */
export function* pages(
  from: { find(query: Query): Promise<Page<JobRecord>> },
  query: Query,
): Generator<Steps<readonly JobRecord[]>, void, void> {
  let cursor: string | undefined
  const read = function* (): Steps<readonly JobRecord[]> {
    const page = yield* step(from.find({ limit: PAGE_SIZE, ...query, ...(cursor !== undefined && { cursor }) }))
    cursor = page.cursor
    return page.items
  }
  for (;;) {
    yield read()
    if (cursor === undefined) return
  }
}

/** A list in portions of a size. */
export function* portions<T>(list: readonly T[], size: number): Generator<readonly T[], void, void> {
  for (let from = 0; from < list.length; from += size) yield list.slice(from, from + size)
}

/** A source of details: a store, or a session on one. */
interface DetailsSource {
  details(query: DetailsQuery): Promise<Details>
}

/** The details of some jobs, in the order requested: read in as many answers as needed, each limited in bytes. */
export function* readDetails(from: DetailsSource, query: DetailsQuery): Steps<readonly JobDetails[]> {
  const all: JobDetails[] = []
  let left = query.jobs ?? []
  while (left.length > 0) {
    const { jobs } = yield* step(from.details({ ...query, jobs: left }))
    for (const each of jobs) all.push(each.more === undefined ? each : yield* readRest(from, query, each))
    left = left.slice(jobs.length)
  }
  return all
}

/** All cells whose keys begin with a prefix, and those named: read in as many answers as needed, each limited in bytes. */
export function* readCells(
  from: DetailsSource,
  under: string,
  query: Pick<DetailsQuery, 'cells' | 'bytes'> = {},
): Steps<readonly Cell[]> {
  const found = new Map<string, Cell>()
  let more: Pick<DetailsQuery, 'cellsAfter'> = {}
  for (;;) {
    const before = found.size
    const { cells, moreCells } = yield* step(from.details({ ...query, ...more, cellsUnder: under }))
    for (const cell of cells) found.set(cell.key, cell)
    if (moreCells === undefined) return [...found.values()]
    if (found.size === before) throw new Error(`The store gave the cells under ${under} again, not what follows them.`)
    more = { cellsAfter: moreCells }
  }
}

/** Reads the rest of the lists of one job that were cut. */
function* readRest(from: DetailsSource, query: DetailsQuery, cut: JobDetails): Steps<JobDetails> {
  const { edges, logs, steps } = { edges: [...cut.edges], logs: [...cut.logs], steps: [...cut.steps] }
  const limit = query.logs?.limit ?? Infinity
  for (let more = cut.more; more !== undefined;) {
    const { edges: edge, logs: log, steps: after } = more
    const { jobs } = yield* step(
      from.details({
        jobs: [cut.id],
        parts: [
          ...(edge === undefined ? [] : (['edges', 'outcomes'] as const)),
          ...(log === undefined ? [] : (['logs'] as const)),
          ...(after === undefined ? [] : (['steps'] as const)),
        ],
        ...(edge !== undefined && { edges: { after: edge } }),
        ...(log !== undefined && {
          logs: { after: log, ...(limit !== Infinity && { limit: Math.max(0, limit - logs.length) }) },
        }),
        ...(after !== undefined && { steps: { after } }),
        ...(query.bytes !== undefined && { bytes: query.bytes }),
      }),
    )
    const [next] = jobs
    edges.push(...(next?.edges ?? []))
    logs.push(...(next?.logs ?? []))
    steps.push(...(next?.steps ?? []))
    if (isBehind(more, next?.more))
      throw new Error(`The store gave the details of job ${cut.id} again, not what follows them.`)
    more = next?.more
  }
  const { more: _, ...rest } = cut
  return { ...rest, edges, logs, steps }
}

/** Whether a list continues at the same position or an earlier one: reading on would never end. */
function isBehind(before: Exclude<JobDetails['more'], undefined>, now: JobDetails['more']): boolean {
  return (['edges', 'logs', 'steps'] as const).some((list) => {
    const [last, next] = [before[list], now?.[list]]
    return last !== undefined && next !== undefined && next <= last
  })
}
