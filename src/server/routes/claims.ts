// server/routes/claims.ts: claiming jobs, and waiting for them.
import { jsonText } from '../json-text.js'
import { idempotencyKey } from '../producing/idempotency.js'
import { route } from '../route.js'
import type { Call, Route } from '../route.js'
import { object } from '../shape.js'
import type { Accepted } from '../shape.js'
import { checkClaim, claimFields, claimJobs, claimedViews, idle } from '../working/claiming.js'

const body = object(claimFields)

/** The JSON Schema of a claimed job. */
export const claimedSchema = {
  type: 'object',
  properties: {
    id: { type: 'string' },
    queue: { type: 'string' },
    name: { type: 'string' },
    version: { type: 'integer' },
    data: {},
    attempt: { type: 'integer' },
    attempts: { type: ['integer', 'null'] },
    fence: { type: 'integer' },
    worker: { type: 'string' },
    leaseMs: { type: 'integer' },
    progress: {},
    steps: { type: 'array' },
    dependencies: { type: 'array' },
  },
  required: ['id', 'queue', 'name', 'version', 'attempt', 'attempts', 'fence', 'worker', 'leaseMs'],
} as const

/** What an operator asks of the worker, in answers to it. */
export const steeringSchema = { enum: ['running', 'pausing', 'stopping'] } as const

/** The route of claims. */
export const claimRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/claims',
    access: ['work'],
    summary: 'Claims jobs; waits for the first, up to 25 s.',
    description:
      'Claims that wait stand in line. A job belongs to the worker for its lease, which a heartbeat renews, and every call about it gives its `fence`. `state` other than `running`: an operator asks the worker to take no more jobs (`pausing`), or to end (`stopping`). With an `Idempotency-Key`, the same claim sent again within a minute gets the same jobs.',
    body,
    changes: true,
    long: true,
    answers: {
      200: {
        description: 'The jobs; none if there are none.',
        schema: {
          type: 'object',
          properties: {
            now: { type: 'integer' },
            state: steeringSchema,
            jobs: { type: 'array', items: claimedSchema },
          },
          required: ['now', 'state', 'jobs'],
        },
      },
    },
    errors: ['UNKNOWN_JOB', 'INVALID_NAME', 'INVALID_DURATION'],
    async handle(call) {
      const key = idempotencyKey(call.request)
      if (key === undefined) return { text: (await answerOf(call)).text }
      const { principal, server } = call
      return { text: await server.working.answers.once(JSON.stringify([principal.name, key]), () => answerOf(call)) }
    },
  }),
]

async function answerOf(call: Call<Accepted<typeof body>>): Promise<{ readonly text: string; readonly keep: boolean }> {
  const { server, principal, body: asked, request } = call
  const { workers } = server.working
  const claim = await checkClaim(server, principal, asked)
  const { now } = server.connection.runtime
  const wait = asked.wait ?? 0
  const changed = workers.changed(claim.worker)
  const until = [server.closing, ...(changed === undefined ? [] : [changed])]
  if (claim.steering !== 'running') {
    // Once it has been told, it is made to wait, so that a worker that does not listen does not ask all the time.
    if (!workers.tell(claim.worker)) await idle(server, principal.name, wait, [request.signal, ...until])
    return { text: jsonText({ now: now(), state: workers.steeringOf(claim.worker), jobs: [] }), keep: false }
  }
  const jobs = await claimJobs(server, principal, asked, claim, { wait, gone: request.signal, until })
  const state = workers.steeringOf(claim.worker)
  workers.tell(claim.worker)
  const views = await claimedViews(server, claim, jobs, asked.include)
  return { text: jsonText({ now: jobs[0]?.startedAt ?? now(), state, jobs: views }), keep: jobs.length > 0 }
}
