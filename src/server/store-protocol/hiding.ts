// server/store-protocol/hiding.ts: hides in answers of the store protocol what read routes hide, from callers that may only read.
import type { ErrorInfo, Extras, JobHeader, JobRecord } from '../../job/job.js'
import type { StoreEvent } from '../../job/events.js'
import { memoOf, writeMemo } from '../../job/memo.js'
import type { PhaseState } from '../../job/memo.js'
import { SCHEDULE } from '../../job/schedules/schedule.js'
import type { JsonText } from '../../job/values/json.js'
import { DELIVERIES } from '../../job/webhooks.js'
import type { Delivery } from '../../job/webhooks.js'
import { bareUrl } from '../../queue/settings/webhook.js'
import type { Details, Due, JobDetails, Notice, Query } from '../../store/store.js'
import { forbidden } from '../problem.js'
import { refuseHidden } from '../reading/reveal.js'
import type { Redactor } from '../redact.js'

/** A job without secrets. What rules need of it, as times and fingerprints, stays. */
export function hideJob(redactor: Redactor, job: JobRecord): JobRecord {
  const { kind, queue, data, memo, progress, result, error, errors } = job
  const isSchedule = kind === SCHEDULE
  const hideData = isSchedule ? hideSpec : queue === DELIVERIES ? hideDelivery : hideJson
  return {
    ...hideHeader(job),
    data: hideData(redactor, data, 'data'),
    memo: hideMemo(redactor, memo),
    progress: hideJson(redactor, progress, 'progress'),
    // The result of a schedule is how often it ran, which is no value of a user.
    result: isSchedule ? result : hideJson(redactor, result, 'result'),
    error: error && hideError(redactor, error),
    errors: errors.map((each) => hideError(redactor, each)),
  }
}

/** What is stored beside jobs, without secrets. */
export function hideDetails(redactor: Redactor, details: Details): Details {
  const hide = (job: JobDetails): JobDetails => ({
    ...job,
    edges: job.edges.map((edge) => ({
      ...edge,
      result: hideJson(redactor, edge.result, 'result'),
      error: edge.error && hideError(redactor, edge.error),
    })),
    logs: job.logs.map((each) => ({ ...each, line: redactor.text(each.line) })),
    steps: job.steps.map((step) => ({ ...step, result: hideJson(redactor, step.result, 'steps') })),
  })
  return { ...details, jobs: details.jobs.map(hide) }
}

/** What is due, without secrets. */
export function hideDue(due: Due): Due {
  return { ...due, jobs: due.jobs.map(hideHeader) }
}

/** A notice whose events show no secrets. */
export function hideNotice(redactor: Redactor, notice: Notice): Notice {
  if (notice.events.length === 0) return notice
  return { ...notice, events: notice.events.map((event) => hideEvent(redactor, event)) }
}

/** Documents of a search are not deeper than this; a deeper one is refused, so that none takes long to look through. */
const DEEPEST = 64

/** Throws for a search by what is hidden: its answer would tell it. */
export function refuseHiddenSearch(redactor: Redactor, { contains = [] }: Query): void {
  for (const document of contains.flat()) {
    const open: (readonly [path: readonly (string | undefined)[], value: unknown])[] = [[[], JSON.parse(document)]]
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const [path, value] = next
      if (path.length > DEEPEST) throw forbidden(`Jobs cannot be searched by values deeper than ${DEEPEST} keys.`)
      refuseHidden(path, redactor)
      if (typeof value !== 'object' || value === null) continue
      // A document with an array tells only that some element is like this.
      const isArray = Array.isArray(value)
      for (const [key, inner] of Object.entries(value)) open.push([[...path, isArray ? undefined : key], inner])
    }
  }
}

function hideJson(redactor: Redactor, text: JsonText | undefined, place: string): JsonText | undefined {
  return text === undefined ? undefined : redactor.json(text, place)
}

/** Without the query of the webhook's URL, which may hold a secret. */
function hideHeader<Header extends JobHeader>(job: Header): Header {
  return job.extras?.webhook === undefined ? job : { ...job, extras: hideExtras(job.extras) }
}

function hideExtras(extras: Extras): Extras {
  const { webhook } = extras
  return webhook === undefined ? extras : { ...extras, webhook: { ...webhook, url: bareUrl(webhook.url) } }
}

