// server/routes/store.ts: the store itself, for Millrace processes: what a remote store asks, each call of the port a route.
import { OLDEST_PROTOCOL, PROTOCOL, STORE_PATH } from '../../store/wire/protocol.js'
import type { Call as PortCall, Handshake } from '../../store/wire/protocol.js'
import { wire } from '../../store/wire/wire.js'
import type { Codec } from '../../store/wire/wire.js'
import type { Role } from '../principal.js'
import { route } from '../route.js'
import type { Call, Route } from '../route.js'
import { flag, optional, text } from '../shape.js'
import type { Shape } from '../shape.js'
import { Afterwards } from '../store-protocol/afterwards.js'
import { judge } from '../store-protocol/judge.js'
import { HeldJobs } from '../store-protocol/held-jobs.js'
import { answerOf, batchMessage, checkProtocol, message } from '../store-protocol/messages.js'
import { queries } from '../store-protocol/queries.js'
import { filterNotice, findJobs, readDetails, readDue, readJobs, readTally } from '../store-protocol/reads.js'
import { scopeOf } from '../store-protocol/scope.js'
import type { Scope } from '../store-protocol/scope.js'
import { noticeStream } from '../store-protocol/watch.js'
import type { ServerParts } from '../parts.js'
import { VERSION } from '../version.js'

/** The most bytes of a batch: about twice the text that a sender puts into one, because texts are escaped. */
const MAX_BATCH = 32 * 2 ** 20

/** Who may read single jobs and what is beside them: whoever may have added or claimed them. */
const READERS: readonly Role[] = ['read', 'produce', 'work']

const anything = { type: 'array' } as const

/** What a server keeps for the store protocol. */
interface Kept {
  readonly held: HeldJobs
  readonly afterwards: Afterwards
}

/** By server, so that two servers in one process share nothing. */
const kept = new WeakMap<ServerParts, Kept>()

function keptOf(server: ServerParts): Kept {
  let known = kept.get(server)
  if (known === undefined) {
    const held = new HeldJobs()
    const afterwards = new Afterwards(server.connection, server.working.upkeep, held)
    known = { held, afterwards }
    kept.set(server, known)
  }
  return known
}

interface PortRoute<Asked, Answered> {
  readonly name: PortCall
  readonly access: readonly Role[]
  readonly summary: string
  readonly body: Shape<Asked>
  readonly answer: Codec<Answered>
  readonly changes?: true
  work(asked: Asked, scope: Scope, server: ServerParts): Promise<Answered>
}

/** A call of the port as a route. */
function portRoute<Asked, Answered>(declared: PortRoute<Asked, Answered>): Route {
  const { name, access, summary, body, answer, changes = false, work } = declared
  return route({
    method: 'POST',
    path: `${STORE_PATH}/${name}`,
    access,
    summary,
    body,
    ...(changes && { maxBody: MAX_BATCH }),
    changes,
    answers: { 200: { description: 'A message of the store protocol.', schema: anything } },
    errors: changes ? ['PROTOCOL_MISMATCH', 'WRITER_BEHIND', 'DATA_TOO_LARGE'] : ['PROTOCOL_MISMATCH'],
    async handle({ body: asked, request, server, principal }) {
      checkProtocol(request)
      await server.connection.ready()
      return answerOf(answer, await work(asked, scopeOf(server, principal), server), request)
    },
  })
}

/** The routes of the store protocol. */
export const storeRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: STORE_PATH,
    access: 'token',
    summary: 'The handshake of a remote store: the protocols that the server speaks, its store, and who the caller is.',
    changes: false,
    answers: { 200: { description: 'About the store.', schema: { type: 'object' } } },
    errors: [],
    async handle({ server, principal: { name, roles, queues } }) {
      await server.connection.ready()
      const { now } = await server.store.due({ queues: [], except: [], limit: 1 })
      const body: Handshake = {
        protocol: { oldest: OLDEST_PROTOCOL, newest: PROTOCOL },
        millrace: VERSION,
        store: server.store.name,
        now,
        readOnly: server.readOnly,
        you: { name, roles, queues },
      }
      return { body }
    },
  }),
  portRoute({
    name: 'commit',
    access: ['produce', 'work'],
    summary: 'Applies a batch: changes, then renewals, then claims. What each role may send is listed below.',
    body: batchMessage,
    answer: wire.commit.answer,
    changes: true,
    async work(batch, scope, server) {
      const { held, afterwards } = keptOf(server)
      const judged = await judge(scope, batch, server, held)
      const receipt = judged.answer(await server.store.commit(judged.batch))
      afterwards.committed(batch, receipt)
      return receipt
    },
  }),
  portRoute({
    name: 'get',
    access: READERS,
    summary: 'Jobs by id.',
    body: message(wire.get.request, queries.get, 'ids of jobs', []),
    answer: wire.get.answer,
    work: (ids, scope, { store }) => readJobs(store, scope, ids),
  }),
  portRoute({
    name: 'find',
    access: ['read', 'work'],
    summary: 'Jobs by a query, page by page.',
    body: message(wire.find.request, queries.find, 'a query', {}),
    answer: wire.find.answer,
    work: (query, scope, { store }) => findJobs(store, scope, query),
  }),
  portRoute({
    name: 'details',
    access: READERS,
    summary: 'What is stored beside jobs, and cells.',
    body: message(wire.details.request, queries.details, 'which jobs, which parts and which cells', {}),
    answer: wire.details.answer,
    work: (query, scope, { store }) => readDetails(store, scope, query),
  }),
  portRoute({
    name: 'tally',
    access: ['read', 'work'],
    summary: 'Counts of queues.',
    body: message(wire.tally.request, queries.tally, 'queues', { queues: undefined, options: undefined }),
    answer: wire.tally.answer,
    work: (request, scope, { store }) => readTally(store, scope, request),
  }),
  portRoute({
    name: 'due',
    access: READERS,
    summary: 'What is due, and the time of the store.',
    body: message(wire.due.request, queries.due, 'queues', { queues: [], except: [], limit: 1 }),
    answer: wire.due.answer,
    work: (query, scope, { store }) => readDue(store, scope, query),
  }),
  route({
    method: 'GET',
    path: `${STORE_PATH}/watch`,
    access: READERS,
    summary: 'Notices of commits as server-sent events: hints, and with `events` what happened, after `from`.',
    query: { events: optional(flag), from: optional(text({ max: 1_024, example: '0' })) },
    changes: false,
    answers: { 200: { description: 'Frames `ready` and `notice`.', type: 'text/event-stream' } },
    errors: ['PROTOCOL_MISMATCH'],
    long: true,
    handle: watch,
  }),
]

type WatchCall = Call<unknown, { readonly events?: boolean | undefined; readonly from?: string | undefined }>

async function watch(call: WatchCall): Promise<Response> {
  const { server, principal, query, request, signal } = call
  const { events = false, from } = query
  checkProtocol(request)
  await server.connection.ready()
  const scope = scopeOf(server, principal)
  const { over, close } = server.streams.open(call)
  const body = noticeStream(
    { events, ...(from !== undefined && { from }) },
    {
      store: server.store,
      runtime: server.connection.runtime,
      filter: (notice) => filterNotice(scope, notice),
      signal: AbortSignal.any([signal, over]),
      ended: close,
    },
  )
  return new Response(body, {
    headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' },
  })
}
