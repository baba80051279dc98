// `npm run sim -- --seeds 10000`: runs the simulator, and prints failures, shrunk to the faults that they need.
// `--from 1` starts at another seed; `--seed 42 --trace` runs one and prints its trace; `--failures 5` stops at the fifth
// failure; `--no-shrink` prints failures as they are; `--store sqlite` runs on SQLite in memory.
import { parseArgs } from 'node:util'
import { sqlite } from '../src/stores/sqlite/store.js'
import { runSeeds } from '../src/testing/seeds.js'
import type { SimulationReport } from '../src/testing/play.js'

const { values } = parseArgs({
  allowNegative: true,
  options: {
    seeds: { type: 'string', default: '500' },
    from: { type: 'string', default: '1' },
    seed: { type: 'string' },
    trace: { type: 'boolean', default: false },
    failures: { type: 'string', default: '3' },
    shrink: { type: 'boolean', default: true },
    store: { type: 'string', default: 'memory' },
    counts: { type: 'boolean', default: false },
  },
})

const one = values.seed !== undefined
const count = one ? 1 : Number(values.seeds)
const began = performance.now()
let ran = 0
const progress = (report: SimulationReport): void => {
  ran++
  if (one && values.trace) console.log(report.trace.join('\n'))
  if (!process.stderr.isTTY && ran % 500 !== 0) return
  const rate = (ran / (performance.now() - began)) * 1000
  process.stderr.write(`${process.stderr.isTTY ? '\r' : ''}${ran} of ${count} seeds, ${rate.toFixed(0)} a second`)
  if (!process.stderr.isTTY) process.stderr.write('\n')
}

const { failures, counts } = await runSeeds({
  from: Number(values.seed ?? values.from),
  count,
  failures: Number(values.failures),
  shrink: values.shrink,
  progress,
  ...(values.store === 'sqlite' && { store: (runtime) => sqlite(':memory:', { runtime, ring: 100_000 }) }),
})
if (process.stderr.isTTY) process.stderr.write('\n')
for (const { seed, violations, script, trace } of failures) {
  console.log(`\nSeed ${seed} failed:`)
  for (const { rule, time, id = '', message } of violations.slice(0, 10)) {
    console.log(`  ${time.toFixed(2).padStart(11)}  ${rule} ${id}: ${message}`)
  }
  if (values.shrink) {
    console.log(
      `\nScript:\n${JSON.stringify({ settings: script.settings, steps: script.steps, faults: script.faults }, undefined, 1)}`,
    )
    console.log(`\nTrace:\n${trace.join('\n')}`)
  }
}
if (values.counts) console.log(counts)
const seconds = (performance.now() - began) / 1000
console.log(`\n${ran} seeds in ${seconds.toFixed(1)} s, ${failures.length} failed.`)
process.exitCode = failures.length > 0 ? 1 : 0
