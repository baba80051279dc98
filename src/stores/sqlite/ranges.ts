// stores/sqlite/ranges.ts: groups consecutive row numbers into ranges, for statements that are fastest over a range of rows.
import type { Statement, Value } from './file/driver.js'

/** A range of numbers, from the first to the last. */
type Range = [first: number, last: number]

/** With fewer numbers per range than this on average, a list is faster. */
const MIN_AVERAGE = 4

/** The ranges that contain exactly these numbers, which must be distinct. */
function rangesOf(numbers: readonly number[]): readonly Range[] {
  const ranges: Range[] = []
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const last = ranges.at(-1)
    if (last !== undefined && number === last[1] + 1) last[1] = number
    else ranges.push([number, number])
  }
  return ranges
}

/** Updates the rows with these numbers, and returns how many there were. `values` come before the numbers. */
export function writeTo(
  numbers: readonly number[],
  { range, many }: { readonly range: Statement; readonly many: Statement },
  ...values: Value[]
): number {
  const ranges = rangesOf(numbers)
  if (ranges.length * MIN_AVERAGE > numbers.length) return Number(many.run(...values, JSON.stringify(numbers)).changes)
  let changes = 0
  for (const [first, last] of ranges) changes += Number(range.run(...values, first, last).changes)
  return changes
}
