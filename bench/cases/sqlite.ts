// The rows of the SQLite store: what is measured, compared with which contenders, and the targets.
import { composing } from './composition.js'
import type { StoreSetup } from './composition.js'
import { footprint } from './footprint.js'
import { millraceHold, rawHold } from './event-loop-delay.js'
import { latencyBetween, latencyWithin } from './latency.js'
import type { Mode, Way, Weight } from '../measure/load.js'
import type { Case, Contender, Sample, Section, Target } from '../measure/measure.js'
import { raw } from '../contenders/raw-sqlite.js'
import type { Scratch } from '../measure/scratch-files.js'
import { sqliteFilters } from './filters.js'
import { sqliteQueries } from './queries.js'
import { millrace, openStore } from '../contenders/millrace-sqlite.js'
import type { Backlog, Subject } from '../contenders/contender.js'

/** What the cases of a run need. */
export interface Bench {
  readonly scratch: Scratch
  /** The contenders beside Millrace and the raw driver. */
  readonly peers: readonly Subject[]
  /** Whether to measure all rows, including those of a million jobs. */
  readonly full: boolean
}

/**
 * The jobs of a measurement: enough for about a second. Awaited adds take less time, because they are repeated more often.
 */
const JOBS: Readonly<Record<Way | 'drain', Readonly<Record<Weight, number>>>> = {
  awaited: { light: 700, heavy: 700 },
  flight: { light: 50_000, heavy: 15_000 },
  bulk: { light: 100_000, heavy: 20_000 },
  drain: { light: 100_000, heavy: 20_000 },
}

/** A contender that finishes jobs one by one gets fewer of them. */
const PEER_DRAIN = 8_000

const WAYS: Readonly<Record<Way | 'drain', string>> = {
  awaited: 'add, awaited one by one',
  flight: 'add, 100 calls in flight',
  bulk: 'addBulk of 1000',
  drain: 'drain, concurrency 100',
}

/** The least ratio to the raw driver. */
const TO_RAW: Readonly<Record<Way | 'drain', number>> = { awaited: 0.75, flight: 0.5, bulk: 0.4, drain: 0.5 }

function targets(way: Way | 'drain', weight: Weight, mode: Mode): readonly Target[] {
  const awaitedNormal = way === 'awaited' && mode === 'normal'
  const least = weight === 'heavy' || awaitedNormal ? 0.5 : TO_RAW[way]
  const list: Target[] = [{ kind: 'ratio', to: raw.name, least }]
  if (weight === 'heavy' || mode === 'normal') return list
  if (way === 'drain') list.push({ kind: 'ratio', to: 'plainjob', least: 5 })
  if (way === 'flight') list.push({ kind: 'ratio', to: 'plainjob', least: 1.5 })
  return list
}

/** Only the mode that survives a power cut has absolute targets. The other one has ratios. */
const below = (value: number, mode: Mode): readonly Target[] => (mode === 'full' ? [{ kind: 'below', value }] : [])

const contender = (subject: Subject, mode: Mode, run: () => Promise<Sample>): Contender => ({
  name: subject.name,
  durability: subject.durability(mode),
  run,
})

/** Runs a function on a fresh file, and removes the file afterwards. */
async function on(scratch: Scratch, path: string, run: (path: string) => Promise<Sample>): Promise<Sample> {
  try {
    return await run(path)
  } finally {
    scratch.drop(path)
  }
}

function adding({ scratch, peers }: Bench, way: Way, weight: Weight, mode: Mode): Case {
  const name = `${WAYS[way]}${weight === 'heavy' ? ', 2 KB' : ''}`
  return {
    figures: [{ key: 'rate', name, unit: 'jobs/s', targets: targets(way, weight, mode) }],
    contenders: [millrace, raw, ...peers].map((subject) => {
      const slow = way === 'awaited' && subject.durability(mode) === 'full'
      const count = way === 'awaited' && !slow ? JOBS[way][weight] * 5 : JOBS[way][weight]
      return contender(subject, mode, () =>
        on(scratch, scratch.fresh(), (path) => subject.add(path, way, { mode, weight, count })),
      )
    }),
    ...(way === 'awaited' && { repeat: 3 }),
  }
}

async function drained(
  scratch: Scratch,
  subject: Subject,
  mode: Mode,
  backlog: Backlog,
  count: number,
): Promise<Sample> {
  const key = `${subject.name} ${JSON.stringify(backlog)}`
  const path = await scratch.copy(key, (template) => subject.fill(template, backlog))
  return on(scratch, path, () => subject.drain(path, { mode, weight: backlog.weight, count }, backlog))
}

function draining({ scratch, peers }: Bench, weight: Weight, mode: Mode): Case {
  const name = `${WAYS.drain}${weight === 'heavy' ? ', 2 KB' : ''}`
  return {
    figures: [{ key: 'rate', name, unit: 'jobs/s', targets: targets('drain', weight, mode) }],
    contenders: [millrace, raw, ...peers].map((subject) => {
      const waiting = peers.includes(subject) ? PEER_DRAIN : JOBS.drain[weight]
      return contender(subject, mode, () => drained(scratch, subject, mode, { weight, waiting }, waiting))
    }),
  }
}

function throughput(bench: Bench, mode: Mode): readonly Case[] {
  return (['light', 'heavy'] as const).flatMap((weight) => [
    ...(['awaited', 'flight', 'bulk'] as const).map((way) => adding(bench, way, weight, mode)),
    draining(bench, weight, mode),
  ])
}

