// The rows of a remote store: a client and a server in two processes, beside the same store in one.
import { Queue } from 'millrace'
import type { Store } from 'millrace'
import { millraceHttp, startServer } from '../contenders/millrace-http.js'
import { millrace, openStore } from '../contenders/millrace-sqlite.js'
import { NAME, QUEUE } from '../measure/load.js'
import type { Way } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import type { Case, Contender, Sample, Section, Target } from '../measure/measure.js'
import type { Scratch } from '../measure/scratch-files.js'
import { latencyWithin } from './latency.js'

const MODE = 'full'
const direct = { ...millrace, name: 'sqlite' }
const subjects = [millraceHttp, direct]

const WAYS = {
  flight: { name: 'add, 100 calls in flight', count: 20_000, least: 0.5 },
  bulk: { name: 'addBulk of 1000', count: 50_000, least: 0.5 },
} as const satisfies Partial<Record<Way, object>>

const DRAINED = 40_000
const IDLE_JOBS = 100

const contender = (name: string, run: () => Promise<Sample>): Contender => ({ name, durability: MODE, run })
const beside = (least: number): readonly Target[] => [{ kind: 'ratio', to: direct.name, least }]

async function on(scratch: Scratch, path: string, run: (path: string) => Promise<Sample>): Promise<Sample> {
  try {
    return await run(path)
  } finally {
    scratch.drop(path)
  }
}

function adding(scratch: Scratch, way: keyof typeof WAYS): Case {
  const { name, count, least } = WAYS[way]
  return {
    figures: [{ key: 'rate', name, unit: 'jobs/s', targets: beside(least) }],
    contenders: subjects.map((subject) =>
      contender(subject.name, () =>
        on(scratch, scratch.fresh(), (path) => subject.add(path, way, { mode: MODE, weight: 'light', count })),
      ),
    ),
  }
}

function draining(scratch: Scratch): Case {
  const backlog = { weight: 'light', waiting: DRAINED } as const
  return {
    figures: [{ key: 'rate', name: 'drain, concurrency 100', unit: 'jobs/s', targets: beside(0.6) }],
    contenders: subjects.map((subject) =>
      contender(subject.name, async () => {
        const path = await scratch.copy(`http ${JSON.stringify(backlog)}`, (file) => millrace.fill(file, backlog))
        return on(scratch, path, () => subject.drain(path, { mode: MODE, weight: 'light', count: DRAINED }, backlog))
      }),
    ),
  }
}

function latency(scratch: Scratch): Case {
  const name = 'idle queue, add → handler start, p50'
  return {
    figures: [{ key: 'p50', name, unit: 'ms', targets: [{ kind: 'within', to: direct.name, most: 2.2 }] }],
    contenders: subjects.map((subject) =>
      contender(subject.name, () => latencyWithin(subject, scratch, MODE, IDLE_JOBS)),
    ),
  }
}

const AWAITED = 60

/** Adds that clients await one by one, each client on its own. */
async function awaited(stores: readonly Store[]): Promise<Sample> {
  const queues = stores.map((store) => new Queue(QUEUE, { store, logger: false }))
  await Promise.all(queues.map((queue) => queue.add(NAME, 0))) // all are connected
  const began = performance.now()
  await Promise.all(
    queues.map(async (queue) => {
      for (let n = 0; n < AWAITED; n++) await queue.add(NAME, n)
    }),
  )
  const figures = { rate: rate(AWAITED * stores.length, performance.now() - began) }
  await Promise.all(queues.map((queue) => queue.close()))
  return { figures }
}

function clients(scratch: Scratch): Case {
  const over = (count: number) =>
    contender(count === 1 ? 'one client' : `${count} clients`, () =>
      on(scratch, scratch.fresh(), async (path) => {
        const server = startServer(path, MODE)
        const stores = Array.from({ length: count }, () => server.client())
        try {
          return await awaited(stores)
        } finally {
          await Promise.all(stores.map((store) => store.close()))
          await server.close()
        }
      }),
    )
  const itself = contender(direct.name, () =>
    on(scratch, scratch.fresh(), async (path) => {
      const store = openStore(path, MODE)
      try {
        return await awaited([store])
      } finally {
        await store.close()
      }
    }),
  )
  const name = 'add, awaited one by one by each of 16 clients'
  const targets: readonly Target[] = [{ kind: 'ratio', to: 'one client', least: 3 }]
  return { figures: [{ key: 'rate', name, unit: 'jobs/s', targets }], contenders: [over(16), over(1), itself] }
}

/** The rows of a remote store. */
export function httpSections(scratch: Scratch): readonly Section[] {
  const cases = [
    draining(scratch),
    adding(scratch, 'flight'),
    adding(scratch, 'bulk'),
    latency(scratch),
    clients(scratch),
  ]
  return [{ name: 'a store behind a server (SQLite, full)', cases }]
}
