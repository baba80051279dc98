// server/route.ts: a route of the server as data: the router, the check of roles, and the OpenAPI document are made of it.
import type { ErrorCode } from '../job/errors/errors.js'
import type { ServerParts } from './parts.js'
import type { Principal, Role } from './principal.js'
import type { Fields, JsonSchema, Read, Shape } from './shape.js'

/** The methods of routes. */
type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** Who may call a route: callers with one of some roles; anybody with a token; or everybody. */
type Access = readonly Role[] | 'token' | 'open'

/** One request to a route, read and checked. */
export interface Call<Body = unknown, Query = unknown> {
  /** The caller. */
  readonly principal: Principal
  /** The parts of the path, by name, decoded. */
  readonly params: Readonly<Record<string, string>>
  /** The query parameters. */
  readonly query: Query
  /** The body. */
  readonly body: Body
  /** The request itself; its body has been read. */
  readonly request: Request
  /** The id of the request, as errors and logs name it. */
  readonly id: string
  /** The address of the client, where that is known. */
  readonly address: string | undefined
  /** What the server is made of. */
  readonly server: ServerParts
  /** Aborts when the client has gone, or the server shuts down. */
  readonly signal: AbortSignal
  /** Whether the caller may make this call still, with the same roles and queues: a stream asks again and again. */
  mayGoOn(): Promise<boolean>
}

/** What a route answers: an object that is sent as JSON, JSON text that is sent as it is, or a response of its own. */
export type Answer = (AnswerParts & { readonly body: object }) | (AnswerParts & { readonly text: string }) | Response

interface AnswerParts {
  /** Default 200. */
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** What the audit records of a change: what came of it. */
  readonly facts?: object
}

/** One answer of a route, for the documentation. */
interface AnswerDoc {
  readonly description: string
  readonly schema?: JsonSchema
  /** Default: `application/json`. */
  readonly type?: string
}

/** A route. */
export interface Route {
  readonly method: Method
  /** With parameters in braces: `/v1/queues/{queue}/jobs`. A caller must have `{queue}` in scope. */
  readonly path: string
  readonly access: Access
  /** One line: what it does. */
  readonly summary: string
  /** More about it, for the documentation. */
  readonly description?: string
  readonly query?: Fields
  readonly body?: Shape<unknown>
  /** Whether the body may be left out; it is `{}` then. */
  readonly bodyOptional?: boolean
  /** The most bytes of a body. Default: the server's. */
  readonly maxBody?: number
  /** Whether the handler reads the body of the request by itself. */
  readonly ownBody?: boolean
  /** Whether it changes anything: refused by a server that is read-only. */
  readonly changes: boolean
  /** What the audit calls it, of a change that needs the role `admin`. Default: its summary. */
  readonly action?: string
  /** Whether a call is recorded by the audit; a dry run is not. Default: each is. */
  readonly audited?: (call: Call) => boolean
  /** The queue that a call is about, where that is not part of the path; the audit needs it. */
  readonly queueOf?: (call: Call) => Promise<string>
  /** Its answers by status, without errors. */
  readonly answers: Readonly<Record<number, AnswerDoc>>
  /** The errors of its own, beside those that every route has. */
  readonly errors: readonly ErrorCode[]
  /** Whether it may take longer than other requests: it waits, or streams. */
  readonly long?: boolean
  handle(call: Call): Promise<Answer>
}

interface Typed<B, Q extends Fields> extends Omit<Route, 'query' | 'body' | 'handle'> {
  readonly query?: Q
  readonly body?: Shape<B>
  handle(call: Call<B, Read<Q>>): Promise<Answer>
}

/** The fields of a route without query parameters. */
type NoFields = { readonly [key in never]: never }

/** Declares a route whose handler has the types of its body and its query. */
export function route<B = undefined, Q extends Fields = NoFields>(declared: Typed<B, Q>): Route {
  return declared
}
