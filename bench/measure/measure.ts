// Runs cases in rounds; computes medians, ratios and verdicts. Knows nothing of what the cases do.

/** The result of one run of one contender. */
export interface Sample {
  /** By the keys of the case's figures. */
  readonly figures: Readonly<Record<string, number>>
  /** Jobs that were acknowledged and are absent, or never ran, or ran and are not recorded as finished. */
  readonly lost?: number
  /** Jobs that exist twice, or ran more than once. */
  readonly doubled?: number
}

/** A contender in one case. The first of a case is Millrace; the others are compared with it. */
export interface Contender {
  readonly name: string
  /**
   * SQLite's `synchronous`; `fsync` on a server that has it on; `memory` or `none` if nothing survives a power cut.
   */
  readonly durability: string
  run(): Promise<Sample>
}

/** The unit of a figure. For `jobs/s` more is better, for all others less. */
export type Unit = 'jobs/s' | 'ms' | 'MB' | 'bytes' | 'ratio' | '%'

/** What a figure must reach. */
export type Target =
  | { readonly kind: 'ratio'; readonly to: string; readonly least: number }
  | { readonly kind: 'within'; readonly to: string; readonly most: number }
  | { readonly kind: 'row'; readonly to: string; readonly least: number }
  | { readonly kind: 'least'; readonly value: number }
  | { readonly kind: 'below'; readonly value: number }

/** One number of a case: a row of the report. */
export interface Figure {
  readonly key: string
  readonly name: string
  readonly unit: Unit
  readonly targets?: readonly Target[]
}

/** Something to measure, and the contenders that do it. */
export interface Case {
  readonly figures: readonly Figure[]
  readonly contenders: readonly Contender[]
  /** The number of rounds, where it differs from the rest of the section. */
  readonly rounds?: number
  /**
   * How often a contender runs in a round: what depends on the disk alone is measured in many short runs. Default once.
   */
  readonly repeat?: number
}

/** Cases whose rounds are interleaved. */
export interface Section {
  readonly name: string
  readonly cases: readonly Case[]
  /** The least number of rounds. */
  readonly least?: number
}

/** The result of one contender over all rounds. */
export interface Result {
  readonly durability: string
  readonly rounds: readonly number[]
  readonly median: number
  readonly least: number
  readonly most: number
  readonly lost: number
  readonly doubled: number
  /** The last error, if a round failed. */
  readonly error?: string
}

/** Whether a target was reached. */
export interface Verdict {
  readonly text: string
  /** The value as it is printed, where it is not the row's own. */
  readonly suffix: string
  /** The contender of the comparison, if there is one. */
  readonly beside?: string
  readonly value: number
  readonly reached: boolean
}

/** A row of the report. */
export interface Row {
  readonly section: string
  readonly name: string
  readonly unit: Unit
  /** By contender, Millrace first. */
  readonly results: Readonly<Record<string, Result>>
  /** Millrace to each other contender: the median of the ratios within each round. */
  readonly ratios: Readonly<Record<string, number>>
  readonly verdicts: readonly Verdict[]
}

interface Tally {
  readonly contender: Contender
  readonly samples: (Sample | undefined)[]
  error?: string
}

/** The middle of a list; of an even one, the lower of the two in the middle. */
export function median(list: readonly number[]): number {
  return list.toSorted((a, b) => a - b)[Math.floor((list.length - 1) / 2)] ?? NaN
}

/** The value below which a share of the list is. */
export function percentile(list: readonly number[], share: number): number {
  return list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))] ?? NaN
}

/** Jobs per second. */
export const rate = (count: number, millis: number): number => (count / millis) * 1000

const rotate = <T>(list: readonly T[], by: number): readonly T[] => {
  const at = list.length === 0 ? 0 : by % list.length
  return [...list.slice(at), ...list.slice(0, at)]
}

/**
 * Runs every case of a section once per round, with every contender. Each round begins with another contender, so that
 * other load on the machine affects all of them alike.
 */
export async function measure(
  section: Section,
  requested: number,
  log: (line: string) => void,
): Promise<readonly Row[]> {
  const rounds = Math.max(requested, section.least ?? 1)
  const tallies = new Map<Case, readonly Tally[]>(
    section.cases.map((each) => [each, each.contenders.map((contender) => ({ contender, samples: [] }))]),
  )
  const most = Math.max(0, ...section.cases.map((each) => each.rounds ?? rounds))
  for (let round = 0; round < most; round++) {
    for (const each of rotate(section.cases, round)) {
      if (round >= (each.rounds ?? rounds)) continue
      const what = `${section.name}, round ${round + 1} of ${each.rounds ?? rounds}: ${each.figures[0]?.name ?? ''}`
      const { repeat = 1 } = each
      for (let turn = round * repeat; turn < (round + 1) * repeat; turn++) {
        for (const tally of rotate(tallies.get(each)!, turn)) {
          await take(tally, (outcome) => log(`${what}, ${tally.contender.name}: ${outcome}`), each.figures)
        }
      }
    }
  }
  const ours = (name: string): readonly (number | undefined)[] => {
    for (const [each, [first]] of tallies) {
      const figure = each.figures.find((candidate) => candidate.name === name)
      if (figure !== undefined && first !== undefined) return first.samples.map((sample) => sample?.figures[figure.key])
    }
    return []
  }
  return section.cases.flatMap((each) =>
    each.figures.map((figure) => rowOf(section.name, figure, tallies.get(each)!, ours)),
  )
}

