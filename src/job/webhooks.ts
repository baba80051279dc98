// job/webhooks.ts: the delivery of a job's end to a webhook, as a job of its own, and its record in the memo. Pure.
import { create, move, OWN_ROW } from './change.js'
import type { Change, Insert, Move, MoveFields, Note, NoteEvent } from './change.js'
import { withoutStack } from './errors/failure.js'
import type { ErrorInfo, FinishedState, JobHeader, JobRecord, KeepByState, Millis, Time } from './job.js'
import { isFinished } from './job.js'
import type { JsonText } from './values/json.js'
import { memoOf, writeMemo } from './memo.js'
import type { DeliveryEntry, Memo, Redelivery } from './memo.js'
import { MAX_NAME_LENGTH } from './values/names.js'
import type { Backoff } from './retry.js'

/** The queue of deliveries; a delivery is named after the queue of the job that has ended. */
export const DELIVERIES = 'millrace:webhooks'

/** The most delivery attempts that a job's memo keeps. */
const ENTRIES_KEPT = 20

/** The most characters of an error that an entry keeps. */
const LONGEST_ERROR = 300

/** What a delivery reports of a job that has ended. */
interface DeliveredJob {
  readonly id: string
  readonly queue: string
  readonly name: string
  readonly attempt: number
  readonly chainId: string
  readonly parentId?: string
  readonly group?: string
  /** The result of a completed job that returned something. */
  readonly result?: unknown
  /** Its error and the causes of that, without stacks. */
  readonly error?: ErrorInfo
}

/** The data of a delivery. */
export interface Delivery {
  readonly url: string
  readonly event: FinishedState
  /** Attempts to deliver, the first included. */
  readonly attempts: number
  /** The timeout of one attempt. */
  readonly timeout: Millis
  readonly backoff?: Backoff
  /** When the job ended, for a delivery requested by hand; otherwise the job ended when the delivery was added. */
  readonly at?: Time
  readonly job: DeliveredJob
}

/** Deliveries are removed when they end: their record is in the job's memo. */
const KEEP: KeepByState = { completed: { deleteAfter: 0 }, failed: { deleteAfter: 0 }, cancelled: { deleteAfter: 0 } }

/** The delivery that is added with the end of a job, if its webhook wants that end. */
export function deliveryOfEnd(job: JobHeader, to: FinishedState, set: MoveFields): Insert | undefined {
  const { webhook } = job.extras ?? {}
  if (webhook === undefined || !webhook.on.includes(to)) return undefined
  return deliver(job, deliveryId(job), to, set.result, set.error ?? undefined)
}

/**
 * Delivers the end of a finished job once more; `id` is that of the new job, and `asked` is the public record of the
 * request.
 */
export function redeliver(
  job: JobRecord,
  id: string,
  asked: Omit<Redelivery, 'of'>,
): readonly Change[] | { readonly denied: string } {
  if (job.extras?.webhook === undefined) return { denied: 'has no webhook; it was added without' }
  if (!isFinished(job.state)) return { denied: `is ${job.state}; only the end of a finished job is delivered` }
  const { webhookGaveUp: _, ...memo } = memoOf(job)
  const redeliveries = [...openRedeliveries(job), { ...asked, of: job.finishedAt }].slice(-ENTRIES_KEPT)
  const insert = deliver(job, id, job.state, job.result, job.error, job.finishedAt)
  // The first change is fenced: the delivery reports the current state, or is not added. Until it has ended, the job is
  // kept.
  return [rewritten(job, { ...memo, redeliveries }), insert]
}

/** Deliveries of a job's last end that were requested by hand and have not ended. */
function openRedeliveries(job: JobRecord): readonly Redelivery[] {
  return memoOf(job).redeliveries?.filter(({ of }) => of === job.finishedAt) ?? []
}

/** When the last unfinished delivery was requested by hand. */
export function redeliveryAsked(job: JobRecord): Time | undefined {
  return openRedeliveries(job).at(-1)?.at
}

function noteOf({ id, fence }: JobRecord): Note {
  return { kind: 'note', id, fence, held: false }
}

/**
 * Writes the memo of a finished job anew. The fence goes up: of two callers that have read the same memo, one has to
 * read it again.
 */
function rewritten(job: JobRecord, memo: Memo): Move {
  return move(job, job.state, { set: { memo: writeMemo(memo) } })
}

/**
 * A distinct id for each end of each job. The times distinguish it from an earlier job of the same id, whose last
 * delivery may still be in progress.
 */
function deliveryId({ id, createdAt, startedAt = 0, fence }: JobHeader): string {
  const whole = `millrace:webhook:${createdAt}:${startedAt}:${fence}:${id}`
  if (whole.length <= MAX_NAME_LENGTH) return whole
  const digest = `:${hash(whole, 1)}${hash(whole, 2)}`
  return whole.slice(0, MAX_NAME_LENGTH - digest.length) + digest
}