function latency({ scratch, peers, full }: Bench, mode: Mode): readonly Case[] {
  const jobs = full ? 1000 : 200
  const idle = 'idle queue, add → handler start'
  const beside = [millrace, raw, ...peers]
  return [
    {
      figures: [
        { key: 'p50', name: `${idle}, p50`, unit: 'ms' },
        { key: 'p99', name: `${idle}, p99`, unit: 'ms' },
      ],
      contenders: beside.map((subject) => contender(subject, mode, () => latencyWithin(subject, scratch, mode, jobs))),
    },
    {
      figures: [
        { key: 'p50', name: `${idle} in another process, p50`, unit: 'ms', targets: below(3, mode) },
        { key: 'p99', name: `${idle} in another process, p99`, unit: 'ms', targets: below(25, mode) },
      ],
      contenders: beside.map((subject) => contender(subject, mode, () => latencyBetween(subject, scratch, mode, jobs))),
    },
  ]
}

function hold({ scratch, full }: Bench, mode: Mode): Case {
  const seconds = full ? 10 : 2
  return {
    figures: [
      {
        key: 'commit',
        name: 'longest hold by a commit, full load',
        unit: 'ms',
        targets: below(25, mode),
      },
      { key: 'p99', name: 'hold by a commit, full load, p99', unit: 'ms' },
      { key: 'loop', name: 'longest turn of the event loop, full load', unit: 'ms' },
    ],
    contenders: [
      contender(millrace, mode, () => on(scratch, scratch.fresh(), (path) => millraceHold(path, mode, seconds))),
      contender(raw, mode, () => on(scratch, scratch.fresh(), (path) => rawHold(path, mode, seconds))),
    ],
  }
}

/** The number of jobs is the same for each backlog, so that only the other rows in the database differ. */
const FROM_BACKLOG = 25_000
const REFERENCE = 'drain with 25k waiting'
const MILLION = 1_000_000

function backlogs({ scratch, full }: Bench): readonly Case[] {
  const list: [name: string, backlog: Omit<Backlog, 'weight'>, judged: boolean][] = [
    ['drain with 10k waiting', { waiting: 10_000 }, false],
    [REFERENCE, { waiting: FROM_BACKLOG }, false],
    ['drain with 100k waiting', { waiting: 100_000 }, false],
  ]
  if (full) {
    list.push(
      ['drain with 1M waiting', { waiting: MILLION }, true],
      ['drain with 1M finished kept', { waiting: FROM_BACKLOG, finished: MILLION }, true],
      ['drain with 1M delayed', { waiting: FROM_BACKLOG, delayed: MILLION }, true],
    )
  }
  return list.map(([name, held, judged]) => ({
    figures: [
      {
        key: 'rate',
        name,
        unit: 'jobs/s',
        targets: judged ? [{ kind: 'row', to: REFERENCE, least: 0.8 }] : [],
      },
    ],
    contenders: [millrace, raw].map((subject) =>
      contender(subject, 'full', () =>
        drained(scratch, subject, 'full', { weight: 'light', ...held }, Math.min(FROM_BACKLOG, held.waiting)),
      ),
    ),
  }))
}

function memory({ scratch, full }: Bench): Case {
  const backlog: Backlog = { weight: 'light', waiting: full ? MILLION : 100_000 }
  const size = full ? '1M' : '100k'
  return {
    figures: [
      {
        key: 'above',
        name: `memory while draining ${size}, above idle`,
        unit: 'MB',
        targets: full ? [{ kind: 'below', value: 120 }] : [],
      },
      { key: 'rate', name: `drain of all ${size}, in a new process`, unit: 'jobs/s' },
    ],
    contenders: [millrace, raw].map((subject) =>
      contender(subject, 'full', async () => {
        const key = `${subject.name} ${JSON.stringify(backlog)}`
        const path = await scratch.copy(key, (template) => subject.fill(template, backlog))
        return footprint(subject, scratch, 'full', backlog, path)
      }),
    ),
  }
}

function lists({ scratch, full }: Bench): Case {
  return sqliteQueries(scratch, (path) => openStore(path, 'full'), full ? MILLION : 100_000, full ? '1M' : '100k')
}

function filters({ scratch, full }: Bench): Case {
  return sqliteFilters(scratch, (path) => openStore(path, 'full'), full ? MILLION : 100_000)
}

const setup = ({ scratch }: Bench): StoreSetup => ({
  durability: 'full',
  places: () => scratch,
  open: (path) => openStore(path, 'full'),
})

/** All sections of the SQLite store, everyday ones first. */
export function sqliteSections(bench: Bench): readonly Section[] {
  const sections: Section[] = [
    {
      name: 'SQLite, synchronous=FULL',
      cases: [...throughput(bench, 'full'), ...latency(bench, 'full'), hold(bench, 'full')],
    },
    { name: 'SQLite, synchronous=FULL, by what is there already', cases: backlogs(bench), least: bench.full ? 7 : 3 },
    { name: 'SQLite, synchronous=FULL, memory', cases: [memory(bench)] },
    { name: 'SQLite, synchronous=FULL, lists and counts', cases: [lists(bench), filters(bench)] },
    {
      name: 'SQLite, synchronous=FULL, composition',
      cases: composing(setup(bench), bench.full ? 100_000 : 40_000),
      least: 3,
    },
  ]
  if (bench.full) {
    sections.push({
      name: 'SQLite, synchronous=NORMAL',
      cases: [...throughput(bench, 'normal'), ...latency(bench, 'normal'), hold(bench, 'normal')],
    })
  }
  return sections
}
