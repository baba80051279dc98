// server/routes/search.ts: finds jobs in all queues of the caller, the newest first, and says how far it looked.
import type { JobRecord } from '../../job/job.js'
import { filterQuery } from '../../queue/operations/filter.js'
import { parseSearch, searchPage } from '../../queue/operations/search.js'
import { sessionFor } from '../../store/session.js'
import { jsonText } from '../json-text.js'
import { cutView, jobView } from '../job-view.js'
import { forbidden } from '../problem.js'
import { FILTER_ERRORS } from '../reading/filter-fields.js'
import { refuseHidden, revealField, showing } from '../reading/reveal.js'
import { parseTerms } from '../reading/search-terms.js'
import { isVisible, visibleQueues } from '../reading/visible-queues.js'
import { route } from '../route.js'
import type { Call, Route } from '../route.js'
import { described, optional, text, whole } from '../shape.js'

/** The most queues of one search. */
const MOST_QUEUES = 50
/** The most jobs whose data one search reads, in all queues together. */
const MOST_SEARCHED = 5_000
/** About how many bytes are read of each queue, and how long data may be in an answer. */
const BYTES_EACH = 1_048_576
const LONGEST = 4_096

interface Looked {
  readonly items: readonly JobRecord[]
  readonly searched: number
  /** The queue was not looked through to the end. */
  readonly more: boolean
}

/** Finds jobs. */
export const searchRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/search',
    access: ['read'],
    summary: 'Jobs of all queues that match, the newest first.',
    description:
      'Words are separated by spaces: `queue:` `state:` `name:` `group:` `tag:` `schedule:` `worker:` `chain:` `parent:` `id:` (how it begins; also a word without a field) `error:` (a code or a fingerprint) `created:<1h` `started:>1h` `finished:2026-01-01..2026-02-01` `data.user.id:7` `result.status:"not found"`. Values in data and results are looked for in the newest jobs that match all else, about 5,000 of them. `complete` is whether everything was looked at. `GET /v1/queues/{queue}/jobs` has pages.',
    changes: false,
    query: {
      q: text({ min: 0, max: 2_000, example: 'state:failed error:ETIMEDOUT' }),
      limit: optional(described(whole(1, 200, 50), 'default 50')),
      ...revealField,
    },
    answers: {
      200: { description: '`jobs`, `queues` looked at, `searched` and `complete`.', schema: { type: 'object' } },
    },
    errors: FILTER_ERRORS,
    handle: (call) =>
      showing({ method: 'GET', path: '/v1/search' }, call, async (redactor) => {
        const { q, limit = 50 } = call.query
        const { queues: asked, filter, values } = parseTerms(q)
        const sought = values === undefined ? undefined : parseSearch(values, 'query.q')
        for (const { part, path } of sought ?? []) refuseHidden([part, ...path], redactor)
        const names = await queuesOf(call, asked)
        const queues = names.slice(0, MOST_QUEUES)
        const { connection } = call.server
        const session = sessionFor(connection)()
        let found: readonly JobRecord[] = []
        let searched = 0
        let complete = queues.length === names.length
        for (const queue of queues) {
          if (sought !== undefined && searched >= MOST_SEARCHED) {
            complete = false
            break
          }
          const query = filterQuery(queue, filter, connection.runtime.now())
          const page = { ...query, order: 'newest' as const, limit, bytes: BYTES_EACH }
          const looked: Looked =
            sought === undefined
              ? await session
                  .find(page)
                  .then(({ items, cursor }) => ({ items, searched: 0, more: cursor !== undefined }))
              : await searchPage(session, page, sought, 0).then((each) => {
                  return {
                    items: each.items,
                    searched: each.searched,
                    more: each.cursor !== undefined || each.stoppedAt !== undefined,
                  }
                })
          searched += looked.searched
          found = [...found, ...looked.items].toSorted((a, b) => b.createdAt - a.createdAt)
          if (looked.more || found.length > limit) complete = false
          found = found.slice(0, limit) // what is beyond the answer is not kept while further queues are read
        }
        const jobs = found.map((record) => cutView(jobView(record, redactor), LONGEST))
        return { text: jsonText({ jobs, queues, complete, ...(sought !== undefined && { searched }) }) }
      }),
  }),
]

async function queuesOf({ server, principal }: Call, asked: readonly string[] | undefined): Promise<readonly string[]> {
  if (asked === undefined) return visibleQueues(server, principal)
  for (const queue of asked) {
    if (!isVisible(server, principal, queue))
      throw forbidden(`The roles of '${principal.name}' do not hold for '${queue}'.`)
  }
  return [...new Set(asked)]
}
