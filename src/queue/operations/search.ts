// queue/operations/search.ts: finds jobs by values in their data and results: reads page by page, the newest first, up to a bound.
import { quote } from '../../job/errors/errors.js'
import type { JobRecord, Time } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import { invalid, isObject, mustBe } from '../../job/values/options.js'
import type { Session } from '../../store/session.js'
import type { Page, Query } from '../../store/store.js'

/**
 * Values to find jobs by, by their paths: `{ 'data.user.id': 7 }`. A path begins with `data` or `result`; a number in it
 * is an index of an array, or a key. A dot within a key has a backslash before it, as has a backslash:
 * `{ 'data.headers.x\\.id': 7 }`.
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

/** More numbers than this in one path, and an index of values cannot be asked for it. */
const MOST_NUMBERS = 3

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
    const [part, ...path] = keysIn(key)
    if ((part !== 'data' && part !== 'result') || path.includes('')) {
      throw invalid(
        `${field}: the path ${quote(key)} must be data or result, or keys in one of them between dots, as in 'data.user.id'. A dot within a key has a backslash before it.`,
      )
    }
    const isNumber = Number.isFinite(value) // JSON holds no others
    if (value !== null && !isNumber && !['string', 'boolean'].includes(typeof value)) {
      throw mustBe(`${field}: the value of ${quote(key)}`, 'a text, a number, true, false or null', value)
    }
    return { part, path, value }
  })
}

/** The keys of a path. One that ends with a backslash has none. */
function keysIn(path: string): readonly string[] {
  if (!/^(?:[^\\]|\\.)*$/s.test(path)) return []
  return path.split(/(?<!(?:^|[^\\])(?:\\\\)*\\)\./).map((key) => key.replace(/\\(.)/gs, '$1'))
}

const isIndex = (key: string): boolean => /^(0|[1-9]\d*)$/.test(key)

/** What an index of values is asked for: of each value, the documents of which a job contains one. */
function documentsOf(sought: readonly Sought[]): readonly (readonly string[])[] {
  return sought.flatMap(({ part, path, value }) => {
    if (path.filter(isIndex).length > MOST_NUMBERS) return []
    // A number may be the index of an array, where a document tells only that an element is like this, or a key.
    const documents = path.reduceRight<readonly unknown[]>(
      (inner, key) => inner.flatMap((each) => (isIndex(key) ? [{ [key]: each }, [each]] : [{ [key]: each }])),
      [value],
    )
    return [documents.map((each) => JSON.stringify({ [part]: each }))]
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
    if (Array.isArray(found) && !isIndex(key)) return undefined // its length is no value
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
  /** The page was read from an index of values (`queue.searchIndex`): no job was left out. */
  readonly exact?: true
}

/** One page of a search, which has read so many jobs before it. */
export async function searchPage(
  session: Session,
  query: Query & { readonly limit: number },
  sought: readonly Sought[],
  before: number,
): Promise<SearchPage> {
  const items: JobRecord[] = []
  const contains = documentsOf(sought)
  let { cursor } = query
  let searched = before
  let indexed = true
  for (let reads = 0; ; reads++) {
    if (reads === READS_A_CALL || searched - before >= SEARCHED_A_CALL || items.length >= query.limit) {
      return { items, searched, ...(indexed && { exact: true }), ...(cursor !== undefined && { cursor }) }
    }
    const read = (limit: number): Promise<Page<JobRecord>> => {
      return session.find({
        ...query,
        limit,
        ...(contains.length > 0 && { contains }),
        ...(cursor !== undefined && { cursor }),
      })
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
    indexed &&= page.indexed === true
    ;({ cursor } = page)
    if (cursor === undefined) return { items, searched, ...(indexed && { exact: true }) }
    if (searched >= MOST_SEARCHED) return { items, searched, stoppedAt: page.items.at(-1)!.createdAt }
  }
}
