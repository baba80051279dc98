// server/routes/workers.ts: workers that claim over HTTP: how they describe themselves, and what operators ask of them.
import { forbidden } from '../problem.js'
import { inScope } from '../principal.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { described, list, name, object, oneOf, optional, text, whole } from '../shape.js'
import { workerIdOf } from '../working/remote-workers.js'
import type { Steering } from '../working/remote-workers.js'
import { steeringSchema } from './claims.js'

const state = { type: 'object', properties: { state: steeringSchema }, required: ['state'] } as const

/** The route by which an operator asks something of a worker. */
function steering(call: string, asked: Steering, summary: string): Route {
  return route({
    method: 'POST',
    path: `/v1/workers/{worker}/${call}`,
    access: ['admin'],
    summary,
    changes: true,
    answers: { 200: { description: 'It is asked.', schema: state } },
    errors: ['WORKER_NOT_FOUND', 'INVALID_STATE'],
    async handle({ server, principal, params }) {
      await server.connection.ready()
      await server.working.workers.steer(params['worker']!, asked, principal)
      return { body: { state: asked } }
    },
  })
}

/** The routes of workers. */
export const workerRoutes: readonly Route[] = [
  route({
    method: 'PUT',
    path: '/v1/workers/{worker}',
    access: ['work'],
    summary: 'Describes a worker in the registry. Claims do so as well: this adds its host and process.',
    body: object({
      queues: list(name('mail'), { min: 1, max: 100 }),
      names: described(optional(list(name('send'), { min: 1, max: 1_000 })), 'The names it handles. Default: any.'),
      host: optional(text({ max: 255, example: 'web-3' })),
      pid: optional(whole(0, Number.MAX_SAFE_INTEGER, 811)),
      state: described(optional(oneOf('running', 'paused', 'stopping')), 'Default: running.'),
    }),
    changes: true,
    answers: { 200: { description: 'What an operator asks of the worker.', schema: state } },
    errors: ['INVALID_NAME'],
    async handle({ server, principal, params, body }) {
      const { queues, names, host, pid } = body
      for (const queue of queues) {
        if (!inScope(principal, queue)) throw forbidden(`The roles of '${principal.name}' do not hold for that queue.`)
        if (!server.queues.serves(queue)) throw forbidden('This server does not serve that queue.')
      }
      const id = workerIdOf(principal, params['worker']!)
      const about = {
        ...{ queues, names, versions: {} },
        ...(host !== undefined && { host }),
        ...(pid !== undefined && { pid }),
      }
      const asked = await server.working.workers.put(id, about, body.state ?? 'running')
      server.working.workers.tell(id)
      return { body: { state: asked } }
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/workers/{worker}',
    access: ['work'],
    summary: 'Removes a worker from the registry: it has stopped.',
    changes: true,
    answers: { 200: { description: 'It is removed.', schema: { type: 'object' } } },
    errors: [],
    async handle({ server, principal, params }) {
      await server.connection.ready()
      await server.working.workers.delete(workerIdOf(principal, params['worker']!))
      return { body: {} }
    },
  }),
  steering('pause', 'pausing', 'Asks a worker to take no more jobs; its next answer says so.'),
  steering('resume', 'running', 'Asks a worker to go on.'),
  steering('stop', 'stopping', 'Asks a worker to finish its jobs and end; its next answer says so.'),
]
