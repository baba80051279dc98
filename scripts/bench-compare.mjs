// `npm run bench:compare -- REF [rows and options of the bench]`: the same rows on the package built from another commit
// and on this one, interleaved. Prints the ratio of this package to the other for each row: 1.10 is a tenth better.
// `--times N` runs both packages N times (default 3). Example: `npm run bench:compare -- HEAD~20 sqlite --only drain`.
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { join, resolve } from 'node:path'

const args = process.argv.slice(2)
const at = args.indexOf('--times')
const [, text = '3'] = at === -1 ? [] : args.splice(at, 2)
const times = Number(text)
const ref = args.shift()
if (ref === undefined || ref.startsWith('-') || !(times >= 1)) {
  console.error('Usage: npm run bench:compare -- REF [sqlite] [memory] [postgres] [--only TEXT] [--times N]')
  process.exit(2)
}

const sides = { before: buildOf(ref), after: buildHere() }

/** @type {Map<string, { unit: string, before: number[], after: number[] }>} */
const rows = new Map()
let failures = 0
for (let turn = 0; turn < times; turn++) {
  for (const side of turn % 2 === 0 ? ['before', 'after'] : ['after', 'before']) {
    console.error(`\n=== run ${turn + 1} of ${times}: ${side === 'before' ? ref : 'this package'}`)
    for (const row of measure(sides[side])) {
      const name = `${row.section}: ${row.name}`
      const known = rows.get(name) ?? { unit: row.unit, before: [], after: [] }
      rows.set(name, known)
      const result = row.results.millrace ?? Object.values(row.results)[0]
      if (result.error !== undefined || result.lost > 0 || result.doubled > 0) {
        console.error(`${name}: ${result.error ?? `${result.lost} lost, ${result.doubled} doubled`}`)
        failures++
      } else known[side].push(result.median)
    }
  }
}

for (const [name, { unit, before, after }] of rows) {
  const ratios = after.flatMap((value, turn) => {
    const other = before[turn]
    return other === undefined ? [] : [unit === 'jobs/s' ? value / other : other / value]
  })
  const sorted = ratios.toSorted((a, b) => a - b)
  if (sorted.length === 0) continue
  const middle = sorted[Math.floor((sorted.length - 1) / 2)]
  const range = sorted.length > 1 ? `  (${sorted[0].toFixed(2)} – ${sorted.at(-1).toFixed(2)})` : ''
  console.log(`${middle.toFixed(2)}${range}  ${name}`)
}
process.exit(failures === 0 ? 0 : 1)

/**
 * Builds the package of a commit in a folder of its own, with the bench of this commit, and the server that it starts, beside it.
 * @param {string} commit
 */
function buildOf(commit) {
  const sha = execFileSync('git', ['rev-parse', '--verify', `${commit}^{commit}`], { encoding: 'utf8' }).trim()
  const folder = resolve('node_modules/.cache/bench-compare', sha)
  if (!existsSync(join(folder, 'dist'))) {
    rmSync(folder, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true })
    const archive = execFileSync(
      'git',
      ['archive', sha, 'src', 'package.json', 'tsconfig.json', 'tsconfig.build.json'],
      {
        maxBuffer: 2 ** 28,
      },
    )
    execFileSync('tar', ['-x', '-C', folder], { input: archive })
    symlinkSync(resolve('node_modules'), join(folder, 'node_modules'))
    execFileSync('npx', ['tsc', '-p', 'tsconfig.build.json'], { cwd: folder, stdio: 'inherit' })
  }
  for (const copied of ['bench', 'test']) rmSync(join(folder, copied), { recursive: true, force: true })
  cpSync('bench', join(folder, 'bench'), { recursive: true, filter: (path) => !path.includes('node_modules') })
  cpSync('test/stores', join(folder, 'test/stores'), { recursive: true }) // the server and the data of some rows
  return folder
}

function buildHere() {
  execFileSync('npm', ['run', '--silent', 'build'], { stdio: 'inherit' })
  return process.cwd()
}

/**
 * One run of the bench on the package in a folder; its rows.
 * @param {string} folder
 */
function measure(folder) {
  const program = ['tsx', '--expose-gc', '--tsconfig', 'tsconfig.build.json', 'bench/run.ts']
  const { stdout, status } = spawnSync('npx', [...program, ...args, '--rounds', '1', '--beside', 'none', '--json'], {
    cwd: folder,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (!stdout.startsWith('{')) throw new Error(`The bench in ${folder} ended with code ${status} and printed no rows.`)
  return JSON.parse(stdout).rows
}
