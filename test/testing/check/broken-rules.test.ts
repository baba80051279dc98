// The checker can find bugs: with one rule turned off at a time, it names the promise that was broken.
import { describe, expect, test } from 'vitest'
import { generateScript, runScript, runSeeds } from 'millrace/testing'
import type { Rule, RunScriptOptions, Script } from 'millrace/testing'
import {
  withDoubledEvents,
  withLostAdds,
  withLostRuns,
  withoutDedup,
  withoutExclusion,
  withoutFences,
  withoutLimits,
  withForgottenJobs,
  withoutExpiry,
  withoutHolds,
  withoutPauses,
  withoutRelease,
  withoutRenewals,
  withoutReplays,
  withoutRounds,
} from './broken-rules.js'
import {
  withForgetfulRetries,
  withHastyReleases,
  withLostContinuations,
  withMissingEdges,
  withMixedResults,
  withTwinContinuations,
  withoutResults,
  withoutSiblings,
  withoutWaits,
} from './broken-flows.js'

import { withForgottenSteps, withOtherSignals } from './broken-steps.js'

const SEEDS = 40

const sabotages: readonly { readonly off: string; readonly rule: Rule; readonly how: RunScriptOptions }[] = [
  { off: 'the fence check', rule: 'fence', how: { wrap: withoutFences } },
  { off: 'the replay check', rule: 'replay', how: { wrap: withoutReplays } },
  { off: 'the release in the same commit', rule: 'parent', how: { wrap: withoutRelease } },
  { off: 'the release by the last alone', rule: 'parent', how: { wrap: withHastyReleases } },
  { off: 'the wait for children', rule: 'parent', how: { wrap: withoutWaits } },
  { off: 'the wait of a job that is started over', rule: 'parent', how: { wrap: withForgetfulRetries } },
  { off: 'what dependencies returned', rule: 'results', how: { wrap: withoutResults } },
  { off: 'one of the dependencies', rule: 'results', how: { wrap: withMissingEdges } },
  { off: 'the order of results', rule: 'results', how: { wrap: withMixedResults } },
  { off: 'the cancelling of siblings', rule: 'siblings', how: { wrapLine: withoutSiblings } },
  { off: 'the next job of a chain', rule: 'chain', how: { wrapLine: withLostContinuations } },
  { off: 'the singleness of what a chain goes on with', rule: 'chain', how: { wrapLine: withTwinContinuations } },
  {
    off: 'the exclusion of running jobs from upkeep',
    rule: 'upkeep',
    how: { wrap: withoutRenewals, wrapLine: withoutExclusion },
  },
  { off: "dedup's uniqueness", rule: 'dedup', how: { wrap: withoutDedup } },
  { off: "the limit's counting", rule: 'limit', how: { wrap: withoutLimits } },
  { off: 'the rates', rule: 'rate', how: { wrap: withoutLimits } },
  { off: 'the memory of steps', rule: 'step', how: { wrap: withForgottenSteps } },
  { off: 'the memory of signals', rule: 'signal', how: { wrap: withOtherSignals } },
  { off: 'pauses', rule: 'pause', how: { wrap: withoutPauses } },
  { off: 'holds', rule: 'hold', how: { wrap: withoutHolds } },
  { off: 'the changes of a bulk operation', rule: 'operation', how: { wrapConnection: withForgottenJobs } },
  { off: 'the expiry of jobs', rule: 'expiry', how: { wrap: withoutExpiry } },
  { off: 'the making of every run', rule: 'schedule', how: { wrap: withLostRuns } },
  { off: 'one commit for a run and its schedule', rule: 'schedule', how: { wrap: withoutRounds } },
  { off: 'the durability of adds', rule: 'state', how: { wrap: withLostAdds } },
  { off: 'the singleness of events', rule: 'event', how: { wrap: withDoubledEvents } },
]

/** Nothing is gathered: jobs would be started late where renewals only seem to have been applied. */
function scriptOf(seed: number): Script {
  const script = generateScript(seed)
  const { batch } = script.settings
  return { ...script, settings: { ...script.settings, batch: batch && { ...batch, wait: 0 } } }
}

async function broken(
  how: RunScriptOptions,
  enough: (rules: ReadonlySet<Rule>) => boolean,
): Promise<ReadonlySet<Rule>> {
  const rules = new Set<Rule>()
  for (let seed = 1; seed <= SEEDS && !enough(rules); seed++) {
    const { violations } = await runScript(scriptOf(seed), how)
    for (const { rule } of violations) rules.add(rule)
  }
  return rules
}

describe('with a rule turned off', () => {
  test.each(sabotages)('without $off the checker reports "$rule"', { timeout: 60_000 }, async ({ rule, how }) => {
    expect(await broken(how, (rules) => rules.has(rule))).toContain(rule)
  })

  test('lost renewals alone break nothing: workers do not reap what they run', { timeout: 60_000 }, async () => {
    expect(await broken({ wrap: withoutRenewals }, () => false)).toEqual(new Set())
  })
})

test('a failing script is cut down, and the smaller one fails as well', { timeout: 60_000 }, async () => {
  const how: RunScriptOptions = { wrap: withoutDedup }
  const { failures } = await runSeeds({ ...how, count: SEEDS })
  const [failure] = failures
  expect(failure!.violations[0]!.rule).toBe('dedup')
  const whole = generateScript(failure!.seed)
  expect(failure!.script.steps.length).toBeLessThan(whole.steps.length / 2)
  expect(failure!.script.faults).toEqual([])
  const again = await runScript(failure!.script, how)
  expect(again.violations).toEqual(failure!.violations)
})
