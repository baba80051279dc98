// server/routes/session.ts: logs browsers in with a token, and out.
import { route } from '../route.js'
import type { Route } from '../route.js'

const session = {
  type: 'object',
  properties: {
    name: { type: 'string' },
    roles: { type: 'array', items: { type: 'string' } },
    queues: { type: 'array', items: { type: 'string' } },
    until: { type: ['integer', 'null'] },
  },
} as const

/** Sessions of browsers. */
export const sessionRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/session',
    access: 'open',
    summary: 'Opens a session of a browser for the token of the request: a cookie that takes its place.',
    description:
      'The cookie is signed, HttpOnly and SameSite=Strict, and lasts 12 h; its token is judged again at each request. An address may fail five times a minute. `until` is null where the host has sessions of its own, or the server has no auth: then there is no cookie.',
    changes: false,
    answers: { 200: { description: 'Who the caller is, and until when the session lasts.', schema: session } },
    errors: ['UNAUTHORIZED', 'FORBIDDEN'],
    async handle({ server, request, address }) {
      const { principal, session: opened } = await server.logins.logIn(request, address)
      const { name, roles, queues } = principal
      return {
        body: { name, roles, queues, until: opened?.until ?? null },
        ...(opened !== undefined && { headers: { 'set-cookie': opened.cookie } }),
      }
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/session',
    access: 'open',
    summary: 'Ends the session of a browser: removes its cookie.',
    changes: false,
    answers: { 204: { description: 'It has ended, or there was none.' } },
    errors: ['FORBIDDEN'],
    handle: async ({ server, request }) => {
      return { status: 204, text: '', headers: { 'set-cookie': server.logins.logOut(request) } }
    },
  }),
]
