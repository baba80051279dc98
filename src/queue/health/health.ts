// queue/health/health.ts: how a queue does: how late it is, what holds it back, and who works on it.
import { jobStates } from '../../job/job.js'
import type { JobState, Millis, Time } from '../../job/job.js'
import { backlogStates, boundsOf, readCell, tokensLeft, tokensOut } from '../../job/limits.js'
import type { Bounds, PauseCell, Rate } from '../../job/limits.js'
import { addCounts, noCounts, readCounts, seriesSteps, stretchOf } from '../../job/series.js'
import type { Counts, CountsByName, SeriesCounts } from '../../job/series.js'
import { WORKERS, cellKey } from '../../store/settings.js'
import { readCells } from '../../store/read-pages.js'
import { readRows } from '../../store/series/series-cells.js'
import { runSteps, step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Session } from '../../store/session.js'
import type { Cell } from '../../store/store.js'
import type { QueueTally } from '../../store/tally.js'
import { liveEntries } from '../explain.js'
import type { StateCounts } from '../counts.js'
import { readHolds } from '../settings/holds.js'
import type { Hold } from '../settings/holds.js'

/** A live worker of a queue, as its entry in the registry shows it. */
export interface WorkerInfo {
  /** Its id, as jobs and events name it. */
  readonly id: string
  /** Its readable name; absent: it has none. */
  readonly workerName?: string
  /** The machine it runs on. */
  readonly host: string
  /** The process it runs in. */
  readonly pid: number
  /** The queues it claims from. */
  readonly queues: readonly string[]
  /** The names it handles; absent: all. */
  readonly names?: readonly string[]
  /** The versions it handles, of the names that have any. */
  readonly versions: Readonly<Record<string, readonly number[]>>
  /** Whether it claims jobs. */
  readonly state: 'running' | 'paused' | 'stopping'
  /** How many handlers it runs at a time; 0: jobs are claimed by hand. */
  readonly slots: number
  /** How many handlers were running when it was last seen. */
  readonly running: number
  /** When it started. */
  readonly startedAt: Time
  /** When it last wrote its entry, by the store's clock. */
  readonly seenAt: Time
}

/** A limit, and how much of it is used. */
export interface LimitUse {
  /** What it limits. */
  readonly of: 'queue' | 'name' | 'group'
  /** The name or the group; absent for the queue. */
  readonly name?: string
  /** What is limited: leases at a time, claims in a stretch of time, or jobs that have not started. */
  readonly what: 'concurrency' | 'rate' | 'backlog'
  /** How much of it is used. */
  readonly used: number
  /** The limit. */
  readonly max: number
}

/** What happened in the last minute. */
export interface LastMinute {
  /** Jobs added. */
  readonly added: number
  /** Jobs completed. */
  readonly completed: number
  /** Jobs failed for good. */
  readonly failed: number
  /** Attempts that failed and were followed by another. */
  readonly retried: number
  /** The share of the attempts that ended in this minute and failed; absent: none ended. */
  readonly failureRate?: number
}

/** How the jobs of one name do. Ages are in milliseconds. */
export interface NameHealth {
  /** Jobs by state. */
  readonly counts: StateCounts
  /** Whether the name, or its whole queue, is paused. */
  readonly paused: boolean
  /** How long the oldest waiting job has waited since it could be claimed; absent: none waits. */
  readonly oldestWaiting?: Millis
  /** How long the longest running job has run; absent: none runs. */
  readonly longestRunning?: Millis
  /** Live workers that claim jobs of this name. */
  readonly workers: number
  /** What happened in the last minute; absent if its queue keeps no series. */
  readonly lastMinute?: LastMinute
}

/** How a queue does. Ages are in milliseconds, by the store's clock. */
export interface QueueHealth<Name extends string = string> {
  /** The queue. */
  readonly queue: string
  /** The store's time. */
  readonly at: Time
  /** Whether the whole queue is paused. */
  readonly paused: boolean
  /** Jobs by state. */
  readonly counts: StateCounts
  /** How long the oldest waiting job has waited since it could be claimed; absent: none waits. */
  readonly oldestWaiting?: Millis
  /** How long the first delayed job is overdue: due, and not promoted by upkeep; absent: none is. */
  readonly overdue?: Millis
  /** How late the first due schedule is; absent: none is. */
  readonly scheduleLag?: Millis
  /** How late upkeep is: since when the first due row or expired lease has been due; absent: nothing is due. */
  readonly upkeepLag?: Millis
  /** How long the first expired lease is over without upkeep having taken it back; absent: none is. */
  readonly expiredLease?: Millis
  /** How long the longest running job has run; absent: none runs. */
  readonly longestRunning?: Millis
  /** What no worker starts until a time: of the queue, then of names, then of groups. */
  readonly holds: readonly Hold<Name>[]
  /** The limits that are reached now. */
  readonly atLimit: readonly LimitUse[]
  /** Live workers that claim from the queue. */
  readonly workers: number
  /** The handlers that they can run at a time; some of them may work on other queues as well. */
  readonly slots: number
  /** What happened in the last minute; absent if the queue keeps no series. */
  readonly lastMinute?: LastMinute
  /** The same by name: the names that have jobs, and those that are declared. */
  readonly names: Readonly<Record<Name, NameHealth>>
}

