// server/routes/streams.ts: server-sent events: those of a queue, of all queues, and what is sampled once a second.
import { isFinished } from '../../job/job.js'
import { publicEvent } from '../../queue/events/events.js'
import { isPublished } from '../../queue/events/subscription.js'
import type { StreamEventType } from '../../queue/events/stream-options.js'
import { shownEvent } from '../../queue/events/stream-fields.js'
import type { JobField } from '../../queue/job.js'
import type { Notice } from '../../store/store.js'
import type { Stop } from '../../store/runtime.js'
import { findJob } from '../find-job.js'
import { jsonText } from '../json-text.js'
import { cutView, jobView } from '../job-view.js'
import { PING, eventFrame, eventResponse, redactEvent, redactedFrames } from '../live/event-response.js'
import type { JobLook } from '../live/job-sampler.js'
import { liveFrames } from '../live/live-frames.js'
import { isVisible } from '../reading/visible-queues.js'
import { route } from '../route.js'
import type { Call, Route } from '../route.js'
import { described, flag, list, name, optional, text, whole } from '../shape.js'

const READ = ['read'] as const
const stream = { description: 'A stream of events.', type: 'text/event-stream' } as const

const lastEventField = {
  lastEventId: optional(
    described(
      text({ min: 0, max: 200, example: '' }),
      'resume after this event; the header `Last-Event-ID` counts more',
    ),
  ),
} as const

function lastEventOf({ request, query }: Call<unknown, { readonly lastEventId?: string }>): string | undefined {
  return request.headers.get('last-event-id') ?? query.lastEventId
}

/** Streams. */
export const streamRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/queues/{queue}/events',
    access: READ,
    summary: 'The events of a queue, or of one job, as `queue.eventStream` sends them.',
    description:
      'A stream of all events makes the store record events, which costs a drain up to a fifth. `/v1/live` costs next to nothing.',
    changes: false,
    query: {
      job: optional(described(name('job-1'), 'only the events of this job; the stream ends with it')),
      events: optional(list(name('completed'), { min: 1, max: 50 })),
      fields: optional(list(name('state'), { min: 1, max: 50 })),
      snapshot: optional(flag),
      ...lastEventField,
    },
    answers: { 200: stream },
    errors: ['INVALID_OPTION', 'INVALID_CURSOR', 'JOB_NOT_FOUND'],
    long: true,
    async handle(call) {
      const { server, principal, params, query } = call
      const queue = server.queues.get(params['queue']!)
      if (query.job !== undefined) await findJob(server, principal, query.job)
      const last = lastEventOf(call)
      const events = queue.eventStream({
        ...(query.job !== undefined && { jobId: query.job }),
        ...(query.events !== undefined && { events: query.events as readonly StreamEventType[] }),
        ...(query.fields !== undefined && { fields: query.fields as readonly JobField[] }),
        ...(query.snapshot !== undefined && { snapshot: query.snapshot }),
        ...(last !== undefined && { lastEventId: last }),
        signal: call.signal,
      })
      return eventResponse(call, (signal) => redactedFrames(events, server.redactor, signal))
    },
  }),
  route({
    method: 'GET',
    path: '/v1/events',
    access: READ,
    summary: 'The events of all queues of the caller.',
    changes: false,
    query: lastEventField,
    answers: { 200: stream },
    errors: [],
    long: true,
    handle: async (call) => {
      await call.server.connection.ready()
      return eventResponse(call, (signal) => allEvents(call, lastEventOf(call), signal))
    },
  }),
  route({
    method: 'GET',
    path: '/v1/live',
    access: READ,
    summary: 'Counts, rates, workers, and what needs attention: sampled once a second for all readers together.',
    description:
      'Events `queues` and `workers` hold rows that are new or have changed, `queues-gone` and `workers-gone` the keys of those that are no more, `attention` the list of what needs attention. A frame is about 4 KB at most. Nothing is sampled while nobody reads, and no events are recorded for it.',
    changes: false,
    query: { queues: optional(described(list(name('mail'), { min: 1, max: 100 }), 'default: all')) },
    answers: { 200: stream },
    errors: [],
    long: true,
    handle: async (call) => {
      const { server, principal, query } = call
      const reader = { principal, only: query.queues }
      return eventResponse(call, (signal) => liveFrames(server.live, server.connection.runtime, reader, signal))
    },
  }),
  route({
    method: 'GET',
    path: '/v1/jobs/{id}/live',
    access: READ,
    summary: 'One job and the lines of its log as they come, looked at once a second; ends with the job.',
    changes: false,
    query: { after: optional(described(whole(0, Number.MAX_SAFE_INTEGER, 0), 'log lines after this index')) },
    answers: { 200: stream },
    errors: ['JOB_NOT_FOUND'],
    long: true,
    async handle(call) {
      const { server, principal, params, query } = call
      const { id } = await findJob(server, principal, params['id']!)
      return eventResponse(call, (signal) => jobFrames(call, id, query.after ?? 0, signal))
    },
  }),
]

