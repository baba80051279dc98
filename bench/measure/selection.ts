// Which rows are measured, and beside whom.
import type { Section } from './measure.js'

/** What was asked for. */
export interface Choice {
  /** Only rows whose section or name holds this text, and those that they are compared with. */
  readonly only?: string
  /** Only these contenders beside Millrace. */
  readonly beside?: readonly string[]
  /** How many rounds. */
  readonly rounds: number
}

/** The cases that were asked for, and those that they are compared with; none of a section that has none. */
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
      // One who tries out a row says how often.
      least: only === undefined ? Math.max(rounds, section.least ?? 0) : rounds,
      cases: cases.map((each) => ({
        ...each,
        contenders: each.contenders.filter(({ name }, at) => at === 0 || (beside?.includes(name) ?? true)),
      })),
    },
  ]
}
