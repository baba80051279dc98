// server/routes/settling.ts: the calls about a job that its worker holds: heartbeat, notes, steps, and its settlement.
import type { ErrorCode } from '../../job/errors/errors.js'
import { encodeJson } from '../../job/values/json.js'
import { logEntry, progressEntry } from '../../worker/attempt/pending-notes.js'
import { lostLease } from '../../worker/claims/claimed-job.js'
import { jsonText, raw } from '../json-text.js'
import { anyJson } from '../producing/add-request.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { described, list, object, optional, text } from '../shape.js'
import { STEP, lease as leaseShape } from '../working/claiming.js'
import { readStep } from '../working/steps.js'
import { fence, settleJob, settledSchema, settlements } from '../working/settling.js'
import type { Settlement } from '../working/settling.js'

/** The errors of every call about a held job. */
const heldErrors: readonly ErrorCode[] = ['JOB_NOT_FOUND', 'LEASE_LOST', 'JOB_REMOVED', 'STORE_BUSY']

const nothing = { 200: { description: 'It is written.', schema: { type: 'object' } } } as const

/** The most lines of one request, and the longest. */
const MAX_LINES = 1_000
const MAX_LINE = 65_536

interface SettlingRoute<Kind extends Settlement['kind']> {
  readonly kind: Kind
  readonly summary: string
  readonly description?: string
  readonly errors: readonly ErrorCode[]
}

/** The errors of jobs that a settlement adds. */
const addingErrors: readonly ErrorCode[] = [
  'UNKNOWN_JOB',
  'INVALID_PAYLOAD',
  'DUPLICATE_ID',
  'DUPLICATE_JOB',
  'DEPENDENCY_MISSING',
  'WAIT_CYCLE',
  'WRONG_CONTINUATION',
  'CALLED_OUT_OF_ORDER',
  'QUEUE_FULL',
]

/** The route of a settlement. */
function settling<Kind extends Settlement['kind']>({ kind, ...about }: SettlingRoute<Kind>): Route {
  return route({
    method: 'POST',
    path: `/v1/jobs/{id}/${kind}`,
    access: ['work'],
    ...about,
    body: object({ fence, ...settlements[kind] }),
    changes: true,
    answers: {
      200: {
        description: 'The state of the job; `repeated`: the caller had settled it so before.',
        schema: settledSchema,
      },
    },
    errors: [...heldErrors, ...about.errors],
    async handle({ server, principal, params, body }) {
      const { fence: given, ...fields } = body as { readonly fence: number }
      const settlement = { kind, fields } as unknown as Settlement
      return { body: await settleJob(server, principal, { id: params['id']!, fence: given }, settlement) }
    },
  })
}

