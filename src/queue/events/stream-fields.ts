// queue/events/stream-fields.ts: what a stream shows of jobs and events: nothing that its reader need not know.
import { withoutStack } from '../../job/errors/failure.js'
import type { AttemptError, ErrorInfo, Extras, JobRecord } from '../../job/job.js'
import type { JobPhase, JobPhases } from '../../job/phases.js'
import { Job } from '../job.js'
import type { JobActions, JobField } from '../job.js'
import { pickFields } from '../operations/fields.js'
import { bareUrl } from '../settings/webhook.js'
import type { JobWebhook } from '../settings/webhook.js'
import type { QueueEvent } from './events.js'
import type { ParsedStream } from './stream-options.js'

/** A job as a stream shows it. */
export function shownJob(actions: JobActions, record: JobRecord, stream: ParsedStream): Record<string, unknown> {
  const { fields, data } = stream
  const job = new Job(actions, record)
  if (fields !== undefined) return shownFields(job, record, fields, data)
  const { data: own, extras, ...rest } = job.toJSON()
  const { webhook, ...others } = (extras ?? {}) as Extras
  return {
    ...rest,
    ...(data && record.kind === 'job' && { data: own }),
    ...(extras !== undefined && { extras: { ...others, ...(webhook && { webhook: withoutQuery(webhook) }) } }),
  }
}

function shownFields(
  job: Job,
  record: JobRecord,
  fields: ReadonlySet<JobField>,
  data: boolean,
): Record<string, unknown> {
  const { data: own, error, errors, phases, webhook, ...rest } = pickFields(job, data ? [...fields, 'data'] : fields)
  return {
    ...rest,
    ...(own !== undefined && record.kind === 'job' && { data: own }),
    ...(error !== undefined && { error: withoutStack(error as ErrorInfo) }),
    ...(errors !== undefined && { errors: (errors as readonly AttemptError[]).map(shownError) }),
    ...(phases !== undefined && { phases: shownPhases(phases as JobPhases) }),
    ...(webhook !== undefined && { webhook: shownWebhook(webhook as JobWebhook) }),
  }
}

/** A failed attempt; who ran it is shown only by the field `worker`. */
function shownError({ worker: _worker, ...error }: AttemptError): ErrorInfo {
  return withoutStack(error)
}

function shownPhases(phases: JobPhases): object {
  const shown = (phase: JobPhase): object =>
    phase.error === undefined ? phase : { ...phase, error: withoutStack(phase.error) }
  return Object.fromEntries(Object.entries(phases).map(([name, phase]) => [name, shown(phase)]))
}

function shownWebhook(webhook: JobWebhook): object {
  return { ...withoutQuery(webhook), deliveries: webhook.deliveries.map(withoutQuery) }
}

/** The properties of events, and the fields of a job that they show. */
const fieldOf: Readonly<Record<string, JobField>> = {
  queue: 'queue',
  name: 'name',
  chain: 'chainId',
  attempt: 'attempt',
  worker: 'worker',
  runAt: 'runAt',
  progress: 'progress',
  phase: 'phases',
  phaseProgress: 'phases',
  result: 'returned',
  error: 'error',
  reason: 'error',
}

/** An event as a stream shows it: with the properties that show one of the fields. */
export function shownEvent(event: QueueEvent, fields: ReadonlySet<JobField> | undefined): object {
  const whole = withoutQuery(event)
  if (fields === undefined) return whole
  const { type, id, at, ...rest } = whole
  const shown: Record<string, unknown> = { type, id, at }
  for (const [property, value] of Object.entries(rest)) {
    const field = fieldIn(type, property)
    if (field === undefined || !fields.has(field)) continue
    shown[property] = property === 'error' ? withoutStack(value as ErrorInfo) : value
  }
  return shown
}

/** The field that a property of an event shows. What an event says of a phase or of a delivery is of that alone. */
function fieldIn(type: QueueEvent['type'], property: string): JobField | undefined {
  if (property === 'queue' || property === 'name') return property
  if (type === 'phase') return 'phases'
  if (type === 'webhook-delivered' || type === 'webhook-failed') return 'webhook'
  return fieldOf[property]
}

/** The same value with its URL stripped of query and credentials, which readers of a stream need not know. */
function withoutQuery<T extends object>(value: T): T {
  const { url } = value as { url?: unknown }
  return typeof url === 'string' ? { ...value, url: bareUrl(url) } : value
}
