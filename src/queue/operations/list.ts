// queue/operations/list.ts: pages of the jobs that match a filter. A cursor belongs to the filter and the order of its list.
import { MillraceError, quote } from '../../job/errors/errors.js'
import { hashOf } from '../../job/values/hash.js'
import type { JobRecord, Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { invalid, oneOf } from '../../job/values/options.js'
import type { Session } from '../../store/session.js'
import { endStates } from '../../store/read-pages.js'
import type { Page } from '../../store/store.js'
import { checkLimit, filterNames, filterQuery } from './filter.js'
import type { JobFilter, PageOptions } from './filter.js'
import { parseSearch, searchPage } from './search.js'
import type { SearchPage, SearchValues } from './search.js'

/** Options of `queue.list`. */
export type ListOptions<Name extends string = string> = JobFilter<Name> & PageOptions & (ListOrder | ListSearch)

/** The order of a list. */
interface ListOrder {
  /**
   * `oldest` or `newest`: in the order in which they were added, the oldest or the newest first. `finished`: only those
   * that failed or were cancelled, the one that ended last first. Default `oldest`.
   */
  readonly order?: 'oldest' | 'newest' | 'finished'
  /** No search. */
  readonly search?: undefined
}

/** A search goes from the newest job to older ones. */
interface ListSearch {
  /** As for a list; not `oldest`. Default `newest`. */
  readonly order?: 'newest' | 'finished'
  /**
   * Jobs with these values in their data or results, by path: `{ 'data.user.id': 7 }`. Reads the jobs that match all
   * other fields, one by one, the newest 100,000 at most; a page may be short or empty although there are more.
   * No default: it is given.
   */
  readonly search: SearchValues
}

/** A page of a list; of a search, with how far it went. */
export type ListedPage = Page<JobRecord> & Partial<Pick<SearchPage, 'searched' | 'stoppedAt' | 'exact'>>

/** One page of a list. */
export async function listPage(session: Session, queue: string, options: ListOptions, now: Time): Promise<ListedPage> {
  refuseUnknown(options, [...filterNames, 'limit', 'cursor', 'order', 'search'], 'queue.list')
  const { limit = 100, cursor, search, order = search === undefined ? 'oldest' : 'newest' } = options
  oneOf(order, ['oldest', 'newest', 'finished'], 'queue.list: order')
  const query = { ...filterQuery(queue, options, now), limit: checkLimit(limit, 'queue.list'), order }
  if (order === 'finished' && query.states !== undefined && !query.states.every((state) => endStates.includes(state))) {
    throw invalid(
      "queue.list: order 'finished' lists jobs that failed or were cancelled; list others by 'newest', with finished: { from: … }.",
    )
  }
  if (search !== undefined && order === 'oldest') {
    throw invalid("queue.list: a search goes from the newest job to older ones; leave out order, or give 'finished'.")
  }
  const sought = search === undefined ? undefined : parseSearch(search, 'queue.list: search')
  const mark = markOf(queue, options, order)
  const [from, before] = cursor === undefined ? [] : openCursor(cursor, mark)
  const asked = { ...query, ...(from !== undefined && { cursor: from }) }
  if (sought === undefined) {
    const page = await session.find(asked)
    return page.cursor === undefined ? page : { items: page.items, cursor: `${mark}.${page.cursor}` }
  }
  const page = await searchPage(session, asked, sought, before ?? 0)
  return page.cursor === undefined ? page : { ...page, cursor: `${mark}.${page.cursor}/${page.searched}` }
}

/** A short text that is equal for lists of one queue, filter, search and order, whatever the order of their fields. */
function markOf(queue: string, options: ListOptions, order: string): string {
  const fields = [...filterNames, 'search' as const].map((name) => options[name] ?? null)
  return hashOf(JSON.stringify([queue, order, ...fields])).slice(0, 8)
}

/** The store's cursor in a cursor of this list, and how many jobs a search has read. Throws for one of another list. */
function openCursor(cursor: unknown, mark: string): readonly [from: string, searched: number] {
  const found = typeof cursor === 'string' ? /^([0-9a-f]{8})\.([\d.-]{1,64})(?:\/(\d{1,9}))?$/.exec(cursor) : null
  const [, of, inner, searched = '0'] = found ?? []
  if (inner !== undefined && of === mark) return [inner, Number(searched)]
  const what = inner === undefined ? 'is no cursor of a list' : 'comes from a list of another queue, filter or order'
  throw new MillraceError('INVALID_CURSOR', `queue.list: the cursor ${quote(cursor)} ${what}.`)
}
