// The checker of lateness: it finds jobs that are not started though a worker could, and has a reason for all others.
import { expect, test } from 'vitest'
import { generateScript, runScript } from 'millrace/testing'
import type { Rule, RunScriptOptions, Script } from 'millrace/testing'
import { withSleepyClaims, withoutPoll, withoutWakeUps } from './broken-timing.js'

const POLL = 700
const SEEDS = 25

/** A script in which little goes wrong, and workers poll at a delay that no other timer has. */
function scriptOf(seed: number): Script {
  const script = generateScript(seed)
  const settings = { ...script.settings, pollEvery: POLL, limit: undefined, concurrency: 2 }
  return { ...script, settings, faults: [] }
}

async function found(how: RunScriptOptions): Promise<ReadonlySet<Rule>> {
  const rules = new Set<Rule>()
  for (let seed = 1; seed <= SEEDS && !rules.has('late'); seed++) {
    for (const { rule } of (await runScript(scriptOf(seed), how)).violations) rules.add(rule)
  }
  return rules
}

test('a lost wake-up is found where no poll makes up for it', { timeout: 120_000 }, async () => {
  const how: RunScriptOptions = { wrapLine: (store) => withoutPoll(POLL)(withoutWakeUps(store)) }
  expect(await found(how)).toContain('late')
})

test('a store that passes over jobs for a while is found', { timeout: 120_000 }, async () => {
  expect(await found({ wrap: withSleepyClaims(8 * POLL) })).toContain('late')
})

test('no job is late where the poll makes up for lost wake-ups, or none is lost', { timeout: 120_000 }, async () => {
  for (const wrapLine of [withoutWakeUps, withoutPoll(POLL)]) {
    for (let seed = 1; seed <= 5; seed++) {
      const { violations } = await runScript(scriptOf(seed), { wrapLine })
      expect(violations.filter(({ rule }) => rule === 'late')).toEqual([])
    }
  }
})
