// server/routes/producing.ts: adding jobs: one, or many at once.
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import type { ErrorCode } from '../../job/errors/errors.js'
import { NO_OPTIONS } from '../../queue/add.js'
import type { Prepared } from '../../queue/add.js'
import type { Job } from '../../queue/job.js'
import type { Queue } from '../../queue/queue.js'
import type { ServerParts } from '../parts.js'
import type { Principal } from '../principal.js'
import { problemOf, statusOf } from '../problem.js'
import { addOptions, addedSchema, addedView, checkAfter, newJob, withoutStrangers } from '../producing/add-request.js'
import type { NewJobRequest } from '../producing/add-request.js'
import { checkSame, idempotencyKey, idempotentId, mismatch } from '../producing/idempotency.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { list, object, refuse } from '../shape.js'

/** The most jobs of one request. */
const MAX_JOBS = 1_000

/** The errors of adding a job. */
export const addErrors: readonly ErrorCode[] = [
  'INVALID_NAME',
  'INVALID_ID',
  'RESERVED_NAME',
  'INVALID_OPTION',
  'UNKNOWN_OPTION',
  'INVALID_ATTEMPTS',
  'INVALID_PRIORITY',
  'INVALID_DURATION',
  'INVALID_DATE',
  'INVALID_BACKOFF',
  'INVALID_DATA',
  'INVALID_TAGS',
  'INVALID_PAYLOAD',
  'DATA_TOO_LARGE',
  'UNKNOWN_JOB',
  'DUPLICATE_JOB',
  'DUPLICATE_ID',
  'DEPENDENCY_MISSING',
  'IDEMPOTENCY_MISMATCH',
  'QUEUE_FULL',
]

/** Who asks to add jobs, and under which key. */
interface Adding {
  readonly server: ServerParts
  readonly principal: Principal
  readonly queue: Queue
  readonly key: string | undefined
}

/** The routes that add jobs. */
export const producingRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/jobs',
    access: ['produce', 'work'],
    summary: 'Adds a job.',
    description:
      'With an `Idempotency-Key`, the same request sent again answers the job that was added, with `duplicate: true`, for as long as that is kept.',
    body: newJob,
    changes: true,
    answers: {
      201: { description: 'The job was added.', schema: addedSchema },
      200: { description: 'It stands already.', schema: addedSchema },
    },
    errors: addErrors,
    async handle({ server, principal, params, body, request }) {
      const adding = { server, principal, queue: server.queues.get(params['queue']!), key: idempotencyKey(request) }
      const options = await optionsOf(adding, body, 0, 'body')
      let job: Job
      try {
        job = await adding.queue.add(body.name, body.data, options)
      } catch (error) {
        throw refusalOf(adding, error, options.id)
      }
      if (job.duplicate && adding.key !== undefined && job.id === options.id) {
        const prepared = await adding.queue.adder.prepare(body.name, body.data, options)
        await checkStanding(server, prepared)
      }
      return { status: job.duplicate ? 200 : 201, body: addedView(job) }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/queues/{queue}/bulk',
    access: ['produce', 'work'],
    summary: 'Adds up to 1,000 jobs. Each is added by itself; if one of them is malformed, none is.',
    description:
      'The answer has an entry for each job, in order: the job, or the problem for which it was not added. An `Idempotency-Key` counts for each place in the list.',
    body: object({ jobs: list(newJob, { min: 1, max: MAX_JOBS }) }),
    changes: true,
    answers: {
      200: {
        description: 'A job or a problem for each.',
        schema: {
          type: 'object',
          properties: {
            jobs: { type: 'array', items: { anyOf: [addedSchema, { $ref: '#/components/schemas/Problem' }] } },
          },
          required: ['jobs'],
        },
      },
    },
    errors: addErrors,
    async handle({ server, principal, params, body, request, id }) {
      const adding = { server, principal, queue: server.queues.get(params['queue']!), key: idempotencyKey(request) }
      const prepared = await prepareAll(adding, body.jobs)
      const ended = await sendAll(adding, prepared)
      const failed = ended.filter((each) => each.status === 'rejected')
      const outage = failed.find(({ reason }) => !isMillraceError(reason) || statusOf(reason.code) >= 500)
      if (failed.length === ended.length && outage !== undefined) throw outage.reason
      const jobs = ended.map((each, at) =>
        each.status === 'fulfilled'
          ? addedView(each.value)
          : problemOf(refusalOf(adding, each.reason, prepared[at]!.insert.job.id), id),
      )
      return { body: { jobs } }
    },
  }),
]

/** The options of a job, with the id that its key gives it. */
async function optionsOf(
  { server, principal, queue, key }: Adding,
  { options: given }: NewJobRequest,
  index: number,
  at: string,
): Promise<ReturnType<typeof addOptions>> {
  const options = addOptions(given, principal, queue, `${at}.options`)
  await checkAfter(server, principal, options.after)
  if (key === undefined) return options
  if (options.id !== undefined)
    throw refuse(`${at}.options.id`, 'left out with an Idempotency-Key, which is the id', options.id)
  return { ...options, id: idempotentId(principal, queue.name, key, index) }
}

/** Checks all jobs of a request before any is sent. The error of one says which it is. */
async function prepareAll(adding: Adding, jobs: readonly NewJobRequest[]): Promise<readonly Prepared[]> {
  const prepared: Prepared[] = []
  for (const [index, job] of jobs.entries()) {
    const at = `body.jobs[${index}]`
    try {
      // Few need to wait, and a turn of the event loop for each of a thousand would be slow.
      const needsTurn = adding.key !== undefined || job.options !== undefined
      const options = needsTurn ? await optionsOf(adding, job, index, at) : undefined
      const each = adding.queue.adder.prepare(job.name, job.data, options ?? NO_OPTIONS)
      prepared.push(each instanceof Promise ? await each : each)
    } catch (error) {
      if (!isMillraceError(error) || error.code === 'INVALID_REQUEST') throw error
      const { code, message, details } = error
      throw new MillraceError(code, `${at}: ${message}`, { cause: error, details: { ...details, at } })
    }
  }
  return prepared
}

async function sendAll(
  { server, queue, key }: Adding,
  prepared: readonly Prepared[],
): Promise<readonly PromiseSettledResult<Job>[]> {
  let ended: readonly PromiseSettledResult<Job>[] = []
  await queue.measureAdds(prepared.length, async () => {
    ended = await Promise.allSettled(
      prepared.map(async (each) => {
        const job = await queue.adder.send(each)
        if (key !== undefined && job.duplicate && job.id === each.insert.job.id) await checkStanding(server, each)
        return job
      }),
    )
    return ended.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
  })
  return ended
}

/** Throws unless the job that stands under the id was added by the same request. */
async function checkStanding(server: ServerParts, { insert: { job } }: Prepared): Promise<void> {
  checkSame(await server.connection.reads.get(job.id), job.name, job.data)
}

/** What the caller learns of an add that was refused. */
function refusalOf({ principal, key }: Adding, error: unknown, id: string | undefined): unknown {
  if (key !== undefined && id !== undefined && isMillraceError(error, 'DUPLICATE_ID')) return mismatch(id)
  return withoutStrangers(error, principal)
}
