// server/working/settling.ts: the settlement of a held job, as a request describes it.
import type { Settled } from '../../job/history.js'
import type { Millis, Time } from '../../job/job.js'
import type { Planning } from '../../queue/flows/follow-ups.js'
import type { JobDefinitions } from '../../queue/define.js'
import { MAX_DURATION } from '../../job/values/duration.js'
import type { ServerParts } from '../parts.js'
import type { Principal } from '../principal.js'
import { addOptions, anyJson, checkAfter, newJob } from '../producing/add-request.js'
import type { NewJobRequest } from '../producing/add-request.js'
import { duration, flag, described, list, object, oneOf, optional, text, whole } from '../shape.js'
import type { Accepted } from '../shape.js'

/** The fence of a claim. */
export const fence = described(whole(0, Number.MAX_SAFE_INTEGER, 1), 'The fence of the claim.')

/** The error of an attempt, as a client reports it. */
const errorShape = object({
  name: optional(text({ max: 255, example: 'TimeoutError' })),
  message: text({ min: 0, max: 65_536, example: 'no answer' }),
  code: optional(text({ max: 255, example: 'ETIMEDOUT' })),
  stack: optional(text({ min: 0, max: 262_144, example: 'at line 1' })),
})

/** How a job may be settled, each with its fields. */
export const settlements = {
  complete: {
    result: described(anyJson, 'Any JSON.'),
    add: described(optional(list(newJob, { max: 100 })), 'Jobs to add to the same queue, in the same commit.'),
    next: described(optional(newJob), 'The next job of the chain, in the same commit.'),
  },
  fail: {
    error: errorShape,
    retry: described(
      optional(flag),
      'Whether to try again, if attempts are left. Default: unless the name is UnrecoverableError.',
    ),
    in: described(optional(duration('1m')), "When to try again. Default: by the job's backoff."),
  },
  snooze: { for: described(duration('5m'), 'Run again after this time; the attempt does not count.') },
  release: {},
  hold: {
    for: described(duration('1m', 1, MAX_DURATION), 'No job like this one starts for this time.'),
    of: described(optional(oneOf('name', 'group', 'queue')), 'Which jobs: default `name`.'),
  },
} as const

const shapes = {
  complete: object(settlements.complete),
  fail: object(settlements.fail),
  snooze: object(settlements.snooze),
  release: object(settlements.release),
  hold: object(settlements.hold),
} as const

/** The fields of each settlement, as shapes of their own: for `turn`. */
export const settlementShapes = shapes

/** A settlement, checked. */
export type Settlement = {
  readonly [Kind in keyof typeof shapes]: { readonly kind: Kind; readonly fields: Accepted<(typeof shapes)[Kind]> }
}[keyof typeof shapes]

/** What a settlement came to. */
export interface SettledView {
  readonly state: 'completed' | 'failed' | 'delayed' | 'waiting'
  /** The caller had settled it so before. */
  readonly repeated: boolean
  readonly runAt?: Time
}

/** The JSON Schema of what a settlement came to. */
export const settledSchema = {
  type: 'object',
  properties: {
    state: { enum: ['completed', 'failed', 'delayed', 'waiting'] },
    repeated: { type: 'boolean' },
    runAt: { type: 'integer' },
  },
  required: ['state', 'repeated'],
} as const

/** Settles a job of the caller. One that it has settled in the same way before is answered as `repeated`. */
export async function settleJob(
  server: ServerParts,
  principal: Principal,
  lease: { readonly id: string; readonly fence: number },
  settlement: Settlement,
): Promise<SettledView> {
  const { held } = server.working
  try {
    const settled = await settleNow(server, principal, lease, settlement)
    held.forget(lease.id, lease.fence)
    return settled
  } catch (error) {
    const before = await held.settledBefore(principal, lease, error)
    const repeated = before === undefined ? undefined : repeatedView(before, settlement)
    if (repeated === undefined) throw error
    return repeated
  }
}

async function settleNow(
  server: ServerParts,
  principal: Principal,
  { id, fence: given }: { readonly id: string; readonly fence: number },
  settlement: Settlement,
): Promise<SettledView> {
  const { claimed, record } = await server.working.held.find(principal, id, given)
  const { now } = server.connection.runtime
  switch (settlement.kind) {
    case 'complete': {
      const { result, add = [], next } = settlement.fields
      if (add.length === 0 && next === undefined) await claimed.complete(result)
      else {
        const optionsOf = async (job: NewJobRequest): Promise<ReturnType<typeof addOptions>> => {
          const options = addOptions(job.options, principal, server.queues.get(record.queue), 'options')
          await checkAfter(server, principal, options.after)
          return options
        }
        const plan = async (planning: unknown): Promise<unknown> => {
          const { add: addJob, continueWith } = planning as Planning<JobDefinitions>
          for (const job of add) await addJob(job.name, job.data, await optionsOf(job))
          if (next !== undefined) await continueWith(next.name, next.data, await optionsOf(next))
          return result
        }
        await claimed.complete(plan)
      }
      return { state: 'completed', repeated: false }
    }
    case 'fail': {
      const { error, in: wait } = settlement.fields
      const { retry = error.name !== 'UnrecoverableError' } = settlement.fields
      const { ended, retryIn } = await claimed.failed(errorOf(error), {
        retry: retry && wait !== undefined ? wait : retry,
      })
      if (ended === 'failed') return { state: 'failed', repeated: false }
      return delayedView(retryIn, now())
    }
    case 'snooze':
      await claimed.snooze(settlement.fields.for)
      return delayedView(settlement.fields.for, now())
    case 'release':
      await claimed.release()
      return { state: 'waiting', repeated: false }
    case 'hold': {
      const { for: length, of } = settlement.fields
      await claimed.hold(length, of === undefined ? {} : { of })
      return { state: 'waiting', repeated: false }
    }
  }
}

function delayedView(wait: Millis, now: Time): SettledView {
  return wait === 0 ? { state: 'waiting', repeated: false } : { state: 'delayed', repeated: false, runAt: now + wait }
}

/** What the same settlement came to when it was said first; undefined if that was another one. */
function repeatedView({ outcome, runAt }: Settled, { kind }: Settlement): SettledView | undefined {
  const later = { state: 'delayed', repeated: true, ...(runAt !== undefined && { runAt }) } as const
  switch (kind) {
    case 'complete':
      return outcome === 'completed' ? { state: 'completed', repeated: true } : undefined
    case 'fail':
      if (outcome === 'failed') return { state: 'failed', repeated: true }
      return outcome === 'retried' ? later : undefined
    case 'snooze':
      return outcome === 'snoozed' ? later : undefined
    case 'release':
    case 'hold':
      return outcome === 'handed-back' ? { state: 'waiting', repeated: true } : undefined
  }
}

/** The error that a client reports. Its stack is the client's, or there is none: never that of this server. */
function errorOf({ name = 'Error', message, code, stack }: Accepted<typeof errorShape>): Error {
  const error = new Error(message)
  error.name = name
  const own = { value: stack, configurable: true, writable: true }
  Object.defineProperty(error, 'stack', own)
  return code === undefined ? error : Object.assign(error, { code })
}
