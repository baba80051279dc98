// queue/settings/limits.ts: the limits of a queue, its names and its groups, and its pauses: cells that claims read.
import type { CellEvent } from '../../job/change.js'
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { invalid, isObject, mustBe, oneOf } from '../../job/values/options.js'
import { cellKey, updateCell } from '../../store/settings.js'
import { readCell } from '../../job/limits.js'
import type { Bound, GroupBound, LimitCell, PauseCell, Rate } from '../../job/limits.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Session } from '../../store/session.js'

/** A rate limit. */
export interface RateOptions {
  /** Maximum number of jobs that start in a period, from 1 up; all of them may start at once. */
  readonly max: number
  /** The length of the period. */
  readonly per: Duration
}

/** Limits of some jobs. Omitted limits stay as they are; `null` removes one. */
export interface BoundOptions {
  /** Maximum number of jobs that run at the same time, from 0 up. Default: no limit. */
  readonly concurrency?: number | null
  /** Maximum number of jobs that start in any period. Default: no limit. */
  readonly rate?: RateOptions | null
}

/** Limits of a group. Omitted limits stay as they are; `null` removes one. */
export interface GroupOptions extends BoundOptions {
  /**
   * Maximum number of jobs that have not started, from 0 up; `onFull` decides about further jobs. Default: no limit.
   */
  readonly maxBacklog?: number | null
  /**
   * At that limit, `reject` refuses a new job with `QUEUE_FULL`, and `drop-oldest` cancels the oldest job that has not
   * started. Default `reject`.
   */
  readonly onFull?: 'reject' | 'drop-oldest' | null
}

/** Limits of one group, and its weight in fair order. */
export interface OneGroupOptions extends GroupOptions {
  /** Turns of this group for each turn of other groups, from 0.01 to 100. Default 1. */
  readonly weight?: number | null
}

/** Changes for `queue.limit`. Omitted limits stay as they are; `null` removes one. */
export interface LimitOptions<Name extends string = string> extends BoundOptions {
  /**
   * Maximum number of jobs in the queue that have not started, from 0 up; further jobs are refused with `QUEUE_FULL`.
   * Default: no limit.
   */
  readonly maxBacklog?: number | null
  /** Limits of single names, in addition to those of the queue. Default: none. */
  readonly names?: { readonly [Each in Name]?: BoundOptions | null }
  /** Limits that apply to each group by itself. Default: none. */
  readonly group?: GroupOptions | null
  /** Limits and weights of single groups, which override those of `group`. Default: none. */
  readonly groups?: Readonly<Record<string, OneGroupOptions | null>>
}

/** Current limits of some jobs. */
export interface StandingBound {
  /** Maximum number of jobs that run at the same time; absent: no limit. */
  readonly concurrency?: number
  /** Maximum number of jobs that start in any period of `per` milliseconds; absent: no limit. */
  readonly rate?: { readonly max: number; readonly per: Millis }
}

/** Current limits of a group. */
export interface StandingGroupBound extends StandingBound {
  /** Maximum number of jobs that have not started; absent: no limit. */
  readonly maxBacklog?: number
  /** What happens at that limit; absent: `reject`. */
  readonly onFull?: 'reject' | 'drop-oldest'
}

/** Current limits of a queue. */
export interface Limits extends StandingBound {
  /** Maximum number of jobs that have not started; absent: no limit. */
  readonly maxBacklog?: number
  /** By name. */
  readonly names: Readonly<Record<string, StandingBound>>
  /** Of each group. */
  readonly group: StandingGroupBound
  /** Of single groups; an absent weight is 1. */
  readonly groups: Readonly<Record<string, StandingGroupBound & { readonly weight?: number }>>
}

/** Bytes that all limits of a queue may take as JSON, because adds and claims read them. */
const MAX_BYTES = 2 ** 20

/** Changes the limits of a queue and returns all that then apply; writes nothing if nothing changes. */
export function* setLimits(
  session: Session,
  queue: string,
  changes: LimitOptions,
  checkJob: (name: string) => void,
): Steps<Limits> {
  const patch = parseLimits(changes, checkJob)
  let next: Partial<LimitCell> = {}
  yield* updateCell(session, cellKey.limit(queue), (before) => {
    const current = readCell<LimitCell>(before)
    const by = patch.concurrency === undefined ? (current.by ?? 'worker') : 'queue'
    next = { ...merge(current, patch), by }
    const value = JSON.stringify(next)
    if (value === before) return undefined
    if (value.length > MAX_BYTES && value.length > (before?.length ?? 0)) throw tooManyLimits(queue, value.length)
    return { value }
  })
  return publicLimits(next)
}

function tooManyLimits(queue: string, bytes: number): MillraceError {
  return new MillraceError(
    'DATA_TOO_LARGE',
    `queue.limit: all that bounds queue '${queue}' would take ${bytes} bytes as JSON, and ${MAX_BYTES} is the most, since adds and claims read it. Bound each group by \`group\`, and single ones only where they differ.`,
    { details: { queue, bytes, limit: MAX_BYTES } },
  )
}

/** The limits of a queue. */
export function* getLimits(session: Session, queue: string): Steps<Limits> {
  const { cells } = yield* step(session.details({ cells: [cellKey.limit(queue)] }))
  return publicLimits(readCell<LimitCell>(cells[0]?.value))
}