/** The routes of the jobs that a worker holds. */
export const settlingRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/heartbeat',
    access: ['work'],
    summary: 'Renews the lease of a job: it belongs to the worker for that long from now on.',
    body: object({
      fence,
      lease: described(optional(leaseShape), 'Default: the lease of the claim.'),
    }),
    changes: true,
    answers: {
      200: {
        description: 'The lease, and what an operator asks of the worker.',
        schema: {
          type: 'object',
          properties: { leaseMs: { type: 'integer' }, state: { enum: ['running', 'pausing', 'stopping'] } },
          required: ['leaseMs', 'state'],
        },
      },
    },
    errors: heldErrors,
    async handle({ server, principal, params, body }) {
      const { held, workers } = server.working
      return held.use(principal, { id: params['id']!, fence: body.fence }, async ({ claimed, record, lease: own }) => {
        const leaseMs = body.lease ?? own
        const beat = await claimed.heartbeat({ lease: leaseMs })
        if (!beat.held) throw lostLease(record, [beat.reason, beat.cancelReason])
        if (leaseMs !== own) held.remember(record, leaseMs)
        workers.tell(record.worker!)
        return { body: { leaseMs, state: workers.steeringOf(record.worker!) } }
      })
    },
  }),
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/progress',
    access: ['work'],
    summary: 'Writes the progress of a job: any JSON.',
    body: object({ fence, progress: { ...anyJson, schema: { description: 'Any JSON.' } } }),
    changes: true,
    answers: nothing,
    errors: [...heldErrors, 'INVALID_DATA', 'DATA_TOO_LARGE'],
    async handle({ server, principal, params, body }) {
      const entry = progressEntry(body.progress ?? null)
      const lease = { id: params['id']!, fence: body.fence }
      await server.working.held.use(principal, lease, ({ claimed }) => claimed.write('progress', () => entry))
      return { body: {} }
    },
  }),
  route({
    method: 'POST',
    path: '/v1/jobs/{id}/log',
    access: ['work'],
    summary: 'Writes lines to the log of a job.',
    body: object({
      fence,
      lines: list(text({ min: 0, max: MAX_LINE, example: 'page 1 of 3' }), { min: 1, max: MAX_LINES }),
    }),
    changes: true,
    answers: nothing,
    errors: heldErrors,
    async handle({ server, principal, params, body }) {
      const entry = { logs: body.lines.flatMap((line) => logEntry(line).logs ?? []) }
      const lease = { id: params['id']!, fence: body.fence }
      await server.working.held.use(principal, lease, ({ claimed }) => claimed.write('log', () => entry))
      return { body: {} }
    },
  }),
  route({
    method: 'PUT',
    path: '/v1/jobs/{id}/steps/{name}',
    access: ['work'],
    summary: 'Keeps the result of a step for later attempts, unless it has one; answers the one that stands.',
    description: 'Claims return the steps of earlier attempts with `include: ["steps"]`.',
    body: object({ fence, result: described(anyJson, 'Any JSON.') }),
    changes: true,
    answers: {
      200: {
        description: 'The result that stands; `kept`: it is the one sent.',
        schema: { type: 'object', properties: { kept: { type: 'boolean' }, result: {} }, required: ['kept'] },
      },
    },
    errors: [...heldErrors, 'INVALID_NAME', 'INVALID_DATA', 'DATA_TOO_LARGE'],
    async handle({ server, principal, params, body }) {
      const { held } = server.working
      const name = `${STEP}${params['name']!}`
      const result = body.result === undefined ? undefined : encodeJson(body.result, 'result')
      const id = params['id']!
      const standing = await held.oneAtATime(id, () =>
        held.use(principal, { id, fence: body.fence }, async ({ claimed, record }) => {
          const before = await readStep(server.store, record, name)
          // Where there is one, nothing is written but the fence is checked all the same.
          const kept = before === undefined ? { steps: [{ name, result, ran: 0 }] } : {}
          await claimed.write('step', () => kept)
          return before
        }),
      )
      return {
        text: jsonText({
          kept: standing === undefined,
          result: raw(standing === undefined ? result : standing.result),
        }),
      }
    },
  }),
  settling({
    kind: 'complete',
    summary: 'Completes a job; adds jobs and continues its chain in the same commit.',
    description: 'A result that its schema refuses is 422, and the job still belongs to the worker.',
    errors: ['INVALID_RESULT', 'INVALID_DATA', 'DATA_TOO_LARGE', ...addingErrors],
  }),
  settling({
    kind: 'fail',
    summary: 'Fails the attempt: the job is retried by its own rules, or fails for good.',
    errors: ['INVALID_DURATION', 'UNKNOWN_BACKOFF', 'CALLBACK_FAILED'],
  }),
  settling({
    kind: 'snooze',
    summary: 'Runs the job again after that time; the attempt does not count.',
    errors: ['INVALID_DURATION'],
  }),
  settling({ kind: 'release', summary: 'Returns the job to its queue; the attempt does not count.', errors: [] }),
  settling({
    kind: 'hold',
    summary: 'Holds jobs like this one for that time, and returns it to its queue: for a service that answers 429.',
    errors: ['TOO_MANY_HOLDS', 'INVALID_OPTION', 'INVALID_DURATION'],
  }),
]