/** The data of a schedule's row: the data of its runs is a text in it. */
function hideSpec(redactor: Redactor, text: JsonText | undefined): JsonText | undefined {
  if (text === undefined) return undefined
  try {
    const { run, ...spec } = JSON.parse(text) as {
      readonly run: { readonly data?: JsonText; readonly extras?: Extras }
    }
    const { data, extras } = run
    const hidden = {
      ...run,
      data: hideJson(redactor, data, 'data'),
      ...(extras !== undefined && { extras: hideExtras(extras) }),
    }
    return JSON.stringify({ ...spec, run: hidden })
  } catch {
    return redactor.json(text, 'data') // of no version that is known
  }
}

/** The data of a delivery: it holds the end of another job. */
function hideDelivery(redactor: Redactor, text: JsonText | undefined): JsonText | undefined {
  if (text === undefined) return undefined
  try {
    const { url, job, ...delivery } = JSON.parse(text) as Delivery
    const { result, error } = job
    const hidden = {
      ...job,
      ...(result !== undefined && { result: JSON.parse(redactor.json(JSON.stringify(result), 'result')) as unknown }),
      ...(error !== undefined && { error: hideError(redactor, error) }),
    }
    return JSON.stringify({ url: bareUrl(url), ...delivery, job: hidden })
  } catch {
    return redactor.json(text, 'data') // of no version that is known
  }
}

/** An error without secrets. Its parts keep their types, whatever stands in place of what is hidden. */
function hideError<Info extends ErrorInfo>(redactor: Redactor, error: Info): Info {
  const hide = (key: string, value: string): string => {
    const shown = (JSON.parse(redactor.plain({ [key]: value }, 'error').text) as Record<string, unknown>)[key]
    return typeof shown === 'string' ? shown : JSON.stringify(shown)
  }
  const { name, message, code, stack, cause, errors } = error
  return {
    ...error,
    name: hide('name', name),
    message: hide('message', message),
    ...(code !== undefined && { code: hide('code', code) }),
    ...(stack !== undefined && { stack: hide('stack', stack) }),
    ...(cause !== undefined && { cause: hideError(redactor, cause) }),
    ...(errors !== undefined && { errors: errors.map((each) => hideError(redactor, each)) }),
  }
}

/** The memo of a job: results and errors of its phases, and URLs of its webhook. One that cannot be read is left out. */
function hideMemo(redactor: Redactor, text: JsonText | undefined): JsonText | undefined {
  if (text === undefined) return undefined
  try {
    const { phases, deliveries, ...rest } = memoOf({ memo: text })
    return writeMemo({
      ...rest,
      ...(phases !== undefined && {
        phases: Object.fromEntries(
          Object.entries(phases).map(([name, phase]) => [name, hidePhase(redactor, name, phase)]),
        ),
      }),
      ...(deliveries !== undefined && {
        deliveries: deliveries.map(({ error, ...entry }) => ({
          ...entry,
          url: bareUrl(entry.url),
          ...(error !== undefined && { error: redactor.text(error) }),
        })),
      }),
    })
  } catch {
    return undefined
  }
}

function hidePhase(redactor: Redactor, name: string, phase: PhaseState): PhaseState {
  const { result, error } = phase
  if (result === undefined && error === undefined) return phase
  const shown = (given: JsonText): JsonText => {
    // As part of the phase, so that a telling name of a phase hides it.
    const all = JSON.parse(redactor.plain({ [name]: JSON.parse(given) as unknown }, 'phases').text) as object
    return JSON.stringify((all as Record<string, unknown>)[name])
  }
  return {
    ...phase,
    ...(result !== undefined && { result: shown(result) }),
    ...(error !== undefined && { error: hideError(redactor, error) }),
  }
}

function hideEvent(redactor: Redactor, event: StoreEvent): StoreEvent {
  const { result, progress, about, error } = event
  if (result === undefined && progress === undefined && about === undefined && error === undefined) return event
  return {
    ...event,
    ...(result !== undefined && { result: redactor.json(result, 'result') }),
    ...(progress !== undefined && { progress: redactor.json(progress, 'progress') }),
    ...(about !== undefined && { about: hideAbout(redactor, about) }),
    ...(error !== undefined && { error: hideError(redactor, error) }),
  }
}

/** Further data of an event: about phases, a delivery, a schedule, or a bulk operation. */
function hideAbout(redactor: Redactor, text: JsonText): JsonText {
  const about = JSON.parse(text) as { readonly url?: unknown } | null
  const plain = typeof about?.url === 'string' ? { ...about, url: bareUrl(about.url) } : about
  return redactor.plain(plain, 'about').text
}
