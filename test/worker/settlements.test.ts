// Backpressure: a worker stops claiming while too many bytes of what its jobs wrote are unacknowledged.
import { expect, test } from 'vitest'
import { virtualClock } from 'millrace/testing'
import type { Outcome } from '../../src/job/lifecycle.js'
import type { Caller } from '../../src/store/batcher.js'
import { Attempt } from '../../src/worker/attempt/attempt.js'
import type { LastNote, PendingNotes } from '../../src/worker/attempt/pending-notes.js'
import { Backpressure } from '../../src/worker/backpressure.js'
import type { ParsedHandler } from '../../src/worker/options.js'
import type { Leases } from '../../src/worker/leases.js'
import type { WorkerParts } from '../../src/worker/parts.js'
import { RunTally } from '../../src/worker/run-tally.js'
import { Settlements } from '../../src/worker/settlements.js'
import { record } from '../job/lifecycle.records.js'

const MiB = 2 ** 20

/** Settlements whose batches are answered by hand. */
function open() {
  const sent: Caller[] = []
  const clock = virtualClock()
  const backpressure = new Backpressure({ transactions: false, share: 'process' })
  const parts = {
    connection: {
      runtime: clock.runtime,
      main: { submit: (_group: unknown, caller: Caller) => void sent.push(caller) },
    },
    errors: { report: () => {} },
    reporter: { settled: () => {} },
    backpressure,
    run: new RunTally(),
  }
  const leases = { missedRenewal: () => false, delete: () => {} }
  const settlements = new Settlements(parts as unknown as WorkerParts, leases as unknown as Leases)
  return { sent, clock, backpressure, settlements }
}

/** Counts how often claims may go on. */
function claimsOn(backpressure: Backpressure): { count: number } {
  const resumed = { count: 0 }
  expect(backpressure.isOn).toBe(true)
  backpressure.whenOver(() => void resumed.count++)
  return resumed
}

/** An attempt that has ended, with a note that was not sent before. */
function attempt(entry?: LastNote['entry']): Attempt {
  const lastNote: LastNote | undefined = entry && { entry, landed: () => {}, failed: () => {} }
  const ended = new Attempt({} as WorkerParts, record({ state: 'active' }), {} as ParsedHandler, 0)
  ended.notes = { takeLast: () => lastNote } as PendingNotes
  return ended
}

const returned: Outcome = { kind: 'returned', result: undefined, also: [] }
const text = 'x'.repeat(MiB)

const large: Readonly<Record<string, readonly [Outcome, LastNote['entry']?]>> = {
  results: [{ ...returned, result: text }],
  errors: [{ kind: 'threw', error: { name: 'Error', message: text }, retryable: false, retryIn: 0 }],
  'log lines': [returned, { logs: [text] }],
  steps: [returned, { steps: [{ name: 'step', result: text }] }],
  'notes of progress': [returned, { progress: text }],
}

test.each(Object.entries(large))('%s that are not acknowledged stop claims', (_what, [outcome, entry]) => {
  const { settlements, sent, backpressure } = open()
  for (let n = 0; n < 70; n++) settlements.send(attempt(entry), outcome)
  const resumed = claimsOn(backpressure)
  for (const caller of sent) caller.landed({ ok: true, inserted: [] })
  expect(backpressure.isOn).toBe(false)
  expect(resumed.count).toBe(1)
})

test('notes of running handlers count as well', () => {
  const { backpressure } = open()
  backpressure.count(65 * MiB)
  const resumed = claimsOn(backpressure)
  backpressure.count(-10 * MiB)
  expect(backpressure.isOn).toBe(false)
  expect(resumed.count).toBe(1)
})

test('a settlement that is sent again counts once', async () => {
  const { settlements, sent, clock, backpressure } = open()
  for (let n = 0; n < 40; n++) settlements.send(attempt(), { ...returned, result: text })
  for (const caller of sent.splice(0)) caller.failed(new Error('no answer'))
  await clock.advance(1_000)
  expect(sent.length).toBe(40)
  expect(backpressure.isOn).toBe(false)
})
