// server/routes/operating-jobs.ts: changes of one job by an admin: cancel, retry, promote, redeliver, update, remove.
import type { Job, UpdateOptions } from '../../queue/job.js'
import { findJob } from '../find-job.js'
import { jsonText } from '../json-text.js'
import { jobView } from '../job-view.js'
import { route } from '../route.js'
import type { Answer, Call, Route } from '../route.js'
import { described, duration, flag, json, object, optional, text, whole } from '../shape.js'
import type { OptionalShape } from '../shape.js'

const ADMIN = ['admin'] as const
const done = {
  type: 'object',
  properties: { done: { type: 'boolean' }, job: { type: 'object' } },
  required: ['done'],
} as const
const answers = {
  200: { description: '`done`: whether it changed anything, and the `job` as it is now.', schema: done },
}

const reason = optional(described(text({ max: 500, example: 'asked by the customer' }), 'why; the audit records it'))

/** New data; `null` is data as well. */
const anyData: OptionalShape<unknown> = { ...json, optional: true }

/** The errors of a change of one job that its state, or other jobs, prevent. */
const PREVENTED = ['JOB_NOT_FOUND', 'INVALID_STATE'] as const

/** The body of a change without options of its own. */
const reasonBody = object({ reason })

async function queueOf({ server, principal, params }: Call): Promise<string> {
  return (await findJob(server, principal, params['id']!)).queue
}

/** Changes a job, and answers with what it is then. */
async function changed(call: Call, work: (job: Job) => Promise<boolean>): Promise<Answer> {
  const { server, principal, params } = call
  const { id, queue } = await findJob(server, principal, params['id']!)
  const job = await server.queues.get(queue).get(id)
  const did = job !== undefined && (await work(job))
  const record = await server.connection.reads.get(id)
  const view = record === undefined ? undefined : jobView(record, server.redactor)
  return { text: jsonText({ done: did, job: view }), facts: { done: did, state: record?.state ?? 'removed' } }
}

/** Changes of one job. */
export const operatingJobRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/cancel',
    access: ADMIN,
    action: 'cancel',
    summary: 'Cancels the job; a worker that runs it is asked to stop. Not done where it has finished.',
    changes: true,
    queueOf,
    bodyOptional: true,
    body: object({ reason, cascade: optional(described(flag, 'also its children; default false')) }),
    answers,
    errors: PREVENTED,
    handle: (call) => changed(call, (job) => job.cancel(call.body)),
  }),
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/retry',
    access: ADMIN,
    action: 'retry',
    summary: 'Restarts the failed or cancelled job with all its attempts.',
    changes: true,
    queueOf,
    bodyOptional: true,
    body: reasonBody,
    answers,
    errors: [...PREVENTED, 'DEDUP_TAKEN', 'DEPENDENCY_FAILED'],
    handle: (call) => changed(call, (job) => job.retry()),
  }),
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/promote',
    access: ADMIN,
    action: 'promote',
    summary: 'Makes the delayed job run now. Not done where it waits already.',
    changes: true,
    queueOf,
    bodyOptional: true,
    body: reasonBody,
    answers,
    errors: PREVENTED,
    handle: (call) => changed(call, (job) => job.promote()),
  }),
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/redeliver',
    access: ADMIN,
    action: 'redeliver',
    summary: 'Sends the webhook of the finished job again.',
    changes: true,
    queueOf,
    bodyOptional: true,
    body: reasonBody,
    answers: {
      200: {
        description: 'The `webhook-id` of that delivery.',
        schema: { type: 'object', properties: { delivery: { type: 'string' } }, required: ['delivery'] },
      },
    },
    errors: PREVENTED,
    async handle(call) {
      const { server, principal, params } = call
      const { id, queue } = await findJob(server, principal, params['id']!)
      const delivery = await server.queues.get(queue).redeliver(id)
      return { body: { delivery }, facts: { delivery } }
    },
  }),
  route({
    method: 'PATCH',
    path: '/v1/jobs/{id}',
    access: ADMIN,
    action: 'update',
    summary: 'Changes data, priority or time of the job; of a failed one its data, before it is retried.',
    changes: true,
    queueOf,
    body: object({
      data: anyData,
      priority: optional(whole(1 - 2 ** 31, 2 ** 31 - 1, 0)),
      delay: optional(duration('1m')),
      runAt: optional(described(whole(0, 8_640_000_000_000_000, 0), 'milliseconds since 1970')),
      reason,
    }),
    answers,
    errors: [
      ...PREVENTED,
      'INVALID_OPTION',
      'INVALID_DURATION',
      'INVALID_PAYLOAD',
      'INVALID_DATA',
      'DATA_TOO_LARGE',
      'OTHER_VERSION',
    ],
    handle(call) {
      const { reason: _, ...changes } = call.body
      return changed(call, (job) => job.update(changes as UpdateOptions))
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/jobs/{id}',
    access: ADMIN,
    action: 'remove',
    summary: 'Removes the job. Refused while other jobs wait for it.',
    changes: true,
    queueOf,
    query: {
      cascade: optional(described(flag, 'also the jobs that wait for it; default false')),
      reason,
    },
    answers,
    errors: [...PREVENTED, 'JOB_HAS_DEPENDENTS', 'JOB_ENDS_CHAIN'],
    handle: (call) => changed(call, (job) => job.remove({ cascade: call.query.cascade ?? false })),
  }),
]
