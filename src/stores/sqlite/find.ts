// stores/sqlite/find.ts: finds jobs, page by page, in insertion order.
import { jobStates } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import { bytesOfRecord, READ_BYTES } from '../../store/read-pages.js'
import type { Page, Query } from '../../store/store.js'
import { merge } from '../merge.js'
import type { Statement, Value } from './file/driver.js'
import type { Cache } from './cache.js'
import { listing } from './statement-texts.js'
import type { Listing } from './statement-texts.js'

/** Default number of jobs in a page. */
const PAGE_SIZE = 100

/** Returns the prepared statement of a listing, or of a text. */
export type Lister = (listing: Listing | string) => Statement

/** Statements kept prepared: more than there are listings, and than a program has kinds of filters. */
const MAX_PREPARED = 300

/** Prepares each listing when it is first used. */
export function lister(prepare: (sql: string) => Statement): Lister {
  const prepared = new Map<string, Statement>()
  return (wanted) => {
    const text = typeof wanted === 'string' ? wanted : listing(wanted)
    let statement = prepared.get(text)
    if (statement === undefined) {
      if (prepared.size >= MAX_PREPARED) prepared.clear()
      prepared.set(text, (statement = prepare(text)))
    }
    return statement
  }
}

/** One page of the jobs that match. Its cursor is the number of its last job. */
export function find(cache: Cache, list: Lister, query: Query): Page<JobRecord> {
  const { limit = PAGE_SIZE, bytes: maxBytes = READ_BYTES } = query
  const lists = listings(cache, query)
  // With many listings, a page contains few jobs of each.
  const first = Math.min(limit + 1, Math.max(8, Math.ceil((2 * limit) / Math.max(1, lists.length))))
  const streams = lists.map(([wanted, value]) => seqsOf(list(wanted), value, query, first, limit + 1))
  const compare = query.order === 'newest' ? (a: number, b: number) => b - a : (a: number, b: number) => a - b
  const items: JobRecord[] = []
  let bytes = 0
  let last: number | undefined
  for (const seq of merge(streams, compare)) {
    if (items.length >= limit || (bytes >= maxBytes && last !== undefined))
      return { items, ...(last !== undefined && { cursor: String(last) }) }
    const { job } = cache.bySeq(seq)
    items.push(job)
    bytes += bytesOfRecord(job)
    last = seq
  }
  return { items }
}

/** The numbers of jobs in a listing, read on demand: a few, then more at a time. */
function* seqsOf(
  statement: Statement,
  value: Value,
  query: Query,
  first: number,
  maxCount: number,
): Generator<number, undefined> {
  const { states, names, kind, queue, chain, parent, group, cursor, order } = query
  let from = cursor === undefined ? (order === 'newest' ? Number.MAX_SAFE_INTEGER : -1) : Number(cursor)
  for (let count = first; ; count = Math.min(maxCount, 2 * count)) {
    const rows = statement.all(
      value,
      from,
      count,
      states === undefined ? null : JSON.stringify(states),
      names === undefined ? null : JSON.stringify(names),
      kind ?? null,
      queue ?? null,
      chain ?? null,
      parent ?? null,
      group ?? null,
    ) as [number][]
    for (const [seq] of rows) yield seq
    if (rows.length < count) return
    from = rows.at(-1)![0]
  }
}

/** The narrowest listings that together contain every match exactly once, each with the value of its first parameter. */
function listings(cache: Cache, query: Query): readonly (readonly [Listing, Value])[] {
  const order = query.order === 'newest' ? 'newest' : 'oldest'
  if (query.chain !== undefined) {
    return [
      [{ by: 'chain', order }, query.chain],
      [{ by: 'id', order }, query.chain],
    ]
  }
  if (query.parent !== undefined) return [[{ by: 'parent', order }, query.parent]]
  const { queue, states, names, kind, group } = query
  const filters = [queue, states, names, kind, group]
  if (filters.every((each) => each === undefined)) return [[{ by: 'all', order }, null]]
  const ids =
    query.queue === undefined ? cache.sql.queues.all().map(([id]) => id!) : [cache.queue(query.queue)].filter(isKnown)
  const found: [Listing, Value][] = []
  for (const id of ids) {
    if (query.kind === 'schedule') found.push([{ by: 'schedule', order }, id])
    else if (query.group === undefined) {
      for (const [by, value] of lanesIn(cache, id as number, query)) found.push([{ by, order }, value])
    } else if (query.states === undefined) found.push([{ by: 'group', order }, id])
    else for (const state of new Set(query.states)) found.push([{ by: `group ${state}`, order }, id])
  }
  return found
}

/** The listings of a queue for the names and states of a query: one per lane and state, and one for all active jobs. */
export function lanesIn(
  cache: Cache,
  queue: number,
  { states, names, kind }: Query,
): readonly (readonly [JobState, number])[] {
  const wanted = new Set<string>(states ?? jobStates)
  const found = new Map<string, readonly [JobState, number]>()
  const add = (by: JobState, value: number): void => void found.set(`${by} ${value}`, [by, value])
  if (wanted.has('active')) add('active', queue)
  for (const [lane, name, what] of cache.sql.laneCounts.all(queue) as [number, string, string][]) {
    if (names !== undefined && !names.includes(name)) continue
    // Schedules are counted as such, whatever their state.
    const listed = what === 'schedule' ? (kind === 'job' ? [] : jobStates) : jobStates.filter((state) => state === what)
    for (const state of listed) if (state !== 'active' && wanted.has(state)) add(state, lane)
  }
  return [...found.values()]
}

function isKnown(id: number | undefined): id is number {
  return id !== undefined
}
