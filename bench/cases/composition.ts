// Measures what groups, flows, phases, an event listener and telemetry cost, each beside a plain drain of as many jobs, and
// what schedules cost that are not due.
import { setTimeout as pause } from 'node:timers/promises'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { FlowProducer, Queue, Worker, phases, shutdown } from 'millrace'
import { telemetry } from 'millrace/telemetry'
import type { Store } from 'millrace'
import { BULK, CONCURRENCY, NAME, QUEUE, payload } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import type { Case, Sample } from '../measure/measure.js'
import type { Places } from '../measure/scratch-files.js'

/** The store under test, which opens a fresh file or database for each measurement. */
export interface StoreSetup {
  readonly durability: string
  /** Call it only while measuring: the server has to be running. */
  places(): Places
  open(path: string): Store
  /** Whether the store runs in another process. Default false. */
  readonly elsewhere?: boolean
}

const GROUPS = 1000
const CHILDREN = 100
const SCHEDULES = 10_000
/** The concurrency of the rows in which the number of jobs that share a commit must not matter. */
const CROWD = 1000
/** How long an idle worker is observed, in milliseconds. */
const OBSERVED = 5_000

type Fill = (store: Store, queue: Queue, jobs: number) => Promise<void>

async function fillBulk(queue: Queue, jobs: number, group?: (n: number) => string): Promise<void> {
  for (let from = 0; from < jobs; from += BULK) {
    const length = Math.min(BULK, jobs - from)
    const item = (_: unknown, at: number): { name: string; data: unknown; options?: { group: string } } => ({
      name: NAME,
      data: payload(from + at, 'light'),
      ...(group !== undefined && { options: { group: group(from + at) } }),
    })
    await queue.addBulk(Array.from({ length }, item))
  }
}

const plain: Fill = (_, queue, jobs) => fillBulk(queue, jobs)
const grouped: Fill = (_, queue, jobs) => fillBulk(queue, jobs, (n) => `tenant-${n % GROUPS}`)

const flows: Fill = async (store, _, jobs) => {
  const producer = new FlowProducer({ store })
  const node = (n: number): { name: string; queueName: string; data: unknown } => ({
    name: NAME,
    queueName: QUEUE,
    data: payload(n, 'light'),
  })
  for (let from = 0; from < jobs; from += CHILDREN + 1) {
    const children = Array.from({ length: CHILDREN }, (unused, at) => node(from + at + 1))
    await producer.add({ ...node(from), children })
  }
}

/** What a drain does beside running plain handlers. */
type How = 'plain' | 'phases' | 'listener' | 'telemetry'

/** Creates spans and metrics with the real SDK and exports them nowhere. */
function measures(): { readonly telemetry: ReturnType<typeof telemetry> } {
  const exporter = {
    export: (_: unknown, done: (result: { code: 0 }) => void) => done({ code: 0 }),
    shutdown: async () => {},
  }
  const provider = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter)] })
  const meter = new MeterProvider().getMeter('bench')
  return { telemetry: telemetry({ tracer: provider.getTracer('bench'), meter }) }
}

/** Fills a fresh store and drains it with one worker. The figure is the speed of the worker alone. */
async function drained(
  setup: StoreSetup,
  fill: Fill,
  jobs: number,
  how: How = 'plain',
  concurrency = CONCURRENCY,
): Promise<Sample> {
  const places = setup.places()
  const path = await places.fresh()
  try {
    const store = setup.open(path)
    const measured = how === 'telemetry' ? measures() : {}
    const queue = new Queue(QUEUE, { store, ...measured })
    await fill(store, queue, jobs)
    let received = 0
    if (how === 'listener') queue.on('completed', () => received++)
    if (how === 'listener') await queue.counts() // opens the store, so that the queue is listening from here on
    let ran = 0
    let ended = 0
    let finish = (): void => {}
    const all = new Promise<void>((resolve) => (finish = resolve))
    const run = (): void => void ran++
    const handler = how === 'phases' ? phases({ download: () => 1, process: () => 2, upload: run }) : run
    const worker = new Worker(queue, { [NAME]: handler }, { concurrency, autorun: false, ...measured })
    worker.on('completed', () => {
      if (++ended === jobs) finish()
    })
    const start = performance.now()
    await worker.run()
    await all
    const took = performance.now() - start
    const { completed } = await queue.counts()
    await shutdown([worker, queue, store])
    return {
      figures: { rate: rate(jobs, took) },
      lost: jobs - completed,
      doubled: ran - jobs + Math.max(0, received - jobs),
    }
  } finally {
    await places.drop(path)
  }
}

/** Measures the share of a core that an idle worker uses beside schedules of which none is due. */
async function idleCpu(setup: StoreSetup, schedules: number): Promise<Sample> {
  const places = setup.places()
  const path = await places.fresh()
  try {
    const store = setup.open(path)
    const queue = new Queue(QUEUE, { store })
    for (let from = 0; from < schedules; from += BULK) {
      const some = Array.from({ length: Math.min(BULK, schedules - from) }, (_, at) => from + at)
      await Promise.all(some.map((n) => queue.schedule(`report-${n}`, { cron: '0 4 1 1 *', name: NAME })))
    }
    const worker = new Worker(queue, { [NAME]: () => {} }, { autorun: false })
    await worker.run()
    await pause(1_000)
    const before = process.cpuUsage()
    await pause(OBSERVED)
    const { user, system } = process.cpuUsage(before)
    await shutdown([worker, queue, store])
    return { figures: { cpu: (user + system) / 10 / OBSERVED } }
  } finally {
    await places.drop(path)
  }
}

/** Returns the cases for one store. */
export function composing(setup: StoreSetup, jobs: number): readonly Case[] {
  const { durability } = setup
  const beside = (
    name: string,
    fill: Fill,
    least: number,
    count: number,
    how: How = 'plain',
    concurrency = CONCURRENCY,
  ): Case => ({
    figures: [{ key: 'rate', name, unit: 'jobs/s', targets: [{ kind: 'ratio', to: 'plain drain', least }] }],
    contenders: [
      { name: 'millrace', durability, run: () => drained(setup, fill, count, how, concurrency) },
      { name: 'plain drain', durability, run: () => drained(setup, plain, count, 'plain', concurrency) },
    ],
  })
  const whole = Math.ceil(jobs / (CHILDREN + 1)) * (CHILDREN + 1)
  return [
    beside('drain, 1,000 active groups', grouped, 0.7, jobs),
    beside('drain of flows, a parent and 100 children each', flows, 0.6, whole),
    beside('drain of jobs in three phases', plain, 0.25, jobs, 'phases'),
    // A phase waits for a round trip to the server, which all jobs that run at a time share.
    ...(setup.elsewhere === true
      ? [beside('drain of jobs in three phases, 1,000 at a time', plain, 0.25, jobs, 'phases', CROWD)]
      : []),
    beside('drain with an event listener', plain, 0.7, jobs, 'listener'),
    beside('drain with spans and metrics', plain, 0.7, jobs, 'telemetry'),
    {
      figures: [
        {
          key: 'cpu',
          name: 'an idle worker beside 10,000 schedules, % of a core',
          unit: '%',
          targets: [{ kind: 'below', value: 1 }],
        },
      ],
      contenders: [
        { name: 'millrace', durability, run: () => idleCpu(setup, SCHEDULES) },
        { name: 'no schedules', durability, run: () => idleCpu(setup, 0) },
      ],
      rounds: 1,
    },
  ]
}
