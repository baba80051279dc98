// server/routes/about.ts: whether the server works, what it is, and who the caller is.
import { within } from '../../store/runtime.js'
import { openApi } from '../openapi.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { VERSION } from '../version.js'

/** How long the store may take to answer, for the server to be ready. */
const READY_WITHIN = 2_000

const ok = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] } as const

/** The routes about the server; `all` are all routes, for the document. */
export function aboutRoutes(all: () => readonly Route[]): readonly Route[] {
  return [
    route({
      method: 'GET',
      path: '/healthz',
      access: 'open',
      summary: 'Whether the server runs.',
      changes: false,
      answers: { 200: { description: 'It runs.', schema: ok } },
      errors: [],
      handle: async () => ({ body: { ok: true } }),
    }),
    route({
      method: 'GET',
      path: '/readyz',
      access: 'open',
      summary: 'Whether the store answers within 2 s, and the server is not shutting down.',
      changes: false,
      answers: { 200: { description: 'It is ready.', schema: ok }, 503: { description: 'It is not.', schema: ok } },
      errors: [],
      async handle({ server: { connection, store, closing } }) {
        const asked = connection.ready().then(() => store.due({ queues: [], except: [], limit: 1 }))
        asked.catch(() => {})
        const ready = !closing.aborted && (await within(connection.runtime, READY_WITHIN, asked).catch(() => false))
        return { status: ready ? 200 : 503, body: { ok: ready } }
      },
    }),
    route({
      method: 'GET',
      path: '/v1',
      access: 'token',
      summary: 'The version of the server, its store, its time, and who the caller is.',
      changes: false,
      answers: { 200: { description: 'About the server.', schema: { type: 'object' } } },
      errors: [],
      async handle({ server, principal: { name, roles, queues } }) {
        await server.connection.ready()
        const { now } = await server.store.due({ queues: [], except: [], limit: 1 })
        return {
          body: {
            millrace: VERSION,
            store: server.store.name,
            now,
            readOnly: server.readOnly,
            you: { name, roles, queues },
            queues: server.queues.names ?? null,
            limits: server.limits,
          },
        }
      },
    }),
    route({
      method: 'GET',
      path: '/v1/openapi.json',
      access: 'token',
      summary: 'All routes as an OpenAPI 3.1 document.',
      changes: false,
      answers: { 200: { description: 'The document.', schema: { type: 'object' } } },
      errors: [],
      handle: async () => ({ body: openApi(all(), VERSION) }),
    }),
  ]
}