/** What health is computed from. */
export interface HealthParts {
  readonly queue: string
  readonly declared: readonly string[]
  readonly now: Time
  readonly tally: QueueTally | undefined
  readonly bounds: Bounds
  readonly holds: readonly Hold[]
  readonly workers: readonly WorkerInfo[]
  /** By name; undefined: no series is kept. */
  readonly lastMinute: CountsByName | undefined
}

/** Reads what the health of a queue is computed from. The cost does not depend on the number of its jobs. */
export function* readHealth(
  session: Session,
  about: Pick<HealthParts, 'queue' | 'declared'> & { readonly series: boolean; readonly now: () => Time },
): Steps<HealthParts> {
  const { queue, declared, series } = about
  const keys = [cellKey.pause(queue), cellKey.limit(queue)]
  const [[tally], cells, rows] = yield* step(
    Promise.all([
      session.tally(queue, { heads: true }),
      runSteps(readCells(session, WORKERS, { cells: keys })),
      series ? minutes(session, queue, about.now()) : undefined,
    ]),
  )
  const now = tally?.heads?.now ?? about.now()
  const valueOf = (key: string): string | undefined => cells.find((cell) => cell.key === key)?.value
  const bounds = boundsOf(valueOf(keys[0]!), valueOf(keys[1]!))
  const holds = readHolds(readCell<PauseCell>(valueOf(keys[0]!)), now)
  const workers = workersOf(cells, queue, now)
  const lastMinute = rows === undefined ? undefined : lastMinuteOf(rows, now)
  return { queue, declared, now, tally, bounds, holds, workers, lastMinute }
}

/** The rows of the minutes around this process's time: the store's may be another by a little. */
function minutes(session: Session, queue: string, now: Time): Promise<ReadonlyMap<number, CountsByName>> {
  const minute = stretchOf(now, 'minute')
  return readRows(session, queue, 'minute', minute - 2, minute + 3)
}

/** The live workers of a queue. */
export function workersOf(cells: readonly Cell[], queue: string, now: Time): readonly WorkerInfo[] {
  const entries = liveEntries(
    cells.filter(({ key }) => key.startsWith(WORKERS)),
    now,
  )
  return entries.flatMap(({ worker, at }) => {
    if (!worker.queues.includes(queue)) return []
    const { id, name, host, pid, queues, names, versions, state, slots = 0, running = 0, startedAt } = worker
    return [
      {
        id,
        ...(name !== undefined && { workerName: name }),
        host,
        pid,
        queues,
        ...(names !== undefined && names !== null && { names }),
        versions,
        state,
        slots,
        running,
        startedAt,
        seenAt: at,
      },
    ]
  })
}

/** The counts of the minute that ends now: those of this minute, and the share of the one before that is within it. */
function lastMinuteOf(rows: ReadonlyMap<number, CountsByName>, now: Time): CountsByName {
  const minute = stretchOf(now, 'minute')
  const share = 1 - (now % seriesSteps.minute) / seriesSteps.minute
  const counts: CountsByName = new Map()
  for (const [stretch, names] of rows) {
    if (stretch !== minute && stretch !== minute - 1) continue
    for (const [name, own] of names) {
      const sum = counts.get(name) ?? noCounts()
      addCounts(sum, stretch === minute ? own : own.map((n) => n * share))
      counts.set(name, sum)
    }
  }
  return counts
}

