// stores/sqlite/dedup.ts: dedup keys, each held by a job until the job has finished or until its window is over.
import type { Time } from '../../job/job.js'
import { nullable } from './rows.js'
import type { Transaction } from './transaction.js'

/** The job that holds a key now; nobody, once its window is over. */
export function keyHolder({ sql, now }: Transaction, key: string): string | undefined {
  const held = sql.keyHolder.get(key)
  if (held === undefined || (held[1] !== null && (held[1] as Time) <= now)) return undefined
  return held[0] as string
}

/** Gives a free key to a job. */
export function takeKey({ sql, ground }: Transaction, key: string, id: string, until: Time | undefined): void {
  sql.takeKey.run(key, id, nullable(until))
  if (until !== undefined) ground.windows = true
}

/** Clears away some of the keys whose window is over. */
export function sweepKeys({ sql, ground, now }: Transaction): void {
  if (ground.windows && Number(sql.sweepKeys.run(now).changes) > 0) ground.windows = undefined
}
