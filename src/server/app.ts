// server/app.ts: answers requests by the table of routes: guard, caller, role, body, handler, answer.
import { isDeepStrictEqual } from 'node:util'
import { RegExpRouter } from 'hono/router/reg-exp-router'
import { SmartRouter } from 'hono/router/smart-router'
import { TrieRouter } from 'hono/router/trie-router'
import { MillraceError, isMillraceError } from '../job/errors/errors.js'
import { describeError } from '../job/errors/failure.js'
import { isReserved } from '../job/values/names.js'
import { authenticate, authorize } from './auth.js'
import type { Auth } from './auth.js'
import { BytesInFlight, parseJson, readText, requireJson } from './body.js'
import { RateLimiter, checkHost, checkOrigin, checkUrl } from './guard.js'
import type { ServeSettings } from './options.js'
import type { ServerParts } from './parts.js'
import { inScope } from './principal.js'
import type { Principal } from './principal.js'
import { forbidden, problemResponse, statusOf } from './problem.js'
import type { Answer, Call, Route } from './route.js'
import { Sessions } from './sessions/session.js'
import { name, readQuery, refuse } from './shape.js'

/** What an app needs besides the parts that its routes use. */
export interface AppOptions {
  readonly parts: ServerParts
  readonly settings: Pick<ServeSettings, 'rate' | 'limits' | 'base' | 'session' | 'origin' | 'trustProxy'>
  readonly auth: Auth | undefined
  readonly routes: readonly Route[]
}

/** An answer whose text is known. */
interface PlainAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** Undefined: it has no body. */
  readonly text: string | undefined
}

/** Answers requests. */
export type App = (request: Request) => Promise<Response>

/** The same, for servers that can send text as it is: on node:http, a Response costs more than all else of an answer. */
export type PlainApp = (request: Request, address?: string) => Promise<PlainAnswer | Response>

/** The headers of every answer of the API. */
const HEADERS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
} as const

/** Makes the app of a table of routes. */
export function createApp({ parts, settings, auth, routes }: AppOptions): {
  readonly fetch: App
  readonly plain: PlainApp
} {
  const { runtime } = parts.connection
  const sessions = new Sessions(settings.session, auth, runtime)
  const limiter = settings.rate && new RateLimiter(settings.rate, runtime)
  const reader = { limits: settings.limits, runtime, inFlight: new BytesInFlight(settings.limits.inFlight) }

  const answer = async (
    route: Route,
    params: Readonly<Record<string, string>>,
    given: Given,
  ): Promise<PlainAnswer | Response> => {
    const { request, url, id, address } = given
    if (route.method !== 'GET') checkOrigin(request, url, settings.origin)
    const principal = await callerOf(route, request, params)
    const query = readQuery(url.searchParams, route.query ?? {})
    const { body, bytes } = await bodyOf(route, request)
    try {
      const mayGoOn = (): Promise<boolean> => isStill(principal, route, request)
      const call = new CallOf(parts, { principal, params, query, body, request, id, address, mayGoOn })
      const handle = (): Promise<Answer> => route.handle(call)
      if (!isAudited(route, call)) return respond(await handle())
      const queue = params['queue'] ?? (await route.queueOf?.(call))
      const about = { action: route.action ?? route.summary, route: `${route.method} ${route.path}`, queue }
      return respond(await parts.audit.around(about, call, handle))
    } finally {
      reader.inFlight.give(bytes)
    }
  }

  /** Who calls, if they may. */
  const callerOf = async (
    route: Route,
    request: Request,
    params: Readonly<Record<string, string>>,
  ): Promise<Principal> => {
    if (route.access === 'open') return NOBODY
    const principal = await authenticate(auth, request, sessions)
    limiter?.count(principal.name)
    if (route.access !== 'token') authorize(principal, route.access)
    const { queue } = params
    if (queue !== undefined) {
      if (!inScope(principal, queue)) throw forbidden(`The roles of '${principal.name}' do not hold for that queue.`)
      if (isReserved(queue) || !parts.queues.serves(queue)) throw forbidden('This server does not serve that queue.')
    }
    if (!route.changes) return principal
    if (parts.readOnly) {
      throw new MillraceError('READ_ONLY', 'This server is read-only: it refuses everything but reads.')
    }
    if (parts.closing.aborted) {
      throw new MillraceError('SERVER_BUSY', 'The server is shutting down. Nothing was written.')
    }
    return principal
  }

  /** Whether a request has the same caller as before, with the same rights. One that cannot be judged has not. */
  const isStill = async (before: Principal, { access }: Route, request: Request): Promise<boolean> => {
    if (access === 'open') return true
    try {
      return isDeepStrictEqual(rightsOf(await authenticate(auth, request, sessions)), rightsOf(before))
    } catch (error) {
      if (!isMillraceError(error)) parts.logger.error({ error: describeError(error) }, 'A stream was ended.')
      return false
    }
  }

  const bodyOf = async (route: Route, request: Request): Promise<{ body: unknown; bytes: number }> => {
    if (route.body === undefined || route.ownBody === true) return { body: undefined, bytes: 0 }
    const { text, bytes } = await readText(request, reader, route.maxBody ?? settings.limits.body)
    try {
      if (text === '' && route.bodyOptional === true) return { body: route.body.read({}, 'body'), bytes }
      requireJson(request)
      return { body: route.body.read(parseJson(text), 'body'), bytes }
    } catch (error) {
      reader.inFlight.give(bytes)
      throw error
    }
  }

  const router = new SmartRouter<Route>({ routers: [new RegExpRouter(), new TrieRouter()] })
  for (const route of routes) router.add(route.method, routerPath(route), route)
  const methods = [...new Set(routes.map(({ method }) => method))]

  /** The route of a request, and the parts of its path. */
  const find = (method: string, path: string): readonly [Route, Readonly<Record<string, string>>] => {
    const found = matchOf(router, method, path)
    if (found !== undefined) return found
    const allow = methods.filter((each) => matchOf(router, each, path) !== undefined).join(', ')
    if (allow === '') throw new MillraceError('ROUTE_NOT_FOUND', 'There is no such route.')
    throw new MillraceError('METHOD_NOT_ALLOWED', `That path takes ${allow}.`, { details: { allow } })
  }

  const plain: PlainApp = async (request, peer) => {
    const address = settings.trustProxy ? forwardedFor(request) : peer
    const id = runtime.id()
    let response: PlainAnswer | Response
    try {
      const url = new URL(request.url)
      checkUrl(url)
      if (auth === undefined) checkHost(request, url)
      const [route, params] = find(request.method, stripBase(url.pathname, settings.base))
      response = await answer(route, params, { request, url, id, address })
    } catch (error) {
      if (!isMillraceError(error) || statusOf(error.code) === 500) {
        parts.logger.error({ request: id, error: describeError(error) }, `Request ${id} failed.`)
      }
      response = problemResponse(error, id)
    }
    if (!(response instanceof Response)) {
      return { ...response, headers: { ...HEADERS, ...response.headers, 'x-request-id': id } }
    }
    response.headers.set('x-request-id', id)
    for (const [key, value] of Object.entries(HEADERS)) {
      if (!response.headers.has(key)) response.headers.set(key, value)
    }
    return response
  }
  const fetch: App = async (request) => {
    const answered = await plain(request)
    if (answered instanceof Response) return answered
    const { status, headers, text } = answered
    return new Response(text ?? null, { status, headers })
  }
  return { fetch, plain }
}

