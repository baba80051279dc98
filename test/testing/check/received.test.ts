// The checker of claims without an answer: it finds attempts that were lost because a claim was not sent again.
import { expect, test } from 'vitest'
import { generateScript, runScript } from 'millrace/testing'
import type { Rule, RunScriptOptions, Script } from 'millrace/testing'
import { withoutResends } from './broken-rules.js'

const LEASE = 3000
const SEEDS = 12

/** A script in which writes are applied and the store is out of reach then, for longer than a lane tries and less than the lease. */
function scriptOf(seed: number): Script {
  const script = generateScript(seed)
  const faults = script.faults.map((fault) =>
    fault.on === 'commit' ? { ...fault, kind: 'cut-off' as const, delay: 900 + (fault.delay % 600) } : fault,
  )
  return { ...script, settings: { ...script.settings, lease: LEASE }, faults }
}

async function found(how: RunScriptOptions, enough: (rules: ReadonlySet<Rule>) => boolean): Promise<readonly Rule[]> {
  const rules = new Set<Rule>()
  for (let seed = 1; seed <= SEEDS && !enough(rules); seed++) {
    for (const { rule } of (await runScript(scriptOf(seed), how)).violations) rules.add(rule)
  }
  return [...rules]
}

test('an attempt that is lost because a claim was not sent again is found', { timeout: 120_000 }, async () => {
  expect(await found({ wrapLine: withoutResends }, (rules) => rules.has('received'))).toContain('received')
})

test('no attempt is lost where claims are sent again, and nothing else is wrong', { timeout: 120_000 }, async () => {
  expect(await found({}, () => false)).toEqual([])
})
