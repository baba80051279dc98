// The rows of jobs over HTTP: single submissions beside bare Hono, bulk and turns beside the store itself, and claims that
// wait. The server runs in a process of its own.
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Queue, Worker } from 'millrace'
import { openStore } from '../contenders/millrace-sqlite.js'
import { CONCURRENCY, NAME, QUEUE, payload } from '../measure/load.js'
import { percentile, rate } from '../measure/measure.js'
import type { Contender, Sample, Section } from '../measure/measure.js'
import type { Scratch } from '../measure/scratch-files.js'
import type { Ready, Usage } from './rest-worker.js'

const SINGLE = { connections: 50, jobs: 10_000 }
const BULK = { connections: 4, size: 500, jobs: 40_000 }
const TURN = { connections: 4, size: 100, jobs: 20_000 }
/** A claim waits 25 s at most and comes again: it is observed for longer than that. */
const WAITING = { claims: 1_000, observed: 26_000, wakes: 40 }

interface Answer {
  readonly status: number
  readonly body: unknown
}

/** A server in another process. */
class Server {
  readonly #process: ChildProcess
  readonly #ready: Ready
  readonly #agent: Agent

  private constructor(process: ChildProcess, ready: Ready, connections: number) {
    this.#process = process
    this.#ready = ready
    this.#agent = new Agent({ keepAlive: true, maxSockets: connections })
  }

  static async start(kind: 'millrace' | 'hono', path: string, connections: number): Promise<Server> {
    const child = fork(fileURLToPath(new URL('rest-worker.ts', import.meta.url)), [kind, path])
    const [ready] = (await once(child, 'message')) as [Ready]
    return new Server(child, ready, connections)
  }

  async usage(): Promise<Usage> {
    const answered = once(this.#process, 'message')
    this.#process.send('usage')
    return ((await answered) as [Usage])[0]
  }

  post(path: string, body: object): Promise<Answer> {
    const { port, token } = this.#ready
    const text = JSON.stringify(body)
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
      authorization: `Bearer ${token}`,
    }
    return new Promise((resolve, reject) => {
      const sent = request({ port, method: 'POST', path: `/v1${path}`, agent: this.#agent, headers }, (response) => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('end', () => {
          const body = JSON.parse(Buffer.concat(chunks).toString()) as unknown
          if ((response.statusCode ?? 500) >= 400) reject(new Error(JSON.stringify(body)))
          else resolve({ status: response.statusCode!, body })
        })
      })
      sent.on('error', reject)
      sent.end(text)
    })
  }

  async stop(): Promise<void> {
    this.#agent.destroy()
    const ended = once(this.#process, 'exit')
    this.#process.disconnect()
    await ended
  }
}

/** Runs work on a server, with a fresh file; the figures and what became of the jobs. */
const served = (
  name: string,
  scratch: Scratch,
  kind: 'millrace' | 'hono',
  connections: number,
  work: (server: Server, path: string) => Promise<Sample>,
): Contender => ({
  name,
  durability: kind === 'millrace' ? 'full' : 'none',
  async run() {
    const path = scratch.fresh()
    const server = await Server.start(kind, path, connections)
    try {
      return await work(server, path)
    } finally {
      await server.stop()
      scratch.drop(path)
    }
  },
})

/** Work on the store in this process. */
const direct = (name: string, scratch: Scratch, work: (queue: Queue) => Promise<Sample>): Contender => ({
  name,
  durability: 'full',
  async run() {
    const path = scratch.fresh()
    const store = openStore(path, 'full')
    const queue = new Queue(QUEUE, { store, logger: false })
    try {
      return await work(queue)
    } finally {
      await queue.close()
      await store.close()
      scratch.drop(path)
    }
  },
})

/** Calls `send` so often, by so many at a time; returns how long each took. */
async function inFlight(callers: number, times: number, send: (n: number) => Promise<unknown>): Promise<number[]> {
  const took: number[] = []
  let next = 0
  const call = async (): Promise<void> => {
    for (let n = next++; n < times; n = next++) {
      const began = performance.now()
      await send(n)
      took.push(performance.now() - began)
    }
  }
  await Promise.all(Array.from({ length: callers }, call))
  return took
}

const submit = async (server: Server): Promise<Sample> => {
  const send = (n: number): Promise<Answer> =>
    server.post(`/queues/${QUEUE}/jobs`, { name: NAME, data: payload(n, 'light') })
  await inFlight(SINGLE.connections, 1_000, send) // warm
  const began = performance.now()
  const took = await inFlight(SINGLE.connections, SINGLE.jobs, send)
  return { figures: { rate: rate(SINGLE.jobs, performance.now() - began), p99: percentile(took, 0.99) } }
}

const items = (from: number, length: number): { readonly name: string; readonly data: unknown }[] =>
  Array.from({ length }, (_, at) => ({ name: NAME, data: payload(from + at, 'light') }))

const bulk = async (server: Server): Promise<Sample> => {
  const send = (n: number): Promise<Answer> =>
    server.post(`/queues/${QUEUE}/bulk`, { jobs: items(n * BULK.size, BULK.size) })
  await inFlight(BULK.connections, 8, send)
  const began = performance.now()
  await inFlight(BULK.connections, BULK.jobs / BULK.size, send)
  return { figures: { rate: rate(BULK.jobs, performance.now() - began) } }
}

const addBulk = async (queue: Queue): Promise<Sample> => {
  const send = (n: number): Promise<unknown> => queue.addBulk(items(n * BULK.size, BULK.size))
  await inFlight(BULK.connections, 8, send)
  const began = performance.now()
  await inFlight(BULK.connections, BULK.jobs / BULK.size, send)
  return { figures: { rate: rate(BULK.jobs, performance.now() - began) } }
}