type CallFields = Omit<Call, 'server' | 'signal'>

/** One request to a route. Few routes wait, so that the signal is made when it is first used. */
class CallOf implements Call {
  readonly principal: Principal
  readonly params: Call['params']
  readonly query: unknown
  readonly body: unknown
  readonly request: Request
  readonly id: string
  readonly address: string | undefined
  readonly server: ServerParts
  readonly mayGoOn: Call['mayGoOn']
  #signal: AbortSignal | undefined

  constructor(server: ServerParts, { principal, params, query, body, request, id, address, mayGoOn }: CallFields) {
    this.server = server
    this.principal = principal
    this.params = params
    this.query = query
    this.body = body
    this.request = request
    this.id = id
    this.address = address
    this.mayGoOn = mayGoOn
  }

  get signal(): AbortSignal {
    return (this.#signal ??= AbortSignal.any([this.request.signal, this.server.closing]))
  }
}

/** A request on its way. */
interface Given {
  readonly request: Request
  readonly url: URL
  readonly id: string
  readonly address: string | undefined
}

/** Whether a call is recorded before it is made: a change that needs the role `admin`. */
function isAudited(route: Route, call: Call): boolean {
  const { access, changes, audited } = route
  return changes && access.length === 1 && access[0] === 'admin' && (audited?.(call) ?? true)
}

/** The address that the proxy in front of the server saw: the last one, since those before may be made up. */
function forwardedFor(request: Request): string | undefined {
  return request.headers.get('x-forwarded-for')?.split(',').at(-1)?.trim().slice(0, 100)
}

/** What a caller may do, as a host's own function may have returned it among other things. */
function rightsOf({ name, roles, queues }: Principal): Principal {
  return { name, roles, queues }
}

/** The caller of a route that is open to everybody. */
const NOBODY: Principal = { name: 'nobody', roles: [], queues: [] }

/** The path of a route as the router takes it. */
function routerPath({ path }: Route): string {
  return path.replace(/\{(\w+)\}/g, ':$1')
}

function matchOf(
  router: SmartRouter<Route>,
  method: string,
  path: string,
): readonly [Route, Readonly<Record<string, string>>] | undefined {
  const [found, values] = router.match(method, path)
  const first = found[0]
  if (first === undefined) return undefined
  const [route, places] = first
  const params: Record<string, string> = {}
  for (const [key, place] of Object.entries(places)) {
    params[key] = paramOf(typeof place === 'number' ? values![place]! : place, key)
  }
  return [route, params]
}

/** A part of the path, decoded once. Names and ids have no control characters. */
function paramOf(given: string, key: string): string {
  let decoded: string
  try {
    decoded = decodeURIComponent(given)
  } catch {
    throw refuse(`path.${key}`, 'percent-encoded UTF-8', given)
  }
  return PARAM.read(decoded, `path.${key}`)
}

const PARAM = name('name')

/** The path of a route: without the base, where the framework has not removed it. */
function stripBase(path: string, base: string): string {
  return base !== '' && (path === base || path.startsWith(`${base}/`)) ? path.slice(base.length) || '/' : path
}

function respond(answer: Answer): PlainAnswer | Response {
  if (answer instanceof Response) return answer
  const { status = 200, headers } = answer
  const text = 'text' in answer ? answer.text : JSON.stringify(answer.body)
  return {
    status,
    headers: { 'content-type': 'application/json', ...headers },
    text: status === 204 ? undefined : text,
  }
}
