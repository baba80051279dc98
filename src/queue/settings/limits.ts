// queue/settings/limits.ts: what bounds a queue, its names and its groups, as a versioned cell that claims and inserts read.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import { cellKey, readCell } from '../../store/settings.js'
import type { Bound, GroupBound, LimitCell, Rate } from '../../store/settings.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Verdict } from '../../store/store.js'
import { oneOf } from '../add-options.js'
import type { Session } from '../../store/session.js'

/** So many jobs begun in any stretch of time. */
export interface RateOptions {
  /** The most jobs in a stretch, from 1 up; all of them may begin at once. */
  readonly max: number
  /** How long a stretch is. */
  readonly per: Duration
}

/** What bounds some jobs. What is left out stays as it is; `null` lifts it. */
export interface BoundOptions {
  /** Jobs that run at a time, from 0 up. Default: no bound. */
  readonly concurrency?: number | null
  /** Jobs begun in any stretch of time. Default: no bound. */
  readonly rate?: RateOptions | null
}

/** What bounds a group. What is left out stays as it is; `null` lifts it. */
export interface GroupOptions extends BoundOptions {
  /** Jobs that have not begun, from 0 up: what comes beyond is refused, or pushes out the oldest. Default: no bound. */
  readonly maxBacklog?: number | null
  /** What happens at that bound: a new job is refused with `QUEUE_FULL`, or the oldest that has not begun is cancelled. Default `reject`. */
  readonly onFull?: 'reject' | 'drop-oldest' | null
}

/** What bounds one group, and its share of turns. */
export interface OneGroupOptions extends GroupOptions {
  /** Turns for each one that others have, from 0.01 to 100. Default 1. */
  readonly weight?: number | null
}

/** What `queue.limit` changes. What is left out stays as it is; `null` lifts it. */
export interface LimitOptions<Name extends string = string> extends BoundOptions {
  /** Jobs of the queue that have not begun, from 0 up: what comes beyond is refused with `QUEUE_FULL`. Default: no bound. */
  readonly maxBacklog?: number | null
  /** Bounds of single names, beside those of the queue. Default: none. */
  readonly names?: { readonly [Each in Name]?: BoundOptions | null }
  /** Bounds of each group by itself. Default: none. */
  readonly group?: GroupOptions | null
  /** Bounds and weights of single groups, which go before those of `group`. Default: none. */
  readonly groups?: Readonly<Record<string, OneGroupOptions | null>>
}

/** What bounds some jobs, as it stands. */
export interface StandingBound {
  /** Jobs that run at a time; absent: no bound. */
  readonly concurrency?: number
  /** Jobs begun in any stretch of so many milliseconds; absent: no bound. */
  readonly rate?: { readonly max: number; readonly per: Millis }
}

/** What bounds a group, as it stands. */
export interface StandingGroupBound extends StandingBound {
  /** Jobs that have not begun; absent: no bound. */
  readonly maxBacklog?: number
  /** What happens at that bound; absent: `reject`. */
  readonly onFull?: 'reject' | 'drop-oldest'
}

/** What bounds a queue, as it stands. */
export interface Limits extends StandingBound {
  /** Jobs that have not begun; absent: no bound. */
  readonly maxBacklog?: number
  /** By name. */
  readonly names: Readonly<Record<string, StandingBound>>
  /** Of each group. */
  readonly group: StandingGroupBound
  /** Of single groups; an absent weight is 1. */
  readonly groups: Readonly<Record<string, StandingGroupBound & { readonly weight?: number }>>
}

/** Bytes that all bounds of a queue may take as JSON: adds and claims read them. */
const MOST_BYTES = 2 ** 20

