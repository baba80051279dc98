// stores/heads.ts: makes the heads of a queue of the few rows that a store has read from its indexes.
import type { Time } from '../job/job.js'
import type { TakenTokens } from '../job/limits.js'
import { overdueIn, waitingSince } from '../job/waits.js'
import type { DueRow } from '../job/waits.js'
import type { QueueHeads } from '../store/tally.js'

/** The most rates that heads hold. */
export const RATES_READ = 100

/** The rows at the heads of a queue's indexes. */
export interface HeadRows {
  /** The store's time. */
  readonly now: Time
  /** Of each lane with waiting jobs, the job to be claimed next and the one added first. */
  readonly waiting: Iterable<readonly [name: string, createdAt: Time, runAt: Time | null | undefined]>
  /** Active jobs that are not prefetched, by the end of their lease. */
  readonly running: readonly (readonly [name: string, startedAt: Time, group?: string | null])[]
  /** Rows that are due, longest first, without active jobs. */
  readonly due: readonly DueRow[]
  /** The end of the lease that expires first. */
  readonly lease: Time | null | undefined
  readonly rates: Iterable<readonly [key: string, tokens: TakenTokens]>
}

/** The heads of a queue. */
export function headsOf({ now, waiting, running, due, lease, rates }: HeadRows): QueueHeads {
  return {
    now,
    waiting: earliest(Array.from(waiting, ([name, createdAt, runAt]) => [name, waitingSince(createdAt, runAt)])),
    running: earliest(running.map(([name, startedAt]) => [name, startedAt])),
    groups: countedBy(running),
    ...(due[0] !== undefined && { overdue: due[0][2] }),
    ...overdueIn(due),
    ...(lease !== null && lease !== undefined && lease <= now && { lease }),
    rates: Object.fromEntries(rates),
  }
}

/** The earliest time of each name. */
function earliest(entries: Iterable<readonly [name: string, at: Time]>): Record<string, Time> {
  const first: Record<string, Time> = Object.create(null)
  for (const [name, at] of entries) if (first[name] === undefined || at < first[name]) first[name] = at
  return first
}

/** How many jobs run of each group. */
function countedBy(running: HeadRows['running']): Record<string, number> {
  const counts: Record<string, number> = Object.create(null)
  for (const [, , group] of running) if (group !== null && group !== undefined) counts[group] = (counts[group] ?? 0) + 1
  return counts
}
