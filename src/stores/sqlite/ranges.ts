// stores/sqlite/ranges.ts: numbers that follow each other, for statements that are quickest over a stretch of the table.
import type { Statement, Value } from './driver.js'

/** A stretch of numbers, from the first to the last. */
type Run = [first: number, last: number]

/** Fewer numbers to a run than this on average, and a list is quicker. */
const SHORT = 4

/** The stretches that some numbers, each there once, are made of. */
function runsOf(numbers: readonly number[]): readonly Run[] {
  const runs: Run[] = []
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const last = runs.at(-1)
    if (last !== undefined && number === last[1] + 1) last[1] = number
    else runs.push([number, number])
  }
  return runs
}

/** Writes to the rows of these numbers, and answers how many there were. `values` come before the numbers. */
export function writeTo(
  numbers: readonly number[],
  { run, many }: { readonly run: Statement; readonly many: Statement },
  ...values: Value[]
): number {
  const runs = runsOf(numbers)
  if (runs.length * SHORT > numbers.length) return Number(many.run(...values, JSON.stringify(numbers)).changes)
  let changes = 0
  for (const [first, last] of runs) changes += Number(run.run(...values, first, last).changes)
  return changes
}
