// server/routes/results.ts: waiting for the end of a job, and sending it a signal.
import { isMillraceError } from '../../job/errors/errors.js'
import { isFinished } from '../../job/job.js'
import { jobRemoved } from '../../queue/operations/result.js'
import { findJob } from '../find-job.js'
import { jsonText, raw } from '../json-text.js'
import { anyJson } from '../producing/add-request.js'
import { redactorFor } from '../reading/reveal.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { duration, object, optional } from '../shape.js'

/** The longest wait of a request: proxies cut after 30 s, and some sooner. */
const MAX_WAIT = 25_000

/** The routes of results and signals. */
export const resultRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/jobs/{id}/result',
    access: ['produce', 'read', 'work'],
    summary: 'The end of a job; waits for it, up to 25 s.',
    query: { wait: optional(duration('20s', 0, MAX_WAIT)) },
    changes: false,
    long: true,
    answers: {
      200: {
        description: 'It has ended.',
        schema: {
          type: 'object',
          properties: { state: { enum: ['completed', 'failed', 'cancelled'] }, result: {}, error: { type: 'object' } },
          required: ['state'],
        },
      },
      202: {
        description: 'It has not.',
        schema: { type: 'object', properties: { state: { type: 'string' } }, required: ['state'] },
      },
    },
    errors: ['INVALID_DURATION', 'JOB_NOT_FOUND', 'JOB_REMOVED'],
    async handle({ server, principal, params, query, signal }) {
      const id = params['id']!
      let job = await findJob(server, principal, id)
      if (!isFinished(job.state) && query.wait !== undefined && query.wait > 0) {
        const leave = server.working.waiting.enter(principal.name)
        try {
          const handle = await server.queues.get(job.queue).get(id)
          await handle?.result({ timeout: query.wait, signal })
        } catch (error) {
          // How it ended is read below; that it did not in time is no error.
          if (isMillraceError(error, 'JOB_REMOVED')) throw error
        } finally {
          leave()
        }
        const now = await server.connection.reads.get(id)
        if (now === undefined) throw jobRemoved(id)
        job = now
      }
      const { state, result, error } = job
      if (!isFinished(state)) return { status: 202, body: { state } }
      const redactor = redactorFor(principal, server.redactor)
      const shown = raw(result === undefined ? undefined : redactor.json(result, 'result'))
      const failure = publicError(error)
      return {
        text: jsonText({
          state,
          result: shown,
          error: failure === undefined ? undefined : redactor.plain(failure, 'error'),
        }),
      }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/signals/{name}',
    access: ['produce', 'work'],
    summary: 'Sends a signal to a job, which waits for it or will.',
    body: object({ data: anyJson }),
    bodyOptional: true,
    changes: true,
    answers: {
      200: {
        description: 'Whether it was taken: not if one of that name was sent before.',
        schema: { type: 'object', properties: { taken: { type: 'boolean' } }, required: ['taken'] },
      },
    },
    errors: ['JOB_NOT_FOUND', 'INVALID_STATE', 'INVALID_NAME', 'INVALID_DATA', 'DATA_TOO_LARGE', 'STORE_BUSY'],
    async handle({ server, principal, params, body }) {
      const { id, queue } = await findJob(server, principal, params['id']!)
      const taken = await server.queues.get(queue).signal(id, params['name']!, body.data as null)
      return { body: { taken } }
    },
  }),
]

/** An error as callers learn of it who only wait for the end: without its stack and its causes. */
function publicError(
  error: { readonly name: string; readonly message: string; readonly code?: string } | undefined,
): object | undefined {
  if (error === undefined) return undefined
  const { name, message, code } = error
  return { name, message, ...(code !== undefined && { code }) }
}
