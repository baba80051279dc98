// The leases of the process limit how long a transaction may take.
import { expect, it } from 'vitest'
import { virtualClock } from '../../src/testing/world/clock.js'
import { connect } from '../../src/store/connection.js'
import type { JobRecord } from '../../src/job/job.js'
import { memory } from '../../src/stores/memory/store.js'
import type { Attempt } from '../../src/worker/attempt/attempt.js'
import { Leases } from '../../src/worker/leases.js'
import type { WorkerParts } from '../../src/worker/parts.js'

const connection = connect(memory({ runtime: virtualClock().runtime }))

function leased(lease: number, leaseEnds: number, busy = false): Attempt {
  const record = { id: 'a', fence: 1 } as JobRecord
  return { record, handler: { lease }, started: true, leaseEnds, busy, isHeldByItself: false, heldAt: -1 } as Attempt
}

/** The leases of one worker. */
function holding(renewEvery: number, shortest: number, held: readonly Attempt[]): Leases {
  const parts = { connection, settings: { renewEvery, handles: [{ name: undefined, lease: shortest }] } }
  const leases = new Leases(parts as unknown as WorkerParts, {
    heartbeat: () => Promise.resolve(),
    readsNext: true,
  })
  for (const attempt of held) leases.add(attempt)
  leases.start()
  return leases
}

it('a transaction must end when a fifth of any lease in the process is left, those held by others’ transactions aside', () => {
  const own = leased(30_000, 30_000)
  const here = holding(10_000, 30_000, [own])
  expect(here.mustEnd(own)).toBe(24_000)
  const there = holding(500, 2000, [leased(2000, 1900), leased(2000, -5000, true)])
  expect(here.mustEnd(own)).toBe(1500)
  expect(here.spare(own)).toBe(500)
  there.stop()
  expect(here.mustEnd(own)).toBe(24_000)
  expect(here.spare(own)).toBe(10_000)
  // Its own counts even while it is busy: that is its own transaction's doing.
  expect(here.mustEnd(leased(10_000, 8000, true))).toBe(6000)
  here.stop()
})

it('the first look comes before any lease can be near its end, however seldom they are renewed', () => {
  const own = leased(30_000, 30_000)
  const leases = holding(29_000, 30_000, [own])
  expect(leases.spare(own)).toBe(1)
  leases.stop()
})
