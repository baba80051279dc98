// The rows of the PostgreSQL store: what is measured, compared with which contenders, and the targets.
import { postgres } from 'millrace/postgres'
import { Client } from 'pg'
import { composing } from './composition.js'
import type { StoreSetup } from './composition.js'
import { latencyBetween } from './latency.js'
import type { Way } from '../measure/load.js'
import type { Case, Contender, Sample, Section, Target } from '../measure/measure.js'
import { postgresFilters } from './filters.js'
import { postgresQueries } from './queries.js'
import type { Places } from '../measure/scratch-files.js'
import type { Backlog, Subject } from '../contenders/contender.js'
import { drainTogether } from './many-processes.js'
import type { Databases } from '../measure/databases.js'
import { raw } from '../contenders/raw-postgres.js'
import { resident } from './resident-memory.js'
import { millrace, openStore } from '../contenders/millrace-postgres.js'

/** A peer, and where it keeps its jobs. */
export interface Peer {
  readonly subject: Subject
  places(): Places
}

/** What the cases of a run need. */
export interface Bench {
  /** Call it only while measuring: the server has to be running. */
  databases(): Databases
  /** The contenders beside Millrace and the hand-written program. */
  readonly peers: readonly Peer[]
  /** Whether to measure all rows, including those of a million jobs. */
  readonly full: boolean
  /** A factor for the number of jobs; for trying out. */
  readonly scale: number
}

type What = Way | 'drain'

/** Jobs for about a second or two. Slower contenders get fewer. */
const JOBS: Readonly<Record<What, number>> = { awaited: 700, flight: 50_000, bulk: 100_000, drain: 100_000 }
const FEWER: Readonly<Record<string, Partial<Record<What, number>>>> = {
  'pg-boss': { flight: 2_000, drain: 60_000 },
  'graphile-worker': { flight: 1_000 },
  BullMQ: { awaited: 3_000, flight: 20_000, bulk: 20_000, drain: 20_000 },
}

const NAMES: Readonly<Record<What, string>> = {
  awaited: 'add, awaited one by one',
  flight: 'add, 100 calls in flight',
  bulk: 'addBulk of 1000, two in flight',
  drain: 'drain, concurrency 100',
}

const toRaw = (least: number): Target => ({ kind: 'ratio', to: 'raw', least })
const TARGETS: Readonly<Record<What, readonly Target[]>> = {
  awaited: [toRaw(0.8)],
  flight: [
    toRaw(0.5),
    { kind: 'ratio', to: 'pg-boss', least: 20 },
    { kind: 'ratio', to: 'graphile-worker', least: 20 },
  ],
  bulk: [toRaw(0.7), { kind: 'ratio', to: 'pg-boss', least: 1.2 }],
  drain: [
    toRaw(0.5),
    { kind: 'ratio', to: 'graphile-worker', least: 1.1 },
    { kind: 'ratio', to: 'pg-boss', least: 1.5 },
    { kind: 'ratio', to: 'BullMQ', least: 2 },
  ],
}

/** Rounds to whole thousands, because bulks are of a thousand. */
const scaled = (jobs: number, scale: number): number =>
  scale === 1 ? jobs : Math.max(1000, Math.ceil((jobs * scale) / 1000) * 1000)

const contenderOf = ({ name, durability }: Subject, run: () => Promise<Sample>): Contender => ({
  name,
  durability: durability('full'),
  run,
})

/** Millrace, the hand-written program and the peers, each with where it keeps its jobs. */
function everybody(bench: Bench): readonly Peer[] {
  const places = (): Places => bench.databases()
  return [{ subject: millrace, places }, { subject: raw, places }, ...bench.peers]
}

/** Runs a function on a copy of a database that `backlog` describes, and drops the copy afterwards. */
async function on(
  places: Places,
  subject: Subject,
  backlog: Backlog,
  run: (path: string) => Promise<Sample>,
): Promise<Sample> {
  const key = `${subject.name} ${JSON.stringify(backlog)}`
  const path = await places.copy(key, (template) => subject.fill(template, backlog))
  try {
    return await run(path)
  } finally {
    await places.drop(path)
  }
}

