// stores/sqlite/find.ts: finds jobs, page by page, in the order of their insertion.
import { jobStates } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import type { Page, Query } from '../../store/store.js'
import type { Statement, Value } from './driver.js'
import type { Ground } from './ground.js'
import { listing } from './sql.js'
import type { Listing } from './sql.js'

/** Jobs in a page, unless the query says otherwise. */
const PAGE = 100

/** Prepares the statement of a listing, or has it. */
export type Lister = (listing: Listing) => Statement

/** Prepares listings as they are first asked for. */
export function lister(prepare: (sql: string) => Statement): Lister {
  const prepared = new Map<string, Statement>()
  return (asked) => {
    const text = listing(asked)
    let statement = prepared.get(text)
    if (statement === undefined) prepared.set(text, (statement = prepare(text)))
    return statement
  }
}

/** One page of the jobs that match. Its cursor is the number of its last job. */
export function find(ground: Ground, list: Lister, query: Query): Page<JobRecord> {
  const limit = query.limit ?? PAGE
  const newest = query.order === 'newest'
  const numbers: number[] = []
  for (const [asked, value] of listings(ground, query)) {
    const from = query.cursor === undefined ? (newest ? Number.MAX_SAFE_INTEGER : -1) : Number(query.cursor)
    const rows = list(asked).all(
      value,
      from,
      limit + 1,
      query.states === undefined ? null : JSON.stringify(query.states),
      query.names === undefined ? null : JSON.stringify(query.names),
      query.kind ?? null,
      query.queue ?? null,
      query.chain ?? null,
      query.parent ?? null,
    )
    for (const [seq] of rows) numbers.push(seq as number)
  }
  numbers.sort(newest ? (a, b) => b - a : (a, b) => a - b)
  const page = numbers.slice(0, limit)
  const items = page.map((seq) => ground.bySeq(seq).job)
  return numbers.length > limit && page.length > 0 ? { items, cursor: String(page.at(-1)!) } : { items }
}

/** The narrowest listings that together hold all that match, each once, and what each is asked for. */
function listings(ground: Ground, query: Query): readonly (readonly [Listing, Value])[] {
  const order = query.order ?? 'oldest'
  if (query.chain !== undefined) {
    return [
      [{ by: 'chain', order }, query.chain],
      [{ by: 'id', order }, query.chain],
    ]
  }
  if (query.parent !== undefined) return [[{ by: 'parent', order }, query.parent]]
  const ids =
    query.queue === undefined ? ground.sql.queues.all().map(([id]) => id!) : [ground.queue(query.queue)].filter(isKnown)
  const found: [Listing, Value][] = []
  for (const id of ids) {
    if (query.kind === 'schedule') found.push([{ by: 'schedule', order }, id])
    else for (const state of new Set(query.states ?? jobStates)) found.push([{ by: state, order }, id])
  }
  return found
}

function isKnown(id: number | undefined): id is number {
  return id !== undefined
}
