// server/routes/queues.ts: reads about queues: how they do, their counts over time, errors, limits and schedules.
import { MillraceError } from '../../job/errors/errors.js'
import { countsOf } from '../../queue/counts.js'
import { SCHEDULE, readSpec } from '../../job/schedules/schedule.js'
import type { JobRecord } from '../../job/job.js'
import { boundsOf } from '../../job/limits.js'
import { limitUses } from '../../queue/health/health.js'
import type { LimitUse } from '../../queue/health/health.js'
import { lastRuns } from '../../queue/settings/schedule-runs.js'
import { toSchedule } from '../../queue/settings/schedules.js'
import { pageQuery } from '../../queue/operations/filter.js'
import { runSteps } from '../../store/maybe-sync.js'
import { sessionFor } from '../../store/session.js'
import { cellKey } from '../../store/settings.js'
import { RawJson, jsonText } from '../json-text.js'
import { FILTER_ERRORS, filterFields, filterOf } from '../reading/filter-fields.js'
import { revealField, showing } from '../reading/reveal.js'
import { visibleQueues } from '../reading/visible-queues.js'
import type { Redactor } from '../redact.js'
import { route } from '../route.js'
import type { Call, Route } from '../route.js'
import { described, oneOf, optional, text, whole } from '../shape.js'

const READ = ['read'] as const
const anObject = { type: 'object' } as const

/** The most queues, and schedules, of one page. */
const MOST = 500

const pageFields = {
  limit: optional(whole(1, MOST, 100)),
  cursor: optional(text({ max: 1_200, example: '7' })),
} as const

/** A time: milliseconds since 1970, or an ISO date. */
const time = text({ max: 40, example: '2026-01-01T00:00:00Z' })

function timeOf(given: string | undefined): number | Date | undefined {
  if (given === undefined) return undefined
  return /^\d{1,16}$/.test(given) ? Number(given) : new Date(given)
}

