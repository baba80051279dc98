// `npm run nightly`: what takes too long for every change: many seeds of the simulator on two stores, many random walks
// on every store, many random requests to the server, and every planted bug. The last line is `N passed, N failed`.
import { spawnSync } from 'node:child_process'
import { parseArgs } from 'node:util'

const { values } = parseArgs({ options: { seeds: { type: 'string', default: '20000' } } })
/** Each day has its own seeds. */
const from = String(1 + Math.floor(Date.now() / 86_400_000) * 1_000_000)

const steps = [
  { name: 'simulator', args: ['tsx', 'scripts/sim.ts', '--seeds', values.seeds, '--from', from] },
  {
    name: 'simulator on SQLite',
    args: ['tsx', 'scripts/sim.ts', '--seeds', '2000', '--from', from, '--store', 'sqlite'],
  },
  {
    name: 'random walks',
    args: ['vitest', 'run', 'walks', '--typecheck.enabled=false'],
    env: { MILLRACE_WALKS: '200' },
  },
  {
    name: 'batches of remote stores',
    args: ['vitest', 'run', 'store-protocol/judge', '--typecheck.enabled=false'],
    env: { MILLRACE_JUDGED: '100000' },
  },
  {
    name: 'random requests to the server, and idle connections',
    args: ['vitest', 'run', 'test/server/hostile', '--typecheck.enabled=false'],
    env: { MILLRACE_FUZZ: '100000', MILLRACE_FUZZ_SEED: from, MILLRACE_CONNECTIONS: '10000' },
  },
  { name: 'planted bugs', args: ['tsx', 'scripts/planted.ts'] },
]

/** @type {string[]} */
const failed = []
for (const { name, args, env } of steps) {
  console.log(`\n=== ${name}`)
  const { status } = spawnSync('npx', args, { stdio: 'inherit', env: { ...process.env, ...env } })
  if (status !== 0) failed.push(name)
}
for (const name of failed) console.log(`FAILED: ${name}`)
console.log(`${steps.length - failed.length} passed, ${failed.length} failed`)
process.exit(failed.length === 0 ? 0 : 1)
