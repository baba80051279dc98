// testing/seeds.ts: runs many seeds and shrinks the scripts that fail.
import { generateScript } from './script/generate.js'
import { runScript } from './play.js'
import type { RunScriptOptions, SimulationReport } from './play.js'
import type { Script } from './script/script.js'
import { shrinkScript } from './script/shrink.js'

/** Which seeds to run. */
export interface SeedsOptions {
  /** The first seed. Default 1. */
  readonly from?: number
  /** How many seeds. Default 100. */
  readonly count?: number
  /** Whether failing scripts are shrunk. Default true. */
  readonly shrink?: boolean
  /** Stop after this many failures. Default 1. */
  readonly failures?: number
  /** Called after each seed with its report. Default: no callback. */
  readonly progress?: (report: SimulationReport) => void
}

/** The result of running many seeds. */
export interface SeedsReport {
  /** Whether no rule was broken for any seed. */
  readonly ok: boolean
  /** How many were run. */
  readonly ran: number
  /** The failed ones, each shrunk unless `shrink` is false. */
  readonly failures: readonly SimulationReport[]
  /** How often each fault, operation and act occurred, over all seeds. */
  readonly counts: Readonly<Record<string, number>>
}

/** Runs scripted simulations, seed by seed. */
export function runSeeds(options: SeedsOptions & RunScriptOptions = {}): Promise<SeedsReport> {
  return eachSeed(options, generateScript, (script) => runScript(script, options))
}

/** Generates a script for each seed and runs it. */
export async function eachSeed(
  options: SeedsOptions,
  generate: (seed: number) => Script,
  run: (script: Script) => Promise<SimulationReport>,
): Promise<SeedsReport> {
  const { from = 1, count = 100, shrink = true, failures: maxFailures = 1, progress } = options
  const failures: SimulationReport[] = []
  const counts: Record<string, number> = {}
  let ran = 0
  for (let seed = from; seed < from + count && failures.length < maxFailures; seed++) {
    const report = await run(generate(seed))
    ran++
    for (const [name, times] of Object.entries(report.counts)) counts[name] = (counts[name] ?? 0) + times
    if (!report.ok) failures.push(shrink ? await smallest(report, run) : report)
    progress?.(report)
  }
  return { ok: failures.length === 0, ran, failures, counts }
}

async function smallest(
  report: SimulationReport,
  run: (script: Script) => Promise<SimulationReport>,
): Promise<SimulationReport> {
  const { rule } = report.violations[0]!
  let best = report
  await shrinkScript(report.script, async (script) => {
    const next = await run(script)
    const fails = next.violations.some((violation) => violation.rule === rule)
    if (fails) best = next
    return fails
  })
  return best
}
