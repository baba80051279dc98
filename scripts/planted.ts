// `npm run planted`: plants every bug of test/planted in turn, and reports which layer of tests detects it: the unit tests
// of its room, conformance, or the simulator. `-- --only fence` plants those whose title or file matches;
// `--layers unit,simulator` runs only these layers; `--parallel 2` bugs at a time; `--json FILE` writes the findings after
// each bug, and bugs with a finding in that file are not run again, so that an interrupted run can continue.
import { spawn } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import type { Bug } from '../test/planted/bug.js'
import { bugs } from '../test/planted/bugs.js'
import { layers, testsOf } from '../test/planted/layers.js'
import type { Layer } from '../test/planted/layers.js'

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    layers: { type: 'string', default: layers.join(',') },
    parallel: { type: 'string', default: '2' },
    json: { type: 'string' },
  },
})

type Finding = 'detected' | 'missed' | 'none'

/** Runs tests with a bug planted; they detect it if one of them fails. */
function detects(bug: Bug, tests: readonly string[]): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const args = ['node_modules/vitest/vitest.mjs', 'run', '--config', 'vitest.planted.config.ts', ...tests]
    const child = spawn(process.execPath, args, {
      env: { ...process.env, MILLRACE_PLANT: bug.title, MILLRACE_WALKS: '4' },
    })
    let output = ''
    child.stdout.on('data', (part: Buffer) => (output += part.toString()))
    child.stderr.on('data', (part: Buffer) => (output += part.toString()))
    child.once('error', reject)
    child.once('close', (status) => {
      if (/cannot be planted|No test files found|Startup Error/.test(output)) reject(new Error(output.slice(-2_000)))
      else resolve(status !== 0)
    })
  })
}

type Findings = Readonly<Record<Layer, Finding>>

/** The findings of an interrupted run, by the titles of their bugs. */
function earlier(): ReadonlyMap<string, Findings> {
  if (values.json === undefined || !existsSync(values.json)) return new Map()
  const report = JSON.parse(readFileSync(values.json, 'utf8')) as readonly (Findings & { readonly title: string })[]
  return new Map(report.map(({ title, unit, conformance, simulator }) => [title, { unit, conformance, simulator }]))
}

/** Writes all findings so far. */
function save(): void {
  if (values.json === undefined) return
  const report = [...found].map(([{ title, guarantee, file }, row]) => ({ title, guarantee, file, ...row }))
  writeFileSync(values.json, `${JSON.stringify(report, undefined, 1)}\n`)
}

const wanted = values.layers.split(',')
const found = new Map<Bug, Findings>()
const known = earlier()
const left: Bug[] = []
for (const bug of bugs.filter(({ title, file }) => `${title} ${file}`.includes(values.only))) {
  const row = known.get(bug.title)
  if (row === undefined) left.push(bug)
  else found.set(bug, row)
}

/** Plants one bug after the other until none is left. */
async function work(): Promise<void> {
  for (let bug = left.shift(); bug !== undefined; bug = left.shift()) {
    const row: Record<Layer, Finding> = { unit: 'none', conformance: 'none', simulator: 'none' }
    for (const layer of layers.filter((each) => wanted.includes(each))) {
      const tests = testsOf(bug, layer)
      if (tests.length > 0) row[layer] = (await detects(bug, tests)) ? 'detected' : 'missed'
    }
    found.set(bug, row)
    save()
    const missed = Object.values(row).includes('detected') ? '' : '   <- no layer detects it'
    const cells = layers.map((layer) => row[layer].padEnd(9)).join(' ')
    console.log(`${cells} ${bug.guarantee}: ${bug.title} (${bug.file})${missed}`)
  }
}
await Promise.all(Array.from({ length: Number(values.parallel) }, work))

const rows = [...found.values()]
console.log(`\n${rows.length} bugs planted`)
for (const layer of layers) {
  const tried = rows.filter((row) => row[layer] !== 'none')
  const share = tried.filter((row) => row[layer] === 'detected').length
  console.log(`${layer}: ${share} of ${tried.length} detected`)
}
const undetected = [...found].filter(([, row]) => !Object.values(row).includes('detected'))
console.log(`${rows.length - undetected.length} passed, ${undetected.length} failed`)
process.exitCode = undetected.length === 0 ? 0 : 1
