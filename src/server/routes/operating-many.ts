// server/routes/operating-many.ts: bulk operations: changes of all jobs that match, their plan, and their progress.
import { MillraceError } from '../../job/errors/errors.js'
import { bulkActions } from '../../job/bulk.js'
import type { BulkAction } from '../../job/bulk.js'
import type { Operation } from '../../queue/operations/bulk/operation.js'
import type { OperationRequest } from '../../queue/operations/bulk/options.js'
import type { AnyJobs } from '../../queue/queue-types.js'
import { route } from '../route.js'
import type { Answer, Call, Route } from '../route.js'
import { described, flag, object, optional, options, text, whole } from '../shape.js'
import type { Shape } from '../shape.js'
import { FILTER_ERRORS } from '../reading/filter-fields.js'

const ADMIN = ['admin'] as const
const anObject = { type: 'object' } as const

const common = {
  where: optional(options('the filter, as for `queue.list`', { state: 'failed' })),
  all: optional(described(flag, 'all jobs of the queue, in place of `where`')),
  rate: optional(options('`{ max, per }`: at most so many jobs in each period', { max: 50, per: '1s' })),
  dryRun: optional(described(flag, 'only count: changes nothing')),
  reason: optional(described(text({ max: 500, example: 'the provider is back' }), 'why')),
} as const

const cascade = { cascade: optional(described(flag, 'also children, or the jobs that wait for these')) } as const

/** What a request for a bulk operation holds. */
type Request = Readonly<Record<string, unknown>> & { readonly dryRun?: boolean | undefined }

const bodies: Readonly<Record<BulkAction, Shape<Request>>> = {
  cancel: object({ ...common, ...cascade }),
  retry: object(common),
  promote: object(common),
  remove: object({ ...common, ...cascade }),
  update: object({ ...common, changes: options('data, priority, delay or runAt', { priority: 5 }) }),
}

const summaries: Readonly<Record<BulkAction, string>> = {
  cancel: 'Cancels all unfinished jobs that match.',
  retry: 'Restarts all failed and cancelled jobs that match.',
  promote: 'Makes all delayed jobs that match run now.',
  remove: 'Removes all jobs that match.',
  update: 'Changes data, priority or time of all jobs that match and have not started.',
}

/** Bulk operations. */
export const operatingManyRoutes: readonly Route[] = [
  ...bulkActions.map((action) =>
    route<Request>({
      method: 'POST',
      path: `/v1/queues/{queue}/${action}`,
      access: ADMIN,
      action: `${action} many`,
      summary: summaries[action],
      description:
        'A durable operation, which workers or the server carry out page by page: `GET /v1/queues/{queue}/operations/{id}` shows how far it is. An empty filter is refused unless `all` is true. With `dryRun` the answer is the plan: counts by name and state, ten samples, and what would be refused.',
      changes: true,
      audited: ({ body }) => (body as Request).dryRun !== true,
      body: bodies[action],
      answers: {
        200: { description: 'The plan, of a dry run.', schema: anObject },
        202: { description: 'The operation.', schema: anObject },
      },
      errors: [
        ...FILTER_ERRORS,
        'NO_FILTER',
        'UNKNOWN_OPTION',
        'INVALID_PAYLOAD',
        'INVALID_DATA',
        'DATA_TOO_LARGE',
        'UNKNOWN_JOB',
      ],
      handle: (call) => begin(call, action),
    }),
  ),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/operations',
    access: ['read'],
    summary: 'The bulk operations of the queue, the newest first. They are kept for 30 days after their end.',
    changes: false,
    query: {
      limit: optional(whole(1, 500, 100)),
      cursor: optional(text({ max: 40, pattern: [/^-?\d{1,16}$/, 'a cursor that a page gave'], example: '7' })),
    },
    answers: { 200: { description: '`operations`, and a `cursor` where there are more.', schema: anObject } },
    errors: [],
    async handle({ server, params, query }) {
      const { operations, ...more } = await server.queues.get(params['queue']!).operations(query)
      return { body: { operations: operations.map((each) => each.toJSON()), ...more } }
    },
  }),
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/operations/{id}',
    access: ['read'],
    summary: 'One bulk operation: what it was asked to do, and how far it is.',
    changes: false,
    answers: { 200: { description: 'The operation.', schema: anObject } },
    errors: ['OPERATION_NOT_FOUND'],
    handle: async (call) => ({ body: (await operationOf(call)).toJSON() }),
  }),
  steer('pause', 'Stops the operation until it is resumed.', (operation) => operation.pause()),
  steer('resume', 'Lets the paused operation go on.', (operation) => operation.resume()),
  steer('cancel', 'Ends the operation for good. What it has done stays done.', (operation) => operation.cancel()),
]

async function begin({ server, principal, params, body }: Call<Request>, action: BulkAction): Promise<Answer> {
  const queue = server.queues.get(params['queue']!)
  const { dryRun, ...rest } = body
  const request = { ...rest, do: action, by: principal.name } as unknown as OperationRequest<AnyJobs, string>
  if (dryRun === true) return { body: await queue.plan(request) }
  const operation = await queue.operate(request as OperationRequest<AnyJobs, string> & { readonly dryRun?: false })
  return { status: 202, body: operation.toJSON(), facts: { operation: operation.id, matched: operation.matched } }
}

async function operationOf({ server, params }: Call): Promise<Operation> {
  const { queue, id } = params
  const operation = await server.queues.get(queue!).operation(id!)
  if (operation !== undefined) return operation
  throw new MillraceError('OPERATION_NOT_FOUND', `Queue '${queue}' has no operation ${id}.`, { details: { id } })
}

/** A route that steers an operation. */
function steer(what: string, summary: string, work: (operation: Operation) => Promise<boolean>): Route {
  return route({
    method: 'POST',
    path: `/v1/queues/{queue}/operations/{id}/${what}`,
    access: ADMIN,
    action: `${what} operation`,
    summary,
    changes: true,
    answers: { 200: { description: '`done`, and the `operation` as it is now.', schema: anObject } },
    errors: ['OPERATION_NOT_FOUND', 'INVALID_STATE'],
    async handle(call) {
      const operation = await operationOf(call)
      const done = await work(operation)
      return { body: { done, operation: operation.toJSON() }, facts: { done, changed: operation.done } }
    },
  })
}
