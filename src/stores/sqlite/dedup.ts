// stores/sqlite/dedup.ts: dedup keys, each taken by a job until the job has finished or until its window is over.
import type { Time } from '../../job/job.js'
import { nullable } from './rows.js'
import type { Transaction } from './transaction.js'

/** The id of the job that has a key now; undefined once its window is over. */
export function keyHolder({ sql, now }: Transaction, key: string): string | undefined {
  const holder = sql.keyHolder.get(key)
  if (holder === undefined || (holder[1] !== null && (holder[1] as Time) <= now)) return undefined
  return holder[0] as string
}

/** Gives a free key to a job. */
export function takeKey({ sql, cache }: Transaction, key: string, id: string, until: Time | undefined): void {
  sql.takeKey.run(key, id, nullable(until))
  if (until !== undefined) cache.windows = true
}

/** Removes some of the expired keys. */
export function sweepKeys({ sql, cache, now }: Transaction): void {
  if (cache.windows && Number(sql.sweepKeys.run(now).changes) > 0) cache.windows = undefined
}
