// server/routes/jobs.ts: reads about jobs: lists, one job and what is stored beside it.
import { LOGS_KEPT } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { asJob } from '../../job/schedules/schedule.js'
import { attemptsOf, stepsOf } from '../../job/timeline.js'
import { explain } from '../../queue/explain.js'
import { readGraph } from '../../queue/graph.js'
import { listPage } from '../../queue/operations/list.js'
import type { ListOptions } from '../../queue/operations/list.js'
import { parseSearch } from '../../queue/operations/search.js'
import type { SearchValues } from '../../queue/operations/search.js'
import { readTimeline } from '../../queue/operations/times.js'
import { storeTime } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import { sessionFor } from '../../store/session.js'
import type { Session } from '../../store/session.js'
import { findJob } from '../find-job.js'
import { RawJson, jsonText } from '../json-text.js'
import { cutView, jobView, pickView, viewFields } from '../job-view.js'
import { FILTER_ERRORS, filterFields, filterOf } from '../reading/filter-fields.js'
import { refuseHidden, revealField, showing } from '../reading/reveal.js'
import { isVisible } from '../reading/visible-queues.js'
import type { Redactor } from '../redact.js'
import { route } from '../route.js'
import type { Answer, Call, Route } from '../route.js'
import { described, list, oneOf, optional, refuse, text, whole } from '../shape.js'

const READ = ['read'] as const
const anObject = { type: 'object' } as const

const viewQuery = {
  fields: optional(described(list(oneOf(...viewFields), { min: 1, max: viewFields.length }), 'default: all')),
  cut: optional(
    described(
      whole(0, 100_000_000, 262_144),
      'leave out data, results and progress longer than so many characters; `cut` has their beginnings',
    ),
  ),
  ...revealField,
} as const

const parts = ['logs', 'steps', 'edges', 'history', 'timeline', 'explain'] as const

/** Reads about jobs. */
export const jobRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/jobs',
    access: READ,
    summary: 'Jobs by page, with the filters of `queue.list`.',
    description:
      'A page is also cut at about 8 MiB. Only the absence of `cursor` shows that there are no more. `search` finds jobs by values in their data and results: it reads the newest jobs that match all else, and `searched` shows how many.',
    changes: false,
    query: {
      ...filterFields,
      search: optional(described(text({ max: 2_000, example: '{"data.user.id":7}' }), 'values by path, as JSON')),
      order: optional(oneOf('oldest', 'newest', 'finished')),
      limit: optional(whole(1, 500, 100)),
      cursor: optional(text({ max: 120, example: 'a cursor of a page' })),
      ...viewQuery,
    },
    answers: { 200: { description: '`jobs`, and a `cursor` where there may be more.', schema: anObject } },
    errors: [...FILTER_ERRORS, 'INVALID_CURSOR'],
    handle: (call) =>
      showing({ method: 'GET', path: '/v1/queues/{queue}/jobs' }, call, async (redactor) => {
        const { server, params, query } = call
        const { limit = 100, order, cursor } = query
        const search = query.search === undefined ? undefined : searchIn(query.search, redactor)
        const options = {
          ...filterOf(query),
          limit,
          ...(order !== undefined && { order }),
          ...(cursor !== undefined && { cursor }),
          ...(search !== undefined && { search }),
        } as ListOptions // an order that a search does not have is refused there
        const now = server.connection.runtime.now()
        const { items, ...more } = await listPage(sessionOf(call), params['queue']!, options, now)
        const jobs = items.map((record) => cutView(pickView(jobView(record, redactor), query.fields), query.cut))
        return { text: jsonText({ jobs, ...more }) }
      }),
  }),
  route({
    method: 'GET',
    path: '/v1/jobs/{id}',
    access: READ,
    summary: 'One job; with `include`, also what is stored beside it.',
    changes: false,
    query: { include: optional(list(oneOf(...parts), { min: 1, max: parts.length })), ...viewQuery },
    answers: { 200: { description: 'The job.', schema: anObject } },
    errors: ['JOB_NOT_FOUND'],
    handle: (call) =>
      showing(aboutJob('GET', '/v1/jobs/{id}'), call, async (redactor) => {
        const { include = [], fields, cut } = call.query
        const record = await jobOf(call)
        const view = cutView(pickView(jobView(record, redactor), fields), cut)
        const found: Record<string, unknown> = { ...view }
        for (const part of include) Object.assign(found, await readPart[part](call, record, redactor))
        return { text: jsonText(found) }
      }),
  }),
  detail('/v1/jobs/{id}/explain', 'Why the job is not running: reasons, and a sentence.', 'explain'),
  detail('/v1/jobs/{id}/attempts', 'The attempts of the job, the last 50, the oldest first.', 'history'),
  detail('/v1/jobs/{id}/steps', 'The steps of its handler that have ended, with their results.', 'steps'),
  detail('/v1/jobs/{id}/timeline', 'What the job did and when: waits, attempts, phases, steps and lines.', 'timeline'),
  route({
    method: 'GET',
    path: '/v1/jobs/{id}/logs',
    access: READ,
    summary: 'Lines of the log of the job, the oldest first.',
    changes: false,
    query: {
      after: optional(described(whole(0, Number.MAX_SAFE_INTEGER, 0), 'the index of the last line that is known')),
      limit: optional(whole(1, LOGS_KEPT, LOGS_KEPT)),
      ...revealField,
    },
    answers: { 200: { description: '`logs`: lines with their `index`, time and attempt.', schema: anObject } },
    errors: ['JOB_NOT_FOUND'],
    handle: (call) =>
      showing(aboutJob('GET', '/v1/jobs/{id}/logs'), call, async (redactor) => {
        const record = await jobOf(call)
        return { text: jsonText(await readLogs(call, record, redactor, call.query)) }
      }),
  }),
  route({
    method: 'GET',
    path: '/v1/jobs/{id}/graph',
    access: READ,
    summary: 'The jobs around the job and the edges between them, at most 500 jobs, in layers.',
    description: 'Of jobs in queues that the caller may not read, only ids and states are shown: they are `hidden`.',
    changes: false,
    query: revealField,
    answers: { 200: { description: '`nodes`, `edges`, `folded` and the `critical` path.', schema: anObject } },
    errors: ['JOB_NOT_FOUND'],
    handle: (call) =>
      showing(aboutJob('GET', '/v1/jobs/{id}/graph'), call, async (redactor) => {
        const { server, principal } = call
        const record = await jobOf(call)
        const session = sessionOf(call)
        const graph = await runSteps(readGraph(session, record, await storeTime(server.connection, false)))
        const nodes = graph.nodes.map((node) => {
          const { id, state, layer, chainId, chainIndex, ran, error } = node
          if (node.queue !== undefined && !isVisible(server, principal, node.queue)) {
            return { id, state, layer, chainId, chainIndex, ran: 0, hidden: true }
          }
          return { ...node, ran, error: error === undefined ? undefined : redactor.plain(error, 'error') }
        })
        return { text: jsonText({ ...graph, nodes }) }
      }),
  }),
]