/** Changes what bounds a queue, and answers what then does; writes nothing where it is so already. */
export function* setLimits(
  way: Session,
  queue: string,
  changes: LimitOptions,
  checkJob: (name: string) => void,
): Steps<Limits> {
  const patch = parse(changes, checkJob)
  const key = cellKey.limit(queue)
  let [cell] = (yield* step(way.details({ cells: [key] }))).cells
  for (;;) {
    const now = readCell<LimitCell>(cell?.value)
    const by = patch.concurrency === undefined ? (now.by ?? 'worker') : 'queue'
    const next: LimitCell = { ...merge(now, patch), by }
    const value = JSON.stringify(next)
    if (value === cell?.value) return standing(next)
    if (value.length > MOST_BYTES && value.length > (cell?.value.length ?? 0)) throw tooManyBounds(queue, value.length)
    const verdict: Verdict = yield* step(
      way.commit([{ kind: 'put', key, value, version: cell?.version ?? 0, events: [] }]),
    )
    if (verdict.ok) return standing(next)
    cell = verdict.cell
  }
}

function tooManyBounds(queue: string, bytes: number): MillraceError {
  return new MillraceError(
    'DATA_TOO_LARGE',
    `queue.limit: all that bounds queue '${queue}' would take ${bytes} bytes as JSON, and ${MOST_BYTES} is the most, since adds and claims read it. Bound each group by \`group\`, and single ones only where they differ.`,
    { details: { queue, bytes, limit: MOST_BYTES } },
  )
}

/** What bounds a queue. */
export function* getLimits(way: Session, queue: string): Steps<Limits> {
  const { cells } = yield* step(way.details({ cells: [cellKey.limit(queue)] }))
  return standing(readCell<LimitCell>(cells[0]?.value))
}

/** What whoever adds to a group at its bound does. */
export function* whenFull(
  way: Pick<Session, 'details'>,
  queue: string,
  group: string,
): Steps<'reject' | 'drop-oldest'> {
  const { cells } = yield* step(way.details({ cells: [cellKey.limit(queue)] }))
  const limits = readCell<LimitCell>(cells[0]?.value)
  return { ...limits.group, ...limits.groups?.[group] }.whenFull ?? 'reject'
}

/** A change of a cell; null lifts. */
interface Patch {
  readonly concurrency?: number | null
  readonly rate?: Rate | null
  readonly backlog?: number | null
  readonly whenFull?: 'reject' | 'drop-oldest' | null
  readonly weight?: number | null
}

interface LimitPatch extends Patch {
  readonly names: readonly (readonly [string, Patch | null])[]
  readonly group?: Patch | null
  readonly groups: readonly (readonly [string, Patch | null])[]
}

const boundNames = ['concurrency', 'rate'] as const
const fullModes = ['reject', 'drop-oldest'] as const
const groupNames = [...boundNames, 'maxBacklog', 'onFull'] as const

function parse(changes: LimitOptions, checkJob: (name: string) => void): LimitPatch {
  const where = 'queue.limit'
  refuseUnknown(changes, [...boundNames, 'maxBacklog', 'names', 'group', 'groups'], where)
  const { names = {}, group, groups = {} } = changes
  const { names: _names, group: _group, groups: _groups, ...own } = changes
  return {
    ...parseBound(own, [...boundNames, 'maxBacklog'], where),
    names: entries(names, `${where}: names`).map(([name, bound]) => {
      checkJob(name)
      return [name, bound === null ? null : parseBound(bound ?? {}, boundNames, `${where}: names.${name}`)]
    }),
    ...(group !== undefined && { group: group === null ? null : parseBound(group, groupNames, `${where}: group`) }),
    groups: entries(groups, `${where}: groups`).map(([name, bound]) => {
      checkName(name, 'group')
      return [name, bound === null ? null : parseBound(bound, [...groupNames, 'weight'], `${where}: groups.${name}`)]
    }),
  }
}

function entries<T>(value: Readonly<Record<string, T>>, where: string): [string, T][] {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return Object.entries(value)
  throw new MillraceError('INVALID_OPTION', `${where} must be an object, not ${quote(value)}.`)
}