/** Reads about queues. */
export const queueRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/queues',
    access: READ,
    summary:
      'The queues with their counts, what has happened in them since they were made, and how long their oldest job has waited.',
    changes: false,
    query: pageFields,
    answers: { 200: { description: '`queues` by name, and a `cursor` where there are more.', schema: anObject } },
    errors: ['INVALID_CURSOR'],
    async handle({ server, principal, query: { limit = 100, cursor } }) {
      const names = await visibleQueues(server, principal)
      const after = cursor === undefined ? names : names.filter((queue) => queue > cursor)
      const page = after.slice(0, limit)
      const tallies = page.length === 0 ? [] : await server.store.tally(page, undefined, { heads: true })
      const known = new Map(tallies.map((tally) => [tally.queue, tally]))
      const queues = page.map((queue) => {
        const tally = known.get(queue)
        const now = tally?.heads?.now ?? 0
        const waiting = Object.values(tally?.heads?.waiting ?? {})
        return {
          queue,
          counts: countsOf(tally, []).total,
          totals: tally?.lifetime ?? NEVER_USED,
          ...(waiting.length > 0 && { oldestWaiting: Math.max(0, now - Math.min(...waiting)) }),
        }
      })
      return { body: { queues, ...(after.length > limit && { cursor: page.at(-1) }) } }
    },
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}',
    access: READ,
    summary: 'A queue: its health with counts by name, totals, pauses, limits, and the jobs that it declares.',
    changes: false,
    answers: { 200: { description: 'The queue.', schema: anObject } },
    errors: [],
    async handle({ server, params }) {
      const queue = server.queues.get(params['queue']!)
      const [health, totals, limits, paused] = await Promise.all([
        queue.health(),
        queue.totals(),
        queue.limits(),
        queue.paused(),
      ])
      const names = Object.entries(health.names)
      const shown = names.slice(0, MOST_NAMES)
      return {
        body: {
          ...health,
          names: Object.fromEntries(shown),
          ...(names.length > MOST_NAMES && { moreNames: names.length - MOST_NAMES }),
          totals,
          limits,
          pausedNames: paused.names,
          declared: Object.keys(queue.jobs ?? {}),
        },
      }
    },
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/health',
    access: READ,
    summary: 'How the queue does: how late it is, what holds it back, who works on it, the last minute.',
    changes: false,
    answers: { 200: { description: 'As `queue.health()`.', schema: anObject } },
    errors: [],
    handle: async ({ server, params }) => ({ body: await server.queues.get(params['queue']!).health() }),
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/count',
    access: READ,
    summary: 'How many jobs match. By state and name from counters; else counted up to 10,000.',
    changes: false,
    query: filterFields,
    answers: { 200: { description: '`count`, and whether it is `exact`.', schema: anObject } },
    errors: FILTER_ERRORS,
    handle: async ({ server, params, query }) => ({
      body: await server.queues.get(params['queue']!).count(filterOf(query)),
    }),
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/series',
    access: READ,
    summary: 'What was counted over time: jobs added, completed, failed, retried, and how long they waited and ran.',
    changes: false,
    query: {
      from: optional(described(time, 'milliseconds since 1970, or an ISO date; default: an hour before `to`')),
      to: optional(described(time, 'default: now')),
      step: optional(oneOf('minute', 'hour', 'day')),
      by: optional(oneOf('queue', 'name')),
    },
    answers: { 200: { description: 'As `queue.series()`: rows and marks.', schema: anObject } },
    errors: ['INVALID_OPTION', 'INVALID_RANGE', 'INVALID_DATE'],
    async handle({ server, params, query: { from, to, ...rest } }) {
      const range = { from: timeOf(from), to: timeOf(to) }
      const given = Object.fromEntries(Object.entries(range).filter(([, at]) => at !== undefined))
      return { body: await server.queues.get(params['queue']!).series({ ...given, ...rest }) }
    },
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/errors',
    access: READ,
    summary: 'The failing jobs by cause: how many, since when, and one of them.',
    changes: false,
    query: { limit: optional(whole(1, 200, 50)), cursor: pageFields.cursor, ...revealField },
    answers: { 200: { description: '`errors`, and a `cursor` where there are more.', schema: anObject } },
    errors: ['INVALID_CURSOR'],
    handle(call) {
      const { server, params, query } = call
      const { reveal: _, ...page } = query
      return showing({ method: 'GET', path: '/v1/queues/{queue}/errors' }, call, async (redactor) => {
        const { errors, ...more } = await server.queues.get(params['queue']!).errors(page)
        const shown = errors.map((each) => {
          return { ...each, sample: { ...each.sample, message: redactor.text(each.sample.message) } }
        })
        return { body: { errors: shown, ...more } }
      })
    },
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/limits',
    access: READ,
    summary: 'The limits of the queue, its names and its groups, how much of them is used, what is paused, and holds.',
    changes: false,
    answers: { 200: { description: '`limits`, `uses`, `leases` by name, `paused` and `holds`.', schema: anObject } },
    errors: [],
    async handle({ server, params }) {
      const queue = server.queues.get(params['queue']!)
      const [limits, paused, holds, { uses, leases }] = await Promise.all([
        queue.limits(),
        queue.paused(),
        queue.holds(),
        usesOf(server, queue.name),
      ])
      return { body: { limits, uses, leases, paused, holds } }
    },
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/workers',
    access: READ,
    summary: 'The live workers that claim from the queue.',
    changes: false,
    answers: { 200: { description: '`workers`, as `queue.workers()`.', schema: anObject } },
    errors: [],
    handle: async ({ server, params }) => ({
      body: { workers: await server.queues.get(params['queue']!).workers() },
    }),
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/schedules',
    access: READ,
    summary: 'The schedules of the queue, each with its next five times.',
    changes: false,
    query: { ...pageFields, runs: optional(whole(1, 10)), ...revealField },
    answers: { 200: { description: '`schedules`, and a `cursor` where there are more.', schema: anObject } },
    errors: ['INVALID_OPTION', 'INVALID_CURSOR'],
    handle: (call) =>
      showing({ method: 'GET', path: '/v1/queues/{queue}/schedules' }, call, async (redactor) => {
        const { limit = 100, cursor, runs } = call.query
        const { items, ...more } = await schedulePage(call, call.params['queue']!, { limit, cursor })
        const schedules = await scheduleViews(call, items, redactor, runs)
        return { text: jsonText({ schedules, ...more }) }
      }),
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/schedules/{key}',
    access: READ,
    summary: 'One schedule with its last runs.',
    changes: false,
    query: { runs: optional(whole(1, 100, 10)), ...revealField },
    answers: { 200: { description: 'The schedule.', schema: anObject } },
    errors: ['SCHEDULE_NOT_FOUND'],
    handle: (call) =>
      showing({ method: 'GET', path: '/v1/queues/{queue}/schedules/{key}' }, call, async (redactor) => {
        const { queue, key } = call.params
        const schedule = await call.server.queues.get(queue!).schedule(key!).get()
        const row = schedule && (await call.server.connection.reads.get(schedule.id))
        if (row?.kind !== SCHEDULE) {
          throw new MillraceError('SCHEDULE_NOT_FOUND', `There is no schedule '${key}' in queue '${queue}'.`)
        }
        return { text: jsonText(await scheduleView(call, row, redactor, call.query.runs ?? 10)) }
      }),
  }),
  route({
    method: 'GET',
    path: '/v1/schedules',
    access: READ,
    summary: 'The schedules of all queues, by queue.',
    changes: false,
    query: { ...pageFields, ...revealField },
    answers: { 200: { description: '`schedules`, and a `cursor` where there may be more.', schema: anObject } },
    errors: ['INVALID_CURSOR'],
    handle: (call) =>
      showing({ method: 'GET', path: '/v1/schedules' }, call, async (redactor) => {
        const { items, cursor } = await schedulesOfAll(call, call.query)
        const schedules = await scheduleViews(call, items, redactor, undefined)
        return { text: jsonText({ schedules, cursor }) }
      }),
  }),
]

