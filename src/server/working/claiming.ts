// server/working/claiming.ts: claims for a worker that speaks HTTP, and how the claimed jobs are shown to it.
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { settle } from '../../job/lifecycle.js'
import { timeOfRun } from '../../job/schedules/schedule.js'
import { runSteps } from '../../store/maybe-sync.js'
import { readDetails } from '../../store/read-pages.js'
import type { Batcher } from '../../store/batcher.js'
import type { Handled, JobDetails } from '../../store/store.js'
import { jobForHandler } from '../../worker/attempt/payload.js'
import { raw } from '../json-text.js'
import type { ServerParts } from '../parts.js'
import { inScope } from '../principal.js'
import type { Principal } from '../principal.js'
import { forbidden } from '../problem.js'
import { described, duration, list, name, object, oneOf, optional, whole } from '../shape.js'
import type { Accepted } from '../shape.js'
import { DEFAULT_LEASE } from './held-jobs.js'
import { workerIdOf } from './remote-workers.js'
import type { Steering } from './remote-workers.js'

/** The longest wait of a claim: proxies cut after 30 s, and some sooner. */
const MAX_WAIT: Millis = 25_000
const MIN_LEASE: Millis = 10
const MAX_LEASE: Millis = 86_400_000

/** The length of a lease. */
export const lease = duration('30s', MIN_LEASE, MAX_LEASE)

/** The fields of a claim, in `POST /v1/claims` and in a turn. */
export const claimFields = {
  worker: described(
    name('sh-1'),
    "The worker's name, its own for each process. Jobs name it with the name of the token before it: `<token>/<worker>`.",
  ),
  queues: list(name('mail'), { min: 1, max: 100 }),
  names: described(optional(list(name('send'), { min: 1, max: 1_000 })), 'The names to claim. Default: any.'),
  handles: described(
    optional(
      list(
        object({
          name: name('send'),
          versions: optional(list(whole(1, Number.MAX_SAFE_INTEGER), { min: 1, max: 100 })),
          lease: optional(lease),
        }),
        { min: 1, max: 1_000 },
      ),
    ),
    'In place of `names`: the names with the versions that the worker knows, and leases of their own.',
  ),
  max: described(optional(whole(1, 100)), 'How many jobs at most. Default 1.'),
  lease: described(optional(lease), 'How long the jobs belong to the worker without a heartbeat. Default 30 s.'),
  wait: described(optional(duration('20s', 0, MAX_WAIT)), 'How long to wait for the first job. Default: not at all.'),
  include: optional(list(oneOf('steps', 'dependencies'), { max: 2 })),
} as const

const claimShape = object(claimFields)

/** A claim as a request describes it. */
export type ClaimBody = Accepted<typeof claimShape>

/** A claim, checked. */
export interface CheckedClaim {
  readonly worker: string
  readonly handles: readonly Handled[]
  readonly lease: Millis
  readonly max: number
  readonly steering: Steering
}

/** Checks who claims what; keeps the worker's entry in the registry. */
export async function checkClaim(server: ServerParts, principal: Principal, body: ClaimBody): Promise<CheckedClaim> {
  const { queues, handles, lease: length = DEFAULT_LEASE, max = 1 } = body
  for (const queue of queues) {
    if (!inScope(principal, queue)) throw forbidden(`The roles of '${principal.name}' do not hold for that queue.`)
    if (!server.queues.serves(queue)) throw forbidden('This server does not serve that queue.')
  }
  const asked: readonly Handled[] =
    handles?.map((each) => ({
      name: each.name,
      lease: each.lease ?? length,
      ...(each.versions !== undefined && { versions: each.versions }),
    })) ?? [...new Set(body.names ?? [undefined])].map((each) => ({ name: each, lease: length }))
  for (const each of asked) if (each.name !== undefined) checkDeclared(server, queues, each.name)
  const worker = workerIdOf(principal, body.worker)
  if (worker.length > 255) {
    throw new MillraceError('INVALID_NAME', `The worker id ${worker.slice(0, 80)}… is longer than 255 characters.`)
  }
  await server.working.upkeep.started()
  const versions = asked.flatMap((each) => (each.versions === undefined ? [] : [[each.name!, each.versions] as const]))
  const steering = await server.working.workers.claims(worker, {
    queues,
    names: handles?.map((each) => each.name) ?? body.names,
    versions: Object.fromEntries(versions),
    lease: length,
  })
  return { worker, handles: asked, lease: length, max, steering }
}

/** Throws UNKNOWN_JOB for a name that no queue of the claim declares. */
function checkDeclared(server: ServerParts, queues: readonly string[], job: string): void {
  let refusal: unknown
  for (const queue of queues) {
    try {
      server.queues.get(queue).adder.definition(job)
      return
    } catch (error) {
      if (!isMillraceError(error, 'UNKNOWN_JOB')) throw error
      refusal = error
    }
  }
  throw refusal
}

/** How a claim is sent, and what ends its wait. */
export interface ClaimHow {
  readonly wait: Millis
  /** The client has gone. */
  readonly gone: AbortSignal
  /** The worker has something else to learn. */
  readonly until: readonly AbortSignal[]
  /** What it is sent with. Default: the other claims. */
  readonly batcher?: Batcher
}

