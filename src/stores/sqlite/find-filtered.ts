// stores/sqlite/find-filtered.ts: pages of filtered queries: from the narrowest index that holds all matches, at most so many
// rows a page.
import type { JobRecord, Time } from '../../job/job.js'
import { addedWithin, bytesOfRecord, READ_BYTES, ROWS_LOOKED } from '../../store/read-pages.js'
import type { Page, Query } from '../../store/store.js'
import { merge } from '../merge.js'
import type { Cache } from './cache.js'
import type { Value } from './file/driver.js'
import { countTagged, filteredList, jobFrom, laneSource, lastJob, prefixValues, seqsByPrefix } from './filter-sql.js'
import type { ListSource } from './filter-sql.js'
import { lanesIn } from './find.js'
import type { Lister } from './find.js'

/** Default number of jobs in a page. */
const PAGE_SIZE = 100

/** Jobs that begin with a text are read by their ids if they are no more than this. */
const FEW_IDS = 1_000

/** More jobs of a tag than this are not counted to find the rarest. */
const MANY_TAGGED = 1_000

/** A row of a list: its place in the order of the query, and whether it matches. */
interface Looked {
  readonly seq: number
  /** When it ended, in the order of ends; else 0. */
  readonly at: Time
  readonly fits: boolean
}

/** One page. Its cursor is the number of the last row looked at; by the time of the end, after that time. */
export function findFiltered(cache: Cache, list: Lister, query: Query): Page<JobRecord> {
  const { bytes: maxBytes = READ_BYTES } = query
  const limit = query.count === true ? Infinity : (query.limit ?? PAGE_SIZE)
  const seqs = seqsWithin(list, query)
  const sources = sourcesOf(cache, list, query)
  const first = Math.max(16, Math.ceil(Math.min(2 * limit, ROWS_LOOKED) / Math.max(1, sources.length)))
  const streams = sources.map((source) => rowsOf(list, source, query, seqs, first))
  const items: JobRecord[] = []
  let [bytes, count, looked] = [0, 0, 0]
  let last: Looked | undefined
  const page = (cursor?: string): Page<JobRecord> => ({
    items,
    ...(cursor !== undefined && { cursor }),
    ...(query.count === true && { count }),
  })
  for (const row of merge(streams, compareOf(query))) {
    if (row.seq === last?.seq) continue // it has several of the tags
    if (looked === ROWS_LOOKED) return page(cursorAt(last!, query))
    if (row.fits) {
      if (count >= limit || (bytes >= maxBytes && count > 0)) return page(cursorAt(last!, query))
      count++
      if (query.count !== true) {
        const { job } = cache.bySeq(row.seq)
        items.push(job)
        bytes += bytesOfRecord(job)
      }
    }
    looked++
    last = row
  }
  return page()
}

function cursorAt({ at, seq }: Looked, { order }: Query): string {
  return order === 'finished' ? `${at}.${seq}` : String(seq)
}

function compareOf({ order }: Query): (a: Looked, b: Looked) => number {
  if (order === 'finished') return (a, b) => b.at - a.at || b.seq - a.seq
  return order === 'newest' ? (a, b) => b.seq - a.seq : (a, b) => a.seq - b.seq
}

/** The rows of a list after the cursor, read on demand: a few, then more at a time. */
function* rowsOf(
  list: Lister,
  source: ListSource,
  query: Query,
  seqs: ReturnType<typeof seqsWithin>,
  first: number,
): Generator<Looked, undefined> {
  const { text, values } = filteredList(source, query, seqs)
  const statement = list(text)
  const ended = source.by === 'ended'
  let { at, seq } = startOf(query, seqs)
  for (let count = first; ; count = Math.min(ROWS_LOOKED, 2 * count)) {
    // The number of the last row comes after the other values of the list.
    const rest: readonly Value[] = ended ? [...values.slice(0, -1), seq] : values
    const rows = statement.all(ended ? at : seq, count, ...rest) as number[][]
    for (const row of rows) {
      if (ended) [at, seq] = row as [number, number]
      else seq = row[0]!
      yield { at, seq, fits: row.at(-1) === 1 }
    }
    if (rows.length < count) return
  }
}

