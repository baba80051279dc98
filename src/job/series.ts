// job/series.ts: what is counted of jobs over time, and how counts are added up: pure, for every store and every step.
import type { Move } from './change.js'
import { isFinished } from './job.js'
import type { FinishedState, JobHeader, Millis, Time } from './job.js'

/** What a series counts. */
const seriesCounters = ['added', 'completed', 'failed', 'retried', 'stalled', 'cancelled'] as const

/** One of the counters of a series. */
export type SeriesCounter = (typeof seriesCounters)[number]

/**
 * The upper bounds of the buckets of a series' histograms in milliseconds: a time falls into the first bucket whose bound
 * it does not exceed, and into the sixteenth if it exceeds all.
 */
export const SERIES_BUCKETS: readonly Millis[] = Object.freeze([
  10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000,
])

const BUCKET_COUNT = SERIES_BUCKETS.length + 1

/** Where the parts of counts begin: the counters, the two sums of times, and the two histograms. */
const SUMS = seriesCounters.length
const WAIT = SUMS + 2
const RUN = WAIT + BUCKET_COUNT
const LENGTH = RUN + BUCKET_COUNT

/** The counts of one queue, name and stretch of time, as one list of numbers; trailing zeros may be missing. */
export type Counts = number[]

/** No counts. */
export function noCounts(): Counts {
  return Array.from<number>({ length: LENGTH }).fill(0)
}

/** Counts one more. */
export function count(counts: Counts, what: SeriesCounter): void {
  counts[indexOf[what]]!++
}

const indexOf: Readonly<Record<SeriesCounter, number>> = {
  added: 0,
  completed: 1,
  failed: 2,
  retried: 3,
  stalled: 4,
  cancelled: 5,
}

/** Counts a job that was claimed after it had waited so long. */
export function countWait(counts: Counts, wait: Millis): void {
  counts[SUMS]! += wait
  counts[WAIT + bucketOf(wait)]!++
}

/** Counts an attempt that ran so long until its job completed, failed or was to be retried. */
function countRun(counts: Counts, run: Millis): void {
  counts[SUMS + 1]! += run
  counts[RUN + bucketOf(run)]!++
}

/** The index of the bucket of a time. */
export function bucketOf(time: Millis): number {
  let at = 0
  while (at < SERIES_BUCKETS.length && time > SERIES_BUCKETS[at]!) at++
  return at
}

/** Adds counts to others. */
export function addCounts(to: Counts, more: readonly number[]): void {
  for (let at = 0; at < LENGTH; at++) to[at] = (to[at] ?? 0) + (more[at] ?? 0)
}

/** Counts of names: those of names beyond the bound are under `''`, which is no name. */
export type CountsByName = Map<string, Counts>

/** The most names of a queue that are counted apart in one stretch of time. */
export const SERIES_NAMES = 100

/** The counts of a name, which are created if there are none. */
export function countsFor(names: CountsByName, name: string): Counts {
  const known = names.get(name)
  if (known !== undefined) return known
  if (names.size >= SERIES_NAMES && name !== '') return countsFor(names, '')
  const counts = noCounts()
  names.set(name, counts)
  return counts
}

/** Adds the counts of some names to others. */
export function addAll(to: CountsByName, more: Iterable<readonly [name: string, counts: readonly number[]]>): void {
  for (const [name, counts] of more) addCounts(countsFor(to, name), counts)
}

/** Counts as text: short, because most of them are zero. */
export function encodeCounts(names: CountsByName): string {
  return JSON.stringify([...names].map(([name, counts]) => [name, trimmed(counts)]))
}

function trimmed(counts: Counts): readonly number[] {
  return counts.slice(0, counts.findLastIndex((n) => n !== 0) + 1)
}

/** Reads counts; none where the text is not of this form. */
export function decodeCounts(text: string): CountsByName {
  const names: CountsByName = new Map()
  const read: unknown = JSON.parse(text)
  if (!Array.isArray(read)) return names
  for (const entry of read as unknown[]) {
    if (Array.isArray(entry) && typeof entry[0] === 'string' && Array.isArray(entry[1]))
      addAll(names, [[entry[0], entry[1]]])
  }
  return names
}

/** Counts in words. */
export interface SeriesCounts {
  /** Jobs added. */
  readonly added: number
  /** Jobs completed. */
  readonly completed: number
  /** Jobs failed for good. */
  readonly failed: number
  /** Attempts that failed and were followed by another. */
  readonly retried: number
  /** Leases that expired. */
  readonly stalled: number
  /** Jobs cancelled. */
  readonly cancelled: number
  /** How long claimed jobs had waited since they could be claimed. */
  readonly wait: SeriesHistogram
  /** How long attempts ran that completed, failed or were to be retried, from their claim on. */
  readonly run: SeriesHistogram
}

/** Times by bucket. */
export interface SeriesHistogram {
  /** How many there were in each of the sixteen buckets; their bounds are `SERIES_BUCKETS`. */
  readonly buckets: readonly number[]
  /** All together, in milliseconds. */
  readonly sum: Millis
}

/** Counts in words. */
export function readCounts(counts: readonly number[]): SeriesCounts {
  const at = (index: number): number => counts[index] ?? 0
  const buckets = (from: number): readonly number[] => Array.from({ length: BUCKET_COUNT }, (_, n) => at(from + n))
  return {
    added: at(0),
    completed: at(1),
    failed: at(2),
    retried: at(3),
    stalled: at(4),
    cancelled: at(5),
    wait: { buckets: buckets(WAIT), sum: at(SUMS) },
    run: { buckets: buckets(RUN), sum: at(SUMS + 1) },
  }
}

/** The part of a job that counting looks at. */
type Countable = Pick<JobHeader, 'id' | 'kind' | 'state' | 'startedAt'>

/** Counts what a move does to its job, as the store counts it in its lifetime counters; `job` is as it was before. */
export function countMove(counts: Counts, job: Countable, change: Move, now: Time): void {
  if (change.to !== 'removed' && change.to !== job.state && isFinished(change.to)) count(counts, finished[change.to])
  if (change.why === 'retrying') count(counts, 'retried')
  else if (change.why === 'stalled') count(counts, 'stalled')
  if (!change.held) return
  const ran = change.why === 'retrying' || change.to === 'completed' || change.to === 'failed'
  if (ran && job.startedAt !== undefined) countRun(counts, Math.max(0, now - job.startedAt))
}

const finished: Readonly<Record<FinishedState, SeriesCounter>> = {
  completed: 'completed',
  failed: 'failed',
  cancelled: 'cancelled',
}

/** The steps of a series in milliseconds, the finest first. */
export const seriesSteps = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const

/** A step of a series. */
export type SeriesStep = keyof typeof seriesSteps

/** The number of the stretch of time that a time is in. */
export function stretchOf(at: Time, step: SeriesStep): number {
  return Math.floor(at / seriesSteps[step])
}