/** What an add to a group does at the limit of its backlog. */
export function* whenFull(
  session: Pick<Session, 'details'>,
  queue: string,
  group: string,
): Steps<'reject' | 'drop-oldest'> {
  const { cells } = yield* step(session.details({ cells: [cellKey.limit(queue)] }))
  const limits = readCell<LimitCell>(cells[0]?.value)
  return { ...limits.group, ...limits.groups?.[group] }.whenFull ?? 'reject'
}

/** A change of limits; null removes one. */
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

function parseLimits(changes: LimitOptions, checkJob: (name: string) => void): LimitPatch {
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
  if (isObject(value)) return Object.entries(value)
  throw mustBe(where, 'an object', value)
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

function whole(value: number | null, min: number, field: string): number | null {
  if (value === null || (Number.isSafeInteger(value) && value >= min)) return value
  throw mustBe(field, `a whole number from ${min} up, or null for no bound`, value)
}

function parseWeight(value: number | null, field: string): number | null {
  if (value === null || (typeof value === 'number' && value >= 0.01 && value <= 100)) return value
  throw mustBe(field, 'a number from 0.01 to 100', value)
}

function parseRate(rate: RateOptions | null, where: string): Rate | null {
  if (rate === null) return null
  refuseUnknown(rate, ['max', 'per'], where)
  const max = whole(rate.max, 1, `${where}.max`)
  const per = parseDuration(rate.per, `${where}.per`)
  if (max === null || per === 0) {
    throw invalid(`${where} is written { max: 10, per: '1 minute' }; neither may be nothing.`)
  }
  return { max, per }
}

/** The current limits with a change applied. Fields keep one order, so that equal limits have equal text. */
function merge(current: Partial<LimitCell>, patch: LimitPatch): Omit<LimitCell, 'by'> {
  const names = mergeEach(current.names, patch.names)
  const group = patch.group === null ? undefined : mergeBound(current.group, patch.group)
  const groups = mergeEach(current.groups, patch.groups)
  return {
    ...mergeBound(current, patch),
    ...(Object.keys(names).length > 0 && { names }),
    ...(group !== undefined && Object.keys(group).length > 0 && { group }),
    ...(Object.keys(groups).length > 0 && { groups }),
  }
}

function mergeEach(
  current: Readonly<Record<string, Patched>> | undefined,
  patches: readonly (readonly [string, Patch | null])[],
): Record<string, Patched> {
  const each = new Map(Object.entries(current ?? {}))
  for (const [name, patch] of patches) {
    const bound = patch === null ? {} : mergeBound(each.get(name), patch)
    if (Object.keys(bound).length > 0) each.set(name, bound)
    else each.delete(name)
  }
  return Object.fromEntries([...each].toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

type Patched = GroupBound & { readonly weight?: number }

function mergeBound(current: Patched | undefined, patch: Patch | undefined): Patched {
  const { concurrency, rate, backlog, whenFull: full, weight } = { ...current, ...patch }
  return {
    ...(concurrency != null && { concurrency }),
    ...(rate != null && { rate }),
    ...(backlog != null && { backlog }),
    ...(full != null && { whenFull: full }),
    ...(weight != null && { weight }),
  }
}

function publicLimits({ names = {}, group = {}, groups = {}, ...own }: Partial<LimitCell>): Limits {
  const each = <T, U>(of: Readonly<Record<string, T>>, convert: (bound: T) => U): Record<string, U> =>
    Object.fromEntries(Object.entries(of).map(([name, bound]) => [name, convert(bound)]))
  return {
    ...publicBound(own),
    names: each(names, publicBound),
    group: publicBound(group),
    groups: each(groups, (bound) => ({
      ...publicBound(bound),
      ...(bound.weight !== undefined && { weight: bound.weight }),
    })),
  }
}

/** A stored limit in the terms of `queue.limit`. */
function publicBound({ concurrency, rate, backlog, whenFull: onFull }: Bound & GroupBound): StandingGroupBound {
  return {
    ...(concurrency !== undefined && { concurrency }),
    ...(rate !== undefined && { rate }),
    ...(backlog !== undefined && { maxBacklog: backlog }),
    ...(onFull !== undefined && { onFull }),
  }
}

/** Pauses or resumes a queue, or one name in it; writes and publishes nothing if nothing changes. */
export function* setPause(session: Session, queue: string, name: string | undefined, paused: boolean): Steps<void> {
  const event: CellEvent = { type: paused ? 'paused' : 'resumed', queue, ...(name !== undefined && { name }) }
  yield* updateCell(session, cellKey.pause(queue), (value) => {
    const current = value === undefined ? NOT_PAUSED : (JSON.parse(value) as PauseCell)
    const next = withPause(current, name, paused)
    return next === current ? undefined : { value: JSON.stringify(next), events: [event] }
  })
}

const NOT_PAUSED: PauseCell = { all: false, names: [] }

function withPause(cell: PauseCell, name: string | undefined, paused: boolean): PauseCell {
  if (name === undefined) return cell.all === paused ? cell : { ...cell, all: paused }
  if (cell.names.includes(name) === paused) return cell
  return { ...cell, names: paused ? [...cell.names, name] : cell.names.filter((each) => each !== name) }
}