/** The most characters that wait for a slow reader; beyond, the stream ends, and its reader resumes. */
const MAX_WAITING = 8 * 1_048_576
const PING_EVERY = 15_000

/** Waits until it is woken, or for some time. */
class Bell {
  #wake: (() => void) | undefined
  #rung = false

  ring(): void {
    this.#rung = true
    this.#wake?.()
  }

  async wait({ server }: Call): Promise<boolean> {
    let stop: Stop = () => {}
    if (!this.#rung) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        stop = server.connection.runtime.timer(PING_EVERY, resolve, true)
      })
    }
    stop()
    this.#wake = undefined
    const rung = this.#rung
    this.#rung = false
    return rung
  }
}

async function* allEvents(
  call: Call,
  from: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<string, void, void> {
  const { server, principal } = call
  const bell = new Bell()
  let waiting: string[] = []
  let length = 0
  const push = (frame: string): void => {
    waiting.push(frame)
    length += frame.length
  }
  const receive = ({ events, gap }: Notice): void => {
    if (length > MAX_WAITING) return
    if (gap) push(eventFrame('gap', JSON.stringify({ type: 'gap', at: server.connection.runtime.now() })))
    for (const event of events) {
      const published = publicEvent(event)
      if (!isPublished(event, published.queue) || !isVisible(server, principal, published.queue)) continue
      const shown = JSON.stringify(shownEvent(published, undefined))
      push(eventFrame(event.type, redactEvent(shown, server.redactor), event.cursor))
    }
    bell.ring()
  }
  const options = from === undefined || from === '' ? { events: true } : { events: true, from }
  const stop = server.store.watch(options, receive)
  const ring = (): void => bell.ring()
  signal.addEventListener('abort', ring)
  try {
    yield PING // so that the response begins at once
    while (!signal.aborted) {
      const rung = await bell.wait(call)
      if (signal.aborted) return
      if (!rung) yield PING
      const full = length > MAX_WAITING
      const frames = waiting
      waiting = []
      length = 0
      for (const frame of frames) yield frame
      if (full) return
    }
  } finally {
    signal.removeEventListener('abort', ring)
    stop()
  }
}

/** The longest data of a job that is sent again with each change; longer data is left out. */
const LONGEST = 16_384

async function* jobFrames(
  call: Call,
  id: string,
  after: number,
  signal: AbortSignal,
): AsyncGenerator<string, void, void> {
  const { jobs, redactor } = call.server
  const bell = new Bell()
  let look: JobLook | undefined
  let lines: JobLook['lines'][number][] = []
  let last = after
  const stop = jobs.listen(id, after, (next) => {
    look = next
    for (const line of next.lines) {
      if (line.index <= last) continue
      last = line.index
      lines.push(line)
    }
    lines = lines.slice(-MOST_LINES)
    bell.ring()
  })
  const ring = (): void => bell.ring()
  signal.addEventListener('abort', ring)
  let sent = ''
  try {
    yield PING
    while (!signal.aborted) {
      const rung = await bell.wait(call)
      if (signal.aborted) return
      if (!rung || look === undefined) {
        yield PING
        continue
      }
      const { record, more } = look
      if (lines.length > 0) {
        const shown = lines.map((each) => ({ ...each, line: redactor.text(each.line) }))
        lines = []
        yield eventFrame('logs', JSON.stringify({ lines: shown }))
      }
      if (record === undefined) return yield eventFrame('end', JSON.stringify({ id, state: 'removed' }))
      const view = jsonText(cutView(jobView(record, redactor), LONGEST))
      if (view !== sent) yield eventFrame('job', view)
      sent = view
      if (isFinished(record.state) && !more) return yield eventFrame('end', JSON.stringify({ id, state: record.state }))
    }
  } finally {
    signal.removeEventListener('abort', ring)
    stop()
  }
}

/** The most log lines that wait for a slow reader; it reads those before by `/v1/jobs/{id}/logs`. */
const MOST_LINES = 1_000
