// server/live/event-response.ts: answers with server-sent events that a generator makes, as fast as the client reads them.
import type { EventStream } from '../../queue/events/sse.js'
import { eventStreamHeaders } from '../../queue/events/sse.js'
import type { Redactor } from '../redact.js'
import type { Call } from '../route.js'

/** The longest that a browser waits before it connects again to a server that shuts down: they do not all come at once. */
const RECONNECT_WITHIN = 2_000

/** Makes frames until the signal aborts. */
export type Frames = (signal: AbortSignal) => AsyncGenerator<string, void, void>

/** Answers with a stream. Throws RATE_LIMITED where the caller has too many open. */
export function eventResponse(call: Call, frames: Frames): Response {
  const { server } = call
  const { over, close } = server.streams.open(call)
  const gone = new AbortController()
  const signal = AbortSignal.any([call.signal, gone.signal, over])
  signal.addEventListener('abort', close)
  const source = frames(signal)
  const encoder = new TextEncoder()
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { value, done } = await source.next().catch((error: unknown) => {
          close()
          throw error // the reader receives it
        })
        if (done !== true && !over.aborted) return controller.enqueue(encoder.encode(value))
        close()
        if (done !== true) await source.return()
        if (server.closing.aborted) controller.enqueue(encoder.encode(reconnect(call)))
        controller.close()
      },
      async cancel() {
        gone.abort()
        await source.return()
      },
    },
    { highWaterMark: 0 },
  )
  return new Response(body, { headers: eventStreamHeaders })
}

function reconnect({ server }: Call): string {
  return `retry: ${Math.ceil(server.connection.runtime.random() * RECONNECT_WITHIN)}\n\n`
}

/** One event. JSON has no line breaks, so its data is one line. */
export function eventFrame(type: string, data: string, id?: string): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${type}\ndata: ${data}\n\n`
}

/** A comment, which keeps a connection open. */
export const PING = ': ping\n\n'

/** The frames of a stream of a queue, without secrets. Its chunks hold whole frames. */
export async function* redactedFrames(
  stream: EventStream,
  redactor: Redactor,
  signal: AbortSignal,
): AsyncGenerator<string, void, void> {
  const reader = stream.getReader() as ReadableStreamDefaultReader<Uint8Array>
  const decoder = new TextDecoder()
  const stop = (): void => void reader.cancel().catch(() => {})
  signal.addEventListener('abort', stop)
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      yield redactFrames(decoder.decode(value), redactor)
    }
  } finally {
    signal.removeEventListener('abort', stop)
    stop()
  }
}

const DATA = 'data: '

/** Frames without secrets: of each event, what it shows of a job. */
function redactFrames(frames: string, redactor: Redactor): string {
  if (!redactor.hides) return frames
  const lines = frames.split('\n')
  return lines
    .map((line) => (line.startsWith(DATA) ? DATA + redactEvent(line.slice(DATA.length), redactor) : line))
    .join('\n')
}

/** The parts of an event, and of the job in a snapshot, that show what a job holds. */
const JSON_PARTS = ['data', 'result', 'returned', 'progress'] as const
const PLAIN_PARTS = ['error', 'errors', 'reason', 'phases', 'webhook', 'extras'] as const

/** The data of an event without secrets. */
export function redactEvent(text: string, redactor: Redactor): string {
  if (!redactor.hides) return text
  const event = JSON.parse(text) as Record<string, unknown>
  const hide = (of: Record<string, unknown>): void => {
    for (const part of JSON_PARTS) {
      if (of[part] === undefined) continue
      const place = part === 'returned' ? 'result' : part
      of[part] = JSON.parse(redactor.json(JSON.stringify(of[part]), place))
    }
    for (const part of PLAIN_PARTS) {
      if (of[part] !== undefined) of[part] = JSON.parse(redactor.plain(of[part], part).text)
    }
  }
  hide(event)
  if (typeof event['job'] === 'object' && event['job'] !== null) hide(event['job'] as Record<string, unknown>)
  return JSON.stringify(event)
}
