// `node scripts/demo-picture.mjs`: runs the demo and draws the end of its output into docs/demo.svg, for the README.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'

const { stdout, status } = spawnSync('npm', ['run', '--silent', 'demo'], { encoding: 'utf8' })
if (status !== 0) throw new Error('The demo failed.')
const lines = stdout.trimEnd().split('\n')
const killed = lines.findIndex((line) => line.includes('is killed'))
const table = lines.findIndex((line) => line.startsWith('kind '))
/** The lines to show: the kill, the takeover, the retry, and the table at the end. */
const shown = [
  '$ npm ci && npm run demo',
  '…',
  ...lines.slice(killed - 4, killed + 3),
  '…',
  ...lines.slice(killed + 3, table).filter((line) => /lease|takes over|retried|attempt 2|film-ann/.test(line)),
  '…',
  ...lines.slice(table - 1),
]

const SIZE = { line: 18, column: 7.8, edge: 16 }
const width = Math.ceil(Math.max(...shown.map((line) => line.length)) * SIZE.column + 2 * SIZE.edge)
const height = shown.length * SIZE.line + 2 * SIZE.edge
const colours = [
  [/is killed|has run out/, '#ff7b72'],
  [/takes over|taken over|nothing was lost/, '#7ee787'],
  [/failed|retried/, '#f2cc60'],
  [/^\$/, '#79c0ff'],
]
const text = shown
  .map((line, at) => {
    const [, colour = '#c9d1d9'] = colours.find(([pattern]) => pattern.test(line)) ?? []
    const escaped = line.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
    return `<text x="${SIZE.edge}" y="${SIZE.edge + (at + 0.8) * SIZE.line}" fill="${colour}" xml:space="preserve">${escaped}</text>`
  })
  .join('\n')
writeFileSync(
  'docs/demo.svg',
  `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">
<title>The demo: a worker is killed with SIGKILL, another takes its job over, and all 24 jobs are completed</title>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">
${text}
</g>
</svg>
`,
)