/** How much of each limit of a queue is used, and its leases by name. */
async function usesOf(
  { connection, store }: Call['server'],
  queue: string,
): Promise<{ readonly uses: readonly LimitUse[]; readonly leases: Readonly<Record<string, number>> }> {
  await connection.ready()
  const [[tally], { cells }] = await Promise.all([
    store.tally([queue], undefined, { heads: true }),
    store.details({ jobs: [], cells: [cellKey.limit(queue)] }),
  ])
  const bounds = boundsOf(undefined, cells[0]?.value)
  return { uses: limitUses(tally, bounds, tally?.heads?.now ?? connection.runtime.now()), leases: tally?.leases ?? {} }
}

/** What has happened in a queue that was never used. */
const NEVER_USED = { added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0 } as const

/** The most names of one queue that an answer lists. */
const MOST_NAMES = 1_000

interface SchedulePage {
  readonly items: readonly JobRecord[]
  readonly cursor?: string
}

async function schedulePage(
  { server }: Call,
  queue: string,
  page: { readonly limit: number; readonly cursor: string | undefined },
): Promise<SchedulePage> {
  const session = sessionFor(server.connection)()
  return session.find({ queue, kind: SCHEDULE, ...pageQuery(page, 'schedules') })
}

/** The most queues that one call reads schedules of. */
const MOST_QUEUES = 50

/** Schedules of one queue after the other. The cursor is the queue to go on with, and where in it. */
async function schedulesOfAll(
  call: Call,
  { limit = 100, cursor }: { readonly limit?: number; readonly cursor?: string },
): Promise<SchedulePage> {
  const names = await visibleQueues(call.server, call.principal)
  const from = cursor === undefined ? undefined : openCursor(cursor)
  const left = from === undefined ? names : names.filter((queue) => queue >= from.queue)
  const items: JobRecord[] = []
  for (const [at, queue] of left.entries()) {
    if (at === MOST_QUEUES || items.length >= limit) return { items, cursor: closeCursor(queue) }
    const inner = queue === from?.queue ? from.inner : undefined
    const page = await schedulePage(call, queue, { limit: limit - items.length, cursor: inner })
    items.push(...page.items)
    if (page.cursor !== undefined) return { items, cursor: closeCursor(queue, page.cursor) }
  }
  return { items }
}

function closeCursor(queue: string, inner?: string): string {
  return Buffer.from(JSON.stringify([queue, inner ?? null])).toString('base64url')
}

function openCursor(cursor: string): { readonly queue: string; readonly inner: string | undefined } {
  try {
    const [queue, inner] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as [unknown, unknown]
    if (typeof queue === 'string' && (inner === null || (typeof inner === 'string' && /^-?\d{1,16}$/.test(inner)))) {
      return { queue, inner: inner ?? undefined }
    }
  } catch {
    // As any other text.
  }
  throw new MillraceError('INVALID_CURSOR', 'The cursor comes from no page of schedules. Begin without one.')
}

/** A schedule with its data as stored, and its last runs where they are asked for. */
async function scheduleView(
  { server }: Call,
  row: JobRecord,
  redactor: Redactor,
  runs: number | undefined,
): Promise<object> {
  const { data } = readSpec(row).run
  const session = sessionFor(server.connection)()
  return {
    queue: row.queue,
    ...toSchedule(row),
    data: data === undefined ? undefined : new RawJson(redactor.json(data, 'data')),
    ...(runs !== undefined && { runs: await runSteps(lastRuns(session, row.id, runs)) }),
  }
}

/** Schedules one after the other: each of them with runs is a read. */
async function scheduleViews(
  call: Call,
  rows: readonly JobRecord[],
  redactor: Redactor,
  runs: number | undefined,
): Promise<readonly object[]> {
  const views: object[] = []
  for (const row of rows) views.push(await scheduleView(call, row, redactor, runs))
  return views
}
