// stores/fair-order.ts: the places of jobs with a group, so that groups take turns however much each of them has waiting.

/** What one turn comes to, for a group of weight 1. */
const TURN = 65_536

/**
 * The place of a job that begins to wait: a turn behind the last of its group's that wait (`last`), but never before the
 * turn that its queue has come to (`come`), which is the highest place that was claimed from it. Both within one
 * priority. A group of weight 2 has two places where others have one.
 *
 * Whoever comes late thus stands where all others are now, and not behind all that they have waiting.
 */
export function turn(come: number, last: number | undefined, weight: number): number {
  return last === undefined ? come : Math.max(come, last + Math.max(1, Math.round(TURN / weight)))
}
