// server/problem.ts: errors as answers: RFC 9457 with the code and the remedy of the catalogue, and no stack.
import { errorCatalogue } from '../job/errors/catalogue.js'
import { MillraceError, isMillraceError } from '../job/errors/errors.js'
import type { ErrorCode } from '../job/errors/errors.js'

/** The status of each code that a request may cause. Those that are missing are failures of the server: 500. */
const statuses: Readonly<Partial<Record<ErrorCode, number>>> = {
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  READ_ONLY: 403,
  ROUTE_NOT_FOUND: 404,
  JOB_NOT_FOUND: 404,
  SCHEDULE_NOT_FOUND: 404,
  OPERATION_NOT_FOUND: 404,
  WORKER_NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  REQUEST_TIMEOUT: 408,
  LEASE_LOST: 409,
  DUPLICATE_JOB: 409,
  DUPLICATE_ID: 409,
  DEDUP_TAKEN: 409,
  DEPENDENCY_MISSING: 409,
  DEPENDENCY_FAILED: 409,
  INVALID_STATE: 409,
  JOB_HAS_DEPENDENTS: 409,
  JOB_ENDS_CHAIN: 409,
  WAIT_CYCLE: 409,
  SCHEDULE_OVERLAP: 409,
  SCHEDULE_OWNED: 409,
  TOO_MANY_HOLDS: 409,
  WRITER_BEHIND: 409,
  WRONG_CONTINUATION: 409,
  WRONG_DEPENDENCIES: 409,
  JOB_REMOVED: 410,
  DATA_TOO_LARGE: 413,
  BODY_TOO_LARGE: 413,
  BACKFILL_TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  HOST_NOT_ALLOWED: 421,
  INVALID_PAYLOAD: 422,
  INVALID_RESULT: 422,
  UNKNOWN_JOB: 422,
  UNKNOWN_BACKOFF: 422,
  OTHER_VERSION: 422,
  IDEMPOTENCY_MISMATCH: 422,
  PROTOCOL_MISMATCH: 426,
  QUEUE_FULL: 429,
  RATE_LIMITED: 429,
  SERVER_BUSY: 503,
  STORE_BUSY: 503,
  STORE_UNAVAILABLE: 503,
  STORE_CLOSED: 503,
  DATABASE_UNREACHABLE: 503,
  DATABASE_LOCKED: 503,
  POOL_EXHAUSTED: 503,
  QUEUE_CLOSED: 503,
  NO_FILTER: 400,
  RESERVED_NAME: 400,
  UNKNOWN_OPTION: 400,
  UNKNOWN_FIELD: 400,
}

/** Codes that begin like this are mistakes of the caller, but for those of the deployment. */
const MISTAKE = /^INVALID_(?!HANDLER|TRANSACTION)/

/** The HTTP status of an error with this code. */
export function statusOf(code: ErrorCode): number {
  return statuses[code] ?? (MISTAKE.test(code) ? 400 : 500)
}

/** The seconds after which a client should try again, where the error does not say. */
const RETRY_AFTER = 1

/** What a failed request answers: RFC 9457. */
export interface Problem {
  /** `urn:millrace:error:` and the code. */
  readonly type: string
  /** What the code means, in one sentence. */
  readonly title: string
  /** The status of the answer. */
  readonly status: number
  /** What happened, to which job, and what to do. */
  readonly detail: string
  /** The code of the error: it is stable. */
  readonly code: string
  /** What to do about errors of that code. */
  readonly remedy: string
  /** Facts about this error that are short and plain, as a `reason` or the place `at` in the request. */
  readonly details?: Readonly<Record<string, unknown>>
  /** The id of the request, as the server logs it. */
  readonly request: string
}

/** An error as a problem. Errors that are not Millrace's are INTERNAL, and reveal nothing. */
export function problemOf(error: unknown, request: string): Problem {
  const known = isMillraceError(error) && Object.hasOwn(errorCatalogue, error.code)
  const code: ErrorCode = known ? error.code : 'INTERNAL'
  const { summary, remedy } = errorCatalogue[code]
  const status = statusOf(code)
  const details = known ? plain(error.details) : undefined
  return {
    type: `urn:millrace:error:${code}`,
    title: summary,
    status,
    detail: known ? error.message : summary,
    code,
    remedy,
    ...(details !== undefined && { details }),
    request,
  }
}

/** The answer to a request that failed. */
export function problemResponse(error: unknown, request: string): Response {
  const problem = problemOf(error, request)
  const headers: Record<string, string> = { 'content-type': 'application/problem+json', 'cache-control': 'no-store' }
  if (problem.status === 401) headers['www-authenticate'] = 'Bearer'
  if (problem.status === 503 || problem.status === 429) {
    const { retryAfter } = (problem.details ?? {}) as { readonly retryAfter?: unknown }
    headers['retry-after'] = String(typeof retryAfter === 'number' ? Math.ceil(retryAfter / 1000) : RETRY_AFTER)
  }
  const { allow } = (problem.details ?? {}) as { readonly allow?: unknown }
  if (problem.status === 405 && typeof allow === 'string') headers['allow'] = allow
  return new Response(JSON.stringify(problem), { status: problem.status, headers })
}

/** The error of a caller who may not do that. */
export function forbidden(what: string): MillraceError {
  return new MillraceError('FORBIDDEN', what)
}

/** How many details an error shows, and how long each may be as text. */
const MAX_DETAILS = 20
const MAX_DETAIL = 500

/** The details that are short and plain. */
function plain(details: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> | undefined {
  const shown: Record<string, unknown> = {}
  let count = 0
  for (const [key, value] of Object.entries(details)) {
    const simple = value === null || typeof value === 'boolean' || typeof value === 'number'
    const short = typeof value === 'string' && value.length <= MAX_DETAIL
    const texts = Array.isArray(value) && value.length <= MAX_DETAILS && value.every(isShort)
    if (!(simple || short || texts) || count === MAX_DETAILS) continue
    Object.defineProperty(shown, key, { value, enumerable: true })
    count++
  }
  return count === 0 ? undefined : shown
}

function isShort(value: unknown): boolean {
  return typeof value === 'number' || (typeof value === 'string' && value.length <= MAX_DETAIL)
}