const EMPTY: Backlog = { weight: 'light', waiting: 0 }

function adding(bench: Bench, way: Way): Case {
  return {
    figures: [{ key: 'rate', name: NAMES[way], unit: 'jobs/s', targets: TARGETS[way] }],
    contenders: everybody(bench).map(({ subject, places }) => {
      const usual = FEWER[subject.name]?.[way] ?? JOBS[way]
      const count = way === 'awaited' ? Math.ceil(usual * bench.scale) : scaled(usual, bench.scale)
      const load = { mode: 'full', weight: 'light', count } as const
      return contenderOf(subject, () => on(places(), subject, EMPTY, (path) => subject.add(path, way, load)))
    }),
    ...(way === 'awaited' && { repeat: 2 }),
  }
}

function drain(subject: Subject, places: Places, backlog: Backlog, count: number): Promise<Sample> {
  const load = { mode: 'full', weight: 'light', count } as const
  return on(places, subject, backlog, (path) => subject.drain(path, load, backlog))
}

function draining(bench: Bench): Case {
  return {
    figures: [{ key: 'rate', name: NAMES.drain, unit: 'jobs/s', targets: TARGETS.drain }],
    contenders: everybody(bench).map(({ subject, places }) => {
      const waiting = scaled(FEWER[subject.name]?.drain ?? JOBS.drain, bench.scale)
      return contenderOf(subject, () => drain(subject, places(), { weight: 'light', waiting }, waiting))
    }),
  }
}

function latency(bench: Bench): Case {
  const jobs = Math.ceil((bench.full ? 1000 : 100) * bench.scale)
  const idle = 'idle queue, add → handler start in another process'
  return {
    figures: [
      { key: 'p50', name: `${idle}, p50`, unit: 'ms', targets: [{ kind: 'within', to: 'raw', most: 1.3 }] },
      { key: 'p99', name: `${idle}, p99`, unit: 'ms' },
    ],
    contenders: everybody(bench).map(({ subject, places }) =>
      contenderOf(subject, () => latencyBetween(subject, places(), 'full', jobs)),
    ),
  }
}

/** The jobs of the rows with several processes, and the jobs on which each process warms up. */
const CROWDED = 100_000
const WARMING = 10_000

function processes(bench: Bench): readonly Case[] {
  const name = (count: number): string => `drain, ${count} worker process${count === 1 ? '' : 'es'}`
  const one = name(1)
  return [1, 4].map((count) => ({
    figures: [
      {
        key: 'rate',
        name: name(count),
        unit: 'jobs/s',
        targets: count === 1 ? [] : [{ kind: 'row', to: one, least: 1 }],
      },
    ],
    contenders: [
      contenderOf(millrace, () => {
        const jobs = scaled(CROWDED, bench.scale)
        const warming = scaled(WARMING * count, bench.scale)
        const filled = (waiting: number, run: (url: string) => Promise<Sample>): Promise<Sample> =>
          on(bench.databases(), millrace, { weight: 'light', waiting }, run)
        return filled(warming, (warm) =>
          filled(jobs, (full) => drainTogether(count, { url: warm, jobs: warming }, { url: full, jobs })),
        )
      }),
    ],
  }))
}

function memory(bench: Bench): Case {
  const waiting = scaled(bench.full ? MILLION : 100_000, bench.scale)
  return {
    figures: [
      {
        key: 'rss',
        name: `memory of a worker process, draining ${waiting / 1000}k`,
        unit: 'MB',
        targets: [{ kind: 'below', value: 130 }],
      },
      { key: 'idle', name: 'memory of a worker process, before it begins', unit: 'MB' },
    ],
    contenders: [
      contenderOf(millrace, () =>
        on(bench.databases().copying('files'), millrace, { weight: 'light', waiting }, (url) => resident(url, waiting)),
      ),
    ],
  }
}

const MILLION = 1_000_000
/** The number of jobs is the same for each backlog, so that only the other rows in the database differ. */
const FROM_BACKLOG = 200_000
/**
 * The speed near the end may fall to this share of the speed near the start: the noise of a measurement of one second.
 */
