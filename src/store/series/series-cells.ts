// store/series/series-cells.ts: the cells that hold counts over time: their keys, and how new counts are folded into rows. A group
// of puts is applied whole or not at all and only to the versions that were read, so that every count is folded once.
import { addAll, decodeCounts, encodeCounts, seriesSteps, stretchOf } from '../../job/series.js'
import type { CountsByName, SeriesStep } from '../../job/series.js'
import type { Put } from '../../job/change.js'
import type { Millis, Time } from '../../job/job.js'
import type { Cell, Details, DetailsQuery, Group, Verdict } from '../store.js'

/** Where cells of series are read and written. */
export interface SeriesStore {
  details(query: DetailsQuery): Promise<Details>
  commit(group: Group): Promise<Verdict>
}

/** How long rows of minutes are kept, unless all rows are kept for less. */
const MINUTES_KEPT: Millis = 2 * seriesSteps.day

/** The most marks of a queue that are kept. */
const MARKS_KEPT = 1_000

/** Cells that one commit of a fold or an expiry removes, about. */
const FOLDED_AT_ONCE = 200
const PAGE_BYTES = 128 * 1024

/** The most commits of one fold or expiry. More is left to the next, so that jobs do not wait for it. */
const COMMITS_AT_ONCE = 20

const letters: Readonly<Record<SeriesStep, string>> = { minute: 'm', hour: 'h', day: 'd' }

const padded = (n: number): string => String(Math.max(0, n)).padStart(14, '0')

/** The length of the name comes first, so that no queue's cells are under the prefix of another's. */
const prefixOf = (queue: string): string => `series:${queue.length}:${queue}:`

/** The keys of the cells of a queue's series. */
export const seriesKey = {
  /** New counts of one minute by one writer. */
  fresh: (queue: string, minute: number, id: string): string => `${prefixOf(queue)}n:${padded(minute)}:${id}`,
  allFresh: (queue: string): string => `${prefixOf(queue)}n:`,
  /** The row of a stretch of time. */
  row: (queue: string, step: SeriesStep, stretch: number): string => `${seriesKey.rows(queue, step)}${padded(stretch)}`,
  rows: (queue: string, step: SeriesStep): string => `${prefixOf(queue)}${letters[step]}:`,
  /** Everything that was ever counted. */
  total: (queue: string): string => `${prefixOf(queue)}t`,
  /** A mark on the time axis. */
  mark: (queue: string, at: Time, id: string): string => `${seriesKey.marks(queue)}${padded(at)}:${id}`,
  marks: (queue: string): string => `${prefixOf(queue)}x:`,
} as const

/** The number in a key after its prefix: a stretch of time, or a time. */
function numberIn(key: string, prefix: string): number {
  return Number(key.slice(prefix.length, prefix.length + 14))
}

/** Writes a cell, or removes it, where it has the version that was read. */
function putOf(key: string, value: string | undefined, version = 0): Put {
  return { kind: 'put', key, value, version, events: [] }
}

/** New counts of one minute. */
export function freshPut(queue: string, minute: number, id: string, counts: CountsByName): Put {
  return putOf(seriesKey.fresh(queue, minute, id), encodeCounts(counts))
}

/**
 * Adds new counts of a queue to its rows of minutes, hours and days and to its total, and removes them; page by page, if
 * there are at least so many cells. Where several processes do so at once, one of them does; the others change nothing.
 */
export async function foldSeries(store: SeriesStore, queue: string, least = 1): Promise<void> {
  for (let commits = 0; commits < COMMITS_AT_ONCE; commits++) {
    if (!(await foldPage(store, queue, commits === 0 ? least : 1))) return
  }
}

/** Folds the oldest new counts. Returns whether there are more, and no other process is folding them. */
async function foldPage(store: SeriesStore, queue: string, least: number): Promise<boolean> {
  const prefix = seriesKey.allFresh(queue)
  const { cells, moreCells } = await store.details({ cellsUnder: prefix, bytes: PAGE_BYTES })
  const fresh = cells.slice(0, FOLDED_AT_ONCE)
  if (fresh.length === 0 || (fresh.length < least && moreCells === undefined)) return false
  const sums = new Map<string, CountsByName>()
  for (const { key, value } of fresh) {
    const at = numberIn(key, prefix) * seriesSteps.minute
    const steps = Object.keys(seriesSteps) as SeriesStep[]
    const rows = steps.map((step) => seriesKey.row(queue, step, stretchOf(at, step)))
    const counts = decodeCounts(value)
    for (const row of [...rows, seriesKey.total(queue)]) {
      const sum = sums.get(row) ?? new Map()
      addAll(sum, counts)
      sums.set(row, sum)
    }
  }
  const standing = new Map((await store.details({ cells: [...sums.keys()] })).cells.map((cell) => [cell.key, cell]))
  const puts = Array.from(sums, ([key, sum]) => {
    const cell = standing.get(key)
    const all = cell === undefined ? new Map() : decodeCounts(cell.value)
    addAll(all, sum)
    return putOf(key, encodeCounts(all), cell?.version)
  })
  const verdict = await store.commit([...puts, ...fresh.map(({ key, version }) => putOf(key, undefined, version))])
  return verdict.ok && (moreCells !== undefined || cells.length > fresh.length)
}

