// stores/details.ts: what lies beside jobs, and cells, cut by bytes, for stores that read entry by entry.
import type { Edge, LogLine, StepResult } from '../job/job.js'
import { READ_BYTES } from '../store/read-pages.js'
import type { Cell, Details, DetailsQuery, JobDetails } from '../store/store.js'

/** What lies beside one job. Lists begin behind a place, and are read as far as there is room for them. */
export interface Beside {
  edges(after: number, outcomes: boolean): Iterable<readonly [place: number, edge: Edge]>
  dependents(): readonly Edge[]
  logs(after: number, limit: number): Iterable<LogLine>
  steps(after: number): Iterable<readonly [place: number, step: StepResult]>
  kin(): boolean
}

/** About how many bytes an edge without its outcome has. */
const EDGE_BYTES = 200

/** The parts of jobs that a query asks for; `beside` opens those of one job, if it is there. */
export function detailsOf(query: DetailsQuery, beside: (id: string) => Beside | undefined): readonly JobDetails[] {
  const { jobs = [], bytes: most = READ_BYTES } = query
  const all: JobDetails[] = []
  let bytes = 0
  for (const id of jobs) {
    if (bytes >= most && all.length > 0) break
    const found = beside(id)
    if (found === undefined) all.push({ id, ...NOTHING })
    else {
      const read = partsOf(id, found, query, most)
      all.push(read.details)
      bytes += read.bytes
    }
  }
  return all
}

const NOTHING = { edges: [], dependents: [], logs: [], steps: [], kin: false } as const

function partsOf(
  id: string,
  beside: Beside,
  { parts, edges, logs, steps }: DetailsQuery,
  most: number,
): { readonly details: JobDetails; readonly bytes: number } {
  const asked = (part: (typeof parts & {})[number]): boolean => parts === undefined || parts.includes(part)
  const outcomes = asked('outcomes')
  const waits = upTo(
    asked('edges') ? beside.edges(edges?.after ?? -1, outcomes) : [],
    outcomes ? most : Infinity,
    ([, { result, error }]) => EDGE_BYTES + lengthOf(result) + lengthOf(error?.message),
    edges?.limit,
  )
  const dependents = asked('dependents') ? beside.dependents() : []
  const lines = upTo(
    asked('logs') ? beside.logs(logs?.after ?? 0, logs?.limit ?? Infinity) : [],
    most,
    ({ line }) => 50 + line.length,
  )
  const taken = upTo(
    asked('steps') ? beside.steps(steps?.after ?? 0) : [],
    most,
    ([, { result }]) => 50 + lengthOf(result),
  )
  const more = {
    ...(waits.cut && { edges: waits.entries.at(-1)![0] }),
    ...(lines.cut && { logs: lines.entries.at(-1)!.index }),
    ...(taken.cut && { steps: taken.entries.at(-1)![0] }),
  }
  return {
    details: {
      id,
      edges: waits.entries.map(([, edge]) => edge),
      dependents,
      logs: lines.entries,
      steps: taken.entries.map(([, step]) => step),
      kin: asked('kin') && beside.kin(),
      ...((waits.cut || lines.cut || taken.cut) && { more }),
    },
    bytes: waits.bytes + EDGE_BYTES * dependents.length + lines.bytes + taken.bytes,
  }
}

/** The cells that a query asks for: by their keys, and under a prefix, of which `under` reads those behind a key in order. */
export function cellsOf(
  { cells: keys = [], cellsUnder, cellsAfter = '', bytes: most = READ_BYTES }: DetailsQuery,
  cell: (key: string) => Cell | undefined,
  under: (prefix: string, after: string) => Iterable<Cell>,
): Pick<Details, 'cells' | 'moreCells'> {
  const found = new Map<string, Cell>()
  const page = upTo(
    cellsUnder === undefined ? [] : under(cellsUnder, cellsAfter),
    most,
    ({ key, value }) => 50 + key.length + value.length,
  )
  for (const each of [...keys.map(cell), ...page.entries]) if (each !== undefined) found.set(each.key, each)
  const cells = [...found.values()].toSorted((a, b) => (a.key < b.key ? -1 : 1))
  return page.cut ? { cells, moreCells: page.entries.at(-1)!.key } : { cells }
}

/** Takes entries until they reach so many bytes, or are so many; the first in any case. */
function upTo<T>(
  entries: Iterable<T>,
  most: number,
  weigh: (entry: T) => number,
  limit = Infinity,
): { readonly entries: readonly T[]; readonly bytes: number; readonly cut: boolean } {
  const taken: T[] = []
  let bytes = 0
  for (const entry of entries) {
    if ((bytes >= most || taken.length >= limit) && taken.length > 0) return { entries: taken, bytes, cut: true }
    taken.push(entry)
    bytes += weigh(entry)
  }
  return { entries: taken, bytes, cut: false }
}

function lengthOf(text: string | undefined): number {
  return text === undefined ? 0 : text.length
}
