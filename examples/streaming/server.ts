// A plain HTTP server: a page with progress bars, their event stream, and a way to add jobs.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { eventStreamHeaders } from 'millrace'
import type { Queue } from 'millrace'

const page = readFileSync(new URL('page.html', import.meta.url))

/** Serves the page of a queue. */
export function serve(queue: Queue): Server {
  return createServer((request, response) => {
    answer(queue, request, response).catch((error: unknown) => {
      console.error(error)
      response.destroy()
    })
  })
}

async function answer(queue: Queue, request: IncomingMessage, response: ServerResponse): Promise<void> {
  switch (`${request.method} ${request.url}`) {
    case 'GET /':
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(page)
      return
    case 'GET /events':
      return stream(queue, request, response)
    case 'GET /jobs': {
      const { jobs } = await queue.list({ order: 'newest', limit: 50 })
      return json(
        response,
        jobs.toReversed().map(({ id, state, progress }) => ({ id, state, progress })),
      )
    }
    case 'POST /jobs':
      return json(response, { id: (await queue.add('encode')).id })
    default:
      response.writeHead(404).end()
  }
}

async function stream(queue: Queue, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const events = queue.eventStream({
    events: ['waiting', 'active', 'progress', 'completed', 'failed', 'cancelled'],
    // A browser that lost its connection sends the id of the last event, and misses nothing.
    lastEventId: String(request.headers['last-event-id'] ?? ''),
    retry: '1s', // how long a browser waits before it reconnects
  })
  response.writeHead(200, eventStreamHeaders)
  // A client that disconnects ends the stream, which then frees all that it holds.
  await pipeline(Readable.fromWeb(events), response).catch(() => {})
}

function json(response: ServerResponse, value: object): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}
