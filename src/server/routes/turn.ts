// server/routes/turn.ts: a whole turn of a worker in one request and one batch: it settles, renews and claims.
import { jsonText } from '../json-text.js'
import { problemOf } from '../problem.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { described, list, name, object, optional, refuse, whole } from '../shape.js'
import type { Accepted } from '../shape.js'
import { Beat } from '../working/beat.js'
import { checkClaim, claimFields, claimJobs, claimedViews, idle } from '../working/claiming.js'
import { fence, settleJob, settledSchema, settlementShapes } from '../working/settling.js'
import type { Settlement } from '../working/settling.js'
import { claimedSchema, steeringSchema } from './claims.js'

/** The most jobs that one turn settles, and renews. */
const MAX_ENTRIES = 1_000

const entry = object({
  id: name('0197f0c4-0000-7000-8000-000000000000'),
  fence,
  complete: optional(settlementShapes.complete),
  fail: optional(settlementShapes.fail),
  snooze: optional(settlementShapes.snooze),
  release: optional(settlementShapes.release),
  hold: optional(settlementShapes.hold),
})

const held = object({ id: name('0197f0c4-0000-7000-8000-000000000000'), fence })

const body = object({
  ...claimFields,
  max: described(optional(whole(0, 100, 1)), 'How many jobs at most; 0: none. Default 1.'),
  beat: described(optional(list(held, { max: MAX_ENTRIES })), 'The jobs whose leases to renew.'),
  done: described(
    optional(list(entry, { max: MAX_ENTRIES })),
    'The jobs to settle, each by one of `complete`, `fail`, `snooze`, `release` and `hold`.',
  ),
})

const lostSchema = {
  type: 'object',
  properties: { id: { type: 'string' }, reason: { type: 'string' }, cancelReason: { type: 'string' } },
  required: ['id', 'reason'],
} as const

/** The route of turns. */
export const turnRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/turn',
    access: ['work'],
    summary: 'Settles, renews and claims jobs in one request and one batch.',
    description:
      'With `done` it answers at once. Without, it waits up to `wait` for jobs, or until a job of `beat` is lost; never longer than a third of the shortest lease in `beat`, so that the next turn renews it in time. `settled` has an entry for each of `done`, in order: what it came to, or the problem.',
    body,
    changes: true,
    long: true,
    answers: {
      200: {
        description: 'What became of the jobs, and new ones. `again: 0`: there may be more.',
        schema: {
          type: 'object',
          properties: {
            now: { type: 'integer' },
            state: steeringSchema,
            settled: { type: 'array', items: { anyOf: [settledSchema, { $ref: '#/components/schemas/Problem' }] } },
            lost: { type: 'array', items: lostSchema },
            jobs: { type: 'array', items: claimedSchema },
            again: { type: 'integer' },
          },
          required: ['now', 'state', 'settled', 'lost', 'jobs'],
        },
      },
    },
    errors: ['UNKNOWN_JOB', 'INVALID_NAME', 'INVALID_DURATION'],
    async handle({ server, principal, body: asked, request, id }) {
      const done = (asked.done ?? []).map((each, index) => settlementOf(each, `body.done[${index}]`))
      const { workers } = server.working
      const claim = await checkClaim(server, principal, asked)
      const beat = new Beat(server, principal, asked.beat ?? [])
      try {
        const changed = workers.changed(claim.worker)
        const until = [server.closing, beat.lossy, ...(changed === undefined ? [] : [changed])]
        const news = claim.steering === 'running' ? undefined : workers.tell(claim.worker)
        // All of it is submitted in this turn of the event loop, and leaves as one batch.
        const settling = done.map(({ lease, settlement }) =>
          settleJob(server, principal, lease, settlement).then(
            (settled) => ({ id: lease.id, ...settled }),
            (error: unknown) => ({ id: lease.id, ...problemOf(error, id) }),
          ),
        )
        const renewed = beat.renew()
        const answersNow = done.length > 0 || news === true
        const wait = answersNow ? 0 : Math.min(asked.wait ?? 0, await beat.longest())
        const claims = claim.max > 0 && claim.steering === 'running'
        const how = { wait, gone: request.signal, until, batcher: server.connection.main }
        const jobs = claims ? await claimJobs(server, principal, asked, claim, how) : []
        if (!claims) await idle(server, principal.name, wait, [request.signal, ...until])
        const [settled] = await Promise.all([Promise.all(settling), renewed])
        const state = workers.steeringOf(claim.worker)
        workers.tell(claim.worker)
        const answer = {
          now: jobs[0]?.startedAt ?? server.connection.runtime.now(),
          state,
          settled,
          lost: beat.lost,
          jobs: await claimedViews(server, claim, jobs, asked.include),
          ...(jobs.length > 0 && jobs.length === claim.max && { again: 0 }),
        }
        return { text: jsonText(answer) }
      } finally {
        beat.end()
      }
    },
  }),
]

/** What an entry of `done` says about its job. */
function settlementOf(
  { id, fence: given, ...kinds }: Accepted<typeof entry>,
  at: string,
): { readonly lease: { readonly id: string; readonly fence: number }; readonly settlement: Settlement } {
  const named = Object.entries(kinds).filter(([, fields]) => fields !== undefined)
  if (named.length !== 1) {
    throw refuse(at, 'settled by one of complete, fail, snooze, release and hold', Object.keys(kinds))
  }
  const [kind, fields] = named[0]!
  return { lease: { id, fence: given }, settlement: { kind, fields } as unknown as Settlement }
}