function parseBound(bound: OneGroupOptions, known: readonly string[], where: string): Patch {
  refuseUnknown(bound, known, where)
  const { concurrency, rate, maxBacklog, onFull, weight } = bound
  return {
    ...(concurrency !== undefined && { concurrency: whole(concurrency, 0, `${where}: concurrency`) }),
    ...(rate !== undefined && { rate: parseRate(rate, `${where}: rate`) }),
    ...(maxBacklog !== undefined && { backlog: whole(maxBacklog, 0, `${where}: maxBacklog`) }),
    ...(onFull !== undefined && {
      whenFull: onFull === null ? null : oneOf(onFull, fullModes, `${where}: onFull`),
    }),
    ...(weight !== undefined && { weight: parseWeight(weight, `${where}: weight`) }),
  }
}

function whole(value: number | null, least: number, field: string): number | null {
  if (value === null || (Number.isSafeInteger(value) && value >= least)) return value
  throw new MillraceError(
    'INVALID_OPTION',
    `${field} must be a whole number from ${least} up, or null for no bound, not ${quote(value)}.`,
  )
}

function parseWeight(value: number | null, field: string): number | null {
  if (value === null || (typeof value === 'number' && value >= 0.01 && value <= 100)) return value
  throw new MillraceError('INVALID_OPTION', `${field} must be a number from 0.01 to 100, not ${quote(value)}.`)
}

function parseRate(rate: RateOptions | null, where: string): Rate | null {
  if (rate === null) return null
  refuseUnknown(rate, ['max', 'per'], where)
  const max = whole(rate.max, 1, `${where}.max`)
  const per = parseDuration(rate.per, `${where}.per`)
  if (max === null || per === 0) {
    throw new MillraceError(
      'INVALID_OPTION',
      `${where} is written { max: 10, per: '1 minute' }; neither may be nothing.`,
    )
  }
  return { max, per }
}

/** What stands, with a change over it. Fields keep one order, so that the same limits have the same text. */
function merge(now: Partial<LimitCell>, patch: LimitPatch): Omit<LimitCell, 'by'> {
  const names = mergeEach(now.names, patch.names)
  const group = patch.group === null ? undefined : mergeBound(now.group, patch.group)
  const groups = mergeEach(now.groups, patch.groups)
  return {
    ...mergeBound(now, patch),
    ...(Object.keys(names).length > 0 && { names }),
    ...(group !== undefined && Object.keys(group).length > 0 && { group }),
    ...(Object.keys(groups).length > 0 && { groups }),
  }
}

function mergeEach(
  now: Readonly<Record<string, Patched>> | undefined,
  patches: readonly (readonly [string, Patch | null])[],
): Record<string, Patched> {
  const each = new Map(Object.entries(now ?? {}))
  for (const [name, patch] of patches) {
    const bound = patch === null ? {} : mergeBound(each.get(name), patch)
    if (Object.keys(bound).length > 0) each.set(name, bound)
    else each.delete(name)
  }
  return Object.fromEntries([...each].toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

type Patched = GroupBound & { readonly weight?: number }

function mergeBound(now: Patched | undefined, patch: Patch | undefined): Patched {
  const { concurrency, rate, backlog, whenFull: full, weight } = { ...now, ...patch }
  return {
    ...(concurrency != null && { concurrency }),
    ...(rate != null && { rate }),
    ...(backlog != null && { backlog }),
    ...(full != null && { whenFull: full }),
    ...(weight != null && { weight }),
  }
}

function standing({ names = {}, group = {}, groups = {}, ...own }: Partial<LimitCell>): Limits {
  const each = <T, U>(of: Readonly<Record<string, T>>, say: (bound: T) => U): Record<string, U> =>
    Object.fromEntries(Object.entries(of).map(([name, bound]) => [name, say(bound)]))
  return {
    ...saidOf(own),
    names: each(names, saidOf),
    group: saidOf(group),
    groups: each(groups, (bound) => ({
      ...saidOf(bound),
      ...(bound.weight !== undefined && { weight: bound.weight }),
    })),
  }
}

/** A bound in the words of `queue.limit`. */
function saidOf({ concurrency, rate, backlog, whenFull: onFull }: Bound & GroupBound): StandingGroupBound {
  return {
    ...(concurrency !== undefined && { concurrency }),
    ...(rate !== undefined && { rate }),
    ...(backlog !== undefined && { maxBacklog: backlog }),
    ...(onFull !== undefined && { onFull }),
  }
}
