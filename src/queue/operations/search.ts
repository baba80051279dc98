// queue/operations/search.ts: finds jobs by values in their data and results: reads page by page, the newest first, up to a bound.
import { quote } from '../../job/errors/errors.js'
import type { JobRecord, Time } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import { invalid, isObject, mustBe } from '../../job/values/options.js'
import type { Session } from '../../store/session.js'
import type { Page, Query } from '../../store/store.js'

/**
 * Values to find jobs by, by their paths: `{ 'data.user.id': 7 }`. A path begins with `data` or `result`; a number in it
 * is an index of an array.
 */
export type SearchValues = Readonly<Record<string, string | number | boolean | null>>

/** A search is over when it has read this many jobs that match the filter. */
const MOST_SEARCHED = 100_000

/** Jobs that one call reads, about, before it returns what it has found. */
const SEARCHED_A_CALL = 5_000

/** Reads of one call: a read may find no job to look at. */
const READS_A_CALL = 50

/** Jobs per read. */
const SEARCH_PAGE = 500

/** The most values of one search. */
const MOST_VALUES = 10

/** A value to find, and where. */
interface Sought {
  readonly part: 'data' | 'result'
  readonly path: readonly string[]
  readonly value: string | number | boolean | null
}

/** Checks the values of a search. */
export function parseSearch(search: SearchValues, field: string): readonly Sought[] {
  if (!isObject(search)) throw mustBe(field, "values by path, as in { 'data.user.id': 7 }", search)
  const entries = Object.entries(search)
  if (entries.length === 0) throw invalid(`${field} must have one value at least, or be left out.`)
  if (entries.length > MOST_VALUES)
    throw invalid(`${field} has ${entries.length} values, and ${MOST_VALUES} is the most.`)
  return entries.map(([key, value]) => {
    const [part, ...path] = key.split('.')
    if ((part !== 'data' && part !== 'result') || path.includes('')) {
      throw invalid(`${field}: the path ${quote(key)} must begin with data or result, as in 'data.user.id'.`)
    }
    const isNumber = Number.isFinite(value) // JSON holds no others
    if (value !== null && !isNumber && !['string', 'boolean'].includes(typeof value)) {
      throw mustBe(`${field}: the value of ${quote(key)}`, 'a text, a number, true, false or null', value)
    }
    return { part, path, value }
  })
}

/** Whether a job has all values. */
function hasAll(job: JobRecord, sought: readonly Sought[]): boolean {
  const parsed: { data?: unknown; result?: unknown } = {}
  return sought.every(({ part, path, value }) => {
    const text = job[part]
    if (text === undefined) return false
    if (!(part in parsed)) parsed[part] = decodeJson(text)
    return valueAt(parsed[part], path) === value
  })
}

function valueAt(value: unknown, path: readonly string[]): unknown {
  let found = value
  for (const key of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined
    found = (found as Record<string, unknown>)[key]
  }
  return found
}

/** A page of a search. */
export interface SearchPage extends Page<JobRecord> {
  /** How many jobs the search has read, on this page and those before. */
  readonly searched: number
  /** Where the search ended without having read all: when the last job that it read was added. */
  readonly stoppedAt?: Time
}

/** One page of a search, which has read so many jobs before it. */
export async function searchPage(
  session: Session,
  query: Query & { readonly limit: number },
  sought: readonly Sought[],
  before: number,
): Promise<SearchPage> {
  const items: JobRecord[] = []
  let { cursor } = query
  let searched = before
  for (let reads = 0; ; reads++) {
    if (reads === READS_A_CALL || searched - before >= SEARCHED_A_CALL || items.length >= query.limit) {
      return { items, searched, ...(cursor !== undefined && { cursor }) }
    }
    const read = (limit: number): Promise<Page<JobRecord>> => {
      return session.find({ ...query, limit, ...(cursor !== undefined && { cursor }) })
    }
    const room = query.limit - items.length
    let page = await read(Math.min(SEARCH_PAGE, MOST_SEARCHED - searched))
    let found = page.items.filter((job) => hasAll(job, sought))
    while (found.length > room) {
      // Read again up to the last job that fits, because a cursor stands behind a whole page. Where jobs have left the
      // list since, others have moved up, of which too many may match once more.
      page = await read(page.items.indexOf(found[room - 1]!) + 1)
      found = page.items.filter((job) => hasAll(job, sought))
    }
    items.push(...found)
    searched += page.items.length
    ;({ cursor } = page)
    if (cursor === undefined) return { items, searched }
    if (searched >= MOST_SEARCHED) return { items, searched, stoppedAt: page.items.at(-1)!.createdAt }
  }
}
