// Measures the memory table alone: what insert, claim, settle and due cost at several sizes, and the heap of a waiting job.
// Usage: node --expose-gc --import tsx bench/cases/memory-table.ts   (npx tsx alone: without the heap)
import { pathToFileURL } from 'node:url'
import type { Insert, NewJob } from '../../src/job/change.js'
import type { JobRecord } from '../../src/job/job.js'
import { settle } from '../../src/job/lifecycle.js'
import type { Ask, Batch, Group } from '../../src/store/store.js'
import { systemRuntime } from '../../src/store/runtime.js'
import { due } from '../../src/stores/memory/read.js'
import { commit } from '../../src/stores/memory/commit.js'
import { createTable } from '../../src/stores/memory/table.js'
import type { Table } from '../../src/stores/memory/table.js'

/** One measurement. */
export interface TableRow {
  readonly name: string
  /** The number of jobs in the table. */
  readonly n: number
  /** Nanoseconds per job, or bytes. */
  readonly value: number
  readonly unit: 'ns/job' | 'ns/call' | 'bytes/job'
}

const BATCH = 100
const LEASE = 30_000
const SIZES = [1_000, 100_000, 1_000_000]
/** Small tables are measured repeatedly until this many jobs, to reduce noise. */
const AT_LEAST = 300_000

const NO_EDGES: Insert['edges'] = []

const ask: Ask = { worker: 'w', queues: ['q'], handles: [{ name: 'n', lease: LEASE }], want: BATCH, ahead: 0 }

function batch(seq: number, groups: readonly Group[], asks: readonly Ask[] = []): Batch {
  return { writer: 'bench', seq, groups, renewals: [], asks }
}

/** Declared as a constant, so that the measurement covers the table and not the construction of its input. */
function insertOf(id: string): Insert {
  const job: NewJob = {
    id,
    kind: 'job',
    queue: 'q',
    name: 'n',
    version: 0,
    data: '{}',
    state: 'waiting',
    priority: 0,
    lifo: false,
    attempts: 3,
    backoff: undefined,
    timeout: undefined,
    run: undefined,
    chainId: id,
    chainIndex: 0,
    parentId: undefined,
    group: undefined,
    dedup: undefined,
    keep: undefined,
    extras: undefined,
  }
  return { kind: 'insert', job, edges: NO_EDGES }
}

interface Times {
  insert: number
  claim: number
  settle: number
  due: number
}

/** Sends `count` jobs through a table of `n` waiting jobs, and adds the time of each step, in nanoseconds. */
function run(n: number, times: Times, heap?: (bytes: number) => void): void {
  const { id } = systemRuntime()
  const inserts: Insert[][] = Array.from({ length: n }, () => [insertOf(id())])
  const table: Table = createTable()
  let seq = 0
  const before = heap === undefined ? 0 : heapUsed()

  let at = process.hrtime.bigint()
  for (let from = 0; from < n; from += BATCH)
    commit(table, batch(++seq, inserts.slice(from, from + BATCH)), Date.now(), false)
  times.insert += Number(process.hrtime.bigint() - at)
  heap?.((heapUsed() - before) / n) // ids and data are allocated before, so that they do not count
  inserts.length = 0

  at = process.hrtime.bigint()
  for (let call = 0; call < n / BATCH; call++) due(table, { queues: ['q'], except: [], limit: BATCH }, Date.now())
  times.due += Number(process.hrtime.bigint() - at)

  for (let left = n; left > 0; left -= BATCH) {
    at = process.hrtime.bigint()
    const { receipt } = commit(table, batch(++seq, [], [ask]), Date.now(), false)
    times.claim += Number(process.hrtime.bigint() - at)
    const groups = receipt.asks[0]!.map(completed)
    at = process.hrtime.bigint()
    commit(table, batch(++seq, groups), Date.now(), false)
    times.settle += Number(process.hrtime.bigint() - at)
  }
}

function completed(job: JobRecord): Group {
  return settle(job, { kind: 'returned', result: undefined, also: [] })
}

function heapUsed(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

/** Runs all measurements, and reports each one as it finishes. */
export async function tableBench(log: (line: string) => void): Promise<readonly TableRow[]> {
  const rows: TableRow[] = []
  const add = (row: TableRow): void => {
    rows.push(row)
    log(`${row.name.padEnd(16)} at ${String(row.n).padStart(9)}  ${row.value.toFixed(0).padStart(6)} ${row.unit}`)
  }
  run(AT_LEAST, { insert: 0, claim: 0, settle: 0, due: 0 }) // warms up
  for (const n of SIZES) {
    const times: Times = { insert: 0, claim: 0, settle: 0, due: 0 }
    const rounds = Math.max(1, Math.ceil(AT_LEAST / n))
    let bytes = 0
    for (let round = 0; round < rounds; round++) {
      run(n, times, n === SIZES.at(-1) && globalThis.gc !== undefined ? (found) => void (bytes = found) : undefined)
    }
    const jobs = rounds * n
    add({ name: 'insert', n, value: times.insert / jobs, unit: 'ns/job' })
    add({ name: `claim by ${BATCH}`, n, value: times.claim / jobs, unit: 'ns/job' })
    add({ name: 'settle', n, value: times.settle / jobs, unit: 'ns/job' })
    add({ name: 'due', n, value: (times.due / jobs) * BATCH, unit: 'ns/call' })
    if (bytes > 0) add({ name: 'heap, waiting', n, value: bytes, unit: 'bytes/job' })
    await new Promise<void>((resolve) => setImmediate(resolve))
  }
  return rows
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) await tableBench((line) => console.log(line))
