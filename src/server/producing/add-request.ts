// server/producing/add-request.ts: a job to add as a request describes it, and what its caller may not ask for.
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import { NO_OPTIONS } from '../../queue/add.js'
import type { AddOptions } from '../../queue/add-options.js'
import type { Job } from '../../queue/job.js'
import type { Queue } from '../../queue/queue.js'
import type { ServerParts } from '../parts.js'
import { allQueues, hasRole, inScope } from '../principal.js'
import type { Principal } from '../principal.js'
import { forbidden } from '../problem.js'
import { described, json, name, object, optional, options, refuse } from '../shape.js'
import type { Accepted, OptionalShape } from '../shape.js'

/** Options of `queue.add` in a request. */
const addOptionsShape = optional(
  options(
    'As the options of `queue.add`, but `repeat`. Dates are milliseconds or ISO 8601; `attempts: null` is without bound.',
    { priority: 1 },
  ),
)

/** Any JSON, or nothing; `null` is JSON. */
export const anyJson: OptionalShape<unknown> = { ...json, optional: true }

/** A job to add. */
export const newJob = object({
  name: name('send'),
  data: described(anyJson, 'Any JSON, up to 1 MiB.'),
  options: addOptionsShape,
})

/** A job to add, as a request describes it. */
export type NewJobRequest = Accepted<typeof newJob>

/** Dates in text begin like this; durations never do. */
const DATE = /^\d{4}-\d{2}-\d{2}/

/** The options of an add by a remote caller. Throws for what it may not ask for. */
export function addOptions(
  given: Readonly<Record<string, unknown>> | undefined,
  principal: Principal,
  queue: Queue,
  at: string,
): AddOptions {
  if (given === undefined) return NO_OPTIONS
  const parsed: Record<string, unknown> = { ...given }
  if (parsed['repeat'] !== undefined) {
    throw refuse(`${at}.repeat`, 'left out: PUT /v1/queues/{queue}/schedules/{key} repeats a job', parsed['repeat'])
  }
  if (parsed['attempts'] === null) parsed['attempts'] = Infinity
  for (const field of ['runAt', 'expires']) {
    const value = parsed[field]
    if (typeof value === 'string' && DATE.test(value)) parsed[field] = new Date(value)
  }
  const { dedup, webhook } = parsed as AddOptions
  if (dedup?.scope === 'global' && !allQueues(principal)) {
    throw forbidden(`A key for the whole store needs a token for all queues, and '${principal.name}' has not.`)
  }
  checkWebhook(webhook, principal, queue)
  return parsed
}

/** A caller that may only add jobs must not have the server call any URL: only one of the origin that the queue has. */
function checkWebhook(webhook: AddOptions['webhook'], principal: Principal, queue: Queue): void {
  const url = typeof webhook === 'object' && webhook !== null ? webhook.url : webhook
  if (typeof url !== 'string' || hasRole(principal, 'admin')) return
  const own = queue.webhooks?.stamp.url
  if (own !== undefined && URL.canParse(url) && new URL(url).origin === new URL(own).origin) return
  throw forbidden(
    `The webhook of a job must have the origin of the queue's own webhook${own === undefined ? ', and this queue has none' : ''}.`,
  )
}

/**
 * Throws DEPENDENCY_MISSING for jobs to wait for that the caller may not know of: a dependent receives their results.
 */
export async function checkAfter(server: ServerParts, principal: Principal, after: AddOptions['after']): Promise<void> {
  if (after === undefined || allQueues(principal)) return
  await server.connection.ready()
  const ids = (Array.isArray(after) ? after : [after]).map(idOf).filter((id) => id !== undefined)
  const found = await Promise.all(ids.map((id) => server.connection.reads.get(id)))
  const hidden = found.find((job) => job !== undefined && !inScope(principal, job.queue))
  if (hidden === undefined) return
  throw new MillraceError(
    'DEPENDENCY_MISSING',
    `after: there is no job ${hidden.id}; it was never added, or has been removed.`,
    { details: { id: hidden.id } },
  )
}

/** The id of a dependency, if it is one: whether it is well formed is checked where the job is added. */
function idOf(dependency: unknown): string | undefined {
  if (typeof dependency === 'string') return dependency
  if (typeof dependency !== 'object' || dependency === null) return undefined
  const { id, job } = dependency as { readonly id?: unknown; readonly job?: unknown }
  if (typeof id === 'string') return id
  return job === undefined ? undefined : idOf(job)
}

/** What a caller that may not read learns of a job that it added. */
export interface AddedView {
  readonly id: string
  readonly queue: string
  readonly name: string
  readonly state: string
  readonly duplicate: boolean
  readonly runAt?: number
}

/** A job that was added, or that stands in its place. */
export function addedView({ id, queue, name: called, state, duplicate, runAt }: Job): AddedView {
  return { id, queue, name: called, state, duplicate, ...(runAt !== undefined && { runAt }) }
}

/** An error of an add, without what it says of queues that are not the caller's. */
export function withoutStrangers(error: unknown, principal: Principal): unknown {
  if (!isMillraceError(error, 'DUPLICATE_ID')) return error
  const { id, queue } = error.details as { readonly id?: unknown; readonly queue?: unknown }
  if (typeof queue !== 'string' || inScope(principal, queue)) return error
  const message = `Job ${String(id)} exists already. Ids are unique in a store; choose another.`
  return new MillraceError('DUPLICATE_ID', message, { details: { id } })
}

/** The JSON Schema of a job that was added. */
export const addedSchema = {
  type: 'object',
  properties: {
    id: { type: 'string' },
    queue: { type: 'string' },
    name: { type: 'string' },
    state: { type: 'string' },
    duplicate: { type: 'boolean' },
    runAt: { type: 'integer' },
  },
  required: ['id', 'queue', 'name', 'state', 'duplicate'],
} as const
