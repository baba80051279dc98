// stores/details.ts: reads the details of jobs, and cells, up to a limit of bytes, for stores that read entry by entry.
import type { Edge, JobRecord, LogLine, StepResult, Time } from '../job/job.js'
import type { JsonText } from '../job/values/json.js'
import { READ_BYTES } from '../store/read-pages.js'
import { DEPENDENTS_LISTED } from '../store/store.js'
import type { Cell, Details, DetailsQuery, FailureCount, JobDetails } from '../store/store.js'

/** The details of one job. Lists start after a position, and are read only as far as they fit into the limit of bytes. */
export interface DetailsSource {
  edges(after: number, outcomes: boolean): Iterable<readonly [position: number, edge: Edge]>
  dependents(limit: number): readonly Edge[]
  logs(after: number, limit: number): Iterable<LogLine>
  steps(after: number): Iterable<readonly [position: number, step: StepResult]>
  related(): boolean
}

/** The approximate size in bytes of an edge without its outcome. */
const EDGE_BYTES = 200

/**
 * The details that a query asks for. `sourceOf` opens the details of one job, or returns undefined if there is no such
 * job.
 */
export function detailsOf(
  query: DetailsQuery,
  sourceOf: (id: string) => DetailsSource | undefined,
): readonly JobDetails[] {
  const { jobs = [], bytes: maxBytes = READ_BYTES } = query
  const all: JobDetails[] = []
  let bytes = 0
  for (const id of jobs) {
    if (bytes >= maxBytes && all.length > 0) break
    const source = sourceOf(id)
    if (source === undefined) all.push({ id, ...NO_DETAILS })
    else {
      const read = partsOf(id, source, query, maxBytes)
      all.push(read.details)
      bytes += read.bytes
    }
  }
  return all
}

/** A step as it is stored; columns that are null are absent. */
export function stepOf(name: string, result: JsonText | null, ran: number | null, endedAt: number | null): StepResult {
  const step = { name, result: result ?? undefined }
  return ran === null || endedAt === null ? step : { ...step, ran, endedAt }
}

const NO_DETAILS = { edges: [], dependents: [], logs: [], steps: [], related: false } as const

function partsOf(
  id: string,
  source: DetailsSource,
  { parts, edges, logs, steps }: DetailsQuery,
  maxBytes: number,
): { readonly details: JobDetails; readonly bytes: number } {
  const wants = (part: (typeof parts & {})[number]): boolean => parts === undefined || parts.includes(part)
  const outcomes = wants('outcomes')
  const dependencies = takeBytes(
    wants('edges') ? source.edges(edges?.after ?? -1, outcomes) : [],
    outcomes ? maxBytes : Infinity,
    ([, { result, error }]) => EDGE_BYTES + lengthOf(result) + lengthOf(error?.message),
    edges?.limit,
  )
  const listed = wants('dependents') ? source.dependents(DEPENDENTS_LISTED + 1) : []
  const dependents = listed.slice(0, DEPENDENTS_LISTED)
  const logLines = takeBytes(
    wants('logs') ? source.logs(logs?.after ?? 0, logs?.limit ?? Infinity) : [],
    maxBytes,
    ({ line }) => 50 + line.length,
  )
  const stepEntries = takeBytes(
    wants('steps') ? source.steps(steps?.after ?? 0) : [],
    maxBytes,
    ([, { result }]) => 50 + lengthOf(result),
  )
  const more = {
    ...(dependencies.cut && { edges: dependencies.entries.at(-1)![0] }),
    ...(logLines.cut && { logs: logLines.entries.at(-1)!.index }),
    ...(stepEntries.cut && { steps: stepEntries.entries.at(-1)![0] }),
  }
  return {
    details: {
      id,
      edges: dependencies.entries.map(([, edge]) => edge),
      dependents,
      ...(listed.length > dependents.length && { moreDependents: true as const }),
      logs: logLines.entries,
      steps: stepEntries.entries.map(([, step]) => step),
      related: wants('related') && source.related(),
      ...((dependencies.cut || logLines.cut || stepEntries.cut) && { more }),
    },
    bytes: dependencies.bytes + EDGE_BYTES * dependents.length + logLines.bytes + stepEntries.bytes,
  }
}

/**
 * The cells that a query asks for, by key and by prefix. `cellsWithPrefix` reads the cells of a prefix that come after a
 * key, in the order of their keys.
 */
export function cellsOf(
  { cells: keys = [], cellsUnder, cellsAfter = '', bytes: maxBytes = READ_BYTES }: DetailsQuery,
  cellAt: (key: string) => Cell | undefined,
  cellsWithPrefix: (prefix: string, after: string) => Iterable<Cell>,
): Pick<Details, 'cells' | 'moreCells'> {
  const found = new Map<string, Cell>()
  const page = takeBytes(
    cellsUnder === undefined ? [] : cellsWithPrefix(cellsUnder, cellsAfter),
    maxBytes,
    ({ key, value }) => 50 + key.length + value.length,
  )
  for (const each of [...keys.map(cellAt), ...page.entries]) if (each !== undefined) found.set(each.key, each)
  const cells = [...found.values()].toSorted((a, b) => (a.key < b.key ? -1 : 1))
  return page.cut ? { cells, moreCells: page.entries.at(-1)!.key } : { cells }
}

/** Takes entries until they reach a number of bytes, or until `limit` are taken; always takes the first. */
function takeBytes<T>(
  entries: Iterable<T>,
  maxBytes: number,
  sizeOf: (entry: T) => number,
  limit = Infinity,
): { readonly entries: readonly T[]; readonly bytes: number; readonly cut: boolean } {
  const taken: T[] = []
  let bytes = 0
  for (const entry of entries) {
    if ((bytes >= maxBytes || taken.length >= limit) && taken.length > 0) return { entries: taken, bytes, cut: true }
    taken.push(entry)
    bytes += sizeOf(entry)
  }
  return { entries: taken, bytes, cut: false }
}

function lengthOf(text: string | undefined): number {
  return text === undefined ? 0 : text.length
}

/** The entry of a fingerprint, from the failing jobs that were added first and last. */
export function failureCount(
  fingerprint: string,
  counted: Pick<FailureCount, 'count' | 'more'>,
  oldest: JobRecord,
  newest: JobRecord,
): FailureCount {
  const { id, name, error } = newest
  return { fingerprint, ...counted, first: failedAt(oldest), last: failedAt(newest), id, name, error: error! }
}

/** When a job failed last. Each failed attempt is recorded; a reason for a cancellation is, too. */
function failedAt({ errors, finishedAt, createdAt }: JobRecord): Time {
  return errors.at(-1)?.at ?? finishedAt ?? createdAt
}
