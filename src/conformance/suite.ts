// conformance/suite.ts: all cases, and how to run them without a test runner.
import { claims } from './cases/claims.js'
import { broken } from './cases/broken.js'
import { cells, pauses } from './cases/cells.js'
import { openAndClose } from './cases/open-and-close.js'
import { dedup } from './cases/dedup.js'
import { dependencies } from './cases/dependencies.js'
import { details } from './cases/details.js'
import { due } from './cases/due.js'
import { events } from './cases/events.js'
import { expiry } from './cases/expiry.js'
import { fences } from './cases/fences.js'
import { filters } from './cases/find/filters.js'
import { find } from './cases/find/find.js'
import { groups } from './cases/limits/groups.js'
import { heads } from './cases/heads.js'
import { hints } from './cases/hints.js'
import { holds } from './cases/limits/holds.js'
import { largeClaims } from './cases/large-claims.js'
import { limits } from './cases/limits/limits.js'
import { notes } from './cases/notes.js'
import { order } from './cases/order.js'
import { rates } from './cases/limits/rates.js'
import { refusals } from './cases/refusals.js'
import { replays } from './cases/replays.js'
import { schedules } from './cases/schedules.js'
import { tallies } from './cases/tallies.js'
import { transactions } from './cases/transactions.js'
import { values } from './cases/values.js'
import { waiting } from './cases/waiting.js'
import { within } from './check.js'
import type { ConformanceCase, MakeHarness } from './harness.js'

/** Every duty of a store, as cases; each needs a new harness. */
export const conformanceCases: readonly ConformanceCase[] = [
  ...fences,
  ...refusals,
  ...replays,
  ...order,
  ...claims,
  ...largeClaims,
  ...pauses,
  ...limits,
  ...rates,
  ...holds,
  ...groups,
  ...dependencies,
  ...broken,
  ...waiting,
  ...dedup,
  ...cells,
  ...due,
  ...expiry,
  ...schedules,
  ...find,
  ...filters,
  ...tallies,
  ...heads,
  ...details,
  ...notes,
  ...events,
  ...hints,
  ...values,
  ...openAndClose,
  ...transactions,
]

/** The result of one case. */
export interface CaseResult {
  /** The part of the port it belongs to. */
  readonly area: string
  /** The duty, as a sentence. */
  readonly title: string
  /** A case is skipped if it needs what the store does not support. */
  readonly outcome: 'passed' | 'failed' | 'skipped'
  /** The error of a failed case. */
  readonly error?: unknown
}

/** The results of all cases. */
export interface ConformanceReport {
  /** Whether no case failed. */
  readonly ok: boolean
  /** How many cases passed. */
  readonly passed: number
  /** The cases that failed, in order. */
  readonly failed: readonly CaseResult[]
  /** The cases that did not apply. */
  readonly skipped: readonly CaseResult[]
}

/** Options of a run of the suite. */
export interface ConformanceOptions {
  /** Called with the result of each case when it ends. Default: no callback. */
  readonly report?: (result: CaseResult) => void
  /** The cases to run. Default: all. */
  readonly cases?: readonly ConformanceCase[]
  /** How long one case may take in real time, in milliseconds. Default 60,000. */
  readonly timeout?: number
  /** @deprecated Use `timeout`. Default: `timeout`. */
  readonly patience?: number
}

/** Runs one case on a new harness. Rejects if the store breaks its duty; returns whether the case applied. */
export async function runCase(
  make: MakeHarness,
  conformanceCase: ConformanceCase,
  timeout = 60_000,
): Promise<'passed' | 'skipped'> {
  const harness = await make()
  try {
    if (conformanceCase.needs === 'transactions' && !harness.store.can.transactions) return 'skipped'
    await within(conformanceCase.run(harness), `the case "${conformanceCase.title}" ends`, timeout)
    return 'passed'
  } finally {
    await harness.dispose()
  }
}

/** Runs the suite, one case after the other. Failed cases are in the report; they do not make it reject. */
export async function runConformance(make: MakeHarness, options: ConformanceOptions = {}): Promise<ConformanceReport> {
  const results: CaseResult[] = []
  for (const conformanceCase of options.cases ?? conformanceCases) {
    const { area, title } = conformanceCase
    const result = await runCase(make, conformanceCase, options.timeout ?? options.patience).then(
      (outcome): CaseResult => ({ area, title, outcome }),
      (error: unknown): CaseResult => ({ area, title, outcome: 'failed', error }),
    )
    results.push(result)
    options.report?.(result)
  }
  const failed = results.filter(({ outcome }) => outcome === 'failed')
  const skipped = results.filter(({ outcome }) => outcome === 'skipped')
  return { ok: failed.length === 0, passed: results.length - failed.length - skipped.length, failed, skipped }
}
