// Backpressure: a worker stops claiming while too many bytes of what its jobs wrote are unacknowledged.
import { expect, test } from 'vitest'
import { virtualClock } from 'millrace/testing'
import type { Outcome } from '../../src/job/lifecycle.js'
import type { Caller } from '../../src/store/batcher.js'
import type { Attempt } from '../../src/worker/attempt/attempt.js'
import type { LastNote } from '../../src/worker/attempt/pending-notes.js'
import { Settlements } from '../../src/worker/settlements.js'
import type { SettlementHost } from '../../src/worker/settlements.js'
import { record } from '../job/lifecycle.records.js'

const MiB = 2 ** 20

/** Settlements whose batches are answered by hand. */
function open() {
  const sent: Caller[] = []
  const clock = virtualClock()
  const state = { sent, caughtUp: 0 }
  const host = {
    connection: {
      runtime: clock.runtime,
      store: { can: {} },
      main: { submit: (_group: unknown, caller: Caller) => void sent.push(caller) },
    },
    leases: () => ({ missedRenewal: () => false }),
    hasListeners: () => false,
    emit: () => {},
    settled: () => {},
    failed: () => {},
    caughtUp: () => void state.caughtUp++,
  }
  return { sent, state, clock, settlements: new Settlements(host as unknown as SettlementHost) }
}

/** An attempt that has ended, with a note that was not sent before. */
function attempt(entry?: LastNote['entry']): Attempt {
  const lastNote: LastNote | undefined = entry && { entry, landed: () => {}, failed: () => {} }
  const parts = { record: record({ state: 'active' }), settlementBytes: 0, takeLastNote: () => lastNote }
  return parts as unknown as Attempt
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
  const { settlements, sent, state } = open()
  for (let n = 0; n < 70; n++) settlements.send(attempt(entry), outcome)
  expect(settlements.backpressure).toBe(true)
  for (const caller of sent) caller.landed({ ok: true, inserted: [] })
  expect(settlements.backpressure).toBe(false)
  expect(state.caughtUp).toBe(1)
})

test('notes of running handlers count as well', () => {
  const { settlements, state } = open()
  settlements.countNotes(65 * MiB)
  expect(settlements.backpressure).toBe(true)
  settlements.countNotes(-10 * MiB)
  expect(settlements.backpressure).toBe(false)
  expect(state.caughtUp).toBe(1)
})

test('a settlement that is sent again counts once', async () => {
  const { settlements, sent, clock } = open()
  for (let n = 0; n < 40; n++) settlements.send(attempt(), { ...returned, result: text })
  for (const caller of sent.splice(0)) caller.failed(new Error('no answer'))
  await clock.advance(1_000)
  expect(sent.length).toBe(40)
  expect(settlements.backpressure).toBe(false)
})