function startOf({ cursor, order }: Query, seqs: ReturnType<typeof seqsWithin>): { at: number; seq: number } {
  if (order === 'finished') {
    const [at, seq] = cursor === undefined ? [] : cursor.split('.').map(Number)
    return { at: at ?? Number.MAX_SAFE_INTEGER, seq: seq ?? Number.MAX_SAFE_INTEGER }
  }
  if (order === 'newest') return { at: 0, seq: Math.min(seqs.to, cursor === undefined ? Infinity : Number(cursor)) }
  return { at: 0, seq: Math.max(seqs.from - 1, cursor === undefined ? -1 : Number(cursor)) }
}

/** The numbers of the jobs added within the times of a query: from the first of them to the one after the last. */
function seqsWithin(list: Lister, query: Query): { readonly from: number; readonly to: number } {
  const { from, to } = addedWithin(query)
  const last = from === undefined && to === undefined ? undefined : (list(lastJob).get()?.[0] as number | undefined)
  const bound = (at: Time | undefined, otherwise: number): number =>
    at === undefined || last === undefined ? otherwise : firstAddedFrom(list, at, last)
  return { from: bound(from, 0), to: bound(to, Number.MAX_SAFE_INTEGER) }
}

/** The number of the first job that was added at a time or later: jobs are added in the order of their numbers. */
function firstAddedFrom(list: Lister, at: Time, last: number): number {
  let [low, high] = [0, last + 1]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const [seq, createdAt] = (list(jobFrom).get(middle) ?? [last, at]) as [number, Time]
    if (createdAt >= at) high = middle
    else low = seq + 1
  }
  return low
}

/** The narrowest lists that together contain every match. */
function sourcesOf(cache: Cache, list: Lister, query: Query): readonly ListSource[] {
  const { chain, parent, tags, anyTag, fingerprint, errorCode, group, idPrefix } = query
  if (query.order !== 'finished') {
    if (chain !== undefined) {
      return [
        { by: 'chain', of: chain },
        { by: 'first', of: chain },
      ]
    }
    if (parent !== undefined) return [{ by: 'parent', of: parent }]
    const few = idPrefix === undefined ? undefined : fewWithPrefix(list, idPrefix)
    if (few !== undefined) return [{ by: 'ids', of: JSON.stringify(few) }]
  }
  const queues = query.queue === undefined ? cache.sql.queues.all().map(([id]) => id) : [cache.queue(query.queue)]
  return queues.flatMap((id): readonly ListSource[] => {
    if (id === undefined) return []
    const queue = id as number
    if (query.order === 'finished') return [{ by: 'ended', queue }]
    if (tags !== undefined) return [{ by: 'tag', queue, of: rarest(list, queue, tags) }]
    if (anyTag !== undefined) return anyTag.map((of) => ({ by: 'tag', queue, of }))
    if (fingerprint !== undefined) return [{ by: 'fingerprint', queue, of: fingerprint }]
    if (errorCode !== undefined) return [{ by: 'code', queue, of: errorCode }]
    if (group !== undefined) return [{ by: 'group', queue, of: group }]
    return lanesIn(cache, queue, query).map(([state, of]) => laneSource(state, of))
  })
}

function fewWithPrefix(list: Lister, prefix: string): readonly number[] | undefined {
  const rows = list(seqsByPrefix).all(...prefixValues(prefix, FEW_IDS + 1))
  return rows.length > FEW_IDS ? undefined : rows.map(([seq]) => seq as number)
}

/** The tag with the fewest jobs, as far as they are counted. */
function rarest(list: Lister, queue: number, tags: readonly string[]): string {
  if (tags.length === 1) return tags[0]!
  const counts = tags.map((tag) => list(countTagged).get(queue, tag, MANY_TAGGED)![0] as number)
  return tags[counts.indexOf(Math.min(...counts))]!
}
