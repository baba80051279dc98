// The simulator: many seeds keep every promise, equal seeds run alike, and what is meant to go wrong does.
import { describe, expect, test } from 'vitest'
import { describeFailure, generateScript, runScript, runSeeds } from 'millrace/testing'
import type { SeedsReport } from 'millrace/testing'

const SEEDS = 500
const PART = 50

/** All that the seeds must have gone through, or they prove less than they claim. */
const covered = [
  ...['late', 'slow', 'lost-before', 'lost-after', 'cut-off', 'duplicated', 'straggler', 'busy'].map(
    (kind) => `commit:${kind}`,
  ),
  ...['plain', 'ahead'].map((kind) => `claim:${kind}`),
  ...['late', 'lost'].map((kind) => `read:${kind}`),
  ...['late', 'dropped', 'doubled'].map((kind) => `hint:${kind}`),
  ...['commit', 'read', 'hint'].map((kind) => `outage:${kind}`),
  ...['spawn', 'freeze', 'rest', 'kill', 'close', 'outage', 'blackout'].map((what) => `process:${what}`),
  ...['add', 'addBulk', 'result', 'cancel', 'retry', 'promote', 'remove', 'update', 'pause', 'resume'].map(
    (what) => `call:${what}`,
  ),
  ...['schedule', 'unschedule', 'trigger', 'pauseSchedule', 'resumeSchedule', 'backfill'].map((what) => `call:${what}`),
  ...['hold', 'unhold', 'operate', 'operation.result'].map((what) => `call:${what}`),
  ...['pauseOperation', 'resumeOperation', 'cancelOperation'].map((what) => `call:${what}`),
  ...['cancel', 'retry', 'promote', 'remove', 'update', 'rate'].map((what) => `operate:${what}`),
  ...['none', 'one', 'all'].map((what) => `catchUp:${what}`),
  ...['skip', 'allow', 'queue', 'cancel'].map((what) => `overlap:${what}`),
  ...['call:flow', 'act:children', 'act:continue', 'dependencies:some', 'option:cancelSiblings'],
  ...['cancelAll', 'retryAll', 'retryFailed', 'promoteAll'].map((what) => `call:${what}`),
  ...['one', 'many'].map((what) => `batch:${what}`),
  ...['sleep', 'block', 'log', 'progress', 'throw', 'fatal', 'snooze', 'hold', 'hang'].map((what) => `act:${what}`),
  ...['act:step', 'act:nap', 'act:await', 'call:signal', 'signal:taken', 'signal:timeout'],
  ...[
    'priority',
    'delay',
    'expires',
    'group',
    'attempts',
    'lifo',
    'timeout',
    'removeOnComplete',
    'removeOnFail',
    'dedup',
    'after',
    'backoff',
  ].map((what) => `option:${what}`),
]

function explain({ failures }: SeedsReport): string {
  return failures
    .map((failure) => `${describeFailure(failure)}\n\n${JSON.stringify({ ...failure.script, seed: failure.seed })}`)
    .join('\n\n')
}

describe('many seeds', () => {
  const counts = new Map<string, number>()

  for (let from = 1; from <= SEEDS; from += PART) {
    test(`seeds ${from} to ${from + PART - 1} keep every promise`, { timeout: 120_000 }, async () => {
      const report = await runSeeds({ from, count: PART })
      expect(explain(report)).toBe('')
      for (const [name, times] of Object.entries(report.counts)) counts.set(name, (counts.get(name) ?? 0) + times)
    })
  }

  test('every fault, operation and act was among them', () => {
    expect(covered.filter((name) => (counts.get(name) ?? 0) < 20)).toEqual([])
  })
})

test('equal seeds give equal traces, byte for byte, and others do not', async () => {
  for (const seed of [3, 14, 159]) {
    const first = await runScript(generateScript(seed))
    const second = await runScript(generateScript(seed))
    expect(second.trace.join('\n')).toBe(first.trace.join('\n'))
    expect(second.counts).toEqual(first.counts)
  }
  const [one, other] = [await runScript(generateScript(3)), await runScript(generateScript(4))]
  expect(one.trace).not.toEqual(other.trace)
})

test('a script survives JSON, so that a failure can be kept and run again', async () => {
  const script = generateScript(26)
  const kept = JSON.parse(JSON.stringify(script)) as typeof script
  expect((await runScript(kept)).trace).toEqual((await runScript(script)).trace)
})
