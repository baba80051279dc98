// stores/rates.ts: so many claims in any stretch of time. Each claim takes a token, which comes back one stretch later.
import type { Millis, Time } from '../job/job.js'
import type { Rate } from '../store/settings.js'

/** Tokens taken, by when, oldest first; those taken at about the same time are written as one. */
export type Taken = readonly (readonly [at: Time, count: number])[]

/** Parts of a stretch that are told apart. A token is never back too early, and at most one part late. */
const PARTS = 128

/** The moment that a token taken now is written down with. */
function momentOf({ per }: Rate, now: Time): Time {
  const part: Millis = Math.max(1, Math.floor(per / PARTS))
  return Math.ceil(now / part) * part
}

/**
 * What is out after a while: without those that have come back. One that was taken more than a stretch from now in the
 * future counts as returned: the clock was set back since, and would otherwise keep it for as long as it was set back. A
 * smaller step keeps tokens for at most one stretch longer, so that no correction of the clock lets more through.
 */
export function out(taken: Taken, rate: Rate, now: Time): Taken {
  const latest = momentOf(rate, now) + rate.per
  let end = taken.length
  while (end > 0 && taken[end - 1]![0] > latest) end--
  let first = 0
  while (first < end && taken[first]![0] + rate.per <= now) first++
  return first === 0 && end === taken.length ? taken : taken.slice(first, end)
}

/** How many more may be taken; `taken` is what is out. */
export function left(taken: Taken, { max }: Rate): number {
  let count = 0
  for (const [, each] of taken) count += each
  return Math.max(0, max - count)
}

/** What is out when some more have been taken. */
export function take(taken: Taken, rate: Rate, count: number, now: Time): Taken {
  if (count === 0) return taken
  const at = momentOf(rate, now)
  const last = taken.at(-1)
  return last !== undefined && last[0] >= at
    ? [...taken.slice(0, -1), [last[0], last[1] + count]]
    : [...taken, [at, count]]
}

/** When the first token comes back; `taken` is what is out, and not empty. */
export function back(taken: Taken, { per, max }: Rate): Time | undefined {
  return max > 0 && taken.length > 0 ? taken[0]![0] + per : undefined
}
