// server/routes/operating-queues.ts: settings of queues: pauses, holds, limits, marks and schedules.
import type { LimitOptions } from '../../queue/settings/limits.js'
import type { ScheduleOptions } from '../../queue/settings/schedules.js'
import type { AnyJobs } from '../../queue/queue-types.js'
import { jsonText } from '../json-text.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { described, duration, name, object, oneOf, optional, options, text } from '../shape.js'

const ADMIN = ['admin'] as const
const anObject = { type: 'object' } as const
const ok = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] } as const
const done = { type: 'object', properties: { done: { type: 'boolean' } }, required: ['done'] } as const

const reason = optional(described(text({ max: 500, example: 'the provider is down' }), 'why; the audit records it'))
const pauseBody = object({ name: optional(name('send')), reason })
const target = { name: optional(name('send')), group: optional(name('tenant-7')) } as const
const reasonBody = object({ reason })

const moment = text({ max: 40, example: '2026-01-01T00:00:00Z' })

/** Milliseconds since 1970 as text, or an ISO date. */
function dateOf(given: string): number | Date {
  return /^\d{1,16}$/.test(given) ? Number(given) : new Date(given)
}

/** Settings of queues. */
export const operatingQueueRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/pause',
    access: ADMIN,
    action: 'pause',
    summary: 'Stops claims from the queue, or of one name; running jobs continue.',
    changes: true,
    bodyOptional: true,
    body: pauseBody,
    answers: { 200: { description: 'It is paused.', schema: ok } },
    errors: ['UNKNOWN_JOB'],
    async handle({ server, params, body }) {
      await server.queues.get(params['queue']!).pause(body.name)
      return { body: { ok: true } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/resume',
    access: ADMIN,
    action: 'resume',
    summary: 'Undoes `pause` for the queue, or for one name.',
    changes: true,
    bodyOptional: true,
    body: pauseBody,
    answers: { 200: { description: 'It is not paused.', schema: ok } },
    errors: ['UNKNOWN_JOB'],
    async handle({ server, params, body }) {
      await server.queues.get(params['queue']!).resume(body.name)
      return { body: { ok: true } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/hold',
    access: ADMIN,
    action: 'hold',
    summary: 'Holds the jobs of the queue, a name or a group for a time; then work goes on by itself.',
    changes: true,
    body: object({ for: duration('10m', 1), ...target, reason }),
    answers: { 200: { description: 'They are held.', schema: ok } },
    errors: ['TOO_MANY_HOLDS', 'UNKNOWN_JOB', 'INVALID_OPTION', 'INVALID_DURATION'],
    async handle({ server, principal, params, body }) {
      const { for: length, reason: _, ...of } = body
      await server.queues.get(params['queue']!).hold(length, { ...of, by: principal.name })
      return { body: { ok: true } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/unhold',
    access: ADMIN,
    action: 'unhold',
    summary: 'Ends a hold before its time. Not done where there was none.',
    changes: true,
    bodyOptional: true,
    body: object({ ...target, reason }),
    answers: { 200: { description: 'Whether there was a hold.', schema: done } },
    errors: ['UNKNOWN_JOB', 'INVALID_OPTION'],
    async handle({ server, params, body }) {
      const { reason: _, ...of } = body
      const did = await server.queues.get(params['queue']!).unhold(of)
      return { body: { done: did }, facts: { done: did } }
    },
  }),
  route({
    method: 'PATCH',
    path: '/v1/queues/{queue}/limits',
    access: ADMIN,
    action: 'limit',
    summary: 'Changes limits, as `queue.limit`: omitted ones stay, null removes one.',
    changes: true,
    body: options('`concurrency`, `rate`, `maxBacklog`, `names`, `group`, `groups`', { concurrency: 100 }),
    answers: { 200: { description: 'All limits that then apply.', schema: anObject } },
    errors: ['INVALID_OPTION', 'UNKNOWN_OPTION', 'INVALID_NAME', 'INVALID_DURATION', 'UNKNOWN_JOB', 'DATA_TOO_LARGE'],
    async handle({ server, params, body }) {
      const limits = await server.queues.get(params['queue']!).limit(body as LimitOptions)
      return { body: { limits } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/marks',
    access: ADMIN,
    action: 'mark',
    summary: 'Marks this moment on the time axis of the queue, as a deploy does.',
    changes: true,
    body: object({ text: text({ max: 200, example: 'deploy 4f2' }) }),
    answers: { 200: { description: 'The mark.', schema: anObject } },
    errors: ['INVALID_OPTION'],
    handle: async ({ server, params, body }) => ({ body: await server.queues.get(params['queue']!).mark(body.text) }),
  }),
  route({
    method: 'PUT',
    path: '/v1/queues/{queue}/schedules/{key}',
    access: ADMIN,
    action: 'schedule',
    summary: 'Adds a job repeatedly, by `cron` or `every`; for an existing key, changes future runs.',
    changes: true,
    body: options('as for `queue.schedule`: name, data, options, and times', { name: 'send', every: '1h' }),
    answers: { 200: { description: 'The schedule.', schema: anObject } },
    errors: [
      'INVALID_SCHEDULE',
      'INVALID_OPTION',
      'UNKNOWN_OPTION',
      'INVALID_NAME',
      'INVALID_DURATION',
      'INVALID_PAYLOAD',
      'INVALID_DATA',
      'UNKNOWN_JOB',
      'DATA_TOO_LARGE',
      'SCHEDULE_OWNED',
    ],
    async handle({ server, params, body }) {
      const { queue, key } = params
      const given = body as unknown as ScheduleOptions<AnyJobs>
      const { data: _, ...schedule } = await server.queues.get(queue!).schedule(key!, given)
      return { text: jsonText(schedule), facts: { next: schedule.next[0] ?? null } }
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/queues/{queue}/schedules/{key}',
    access: ADMIN,
    action: 'unschedule',
    summary: 'Removes the schedule. Jobs that it has made stay. Not done where there was none.',
    changes: true,
    query: { reason },
    answers: { 200: { description: 'Whether there was one.', schema: done } },
    errors: [],
    async handle({ server, params: { queue, key } }) {
      const did = await server.queues.get(queue!).unschedule(key!)
      return { body: { done: did }, facts: { done: did } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/schedules/{key}/run',
    access: ADMIN,
    action: 'run schedule',
    summary: 'Adds a run of the schedule now, beside its times.',
    changes: true,
    bodyOptional: true,
    body: object({ overlap: optional(oneOf('skip', 'allow', 'queue', 'cancel')), reason }),
    answers: { 200: { description: 'The id of the job.', schema: anObject } },
    errors: ['SCHEDULE_NOT_FOUND', 'SCHEDULE_OVERLAP', 'QUEUE_FULL', 'STORE_BUSY'],
    async handle({ server, params: { queue, key }, body: { overlap } }) {
      const id = await server.queues
        .get(queue!)
        .schedule(key!)
        .trigger({ ...(overlap !== undefined && { overlap }) })
      return { body: { id }, facts: { id } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/schedules/{key}/pause',
    access: ADMIN,
    action: 'pause schedule',
    summary: 'Pauses the schedule: its times pass without runs. Not done where it was paused.',
    changes: true,
    bodyOptional: true,
    body: reasonBody,
    answers: { 200: { description: 'Whether it ran before.', schema: done } },
    errors: ['SCHEDULE_NOT_FOUND', 'INVALID_STATE'],
    async handle({ server, params: { queue, key } }) {
      const did = await server.queues.get(queue!).schedule(key!).pause()
      return { body: { done: did }, facts: { done: did } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/schedules/{key}/resume',
    access: ADMIN,
    action: 'resume schedule',
    summary: 'Resumes the schedule, from its next time on. Not done where it was not paused.',
    changes: true,
    bodyOptional: true,
    body: reasonBody,
    answers: { 200: { description: 'Whether it was paused before.', schema: done } },
    errors: ['SCHEDULE_NOT_FOUND', 'INVALID_STATE'],
    async handle({ server, params: { queue, key } }) {
      const did = await server.queues.get(queue!).schedule(key!).resume()
      return { body: { done: did }, facts: { done: did } }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/schedules/{key}/backfill',
    access: ADMIN,
    action: 'backfill schedule',
    summary: 'Adds a run for each time of the schedule in a stretch of the past that has none.',
    changes: true,
    body: object({
      from: described(moment, 'an ISO date, or milliseconds since 1970'),
      to: optional(described(moment, 'default: now')),
      overlap: optional(oneOf('queue', 'allow')),
      reason,
    }),
    answers: { 200: { description: 'How many runs were `added`, and how many times had one.', schema: anObject } },
    errors: [
      'SCHEDULE_NOT_FOUND',
      'BACKFILL_TOO_LARGE',
      'INVALID_DATE',
      'INVALID_RANGE',
      'INVALID_OPTION',
      'QUEUE_FULL',
      'STORE_BUSY',
    ],
    async handle({ server, params: { queue, key }, body: { from, to, overlap } }) {
      const backfill = await server.queues
        .get(queue!)
        .schedule(key!)
        .backfill({
          from: dateOf(from),
          ...(to !== undefined && { to: dateOf(to) }),
          ...(overlap !== undefined && { overlap }),
        })
      return { body: backfill, facts: backfill }
    },
  }),
]
