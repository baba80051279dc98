// stores/fair-order.ts: the order of jobs with a group, so that groups take turns however many jobs each has waiting.

/** The distance between two turns of a group of weight 1. */
const TURN_STEP = 65_536

/**
 * The order of a job that starts to wait: one turn after the last waiting job of its group (`last`), but never before
 * the current turn of its queue (`current`), which is the highest order claimed from it. Both are within one priority.
 * A group of weight 2 gets two turns where others get one.
 *
 * So a job that is added late starts at the current turn, and not behind all jobs that other groups have waiting.
 */
export function turn(current: number, last: number | undefined, weight: number): number {
  return last === undefined ? current : Math.max(current, last + Math.max(1, Math.round(TURN_STEP / weight)))
}
