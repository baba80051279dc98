// What producers add, known to them and to the test that looks for it.

/** Jobs of one `addBulk`: more than go into one batch. */
export const BULK = 1300

/** Jobs of one group: more than go into one batch otherwise. */
export const GROUP = 700

/** The data of a job. */
export function dataOf(id: string): { of: string; text: string } {
  return { of: id, text: id.padEnd(300, '.') }
}
