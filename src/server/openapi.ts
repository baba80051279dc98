// server/openapi.ts: the table of routes as an OpenAPI 3.1 document.
import type { ErrorCode } from '../job/errors/errors.js'
import { statusOf } from './problem.js'
import type { Route } from './route.js'
import type { Fields, JsonSchema } from './shape.js'

/** The errors that every route may answer. */
const COMMON: readonly ErrorCode[] = ['INVALID_REQUEST', 'RATE_LIMITED', 'SERVER_BUSY', 'STORE_UNAVAILABLE', 'INTERNAL']
const WITH_TOKEN: readonly ErrorCode[] = ['UNAUTHORIZED', 'FORBIDDEN']
const WITH_BODY: readonly ErrorCode[] = ['BODY_TOO_LARGE', 'UNSUPPORTED_MEDIA_TYPE', 'REQUEST_TIMEOUT']

/** All errors that a route may answer, those of its own first. */
export function errorsOf(route: Route): readonly ErrorCode[] {
  const codes = new Set<ErrorCode>(route.errors)
  if (route.access !== 'open') for (const code of WITH_TOKEN) codes.add(code)
  if (route.changes) codes.add('READ_ONLY')
  if (route.body !== undefined) for (const code of WITH_BODY) codes.add(code)
  for (const code of COMMON) codes.add(code)
  return [...codes]
}

/** The document. */
export function openApi(routes: readonly Route[], version: string): JsonSchema {
  const paths: Record<string, Record<string, JsonSchema>> = {}
  for (const route of routes) (paths[route.path] ??= {})[route.method.toLowerCase()] = operation(route)
  return {
    openapi: '3.1.0',
    info: {
      title: 'Millrace',
      version,
      description: 'A queue of jobs over HTTP. Errors are application/problem+json with a stable code.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      schemas: { Problem: problemSchema },
    },
  }
}

const problemSchema: JsonSchema = {
  type: 'object',
  properties: {
    type: { type: 'string' },
    title: { type: 'string' },
    status: { type: 'integer' },
    detail: { type: 'string' },
    // No enum: a new code must not break the clients that were made of an older document.
    code: { type: 'string', description: 'stable; docs/errors.md lists the codes', examples: ['LEASE_LOST'] },
    remedy: { type: 'string' },
    details: { type: 'object' },
    request: { type: 'string' },
  },
  required: ['type', 'title', 'status', 'detail', 'code', 'remedy', 'request'],
}

function operation(route: Route): JsonSchema {
  const { summary, description, body, query = {} } = route
  const parameters = [...pathParameters(route.path), ...queryParameters(query)]
  return {
    summary,
    ...(description !== undefined && { description }),
    ...(route.access !== 'open' && { security: [{ token: [...rolesOf(route)] }] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: {
        required: route.bodyOptional !== true,
        content: { 'application/json': { schema: body.schema, example: body.example } },
      },
    }),
    responses: { ...answersOf(route), ...problemsOf(route) },
  }
}

function rolesOf({ access }: Route): readonly string[] {
  return typeof access === 'string' ? [] : access
}

function pathParameters(path: string): readonly JsonSchema[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name: name!,
    in: 'path',
    required: true,
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  }))
}

function queryParameters(fields: Fields): readonly JsonSchema[] {
  return Object.entries(fields).map(([name, shape]) => ({
    name,
    in: 'query',
    required: !('optional' in shape),
    ...(shape.schema['type'] === 'array' && { style: 'form', explode: false }),
    schema: shape.schema,
  }))
}

function answersOf(route: Route): Record<string, JsonSchema> {
  const answers: Record<string, JsonSchema> = {}
  for (const [status, { description, schema, type = 'application/json' }] of Object.entries(route.answers)) {
    const content = schema === undefined ? undefined : { [type]: { schema } }
    answers[status] = { description, ...(content !== undefined && { content }) }
  }
  return answers
}

/** The problems of a route, by status. */
function problemsOf(route: Route): Record<string, JsonSchema> {
  const byStatus = new Map<number, ErrorCode[]>()
  for (const code of errorsOf(route)) {
    const status = statusOf(code)
    byStatus.set(status, [...(byStatus.get(status) ?? []), code])
  }
  const sorted = [...byStatus].toSorted(([a], [b]) => a - b)
  return Object.fromEntries(
    sorted.map(([status, codes]) => [
      String(status),
      {
        description: codes.join(', '),
        content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
      },
    ]),
  )
}