/** Claims jobs, and waits for them; those whose data their schema refuses fail for good, and are not returned. */
export async function claimJobs(
  server: ServerParts,
  principal: Principal,
  body: ClaimBody,
  claim: CheckedClaim,
  how: ClaimHow,
): Promise<readonly JobRecord[]> {
  const { runtime } = server.connection
  const { waiting } = server.working
  const deadline = runtime.elapsed() + how.wait
  for (;;) {
    const left = Math.max(0, deadline - runtime.elapsed())
    const found = await waiting.claim({
      worker: claim.worker,
      queues: body.queues,
      handles: claim.handles,
      max: claim.max,
      wait: left,
      token: principal.name,
      signal: how.gone,
      until: how.until,
      ...(how.batcher !== undefined && { batcher: how.batcher }),
    })
    const taken = await accept(server, claim, found)
    // Their data was refused, and there may be more.
    if (taken.length > 0 || found.length === 0 || how.gone.aborted) return taken
  }
}

/** Waits that long, for a worker that gets no jobs now; ends early when one of the signals aborts. */
export async function idle(
  server: ServerParts,
  token: string,
  wait: Millis,
  signals: readonly AbortSignal[],
): Promise<void> {
  if (wait === 0 || signals.some(({ aborted }) => aborted)) return
  const leave = server.working.waiting.enter(token)
  await new Promise<void>((resolve) => {
    const end = (): void => {
      stop()
      for (const signal of signals) signal.removeEventListener('abort', end)
      resolve()
    }
    const stop = server.connection.runtime.timer(wait, end)
    for (const signal of signals) signal.addEventListener('abort', end, { once: true })
  })
  leave()
}

async function accept(
  server: ServerParts,
  claim: CheckedClaim,
  records: readonly JobRecord[],
): Promise<readonly JobRecord[]> {
  const { held } = server.working
  const { connection } = server
  const taken: JobRecord[] = []
  for (const record of records) {
    const host = held.host(server.queues.get(record.queue))
    const definition = host.jobs?.[record.name]
    if (definition?.input !== undefined) {
      const handle = await jobForHandler(host.operations, record, definition, host.operations)
      if (handle instanceof MillraceError) {
        const changes = settle(record, { kind: 'threw', error: describeError(handle), retryable: false, retryIn: 0 })
        const verdict = await connection.main.commit(changes)
        if (verdict.ok) connection.series.changed(record, changes)
        continue
      }
    }
    held.remember(record, leaseOf(claim, record))
    server.working.upkeep.expect(record.queue, record.leaseUntil!)
    taken.push(record)
  }
  return taken
}

function leaseOf({ handles, lease: length }: CheckedClaim, { name: job }: JobRecord): Millis {
  return handles.find((each) => each.name === job)?.lease ?? length
}

/** Claimed jobs as answers show them: `data` and `progress` as the stored text. */
export async function claimedViews(
  server: ServerParts,
  claim: CheckedClaim,
  records: readonly JobRecord[],
  include: ClaimBody['include'] = [],
): Promise<readonly object[]> {
  const details = await detailsOf(server, records, include)
  return records.map((record) => ({
    id: record.id,
    queue: record.queue,
    name: record.name,
    version: record.version,
    data: raw(record.data),
    attempt: record.attempt,
    attempts: Number.isFinite(record.attempts) ? record.attempts : null,
    fence: record.fence,
    worker: record.worker,
    leaseMs: leaseOf(claim, record),
    timeout: record.timeout,
    priority: record.priority,
    group: record.group,
    tags: record.extras?.tags,
    trace: record.extras?.trace,
    parentId: record.parentId,
    chainId: record.chainId === record.id ? undefined : record.chainId,
    scheduledAt: timeOfRun(record),
    progress: raw(record.progress),
    createdAt: record.createdAt,
    startedAt: record.startedAt,
    ...viewOfDetails(details.get(record.id), include),
  }))
}

async function detailsOf(
  server: ServerParts,
  records: readonly JobRecord[],
  include: readonly string[],
): Promise<ReadonlyMap<string, JobDetails>> {
  if (include.length === 0 || records.length === 0) return new Map()
  const parts = [
    ...(include.includes('steps') ? (['steps'] as const) : []),
    ...(include.includes('dependencies') ? (['edges', 'outcomes'] as const) : []),
  ]
  const found = await runSteps(readDetails(server.store, { jobs: records.map(({ id }) => id), parts }))
  return new Map(found.map((each) => [each.id, each]))
}

/** The names of steps of handlers begin with what they are; those of `PUT /v1/jobs/{id}/steps/{name}` are steps. */
export const STEP = 'step:'

function viewOfDetails(details: JobDetails | undefined, include: readonly string[]): object {
  const steps = details?.steps.filter((each) => each.name.startsWith(STEP)) ?? []
  const edges = details?.edges ?? []
  return {
    ...(include.includes('steps') && {
      steps: steps.map(({ name: step, result }) => ({ name: step.slice(STEP.length), result: raw(result) })),
    }),
    ...(include.includes('dependencies') && {
      dependencies: edges.map(({ chain, name: job, state, result, error }) => ({
        id: chain,
        name: job,
        state:
          state === 'ended' ? 'completed' : state === 'open' ? 'open' : error === undefined ? 'cancelled' : 'failed',
        result: raw(result),
        error,
      })),
    }),
  }
}
