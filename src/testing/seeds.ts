// testing/seeds.ts: runs many seeds and cuts what fails down to what is needed to fail.
import { generateScript } from './script/generate.js'
import { runScript } from './play.js'
import type { RunScriptOptions, SimulationReport } from './play.js'
import type { Script } from './script/script.js'
import { shrinkScript } from './script/shrink.js'

/** Which seeds to run. */
export interface SeedsOptions {
  /** The first seed. Default 1. */
  readonly from?: number
  /** How many. Default 100. */
  readonly count?: number
  /** Whether a failing script is cut down. Default true. */
  readonly shrink?: boolean
  /** Stop after this many failures. Default 1. */
  readonly failures?: number
  /** Told after each seed. Default: nobody is. */
  readonly progress?: (report: SimulationReport) => void
}

/** What many seeds came to. */
export interface SeedsReport {
  /** Whether every promise was kept in every one of them. */
  readonly ok: boolean
  /** How many were run. */
  readonly ran: number
  /** Those that failed, each cut down unless told otherwise. */
  readonly failures: readonly SimulationReport[]
  /** How often each fault, operation and act occurred in all of them. */
  readonly counts: Readonly<Record<string, number>>
}

/** Runs scripted simulations, seed by seed. */
export function runSeeds(options: SeedsOptions & RunScriptOptions = {}): Promise<SeedsReport> {
  return eachSeed(options, generateScript, (script) => runScript(script, options))
}

/** Makes a script of each seed and runs it. */
export async function eachSeed(
  options: SeedsOptions,
  generate: (seed: number) => Script,
  run: (script: Script) => Promise<SimulationReport>,
): Promise<SeedsReport> {
  const { from = 1, count = 100, shrink = true, failures: most = 1, progress } = options
  const failures: SimulationReport[] = []
  const counts: Record<string, number> = {}
  let ran = 0
  for (let seed = from; seed < from + count && failures.length < most; seed++) {
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
