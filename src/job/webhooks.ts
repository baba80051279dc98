// job/webhooks.ts: the delivery of a job's end as a job of its own: what it is made of, and what is written down of it. Pure.
import type { Change, Insert, Move, MoveFields, Note, NoteEvent } from './change.js'
import { withoutStack } from './failure.js'
import type { ErrorInfo, FinishedState, JobHeader, JobRecord, KeepByState, Millis, Time } from './job.js'
import { isFinished } from './job.js'
import type { JsonText } from './json.js'
import { memoOf, writeMemo } from './memo.js'
import type { DeliveryEntry, Memo, Redelivery } from './memo.js'
import { MAX_NAME_LENGTH } from './names.js'
import type { Backoff } from './retry.js'

/** The queue that deliveries are in; they are named after the queue of the job that has ended. */
export const DELIVERIES = 'millrace:webhooks'

/** Entries that the log of a job's deliveries keeps. */
const ENTRIES_KEPT = 20

/** Characters that an entry keeps of what went wrong. */
const LONGEST_ERROR = 300

/** What is told of a job that has ended. */
interface ToldJob {
  readonly id: string
  readonly queue: string
  readonly name: string
  readonly attempt: number
  readonly chainId: string
  readonly parentId?: string
  readonly group?: string
  /** What it returned, of one that completed and returned something. */
  readonly result?: unknown
  /** What it failed with and what caused that, without stacks. */
  readonly error?: ErrorInfo
}

/** What the data of a delivery says. */
export interface Delivery {
  readonly url: string
  readonly event: FinishedState
  /** Attempts to deliver, the first included. */
  readonly attempts: number
  /** For one of them. */
  readonly timeout: Millis
  readonly backoff?: Backoff
  /** When the job ended, of a delivery that was asked for by hand; otherwise it ended when the delivery was made. */
  readonly at?: Time
  readonly job: ToldJob
}

/** Deliveries leave nothing behind: what is to be known of them is written down with the job. */
const KEEP: KeepByState = { completed: { deleteAfter: 0 }, failed: { deleteAfter: 0 }, cancelled: { deleteAfter: 0 } }

/** The delivery that goes with the end of a job, if its end is one that is told. */
export function deliveryOfEnd(job: JobHeader, to: FinishedState, set: MoveFields): Insert | undefined {
  const { webhook } = job.extras ?? {}
  if (webhook === undefined || !webhook.on.includes(to)) return undefined
  return deliver(job, deliveryId(job), to, set.result, set.error ?? undefined)
}

/** Tells the end of a finished job once more; `id` is that of the delivery, and `asked` what is known of it outside. */
export function redeliver(
  job: JobRecord,
  id: string,
  asked: Omit<Redelivery, 'of'>,
): readonly Change[] | { readonly denied: string } {
  if (job.extras?.webhook === undefined) return { denied: 'has no webhook; it was added without' }
  if (!isFinished(job.state)) return { denied: `is ${job.state}; only the end of a finished job is told` }
  const { webhookGaveUp: _, ...memo } = memoOf(job)
  const redeliveries = [...openRedeliveries(job), { ...asked, of: job.finishedAt }].slice(-ENTRIES_KEPT)
  const insert = deliver(job, id, job.state, job.result, job.error, job.finishedAt)
  // The first holds the job fast: the delivery tells of what stands, or is not made. Until it has ended, the job stays.
  return [rewritten(job, { ...memo, redeliveries }), insert]
}

/** Deliveries of a job's last end that were asked for by hand and have not ended. */
function openRedeliveries(job: JobRecord): readonly Redelivery[] {
  return memoOf(job).redeliveries?.filter(({ of }) => of === job.finishedAt) ?? []
}

/** When it was last asked by hand for a delivery that has not ended. */
export function redeliveryAsked(job: JobRecord): Time | undefined {
  return openRedeliveries(job).at(-1)?.at
}

function noteOf({ id, fence }: JobRecord): Note {
  return { kind: 'note', id, fence, held: false }
}

/** Writes the memo of a finished job anew. The fence goes up: of two who have read the same memo, one has to look again. */
function rewritten({ id, fence, state }: JobRecord, memo: Memo): Move {
  const set = { memo: writeMemo(memo) }
  return { kind: 'move', id, fence, to: state, held: false, place: 'old', why: undefined, closesBroken: false, set }
}

/**
 * One of its own for each end of each job. The times tell it from an earlier job of the same id, whose last delivery may
 * still be on its way.
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
    job: toldOf(job, event, result, error),
  }
  return {
    kind: 'insert',
    job: {
      id,
      kind: 'job',
      queue: DELIVERIES,
      name: job.queue,
      version: 1,
      data: JSON.stringify(delivery),
      state: 'waiting',
      priority: 0,
      lifo: false,
      // One more than are sent: if a worker dies in the last, somebody is left to say that it was the last.
      attempts: attempts + 1,
      backoff: undefined,
      timeout: undefined,
      run: undefined,
      chainId: id,
      chainIndex: 0,
      parentId: undefined,
      group: undefined,
      dedup: undefined,
      keep: KEEP,
      extras: undefined,
    },
    edges: [],
  }
}

function toldOf(
  { id, queue, name, attempt, chainId, parentId, group }: JobHeader,
  event: FinishedState,
  result: JsonText | undefined,
  error: ErrorInfo | undefined,
): ToldJob {
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
  /** When the delivery was made. */
  readonly made: Time
  /** `sent`: it was taken. `gave-up`: it will not be tried again. `again`: it will. */
  readonly came: 'sent' | 'gave-up' | 'again'
  readonly error?: ErrorInfo
}

/**
 * Writes down with a finished job how an attempt to tell its end went, and announces how it ended; undefined where the
 * job is no longer finished. Of an end that is no longer the job's last, it is only written down.
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
  return came === 'again' || !isLast ? [written] : [{ ...noteOf(job), tells: [ending(entry, came, error)] }, written]
}

function ending(
  { url, event, attempt: attempts }: DeliveryEntry,
  came: 'sent' | 'gave-up',
  error: ErrorInfo | undefined,
): NoteEvent {
  if (came === 'sent') {
    return { type: 'webhook-delivered', about: JSON.stringify({ url, event, attempts, webhookSent: true }) }
  }
  const told = withoutStack(error ?? { name: 'Error', message: '' })
  return { type: 'webhook-failed', about: JSON.stringify({ url, event, attempts, error: told }) }
}

/** Whether the last end of a job has been told. */
export function isSent(job: JobRecord): boolean {
  const { webhookSent } = memoOf(job)
  return webhookSent !== undefined && webhookSent === job.finishedAt
}

/** Whether the end of a job is still to be told, for the first time or again: neither was it taken, nor was it given up. */
export function deliveryPending(job: JobRecord): boolean {
  if (isFinished(job.state) && redeliveryAsked(job) !== undefined) return true
  if (!isFinished(job.state) || job.extras?.webhook?.on.includes(job.state) !== true) return false
  const { webhookSent, webhookGaveUp } = memoOf(job)
  return webhookSent !== job.finishedAt && webhookGaveUp !== job.finishedAt
}

/** Whether a delivery is written down as taken. */
export function wasTaken(job: JobRecord, id: string): boolean {
  return memoOf(job).deliveries?.some((entry) => entry.id === id && entry.error === undefined) === true
}
