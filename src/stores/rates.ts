// stores/rates.ts: limits the number of claims in any interval. Each claim takes a token, which returns one interval later.
import type { Millis, Time } from '../job/job.js'
import type { Rate } from '../store/settings.js'

/** Tokens by the time at which they were taken, oldest first; tokens of one bucket are stored as one entry. */
export type TakenTokens = readonly (readonly [at: Time, count: number])[]

/** Buckets per interval. A token never returns early, and returns at most one bucket late. */
const BUCKETS = 128

/** The time to store for a token that is taken now: the end of its bucket. */
function tokenTime({ per }: Rate, now: Time): Time {
  const bucket: Millis = Math.max(1, Math.floor(per / BUCKETS))
  return Math.ceil(now / bucket) * bucket
}

/**
 * The tokens that have not returned. A token taken more than one interval in the future counts as returned: the clock
 * was set back since, and the token would stay out for as long as the clock was set back. A smaller step of the clock
 * keeps tokens out for at most one interval longer, so that no clock correction lets more claims through.
 */
export function out(taken: TakenTokens, rate: Rate, now: Time): TakenTokens {
  const latest = tokenTime(rate, now) + rate.per
  let end = taken.length
  while (end > 0 && taken[end - 1]![0] > latest) end--
  let first = 0
  while (first < end && taken[first]![0] + rate.per <= now) first++
  return first === 0 && end === taken.length ? taken : taken.slice(first, end)
}

/** How many more tokens may be taken; `taken` are the tokens that have not returned. */
export function left(taken: TakenTokens, { max }: Rate): number {
  let count = 0
  for (const [, each] of taken) count += each
  return Math.max(0, max - count)
}

/** The tokens that have not returned, after some more were taken. */
export function take(taken: TakenTokens, rate: Rate, count: number, now: Time): TakenTokens {
  if (count === 0) return taken
  const at = tokenTime(rate, now)
  const last = taken.at(-1)
  return last !== undefined && last[0] >= at
    ? [...taken.slice(0, -1), [last[0], last[1] + count]]
    : [...taken, [at, count]]
}

/** When the first token returns; `taken` are the tokens that have not returned. */
export function nextReturn(taken: TakenTokens, { per, max }: Rate): Time | undefined {
  return max > 0 && taken.length > 0 ? taken[0]![0] + per : undefined
}
