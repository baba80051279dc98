// Progress bars in a browser: `npx tsx examples/streaming.ts`, then open http://localhost:3000. With --once it is its own
// client: it adds a job, reads the stream until the job has ended, resumes with Last-Event-ID, and ends.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { Queue, Worker, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { serve } from './streaming/server.js'

const alone = process.argv.includes('--once')
const store = sqlite('films.db')
const queue = new Queue('films', { store })
const worker = new Worker(
  queue,
  {
    encode: async (_job, ctx) => {
      for (let percent = 0; percent <= 100; percent += 5) {
        await ctx.progress(percent)
        await setTimeout(alone ? 1 : 200, undefined, { signal: ctx.signal })
      }
    },
  },
  { concurrency: 3 },
)

const server = serve(queue).listen(alone ? 0 : Number(process.env['PORT'] ?? 3000))
await once(server, 'listening')
const url = `http://localhost:${(server.address() as AddressInfo).port}`
console.log(`Films at ${url}`)
if (alone) {
  await visit()
  await close()
} else {
  process.once('SIGINT', () => void close())
}

/** Does what a browser does. */
async function visit(): Promise<void> {
  const page = await fetch(url)
  console.log('page:', page.status, page.headers.get('content-type'))
  const stream = await open()
  const added = await fetch(`${url}/jobs`, { method: 'POST' })
  const { id } = (await added.json()) as { id: string }
  const first = await stream.readTo('progress')
  console.log('first:', type(first[0]!), 'then', type(first.at(-1)!))
  const lastEventId = /^id: (.*)$/m.exec(first.at(-1)!)![1]!
  const rest = await (await open({ 'last-event-id': lastEventId })).readTo('completed')
  console.log('after coming back:', type(rest.at(-1)!), rest.at(-1)!.includes(id))
}

/** Opens the stream, reads it up to an event of a type, and disconnects. */
async function open(headers: Record<string, string> = {}): Promise<{ readTo(last: string): Promise<string[]> }> {
  const leaving = new AbortController()
  const { body } = await fetch(`${url}/events`, { headers, signal: leaving.signal })
  return {
    readTo: async (last) => {
      const frames: string[] = []
      let text = ''
      for await (const chunk of body!.pipeThrough(new TextDecoderStream())) {
        const parts = (text + chunk).split('\n\n')
        text = parts.pop()!
        for (const frame of parts.filter((each) => each.includes('event: '))) {
          frames.push(frame)
          if (type(frame) !== last) continue
          leaving.abort()
          return frames
        }
      }
      throw new Error('The stream ended.')
    },
  }
}

function type(frame: string): string {
  return /^event: (.*)$/m.exec(frame)![1]!
}

async function close(): Promise<void> {
  server.close()
  await shutdown([worker, queue, store]) // ends the streams, and with them the connections
  server.closeAllConnections()
}
