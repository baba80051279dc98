// Formats the results of a run, as JSON for programs and as text for people.
import { show } from '../measure/measure.js'
import type { Row } from '../measure/measure.js'

/** The results of a run. */
export interface Report {
  /** When the run ended. */
  readonly at: string
  readonly node: string
  readonly driver: string
  readonly machine: string
  /** Servers of the run, and their settings. */
  readonly about: readonly string[]
  readonly rounds: number
  readonly full: boolean
  /** What was left out, and why. */
  readonly notes: readonly string[]
  readonly rows: readonly Row[]
}

/** The columns, and whether they are aligned to the right. */
const COLUMNS: readonly (readonly [head: string, right: boolean])[] = [
  ['', false],
  ['', false],
  ['durability', false],
  ['median', true],
  ['', false],
  ['rounds', true],
  ['ratio', true],
  ['lost', true],
  ['doubled', true],
  ['target', false],
]

/**
 * The table of one section: for each row a line for Millrace and a line for each other contender, with the ratio to it.
 */
export function sectionText(name: string, rows: readonly Row[]): string {
  const lines = rows.flatMap(linesOf)
  const widths = COLUMNS.map(([head], at) => Math.max(head.length, ...lines.map((line) => line[at]?.length ?? 0)))
  const text = (cells: readonly string[]): string =>
    cells
      .map((cell, at) => (COLUMNS[at]![1] ? cell.padStart(widths[at]!) : cell.padEnd(widths[at]!)))
      .join('  ')
      .trimEnd()
  const head = text(COLUMNS.map(([title]) => title))
  return [`\n${name}`, head, '─'.repeat(head.length), ...lines.map(text)].join('\n')
}

function linesOf(row: Row): string[][] {
  return Object.entries(row.results).map(([name, result], at) => {
    const judged = row.verdicts.filter((verdict) => (verdict.beside ?? Object.keys(row.results)[0]) === name)
    const targets = judged.map((each) => `${each.text}${each.suffix} ${each.reached ? 'reached' : 'MISSED'}`)
    return [
      at === 0 ? row.name : '',
      name,
      result.durability,
      result.rounds.length === 0 ? 'failed' : show(result.median, row.unit),
      row.unit,
      result.rounds.length < 2 ? '' : `${show(result.least, row.unit)} – ${show(result.most, row.unit)}`,
      at === 0 ? '' : show(row.ratios[name] ?? NaN, 'ratio'),
      String(result.lost),
      String(result.doubled),
      targets.join('; '),
    ]
  })
}

/** The last lines: the environment, what was left out, how many targets were reached, and lost and doubled jobs. */
export function closing({ node, driver, machine, about, notes, rows }: Report): string {
  const verdicts = rows.flatMap((row) => row.verdicts.map((verdict) => ({ row, verdict })))
  const missed = verdicts.filter(({ verdict }) => !verdict.reached)
  const sum = (key: 'lost' | 'doubled'): number =>
    rows.reduce((all, row) => all + Object.values(row.results).reduce((some, result) => some + result[key], 0), 0)
  return [
    `\nNode ${node}, ${driver}, ${machine}`,
    ...about,
    ...notes,
    `${verdicts.length - missed.length} of ${verdicts.length} targets reached; ${sum('lost')} jobs lost, ${sum('doubled')} doubled.`,
    ...missed.map(({ row, verdict }) => `MISSED: ${row.section}: ${row.name}: ${verdict.text}${verdict.suffix}`),
  ].join('\n')
}
