// server/job-view.ts: a job as answers show it: the fields of a `Job`, with data, progress and result as the stored text.
import type { JobRecord } from '../job/job.js'
import { hasPhases, overallOf, phasesOf } from '../job/phases.js'
import { asJob, timeOfRun } from '../job/schedules/schedule.js'
import { bareUrl, publicWebhook } from '../queue/settings/webhook.js'
import type { JobWebhook } from '../queue/settings/webhook.js'
import { RawJson, raw } from './json-text.js'
import { REVEALS } from './redact.js'
import type { Redactor } from './redact.js'

/** A job as an answer shows it, to be written by `jsonText`. Absent fields are left out; unlimited attempts are null. */
export type JobView = Readonly<Record<string, unknown>>

/** The names of the fields of a view. */
export const viewFields = [
  'id',
  'queue',
  'name',
  'version',
  'state',
  'data',
  'priority',
  'attempt',
  'attempts',
  'timeout',
  'worker',
  'fence',
  'runAt',
  'expiresAt',
  'leaseUntil',
  'stalls',
  'chainId',
  'chainIndex',
  'parentId',
  'group',
  'tags',
  'scheduledAt',
  'pending',
  'dedup',
  'phases',
  'progress',
  'result',
  'error',
  'errors',
  'webhook',
  'createdAt',
  'startedAt',
  'finishedAt',
  'staleAt',
  'deleteAt',
] as const

/** The name of a field of a view. */
export type ViewField = (typeof viewFields)[number]

/** The view of a job. Default: nothing is hidden, as for a worker that claims it. */
export function jobView(record: JobRecord, redactor: Redactor = REVEALS): JobView {
  const job = asJob(record)
  const stored = (text: string | undefined, place: string): RawJson | undefined =>
    raw(text === undefined ? undefined : redactor.json(text, place))
  const plain = <T>(value: T | undefined, place: string): T | RawJson | undefined =>
    value === undefined || !redactor.hides ? value : redactor.plain(value, place)
  const { state } = job
  const phased = hasPhases(job)
  return {
    id: job.id,
    queue: job.queue,
    name: job.name,
    version: job.version,
    state,
    data: stored(job.data, 'data'),
    priority: job.priority,
    attempt: job.attempt,
    attempts: Number.isFinite(job.attempts) ? job.attempts : null,
    timeout: job.timeout,
    worker: job.worker,
    fence: job.fence,
    runAt: state === 'delayed' || state === 'waiting-children' ? job.runAt : undefined,
    expiresAt: job.expiresAt,
    leaseUntil: job.leaseUntil,
    stalls: job.stalls,
    chainId: job.chainId,
    chainIndex: job.chainIndex,
    parentId: job.parentId,
    group: job.group,
    tags: job.extras?.tags,
    scheduledAt: timeOfRun(job),
    pending: job.pending,
    dedup: job.dedup,
    phases: phased ? plain(phasesOf(job), 'phases') : undefined,
    progress: phased ? overallOf(job) : stored(job.progress, 'progress'),
    result: stored(job.result, 'result'),
    error: plain(job.error, 'error'),
    errors: job.errors.length === 0 ? undefined : plain(job.errors, 'errors'),
    webhook: plain(redactor.hides ? withoutQueries(publicWebhook(job)) : publicWebhook(job), 'webhook'),
    createdAt: job.createdAt,
    startedAt: job.startedAt,
    finishedAt: job.finishedAt,
    staleAt: job.staleAt,
    deleteAt: job.deleteAt,
  }
}

/** Without the queries of its URLs, which may hold secrets. */
function withoutQueries(webhook: JobWebhook | undefined): JobWebhook | undefined {
  if (webhook === undefined) return undefined
  const deliveries = webhook.deliveries.map((each) => ({ ...each, url: bareUrl(each.url) }))
  return { ...webhook, url: bareUrl(webhook.url), deliveries }
}

/** The view with these fields alone. */
export function pickView(view: JobView, fields: readonly ViewField[] | undefined): JobView {
  return fields === undefined ? view : Object.fromEntries(fields.map((field) => [field, view[field]]))
}

/** The beginning of a text that was cut from a view. */
interface Cut {
  /** How long it is, in characters of JSON. */
  readonly length: number
  /** How it begins. */
  readonly start: string
}

/** The view without what is longer than so many characters of JSON: that is left out, and its beginning is in `cut`. */
export function cutView(view: JobView, longest: number | undefined): JobView {
  if (longest === undefined) return view
  const rest: Record<string, unknown> = { ...view }
  const cut: Record<string, Cut> = {}
  for (const field of ['data', 'result', 'progress', 'phases'] as const) {
    const value = view[field]
    if (!(value instanceof RawJson) || value.text.length <= longest) continue
    delete rest[field]
    cut[field] = { length: value.text.length, start: wholeCharacters(value.text.slice(0, longest)) }
  }
  return Object.keys(cut).length === 0 ? view : { ...rest, cut }
}

/** Without half a character at its end. */
export function wholeCharacters(text: string): string {
  const last = text.charCodeAt(text.length - 1)
  return last >= 0xd800 && last <= 0xdbff ? text.slice(0, -1) : text
}
