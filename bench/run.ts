// npm run bench: what the memory store reaches through queues and workers, beside bare commits to the same store.
// Options: --json prints the rows as JSON; --rounds N (default 3).
import { parseArgs } from 'node:util'
import { Queue, Worker, shutdown } from 'millrace'
import { memory } from 'millrace/memory'
import { bareAdds, bareDrain } from './bare.js'
import { tableBench } from './table.js'

interface Row {
  readonly name: string
  readonly unit: 'jobs/s' | 'ms' | 'ratio' | 'bytes'
  readonly rounds: number[]
  readonly bare: number[]
  /** Jobs lost or run twice, over all rounds. */
  wrong: number
  readonly target?: string
  readonly reached?: (value: number) => boolean
}

const { values } = parseArgs({ options: { json: { type: 'boolean' }, rounds: { type: 'string', default: '3' } } })
const rounds = Number(values.rounds)
const say = (line: string): void => void process.stderr.write(`${line}\n`)

const N = 300_000
const DATA = { to: 'ann@example.com', template: 'welcome', subject: 'Hello and welcome to the mill', locale: 'en' }

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await work()
  return performance.now() - start
}

const rate = (count: number, millis: number): number => Math.round((count / millis) * 1000)

const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? NaN

const rows = {
  awaited: row('add, awaited one by one', 'jobs/s'),
  flight: row('add, 100 callers', 'jobs/s', '300k', (value) => value >= 300_000),
  bulk: row('addBulk of 1000', 'jobs/s'),
  drain: row('drain, concurrency 100, no-op', 'jobs/s', '300k', (value) => value >= 300_000),
  p50: row('idle, add → handler start, p50', 'ms'),
  p99: row('idle, add → handler start, p99', 'ms'),
}

function row(name: string, unit: Row['unit'], target?: string, reached?: (value: number) => boolean): Row {
  return {
    name,
    unit,
    rounds: [],
    bare: [],
    wrong: 0,
    ...(target !== undefined && { target }),
    ...(reached && { reached }),
  }
}

async function adds(): Promise<void> {
  const store = memory()
  const queue = new Queue('bench', { store })
  const single = 30_000
  rows.awaited.rounds.push(
    rate(
      single,
      await timed(async () => {
        for (let n = 0; n < single; n++) await queue.add('noop', DATA)
      }),
    ),
  )
  await shutdown([queue, store])
}

async function bulk(): Promise<void> {
  const store = memory()
  const queue = new Queue('bench', { store })
  const items = Array.from({ length: 1000 }, () => ({ name: 'noop', data: DATA }))
  rows.bulk.rounds.push(
    rate(
      N,
      await timed(async () => {
        for (let n = 0; n < N; n += 1000) await queue.addBulk(items)
      }),
    ),
  )
  await shutdown([queue, store])
}

/** Adds by 100 callers, then drains what they added. */
async function flightAndDrain(): Promise<void> {
  const store = memory()
  const queue = new Queue('bench', { store })
  let left = N
  const caller = async (): Promise<void> => {
    while (left-- > 0) await queue.add('noop', DATA)
  }
  rows.flight.rounds.push(rate(N, await timed(() => Promise.all(Array.from({ length: 100 }, caller)))))
  let runs = 0
  const worker = new Worker(queue, { noop: async () => void runs++ }, { concurrency: 100, autorun: false })
  const drained = new Promise<void>((resolve) => {
    let done = 0
    worker.on('completed', () => {
      if (++done === N) resolve()
    })
  })
  rows.drain.rounds.push(rate(N, await timed(async () => Promise.all([worker.run(), drained]))))
  const { completed } = await queue.counts()
  rows.drain.wrong += Math.abs(N - completed) + Math.abs(N - runs)
  await shutdown([worker, queue, store])
}

async function latency(): Promise<void> {
  const store = memory()
  const queue = new Queue('bench', { store })
  let started = (): void => {}
  const worker = new Worker(queue, { noop: () => started() }, { autorun: false })
  await worker.run()
  const times: number[] = []
  for (let n = 0; n < 2000; n++) {
    const begun = performance.now()
    const start = new Promise<void>((resolve) => (started = resolve))
    const added = queue.add('noop', DATA)
    await start
    times.push(performance.now() - begun)
    await added
  }
  const sorted = times.toSorted((a, b) => a - b)
  rows.p50.rounds.push(sorted[1000]!)
  rows.p99.rounds.push(sorted[1980]!)
  await shutdown([worker, queue, store])
}

for (let round = 1; round <= rounds; round++) {
  say(`round ${round} of ${rounds}: adds`)
  await adds()
  rows.flight.bare.push(await bareAdds(N, 100, DATA))
  await bulk()
  rows.bulk.bare.push(await bareAdds(N, 1000, DATA))
  say(`round ${round} of ${rounds}: drain`)
  await flightAndDrain()
  rows.drain.bare.push(await bareDrain(N, 500, DATA))
  await latency()
}
say('the table alone, at 1k, 100k and 1M jobs')
const table = await tableBench(say)
const cell = (name: string, n: number): number => table.find((each) => each.name === name && each.n === n)?.value ?? NaN
const growth = row('claim at 1M waiting, to that at 1k', 'ratio', 'below 2', (value) => value < 2)
growth.rounds.push(cell('claim by 100', 1_000_000) / cell('claim by 100', 1_000))
const heap = row('heap for a waiting job beyond its payload', 'bytes', 'below 1000', (value) => value < 1000)
heap.rounds.push(cell('heap, waiting', 1_000_000))
const all = [...Object.values(rows), growth, heap]

if (values.json) {
  console.log(JSON.stringify({ node: process.version, rows: all, table }, null, 2))
} else {
  const show = (value: number): string => (value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(3))
  console.table(
    all.map((each) => {
      const value = median(each.rounds)
      const bare = each.bare.length === 0 ? undefined : median(each.bare)
      return {
        what: each.name,
        median: show(value),
        unit: each.unit,
        spread: `${show(Math.min(...each.rounds))} – ${show(Math.max(...each.rounds))}`,
        'bare commits': bare === undefined ? '' : show(bare),
        ratio: bare === undefined ? '' : (value / bare).toFixed(2),
        'lost or doubled': each.wrong,
        target:
          each.target === undefined ? '' : `${each.target} ${each.reached?.(value) === true ? 'reached' : 'MISSED'}`,
      }
    }),
  )
  console.table(table.map((each) => ({ ...each, value: Math.round(each.value) })))
}
