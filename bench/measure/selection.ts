// Selects the rows to measure, and their contenders.
import type { Section } from './measure.js'

/** What the caller selected. */
export interface Choice {
  /** Only rows whose section or name contains this text, and those that they are compared with. */
  readonly only?: string
  /** Only these contenders beside Millrace. */
  readonly beside?: readonly string[]
  /** The number of rounds. */
  readonly rounds: number
}

/** The selected cases, and those that they are compared with. Empty if the section has none. */
export function chosen(section: Section, { only, beside, rounds }: Choice): readonly Section[] {
  const matches = (text: string): boolean => only === undefined || text.toLowerCase().includes(only.toLowerCase())
  const asked = section.cases.filter(
    (each) => matches(section.name) || each.figures.some((figure) => matches(figure.name)),
  )
  if (asked.length === 0) return []
  const targets = asked.flatMap((each) => each.figures.flatMap((figure) => figure.targets ?? []))
  const needed = new Set(targets.flatMap((target) => (target.kind === 'row' ? [target.to] : [])))
  const cases = section.cases.filter(
    (each) => asked.includes(each) || each.figures.some((figure) => needed.has(figure.name)),
  )
  return [
    {
      ...section,
      // With `--only`, the given number of rounds replaces the section's minimum.
      least: only === undefined ? Math.max(rounds, section.least ?? 0) : rounds,
      cases: cases.map((each) => ({
        ...each,
        contenders: each.contenders.filter(({ name }, at) => at === 0 || (beside?.includes(name) ?? true)),
      })),
    },
  ]
}
