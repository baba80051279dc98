// What clients of protocol 1 send is understood for ever: recorded requests, replayed against the server of this version. A
// later protocol gets a file of its own; this one is never changed. MILLRACE_RECORD=1 writes it, while the protocol is not
// released.
import { readFileSync, writeFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import { http } from 'millrace/http'
import { memory } from 'millrace/memory'
import { closing, event } from '../../setup.js'
import { serveStore } from '../../stores/http/bare-server.js'

const FILE = new URL('../../fixtures/store-protocol-1.json', import.meta.url)

/** A request as it was sent, and what its answer looked like. */
interface Recorded {
  readonly method: string
  readonly path: string
  readonly protocol: string
  readonly body?: string
  readonly status: number
  /** The answer with the times of that day left out. */
  readonly answer: string
}

/** Times and ids differ from run to run; what is compared is everything else. */
const shapeOf = (text: string): string => text.replace(/\b1[78]\d{11}(\.\d+)?\b/g, 'TIME')

/** Uses a remote store in many ways, and returns what was sent in the order in which it was answered. */
async function record(): Promise<Recorded[]> {
  const server = closing(await serveStore(closing(memory())))
  const recorded: Recorded[] = []
  const fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const request = new Request(url, init)
    const { pathname, search } = new URL(url)
    const response = await server.fetch(request)
    if (pathname.endsWith('/watch')) return response
    const text = await response.clone().text()
    const protocol = request.headers.get('millrace-protocol')!
    const body = typeof init.body === 'string' ? { body: init.body } : {}
    const path = pathname + search
    recorded.push({ method: request.method, path, protocol, ...body, status: response.status, answer: shapeOf(text) })
    return response
  }
  const store = closing(http(server.url, { fetch }))
  const queue = closing(new Queue('mail', { store, logger: false, defaults: { attempts: Infinity } }))
  const worker = closing(
    new Worker(
      queue,
      {
        async plain(job, ctx) {
          await ctx.progress({ half: true })
          await ctx.log('a line')
          return ctx.step('once', () => job.data)
        },
        flaky(job) {
          if (job.attempt > 1) return
          const error = new Error('once', { cause: new TypeError('deep') })
          error.stack = 'Error: once\n    at flaky (jobs.ts:1:1)' // that of this test names folders of one machine
          ;(error.cause as Error).stack = 'TypeError: deep'
          throw error
        },
      },
      { logger: false, autorun: false },
    ),
  )
  const plain = await queue.add('plain', { größe: '🎈', nested: [null, 1.5] }, { tags: ['a'], group: 'g', priority: 2 })
  await queue.add('flaky', undefined, { backoff: 0, id: 'chosen' })
  await queue.addBulk([
    { name: 'later', options: { delay: '1h', dedup: { key: 'k' } } },
    { name: 'after', options: { after: plain } },
  ])
  const done = Promise.all([
    event(queue, 'completed', ({ id }) => id === plain.id),
    event(queue, 'completed', ({ id }) => id === 'chosen'),
  ])
  await worker.run()
  await done
  await queue.pause('later')
  await queue.limit({ concurrency: 5 })
  await store.find({ queue: 'mail', states: ['completed'], limit: 10 })
  await store.get([plain.id, 'none'])
  await store.due({ queues: ['mail'], except: ['chosen'], limit: 5 })
  await store.tally(['mail'], undefined, { heads: true })
  await store.details({ jobs: [plain.id], parts: ['logs', 'steps'], logs: { after: 0, limit: 5 } })
  await worker.close()
  await queue.close()
  return recorded
}

it('requests of protocol 1 are answered as they were', async () => {
  if (process.env['MILLRACE_RECORD'] === '1') writeFileSync(FILE, `${JSON.stringify(await record(), undefined, 1)}\n`)
  const recorded = JSON.parse(readFileSync(FILE, 'utf8')) as readonly Recorded[]
  expect(recorded.length).toBeGreaterThan(15)
  expect(new Set(recorded.map(({ path }) => path.split('/').at(-1)))).toEqual(
    new Set(['store', 'commit', 'get', 'details', 'due', 'find', 'tally']),
  )
  const server = closing(await serveStore(closing(memory())))
  for (const { method, path, protocol, body, status, answer } of recorded) {
    const headers = { 'millrace-protocol': protocol, 'content-type': 'application/json', host: 'localhost' }
    const request = new Request(`http://localhost${path}`, { method, headers, ...(body !== undefined && { body }) })
    const response = await server.fetch(request)
    const text = await response.text()
    expect(response.status, `${path} ${body}: ${text}`).toBe(status)
    if (path.endsWith('/commit')) {
      const [given, now] = [answer, shapeOf(text)].map(
        (each) => (JSON.parse(each.replaceAll('TIME', '0')) as [object])[0],
      )
      expect(now, body).toEqual(given)
    }
  }
})
