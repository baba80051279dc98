// queue/health/series.ts: counts of a queue over time: what can be asked for, and the answer.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { addAll, countsFor, addCounts, readCounts, seriesSteps, stretchOf } from '../../job/series.js'
import type { CountsByName, SeriesCounts, SeriesStep } from '../../job/series.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { Millis, Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { invalid, mustBe, oneOf } from '../../job/values/options.js'
import { readMarks, readRows } from '../../store/series/series-cells.js'
import type { SeriesMark, SeriesStore } from '../../store/series/series-cells.js'

/** How a queue is counted over time. */
export interface SeriesKeepOptions {
  /** How long rows of hours and days are kept, at least an hour; rows of minutes two days at most. Default 30 days. */
  readonly keep?: Duration
}

/** Checks the option `series` of a queue. Returns how long rows are kept; undefined: the default. */
export function checkSeries(options: SeriesKeepOptions | false | undefined): Millis | false | undefined {
  if (options === undefined || options === false) return options
  refuseUnknown(options, ['keep'], 'new Queue: series')
  if (options.keep === undefined) return undefined
  const keep = parseDuration(options.keep, 'new Queue: series.keep')
  if (keep >= seriesSteps.hour) return keep
  throw invalid("new Queue: series.keep must be at least '1h'; series: false keeps none.")
}

/** Which counts to read. */
export interface SeriesOptions {
  /** From when. Default: an hour before `to`. */
  readonly from?: Date | number
  /** Up to when. Default: now. */
  readonly to?: Date | number
  /** The length of a row. Default: minutes up to six hours, hours up to 14 days, and days beyond. */
  readonly step?: SeriesStep
  /** `queue`: one row for each step. `name`: one for each step and name. Default `queue`. */
  readonly by?: 'queue' | 'name'
}

/** What was counted in one step. */
export interface SeriesRow extends SeriesCounts {
  /** When the step began. */
  readonly at: Time
  /** The name, where rows are by name; `''`: all names beyond the first hundred of that step. */
  readonly name?: string
}

/** Counts of a queue over time. */
export interface Series {
  /** The length of a row. */
  readonly step: SeriesStep
  /** When the first step began. */
  readonly from: Time
  /** When the last step ends. */
  readonly to: Time
  /** The rows in which anything was counted, the oldest first. */
  readonly rows: readonly SeriesRow[]
  /** The marks in this time, the oldest first, at most 1,000. */
  readonly marks: readonly SeriesMark[]
}

/** The most steps that one answer covers. */
const MAX_STEPS = 1_500

/** The longest range of time that is read in minutes, and in hours, by default. */
const IN_MINUTES: Millis = 6 * seriesSteps.hour
const IN_HOURS: Millis = 14 * seriesSteps.day

/** A range of steps. */
interface SeriesRange {
  readonly step: SeriesStep
  /** The numbers of the first step, and of the one after the last. */
  readonly first: number
  readonly end: number
  readonly by: 'queue' | 'name'
}

/** Checks which counts are asked for. */
export function parseSeries(options: SeriesOptions, now: Time): SeriesRange {
  refuseUnknown(options, ['from', 'to', 'step', 'by'], 'queue.series')
  const to = timeIn(options.to ?? now, 'queue.series: to')
  const from = timeIn(options.from ?? to - seriesSteps.hour, 'queue.series: from')
  if (from >= to) {
    const [first, last] = [from, to].map((time) => new Date(time).toISOString())
    throw new MillraceError(
      'INVALID_RANGE',
      `queue.series: from (${first}) must be before to (${last}). Exchange them.`,
    )
  }
  const by = oneOf(options.by ?? 'queue', ['queue', 'name'], 'queue.series: by')
  const fitting = to - from <= IN_MINUTES ? 'minute' : to - from <= IN_HOURS ? 'hour' : 'day'
  const step = oneOf(options.step ?? fitting, ['minute', 'hour', 'day'], 'queue.series: step')
  const [first, end] = [stretchOf(from, step), Math.ceil(to / seriesSteps[step])]
  if (end - first <= MAX_STEPS) return { step, first, end, by }
  throw invalid(
    `queue.series: from and to are ${end - first} ${step}s apart, and ${MAX_STEPS} is the most. Read a part, or take a longer step.`,
  )
}

function timeIn(value: Date | number, field: string): Time {
  const at = value instanceof Date ? value.getTime() : value
  if (typeof at === 'number' && Number.isFinite(at) && at >= 0) return Math.floor(at)
  throw new MillraceError(
    'INVALID_DATE',
    `${field} must be a valid Date or milliseconds since 1970, not ${quote(value)}.`,
  )
}

/** Reads the counts of a queue. */
export async function readSeries(
  store: Pick<SeriesStore, 'details'>,
  queue: string,
  { step, first, end, by }: SeriesRange,
): Promise<Series> {
  const size = seriesSteps[step]
  const [from, to] = [first * size, end * size]
  const [found, marks] = await Promise.all([
    readRows(store, queue, step, first, end),
    readMarks(store, queue, from, to),
  ])
  const rows = [...found]
    .toSorted(([a], [b]) => a - b)
    .flatMap(([stretch, names]) => rowsOf(stretch * size, by === 'name' ? names : together(names), by))
  return { step, from, to, rows, marks }
}

function together(names: CountsByName): CountsByName {
  const all: CountsByName = new Map()
  for (const counts of names.values()) addCounts(countsFor(all, ''), counts)
  return all
}

function rowsOf(at: Time, names: CountsByName, by: SeriesRange['by']): readonly SeriesRow[] {
  const sorted: CountsByName = new Map()
  addAll(
    sorted,
    [...names].toSorted(([a], [b]) => (a < b ? -1 : 1)),
  )
  return Array.from(sorted, ([name, counts]) => ({ at, ...(by === 'name' && { name }), ...readCounts(counts) }))
}

/** The most characters of a mark. */
const MARK_LENGTH = 200

/** Checks the text of a mark. */
export function checkMark(text: string): string {
  if (typeof text === 'string' && text.length > 0 && text.length <= MARK_LENGTH) return text
  throw mustBe('queue.mark: the text', `1 to ${MARK_LENGTH} characters of text`, text)
}