/** One run. A run that fails is reported and leaves a gap, so that hours of measuring are not lost. */
async function take(tally: Tally, log: (outcome: string) => void, figures: readonly Figure[]): Promise<void> {
  globalThis.gc?.()
  try {
    const sample = await tally.contender.run()
    tally.samples.push(sample)
    log(figures.map((figure) => `${show(sample.figures[figure.key] ?? NaN, figure.unit)} ${figure.unit}`).join(', '))
  } catch (error) {
    tally.samples.push(undefined)
    tally.error = error instanceof Error ? error.message : String(error)
    log(`FAILED: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
  }
}

function rowOf(
  section: string,
  figure: Figure,
  tallies: readonly Tally[],
  ours: (name: string) => readonly (number | undefined)[],
): Row {
  const valuesOf = (tally: Tally): readonly (number | undefined)[] =>
    tally.samples.map((sample) => sample?.figures[figure.key])
  const results: Record<string, Result> = {}
  const ratios: Record<string, number> = {}
  const [first, ...others] = tallies
  for (const tally of tallies) results[tally.contender.name] = resultOf(tally, valuesOf(tally))
  const own = first === undefined ? [] : valuesOf(first)
  for (const other of others) ratios[other.contender.name] = ratio(own, valuesOf(other))
  // A target against a peer that was not measured does not count as missed.
  const judged = (figure.targets ?? []).filter(
    (target) => !('to' in target) || target.kind === 'row' || target.to in results,
  )
  const verdicts = judged.map((target): Verdict => {
    switch (target.kind) {
      case 'ratio': {
        const value = ratios[target.to] ?? NaN
        const text = `≥ ${target.least} × ${target.to}`
        return { text, suffix: '', beside: target.to, value, reached: value >= target.least }
      }
      case 'within': {
        const value = ratios[target.to] ?? NaN
        const text = `≤ ${target.most} × ${target.to}`
        return { text, suffix: '', beside: target.to, value, reached: value <= target.most }
      }
      case 'row': {
        const value = ratio(own, ours(target.to))
        const text = `≥ ${target.least} × ${target.to}`
        return { text, suffix: `: ${show(value, 'ratio')}`, value, reached: value >= target.least }
      }
      case 'least': {
        const value = median(present(own))
        return { text: `≥ ${show(target.value, figure.unit)}`, suffix: '', value, reached: value >= target.value }
      }
      case 'below': {
        const value = median(present(own))
        return { text: `< ${target.value} ${figure.unit}`, suffix: '', value, reached: value < target.value }
      }
    }
  })
  return { section, name: figure.name, unit: figure.unit, results, ratios, verdicts }
}

const present = (list: readonly (number | undefined)[]): readonly number[] => list.filter((each) => each !== undefined)

/** The median of the ratios within each round. */
function ratio(own: readonly (number | undefined)[], other: readonly (number | undefined)[]): number {
  return median(
    own.flatMap((value, round) => {
      const beside = other[round]
      return value === undefined || beside === undefined ? [] : [value / beside]
    }),
  )
}

function resultOf(tally: Tally, values: readonly (number | undefined)[]): Result {
  const rounds = present(values)
  const sum = (key: 'lost' | 'doubled'): number => tally.samples.reduce((all, sample) => all + (sample?.[key] ?? 0), 0)
  return {
    durability: tally.contender.durability,
    rounds,
    median: median(rounds),
    least: Math.min(...rounds),
    most: Math.max(...rounds),
    lost: sum('lost'),
    doubled: sum('doubled'),
    ...(tally.error !== undefined && { error: tally.error }),
  }
}

/** A figure as it is printed. */
export function show(value: number, unit: Unit): string {
  if (Number.isNaN(value)) return '–'
  if (unit === 'ratio' || unit === '%') return value.toFixed(2)
  if (unit === 'ms') return value.toFixed(value < 1 ? 3 : 2)
  if (unit === 'MB') return value.toFixed(1)
  return Math.round(value).toLocaleString('en')
}
