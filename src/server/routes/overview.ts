// server/routes/overview.ts: reads about everything: workers, metrics, what needs attention, and the audit.
import { isFinished } from '../../job/job.js'
import { isReserved } from '../../job/values/names.js'
import { liveEntries } from '../../queue/explain.js'
import { pageQuery } from '../../queue/operations/filter.js'
import { metricsText, METRICS_TYPE } from '../../features/prometheus.js'
import { readMonitored } from '../../features/monitored.js'
import { storeTime } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import { readCells } from '../../store/read-pages.js'
import { sessionFor } from '../../store/session.js'
import { WORKERS } from '../../store/settings.js'
import { AUDIT_QUEUE } from '../audit.js'
import { RawJson, jsonText } from '../json-text.js'
import { allQueues, inScope } from '../principal.js'
import { isVisible } from '../reading/visible-queues.js'
import { route } from '../route.js'
import type { Call, Route } from '../route.js'
import { described, flag, name, optional, text, whole } from '../shape.js'

const anObject = { type: 'object' } as const

/** The most queues whose running jobs one call reads, and how many of each. */
const MOST_QUEUES = 20
const MOST_RUNNING = 500

/** Reads about everything. */
export const overviewRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/metrics',
    access: ['read'],
    summary: 'The metrics of the queues of the caller, as Prometheus reads them.',
    changes: false,
    answers: { 200: { description: 'The text.', type: METRICS_TYPE } },
    errors: [],
    async handle({ server, principal }) {
      const wanted = (queue: string): boolean => isVisible(server, principal, queue)
      const monitored = await readMonitored(server.connection, undefined, wanted)
      return { text: metricsText(monitored), headers: { 'content-type': METRICS_TYPE } }
    },
  }),
  route({
    method: 'GET',
    path: '/v1/attention',
    access: ['read'],
    summary: 'What needs attention: failures, names without workers, what is late or paused; each with a sentence.',
    description: 'Failures are those since `/v1/live` is being read, ten minutes at most.',
    changes: false,
    answers: { 200: { description: '`items`, and the queues that were looked at: 500 at most.', schema: anObject } },
    errors: [],
    async handle({ server, principal }) {
      const { at, queues, attention } = await server.live.current()
      const visible = (queue: string): boolean => isVisible(server, principal, queue)
      const items = attention.filter(({ queue }) => visible(queue)).slice(0, 500)
      return { body: { at, items, queues: queues.filter(({ queue }) => visible(queue)).length } }
    },
  }),
  route({
    method: 'GET',
    path: '/v1/workers',
    access: ['read'],
    summary: 'The live workers of the queues of the caller; with `running`, also the jobs that they run.',
    changes: false,
    query: {
      running: optional(flag),
      limit: optional(whole(1, 500, 100)),
      cursor: optional(text({ max: 255, example: 'a cursor of a page' })),
    },
    answers: { 200: { description: '`workers` by id, and a `cursor` where there are more.', schema: anObject } },
    errors: [],
    handle: workersOf,
  }),
  route({
    method: 'GET',
    path: '/v1/audit',
    access: ['admin'],
    summary: 'Who changed what, the newest first: each change by an admin, and each look at what is hidden.',
    description:
      'An entry that is `asked` was recorded before its change, of which nothing is known: it is going on, or the server ended in it. Entries are kept for 90 days. An admin of some queues sees theirs.',
    changes: false,
    query: {
      queue: optional(described(name('mail'), 'changes of this queue')),
      by: optional(described(name('ann'), 'changes by this caller')),
      limit: optional(whole(1, 500, 100)),
      cursor: optional(text({ max: 40, pattern: [/^-?\d{1,16}$/, 'a cursor that a page gave'], example: '7' })),
    },
    answers: { 200: { description: '`entries`, and a `cursor` where there may be more.', schema: anObject } },
    errors: [],
    async handle({ server, principal, query }) {
      const { queue, by, limit = 100, cursor } = query
      const session = sessionFor(server.connection)()
      const page = pageQuery({ limit, cursor }, 'audit')
      const wanted = {
        queue: AUDIT_QUEUE,
        order: 'newest' as const,
        ...page,
        ...(queue !== undefined && { group: queue }),
      }
      const { items, cursor: next } = await session.find(wanted)
      const all = allQueues(principal)
      const entries = items.flatMap(
        ({ id, name: action, state, group, data, result, error, createdAt, finishedAt }) => {
          if (!all && (group === undefined || !inScope(principal, group))) return []
          const change = JSON.parse(data!) as { readonly by: string }
          if (by !== undefined && change.by !== by) return []
          const outcome = isFinished(state) ? (state === 'completed' ? 'done' : 'refused') : 'asked'
          return [
            {
              id,
              action,
              outcome,
              queue: group,
              ...change,
              result: result === undefined ? undefined : new RawJson(result),
              why: error?.message,
              at: createdAt,
              endedAt: finishedAt,
            },
          ]
        },
      )
      return { text: jsonText({ entries, cursor: next }) }
    },
  }),
]

async function workersOf(
  call: Call<
    undefined,
    {
      readonly running?: boolean | undefined
      readonly limit?: number | undefined
      readonly cursor?: string | undefined
    }
  >,
): Promise<{ readonly body: object }> {
  const { server, principal, query } = call
  const { running = false, limit = 100, cursor = '' } = query
  const session = sessionFor(server.connection)()
  const now = await storeTime(server.connection, false)
  const cells = await runSteps(readCells(session, WORKERS))
  const visible = (queue: string): boolean => isVisible(server, principal, queue)
  const known = liveEntries(cells, now)
    .filter(({ worker }) => worker.id > cursor && worker.queues.some(visible))
    .toSorted((a, b) => (a.worker.id < b.worker.id ? -1 : 1))
  const page = known.slice(0, limit)
  const names = new Set(page.flatMap(({ worker }) => worker.queues.filter(visible)))
  const jobs = running ? await runningIn(call, [...names].slice(0, MOST_QUEUES)) : undefined
  const workers = page.map(({ at, worker }) => {
    const {
      id,
      name: workerName,
      host,
      pid,
      queues,
      names: handled,
      versions,
      state,
      slots = 0,
      running: busy = 0,
      startedAt,
    } = worker
    return {
      id,
      ...(workerName !== undefined && { workerName }),
      host,
      pid,
      queues: queues.filter(visible),
      ...(handled !== undefined && handled !== null && { names: handled }),
      versions,
      state,
      slots,
      running: busy,
      startedAt,
      seenAt: at,
      ...(jobs !== undefined && { jobs: jobs.get(id) ?? [] }),
    }
  })
  return { body: { workers, ...(known.length > limit && { cursor: page.at(-1)!.worker.id }) } }
}

/** The running jobs of some queues, by their workers. */
async function runningIn(
  { server }: Pick<Call, 'server'>,
  queues: readonly string[],
): Promise<ReadonlyMap<string, readonly object[]>> {
  const session = sessionFor(server.connection)()
  const found = new Map<string, object[]>()
  for (const queue of queues) {
    const query = { queue, kind: 'job', states: ['active'], limit: MOST_RUNNING, bytes: 1_048_576 } as const
    for (const { id, name: of, worker, attempt, startedAt, leaseUntil, ahead } of (await session.find(query)).items) {
      if (worker === undefined || isReserved(queue)) continue
      const job = { id, queue, name: of, attempt, startedAt, leaseUntil, ...(ahead && { prefetched: true }) }
      const own = found.get(worker)
      if (own === undefined) found.set(worker, [job])
      else own.push(job)
    }
  }
  return found
}