async function fill(queue: Queue): Promise<void> {
  for (let from = 0; from < TURN.jobs; from += 1_000) await queue.addBulk(items(from, 1_000))
}

interface Turn {
  readonly jobs: readonly { readonly id: string; readonly fence: number }[]
}

/** Each connection is a worker that settles what it has and takes as many again. */
const turns = async (server: Server, path: string): Promise<Sample> => {
  const store = openStore(path, 'full')
  const queue = new Queue(QUEUE, { store, logger: false })
  await fill(queue)
  const seen = new Set<string>()
  let ran = 0
  const began = performance.now()
  const work = async (worker: number): Promise<void> => {
    let done: { id: string; fence: number; complete: object }[] = []
    for (;;) {
      const turn = { worker: `w${worker}`, queues: [QUEUE], max: TURN.size, done }
      const { jobs } = (await server.post('/turn', turn)).body as Turn
      if (jobs.length === 0) return
      for (const { id } of jobs) seen.add(id)
      ran += jobs.length
      done = jobs.map(({ id, fence }) => ({ id, fence, complete: {} }))
    }
  }
  await Promise.all(Array.from({ length: TURN.connections }, (_, worker) => work(worker)))
  const took = performance.now() - began
  const { completed } = await queue.counts()
  await queue.close()
  await store.close()
  return { figures: { rate: rate(TURN.jobs, took) }, lost: TURN.jobs - completed, doubled: ran - seen.size }
}

const drain = async (queue: Queue): Promise<Sample> => {
  await fill(queue)
  const worker = new Worker(queue, () => {}, { autorun: false, concurrency: CONCURRENCY, logger: false })
  const began = performance.now()
  await worker.run({ until: 'drained' })
  const figures = { rate: rate(TURN.jobs, performance.now() - began) }
  await worker.close()
  return { figures }
}

/** So many claims that wait: what they cost the server while nothing happens, and how soon one job wakes one of them. */
const waiting =
  (claims: number) =>
  async (server: Server): Promise<Sample> => {
    const idle = await server.usage()
    const ending = new AbortController()
    let woken = (_at: number): void => {}
    const wait = async (worker: number): Promise<void> => {
      while (!ending.signal.aborted) {
        const claim = { worker: `w${worker}`, queues: [QUEUE], wait: '25s', lease: '5m' }
        const { jobs } = (await server.post('/claims', claim).catch(() => ({ body: { jobs: [] } }))).body as Turn
        if (jobs.length > 0) woken(performance.now())
      }
    }
    const all = Array.from({ length: claims }, (_, worker) => wait(worker))
    await pause(10_000) // they have all come, and are in the registry
    await server.usage()
    await pause(WAITING.observed)
    const { cpu, memory } = await server.usage()
    const took: number[] = []
    for (let n = 0; n < WAITING.wakes; n++) {
      await pause(5 + Math.random() * 10)
      const wakes = new Promise<number>((resolve) => (woken = resolve))
      const began = performance.now()
      await server.post(`/queues/${QUEUE}/jobs`, { name: NAME, data: n })
      took.push((await wakes) - began)
    }
    ending.abort()
    for (const each of all) each.catch(() => {})
    return { figures: { cpu: cpu * 100, memory: memory - idle.memory, p50: percentile(took, 0.5) } }
  }

/** The rows of jobs over HTTP. */
export function restSections(scratch: Scratch): readonly Section[] {
  return [
    {
      name: 'REST on SQLite, server in a process of its own',
      cases: [
        {
          figures: [
            {
              key: 'rate',
              name: 'submit one job, 50 connections',
              unit: 'jobs/s',
              targets: [{ kind: 'ratio', to: 'bare Hono', least: 0.4 }],
            },
            {
              key: 'p99',
              name: 'submit one job, p99',
              unit: 'ms',
              targets: [{ kind: 'within', to: 'bare Hono', most: 4 }],
            },
          ],
          contenders: [
            served('Millrace', scratch, 'millrace', SINGLE.connections, submit),
            served('bare Hono', scratch, 'hono', SINGLE.connections, submit),
          ],
        },
        {
          figures: [
            {
              key: 'rate',
              name: 'bulk of 500, 4 connections',
              unit: 'jobs/s',
              targets: [{ kind: 'ratio', to: 'the store itself', least: 0.5 }],
            },
          ],
          contenders: [
            served('Millrace', scratch, 'millrace', BULK.connections, bulk),
            direct('the store itself', scratch, addBulk),
          ],
        },
        {
          figures: [
            {
              key: 'rate',
              name: 'turn by 100, 4 connections',
              unit: 'jobs/s',
              targets: [{ kind: 'ratio', to: 'the store itself', least: 0.25 }],
            },
          ],
          contenders: [
            served('Millrace', scratch, 'millrace', TURN.connections, turns),
            direct('the store itself', scratch, drain),
          ],
        },
        {
          figures: [
            {
              key: 'cpu',
              name: '1,000 waiting claims, idle: of a core',
              unit: '%',
              targets: [{ kind: 'below', value: 2 }],
            },
            {
              key: 'memory',
              name: '1,000 waiting claims: memory',
              unit: 'MB',
              targets: [{ kind: 'below', value: 60 }],
            },
            {
              key: 'p50',
              name: 'one job wakes one of 1,000 waiting claims',
              unit: 'ms',
              targets: [{ kind: 'within', to: 'one waiting claim', most: 3 }],
            },
          ],
          contenders: [
            served('Millrace', scratch, 'millrace', WAITING.claims + 10, waiting(WAITING.claims)),
            served('one waiting claim', scratch, 'millrace', 20, waiting(1)),
          ],
        },
      ],
    },
  ]
}
