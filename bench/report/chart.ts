// npm run bench:chart [report] [folder]: draws the pictures in docs/ from docs/bench.json, which `npm run bench -- --save`
// wrote; one picture for each store whose rows the report has.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { show } from '../measure/measure.js'
import type { Row } from '../measure/measure.js'
import type { Report } from './report.js'

const [source = 'docs/bench.json', folder = 'docs'] = process.argv.slice(2)

interface Picture {
  readonly file: string
  readonly title: string
  /** What the words behind the figures mean. */
  readonly about: string
  readonly section: string
  readonly rows: readonly string[]
  /** The versions that the rows ran on. */
  readonly on: (report: Report) => string
}

const PICTURES: readonly Picture[] = [
  {
    file: 'bench.svg',
    title: 'Millrace on SQLite',
    about: 'FULL: what was acknowledged survives a power cut. NORMAL: it may not. Each group has its own scale.',
    section: 'SQLite, synchronous=FULL',
    rows: ['add, awaited one by one', 'add, 100 calls in flight', 'addBulk of 1000', 'drain, concurrency 100'],
    on: ({ node, driver }) => `Node ${node.slice(1)}, ${driver}`,
  },
  {
    file: 'bench-postgres.svg',
    title: 'Millrace on PostgreSQL',
    about: 'FSYNC: what was acknowledged survives a power cut. MEMORY: it does not. Each group has its own scale.',
    section: 'PostgreSQL',
    rows: [
      'add, awaited one by one',
      'add, 100 calls in flight',
      'addBulk of 1000, two in flight',
      'drain, concurrency 100',
    ],
    on: ({ about }) => (about[0] ?? 'PostgreSQL').replace(/:.*/, ''),
  },
]

const WHO: Readonly<Record<string, string>> = { millrace: 'Millrace', raw: 'raw driver' }

const WIDTH = 760
const LEFT = 132
const BAR = 18
const GAP = 4
const GROUP = 30
const TOP = 62
/** The longest bar; the space to the right of it is for its figure. */
const LONGEST = WIDTH - LEFT - 160

const escape = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')

/** The bars of one row. Each row has its own scale. */
function group(row: Row, top: number): { readonly svg: string; readonly bottom: number } {
  const results = Object.entries(row.results).filter(([, result]) => result.rounds.length > 0)
  const most = Math.max(...results.map(([, result]) => result.median))
  const bars = results.map(([name, result], at) => {
    const y = top + 10 + at * (BAR + GAP)
    const width = Math.max(2, (result.median / most) * LONGEST)
    const figure = `${show(result.median, row.unit)}/s`
    return [
      `<text class="who" x="${LEFT - 10}" y="${y + 13}">${escape(WHO[name] ?? name)}</text>`,
      `<rect class="${escape(name)}" x="${LEFT}" y="${y}" width="${width.toFixed(1)}" height="${BAR}" rx="3"/>`,
      `<text class="figure" x="${(LEFT + width + 8).toFixed(1)}" y="${y + 13}">${figure} <tspan class="quiet">${escape(result.durability.toUpperCase())}</tspan></text>`,
    ].join('\n  ')
  })
  const title = `<text class="row" x="${LEFT}" y="${top}">${escape(row.name)}</text>`
  return { svg: [title, ...bars].join('\n  '), bottom: top + 10 + results.length * (BAR + GAP) }
}

/** The picture of a report. It has colours for light and for dark mode, and a transparent background. */
function chart(report: Report, picture: Picture, rows: readonly Row[]): string {
  const groups: string[] = []
  let top = TOP
  for (const row of rows) {
    const { svg, bottom } = group(row, top)
    groups.push(svg)
    top = bottom + GROUP
  }
  const made = `${picture.on(report)}, ${report.machine}; medians of ${report.rounds} rounds, ${report.at.slice(0, 10)}`
  const descriptions = rows.map((row) => {
    const figures = Object.entries(row.results).map(
      ([name, { median }]) => `${WHO[name] ?? name} ${show(median, row.unit)}`,
    )
    return `${row.name}: ${figures.join(', ')}`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${top}" width="${WIDTH}" height="${top}" role="img" aria-labelledby="title about">
  <title id="title">${picture.title}: jobs a second</title>
  <desc id="about">${escape(descriptions.join('. '))}.</desc>
  <style>
    text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2933 }
    .title { font-size: 16px; font-weight: 600 }
    .row { font-weight: 600 }
    .who { text-anchor: end }
    .quiet { fill: #6b7785; font-size: 11px }
    .millrace { fill: #0b7285 }
    .raw { fill: #a9b4bf }
    rect { fill: #d9a05b }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e9ee }
      .quiet { fill: #93a0ad }
      .millrace { fill: #3bc9db }
      .raw { fill: #5c6975 }
      rect { fill: #c4813a }
    }
  </style>
  <text class="title" x="14" y="22">${picture.title}: jobs a second, more is better</text>
  <text class="quiet" x="14" y="40">${picture.about}</text>
  ${groups.join('\n  ')}
  <text class="quiet" x="14" y="${top - 8}">${escape(made)}</text>
</svg>
`
}

const report = JSON.parse(readFileSync(source, 'utf8')) as Report
for (const picture of PICTURES) {
  const rows = picture.rows.flatMap(
    (name) => report.rows.find((row) => row.section === picture.section && row.name === name) ?? [],
  )
  if (rows.length === 0) continue
  const target = join(folder, picture.file)
  writeFileSync(target, chart(report, picture, rows))
  console.log(`${target} drawn from ${source}.`)
}