/** Removes rows and marks of a queue that are older than what is kept. */
export async function expireSeries(store: SeriesStore, queue: string, keep: Millis, now: Time): Promise<void> {
  for (const step of Object.keys(seriesSteps) as SeriesStep[]) {
    const kept = step === 'minute' ? Math.min(keep, MINUTES_KEPT) : keep
    await expireRows(store, seriesKey.rows(queue, step), stretchOf(now - kept, step))
  }
  const old: Put[] = []
  const prefix = seriesKey.marks(queue)
  const { cells } = await store.details({ cellsUnder: prefix, bytes: 2 * 2 ** 20 })
  for (const [at, { key, version }] of cells.entries()) {
    if (numberIn(key, prefix) < now - keep || at < cells.length - MARKS_KEPT) old.push(putOf(key, undefined, version))
  }
  for (let at = 0; at < old.length; at += FOLDED_AT_ONCE) await store.commit(old.slice(at, at + FOLDED_AT_ONCE))
}

/** Removes the rows of stretches before the first that is kept, page by page. */
async function expireRows(store: SeriesStore, prefix: string, first: number): Promise<void> {
  for (let commits = 0; commits < COMMITS_AT_ONCE; commits++) {
    const { cells, moreCells } = await store.details({ cellsUnder: prefix, bytes: PAGE_BYTES })
    const old = cells.filter(({ key }) => numberIn(key, prefix) < first).slice(0, FOLDED_AT_ONCE)
    if (old.length === 0) return
    const verdict = await store.commit(old.map(({ key, version }) => putOf(key, undefined, version)))
    if (!verdict.ok || (moreCells === undefined && old.length < FOLDED_AT_ONCE)) return
  }
}

/** The cells under a prefix whose numbers are in a range, which ends before `to`. */
async function cellsBetween(
  store: Pick<SeriesStore, 'details'>,
  prefix: string,
  from: number,
  to: number,
): Promise<readonly Cell[]> {
  const found: Cell[] = []
  let after: string | undefined = `${prefix}${padded(from - 1)}~`
  while (after !== undefined) {
    const page: Details = await store.details({ cellsUnder: prefix, cellsAfter: after, bytes: PAGE_BYTES })
    for (const cell of page.cells) {
      if (numberIn(cell.key, prefix) >= to) return found
      found.push(cell)
    }
    after = page.moreCells
  }
  return found
}

/** The rows of a step in a range of stretches, with what was counted since the last fold. */
export async function readRows(
  store: Pick<SeriesStore, 'details'>,
  queue: string,
  step: SeriesStep,
  from: number,
  to: number,
): Promise<ReadonlyMap<number, CountsByName>> {
  const rows = new Map<number, CountsByName>()
  const addTo = (stretch: number, counts: CountsByName): void => {
    const row = rows.get(stretch) ?? new Map()
    addAll(row, counts)
    rows.set(stretch, row)
  }
  const [prefix, fresh] = [seriesKey.rows(queue, step), seriesKey.allFresh(queue)]
  const perStep = seriesSteps[step] / seriesSteps.minute
  // New counts come first: a fold between the two reads then shows some of them twice for a moment, and loses none.
  for (const { key, value } of await cellsBetween(store, fresh, from * perStep, to * perStep)) {
    addTo(Math.floor(numberIn(key, fresh) / perStep), decodeCounts(value))
  }
  for (const { key, value } of await cellsBetween(store, prefix, from, to)) {
    addTo(numberIn(key, prefix), decodeCounts(value))
  }
  return rows
}

/** How often a total is read again because new counts were folded between its pages. */
const TOTAL_TRIES = 5

/** Everything that was ever counted in a queue: its total and all counts that are not in it, as of one moment. */
export async function readTotal(store: Pick<SeriesStore, 'details'>, queue: string): Promise<CountsByName> {
  const key = seriesKey.total(queue)
  for (let tries = 1; ; tries++) {
    const sum: CountsByName = new Map()
    let first: Cell | undefined
    let after: string | undefined = ''
    let folded = false
    while (after !== undefined && !folded) {
      const page: Details = await store.details({
        cells: [key],
        cellsUnder: seriesKey.allFresh(queue),
        ...(after !== '' && { cellsAfter: after }),
        bytes: PAGE_BYTES,
      })
      const total = page.cells.find((cell) => cell.key === key)
      if (after === '') first = total
      else folded = total?.version !== first?.version && tries < TOTAL_TRIES
      for (const cell of page.cells) if (cell !== total) addAll(sum, decodeCounts(cell.value))
      after = page.moreCells
    }
    if (folded) continue
    if (first !== undefined) addAll(sum, decodeCounts(first.value))
    return sum
  }
}

/** A mark on the time axis of a queue. */
export interface SeriesMark {
  /** When. */
  readonly at: Time
  /** What happened then. */
  readonly text: string
}

/** The marks in a range of time, the oldest first, at most `MARKS_KEPT` of them. */
export async function readMarks(
  store: Pick<SeriesStore, 'details'>,
  queue: string,
  from: Time,
  to: Time,
): Promise<readonly SeriesMark[]> {
  const prefix = seriesKey.marks(queue)
  const cells = await cellsBetween(store, prefix, from, to)
  return cells.slice(-MARKS_KEPT).map(({ key, value }) => ({ at: numberIn(key, prefix), text: JSON.parse(value) }))
}

/** The change that sets a mark. */
export function markPut(queue: string, at: Time, id: string, text: string): Put {
  return putOf(seriesKey.mark(queue, at, id), JSON.stringify(text))
}