const NOISE = 0.9

/** Holds a transaction with a snapshot and an id open on a database while a function runs there. */
async function pinned<T>(url: string, run: () => Promise<T>): Promise<T> {
  const other = new Client({ connectionString: url })
  await other.connect()
  await other.query('begin isolation level repeatable read')
  await other.query('select pg_current_xact_id()')
  try {
    return await run()
  } finally {
    await other.query('rollback')
    await other.end()
  }
}

interface Situation {
  readonly name: string
  readonly backlog: Omit<Backlog, 'weight'>
  readonly pinned?: boolean
  /** Whether the hand-written program supports this situation. */
  readonly beside?: boolean
}

function backlogs(bench: Bench): readonly Case[] {
  const count = scaled(FROM_BACKLOG, bench.scale)
  const million = scaled(MILLION, bench.scale)
  const many = million === MILLION ? '1M' : `${million / 1000}k`
  const plain = `drain of ${count / 1000}k, nothing else there`
  const situations: readonly Situation[] = [
    { name: plain, backlog: { waiting: count }, beside: true },
    { name: `drain with ${many} waiting`, backlog: { waiting: Math.max(million, count) }, beside: true },
    { name: `drain with ${many} finished kept`, backlog: { waiting: count, finished: million }, beside: true },
    { name: `drain with ${many} delayed`, backlog: { waiting: count, delayed: million }, beside: true },
    { name: `drain with ${many} paused at the head`, backlog: { waiting: count, paused: million } },
    { name: 'drain with the horizon pinned', backlog: { waiting: count }, pinned: true, beside: true },
  ]
  return situations.map((situation) => ({
    figures: [
      {
        key: 'rate',
        name: situation.name,
        unit: 'jobs/s',
        targets: situation.name === plain ? [] : [{ kind: 'row', to: plain, least: 0.8 }],
      },
      {
        key: 'tail',
        name: `${situation.name}: last tenth to first`,
        unit: 'ratio',
        targets: situation.name === plain ? [] : [{ kind: 'least', value: NOISE }],
      },
    ],
    contenders: (situation.beside === true ? [millrace, raw] : [millrace]).map((subject) => {
      const backlog: Backlog = { weight: 'light', ...situation.backlog }
      const load = { mode: 'full', weight: 'light', count } as const
      return contenderOf(subject, () =>
        on(bench.databases().copying('files'), subject, backlog, (url) => {
          const run = (): Promise<Sample> => subject.drain(url, load, backlog)
          return situation.pinned === true ? pinned(url, run) : run()
        }),
      )
    }),
  }))
}

function lists(bench: Bench): Case {
  const { full, scale } = bench
  return postgresQueries(
    () => bench.databases(),
    openStore,
    scaled(full ? 1_000_000 : 100_000, scale),
    full ? '1M' : '100k',
  )
}

function filters(bench: Bench): Case {
  const count = scaled(bench.full ? 1_000_000 : 100_000, bench.scale)
  return postgresFilters(() => bench.databases(), openStore, count)
}

const setup = (bench: Bench): StoreSetup => ({
  durability: 'fsync',
  places: () => bench.databases(),
  open: (url) => postgres(url),
  elsewhere: true,
})

/** All sections of the PostgreSQL store, everyday ones first. */
export function postgresSections(bench: Bench): readonly Section[] {
  const sections: Section[] = [
    {
      name: 'PostgreSQL',
      cases: [
        adding(bench, 'awaited'),
        adding(bench, 'flight'),
        adding(bench, 'bulk'),
        draining(bench),
        latency(bench),
      ],
    },
    { name: 'PostgreSQL, several processes', cases: processes(bench) },
    { name: 'PostgreSQL, memory', cases: [memory(bench)] },
    { name: 'PostgreSQL, lists and counts', cases: [lists(bench), filters(bench)] },
    { name: 'PostgreSQL, composition', cases: composing(setup(bench), scaled(40_000, bench.scale)), least: 3 },
  ]
  if (bench.full) sections.push({ name: 'PostgreSQL, by what is there already', cases: backlogs(bench), least: 5 })
  return sections
}