/** 32 bits in hexadecimal, by FNV-1a. */
function hash(text: string, seed: number): string {
  let bits = 0x811c9dc5 ^ seed
  for (let at = 0; at < text.length; at++) bits = Math.imul(bits ^ text.charCodeAt(at), 0x01000193)
  return (bits >>> 0).toString(16).padStart(8, '0')
}

function deliver(
  job: JobHeader,
  id: string,
  event: FinishedState,
  result: JsonText | undefined,
  error: ErrorInfo | undefined,
  at?: Time,
): Insert {
  const { url, attempts, timeout, backoff } = job.extras!.webhook!
  const delivery: Delivery = {
    url,
    event,
    attempts,
    timeout,
    ...(backoff !== undefined && { backoff }),
    ...(at !== undefined && { at }),
    job: describeJob(job, event, result, error),
  }
  return create({
    ...OWN_ROW,
    id,
    kind: 'job',
    queue: DELIVERIES,
    name: job.queue,
    data: JSON.stringify(delivery),
    // One more than the attempts that are sent: if a worker dies in the last, another attempt records that it was the
    // last.
    attempts: attempts + 1,
    keep: KEEP,
  })
}

function describeJob(
  { id, queue, name, attempt, chainId, parentId, group }: JobHeader,
  event: FinishedState,
  result: JsonText | undefined,
  error: ErrorInfo | undefined,
): DeliveredJob {
  return {
    id,
    queue,
    name,
    attempt,
    chainId,
    ...(parentId !== undefined && { parentId }),
    ...(group !== undefined && { group }),
    ...(event === 'completed' && result !== undefined && { result: JSON.parse(result) as unknown }),
    ...(event !== 'completed' && error !== undefined && { error: withoutStack(error) }),
  }
}

/** How one attempt to deliver ended. */
export interface Delivered {
  readonly entry: DeliveryEntry
  /** When the delivery was added. */
  readonly made: Time
  /** `sent`: the webhook accepted it. `gave-up`: it will not be tried again. `again`: it will. */
  readonly came: 'sent' | 'gave-up' | 'again'
  readonly error?: ErrorInfo
}

/**
 * Records in a finished job's memo how an attempt to deliver its end went, and announces how the delivery ended;
 * undefined where the job is no longer finished. If the end is no longer the job's last, it is only recorded.
 */
export function noteDelivery(job: JobRecord, { entry, made, came, error }: Delivered): readonly Change[] | undefined {
  if (!isFinished(job.state) || job.finishedAt === undefined) return undefined
  const { redeliveries: _, ...before } = memoOf(job)
  const open = openRedeliveries(job).filter(({ id }) => came === 'again' || id !== entry.id)
  const kept = entry.error === undefined ? entry : { ...entry, error: entry.error.slice(0, LONGEST_ERROR) }
  const isLast = job.finishedAt <= made
  const memo: Memo = {
    ...before,
    deliveries: [...(before.deliveries ?? []), kept].slice(-ENTRIES_KEPT),
    ...(isLast && came === 'sent' && { webhookSent: job.finishedAt }),
    ...(isLast && came === 'gave-up' && { webhookGaveUp: job.finishedAt }),
    ...(open.length > 0 && { redeliveries: open }),
  }
  const written = rewritten(job, memo)
  return came === 'again' || !isLast ? [written] : [{ ...noteOf(job), events: [ending(entry, came, error)] }, written]
}

function ending(
  { url, event, attempt: attempts }: DeliveryEntry,
  came: 'sent' | 'gave-up',
  error: ErrorInfo | undefined,
): NoteEvent {
  if (came === 'sent') {
    return { type: 'webhook-delivered', about: JSON.stringify({ url, event, attempts, webhookSent: true }) }
  }
  const described = withoutStack(error ?? { name: 'Error', message: '' })
  return { type: 'webhook-failed', about: JSON.stringify({ url, event, attempts, error: described }) }
}

/** Whether the last end of a job has been delivered. */
export function isSent(job: JobRecord): boolean {
  const { webhookSent } = memoOf(job)
  return webhookSent !== undefined && webhookSent === job.finishedAt
}

/** Whether the end of a job is still to be delivered, for the first time or again: it was neither accepted nor given up. */
export function deliveryPending(job: JobRecord): boolean {
  if (isFinished(job.state) && redeliveryAsked(job) !== undefined) return true
  if (!isFinished(job.state) || job.extras?.webhook?.on.includes(job.state) !== true) return false
  const { webhookSent, webhookGaveUp } = memoOf(job)
  return webhookSent !== job.finishedAt && webhookGaveUp !== job.finishedAt
}

/** Whether a delivery is recorded as accepted. */
export function wasAccepted(job: JobRecord, id: string): boolean {
  return memoOf(job).deliveries?.some((entry) => entry.id === id && entry.error === undefined) === true
}
