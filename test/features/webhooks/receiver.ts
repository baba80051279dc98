// A receiver of webhooks: a real server on the loopback address, which gives the answers of the test and records requests.
import { createServer } from 'node:http'
import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach } from 'vitest'
import { mailbox } from '../../setup.js'

/** One request. */
interface Received {
  readonly path: string
  readonly method: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
  /** The port that it came from: the same for requests over one connection. */
  readonly port: number
}

/** How a request is answered: by a status, or by whatever is done with the response. */
export type Answering = number | ((response: ServerResponse, received: Received) => void)

/** A receiver. */
export interface Receiver {
  readonly url: string
  /** All that it was sent. */
  readonly all: readonly Received[]
  /** The next unread request. */
  next(): Promise<Received>
  /** Answers requests one after the other, and then with 204. */
  answers(...with_: readonly Answering[]): void
}

const closing: (() => Promise<void>)[] = []

afterEach(async () => {
  await Promise.all(closing.splice(0).map((close) => close()))
})

/** Starts a receiver that is closed after the test. */
export async function receiver(): Promise<Receiver> {
  const all: Received[] = []
  const box = mailbox<Received>()
  const answers: Answering[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const received: Received = {
        path: request.url ?? '',
        method: request.method ?? '',
        headers: request.headers,
        body: Buffer.concat(chunks).toString(),
        port: request.socket.remotePort ?? 0,
      }
      all.push(received)
      const answer = answers.shift() ?? 204
      if (typeof answer === 'number') response.writeHead(answer).end()
      else answer(response, received)
      box.put(received)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closing.push(
    () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  )
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/hook`,
    all,
    next: box.next,
    answers: (...with_) => void answers.push(...with_),
  }
}

/** Never answers. */
export const silence: Answering = () => {}