/** The health of a queue. */
export function healthOf<Name extends string>(parts: HealthParts): QueueHealth<Name> {
  const { queue, declared, now, tally, bounds, workers, lastMinute } = parts
  const heads = tally?.heads
  const claiming = workers.filter(({ state }) => state === 'running')
  const names = new Map<string, NameHealth>()
  for (const name of new Set([...declared, ...Object.keys(tally?.names ?? {})])) {
    names.set(name, {
      counts: countsIn(tally, [name]),
      paused: bounds.paused || bounds.pausedNames.has(name),
      ...ageOf('oldestWaiting', heads?.waiting[name], now),
      ...ageOf('longestRunning', heads?.running[name], now),
      workers: claiming.filter((worker) => worker.names?.includes(name) ?? true).length,
      ...(lastMinute !== undefined && { lastMinute: minuteOf(lastMinute.get(name) ?? noCounts()) }),
    })
  }
  return {
    queue,
    at: now,
    paused: bounds.paused,
    counts: countsIn(tally, Object.keys(tally?.names ?? {})),
    ...ageOf('oldestWaiting', earliest(Object.values(heads?.waiting ?? {})), now),
    ...ageOf('overdue', heads?.delayed, now),
    ...ageOf('scheduleLag', heads?.schedule, now),
    ...ageOf('upkeepLag', earliest([heads?.overdue, heads?.lease]), now),
    ...ageOf('expiredLease', heads?.lease, now),
    ...ageOf('longestRunning', earliest(Object.values(heads?.running ?? {})), now),
    holds: parts.holds as readonly Hold<Name>[],
    atLimit: limitUses(tally, bounds, now).filter(({ used, max }) => used >= max),
    workers: claiming.length,
    slots: claiming.reduce((sum, { slots }) => sum + slots, 0),
    ...(lastMinute !== undefined && { lastMinute: minuteOf(sumOf(lastMinute)) }),
    names: Object.fromEntries(names) as QueueHealth<Name>['names'],
  }
}

function countsIn(tally: QueueTally | undefined, names: readonly string[]): StateCounts {
  const counts = Object.fromEntries(jobStates.map((state) => [state, 0])) as Record<JobState, number>
  for (const name of names) for (const state of jobStates) counts[state] += tally?.names[name]?.[state] ?? 0
  return counts
}

function ageOf<Field extends string>(field: Field, since: Time | undefined, now: Time): { [Each in Field]?: Millis } {
  return (since === undefined ? {} : { [field]: Math.max(0, now - since) }) as { [Each in Field]?: Millis }
}

function earliest(times: readonly (Time | undefined)[]): Time | undefined {
  const known = times.filter((at) => at !== undefined)
  return known.length === 0 ? undefined : Math.min(...known)
}

function sumOf(names: CountsByName): Counts {
  const sum = noCounts()
  for (const counts of names.values()) addCounts(sum, counts)
  return sum
}

function minuteOf(counts: Counts): LastMinute {
  const { added, completed, failed, retried }: SeriesCounts = readCounts(counts)
  const attempts = completed + failed + retried
  return {
    added: Math.round(added),
    completed: Math.round(completed),
    failed: Math.round(failed),
    retried: Math.round(retried),
    ...(attempts > 0 && { failureRate: (failed + retried) / attempts }),
  }
}

/** The limits of a queue, and how much of each is used. Of groups, the leases alone are known. */
export function limitUses(tally: QueueTally | undefined, bounds: Bounds, now: Time): readonly LimitUse[] {
  const { leases, heads } = tally ?? {}
  const found: LimitUse[] = []
  const check = (use: LimitUse): void => {
    if (Number.isFinite(use.max)) found.push(use)
  }
  const rate = (of: 'queue' | 'name', key: string, limit: Rate | undefined, name?: string): void => {
    if (limit === undefined) return
    const left = tokensLeft(tokensOut(heads?.rates[key] ?? [], limit, now), limit)
    check({ of, ...(name !== undefined && { name }), what: 'rate', used: limit.max - left, max: limit.max })
  }
  const all = Object.values(leases ?? {}).reduce((sum, n) => sum + n, 0)
  check({ of: 'queue', what: 'concurrency', used: all, max: bounds.limit })
  rate('queue', '', bounds.rate)
  const counts = countsIn(tally, Object.keys(tally?.names ?? {}))
  const backlog = backlogStates.reduce((sum, state) => sum + counts[state], 0)
  check({ of: 'queue', what: 'backlog', used: backlog, max: bounds.backlog })
  for (const [name, max] of bounds.limitedNames) {
    check({ of: 'name', name, what: 'concurrency', used: leases?.[name] ?? 0, max })
  }
  for (const [name, limit] of bounds.ratedNames) rate('name', `n${name}`, limit, name)
  for (const [group, used] of Object.entries(heads?.groups ?? {})) {
    check({ of: 'group', name: group, what: 'concurrency', used, max: bounds.group(group)?.concurrency ?? Infinity })
  }
  return found
}