function sessionOf({ server }: Pick<Call, 'server'>): Session {
  return sessionFor(server.connection)()
}

function jobOf({ server, principal, params }: Call): Promise<JobRecord> {
  return findJob(server, principal, params['id']!)
}

/** A route about one job, as the audit needs it. */
function aboutJob(method: Route['method'], path: string): Pick<Route, 'method' | 'path' | 'queueOf'> {
  return { method, path, queueOf: async (call) => (await jobOf(call)).queue }
}

/** The values to search for. What is hidden cannot be searched for: the answer would tell it. */
function searchIn(given: string, redactor: Redactor): SearchValues {
  let values: unknown
  try {
    values = JSON.parse(given)
  } catch {
    throw refuse('query.search', 'JSON such as {"data.user.id":7}', given)
  }
  for (const { part, path } of parseSearch(values as SearchValues, 'query.search')) {
    refuseHidden([part, ...path], redactor)
  }
  return values as SearchValues
}

type PartReader = (call: Call, record: JobRecord, redactor: Redactor) => Promise<Readonly<Record<string, unknown>>>

/** Reads what is stored beside a job. */
const readPart: Readonly<Record<(typeof parts)[number], PartReader>> = {
  logs: (call, record, redactor) => readLogs(call, record, redactor, {}),
  async steps(call, { id }, redactor) {
    const { jobs } = await sessionOf(call).details({ jobs: [id], parts: ['steps'] })
    const stored = jobs[0]?.steps ?? []
    const steps = stepsOf(stored.map((each) => ({ ...each, result: undefined }))).map((each, at) => {
      const { result } = stored[at]!
      return { ...each, result: result === undefined ? undefined : new RawJson(redactor.json(result, 'steps')) }
    })
    return { steps, ...(jobs[0]?.more?.steps !== undefined && { moreSteps: true }) }
  },
  async edges(call, { id }) {
    const { jobs } = await sessionOf(call).details({ jobs: [id], parts: ['edges'], edges: { limit: MOST_EDGES } })
    const edges = (jobs[0]?.edges ?? []).map(({ chain, state, policy }) => ({ chain, state, policy }))
    return { edges, ...(jobs[0]?.more?.edges !== undefined && { moreEdges: true }) }
  },
  history: async (_call, record, redactor) => ({ history: redactor.plain(attemptsOf(asJob(record)), 'errors') }),
  async timeline(call, { id }, redactor) {
    const { connection } = call.server
    const now = await storeTime(connection, false)
    const { entries, ...rest } = await runSteps(readTimeline(sessionOf(call), id, () => now))
    return { timeline: { ...rest, entries: redactor.plain(entries, 'timeline') } }
  },
  async explain(call, record, redactor) {
    const now = await storeTime(call.server.connection, false)
    return { explanation: redactor.plain(await explain(sessionOf(call), record, now), 'explanation') }
  },
}

/** The most edges of one answer. */
const MOST_EDGES = 1_000

async function readLogs(
  call: Call,
  { id }: JobRecord,
  redactor: Redactor,
  { after = 0, limit = LOGS_KEPT }: { readonly after?: number; readonly limit?: number },
): Promise<Readonly<Record<string, unknown>>> {
  const { jobs } = await sessionOf(call).details({ jobs: [id], parts: ['logs'], logs: { after, limit } })
  const logs = (jobs[0]?.logs ?? []).map((each) => ({ ...each, line: redactor.text(each.line) }))
  return { logs, ...(jobs[0]?.more?.logs !== undefined && { moreLogs: true }) }
}

/** A route that answers one part of a job. */
function detail(path: string, summary: string, part: (typeof parts)[number]): Route {
  return route({
    method: 'GET',
    path,
    access: READ,
    summary,
    changes: false,
    query: revealField,
    answers: { 200: { description: `As with \`include=${part}\`, that part alone.`, schema: anObject } },
    errors: ['JOB_NOT_FOUND'],
    handle: (call): Promise<Answer> =>
      showing(aboutJob('GET', path), call, async (redactor) => {
        return { text: jsonText(await readPart[part](call, await jobOf(call), redactor)) }
      }),
  })
}
