// How long a transaction may take is said by the leases of the process.
import { expect, it } from 'vitest'
import { virtualClock } from '../../src/testing/world/clock.js'
import { connect } from '../../src/store/connection.js'
import type { JobRecord } from '../../src/job/job.js'
import { memory } from '../../src/stores/memory/store.js'
import { Leases } from '../../src/worker/leases.js'
import type { Leased } from '../../src/worker/leases.js'

const connection = connect(memory({ runtime: virtualClock().runtime }))

function leased(lease: number, leaseEnds: number, busy = false): Leased {
  return {
    record: { id: 'a', fence: 1 } as JobRecord,
    handler: { lease },
    started: true,
    leaseEnds,
    busy,
    isHeldByItself: false,
  }
}

/** The leases of one worker. */
function holding(renewEvery: number, shortest: number, held: readonly Leased[]): Leases {
  const leases = new Leases({
    connection,
    renewEvery,
    shortest,
    held: () => held,
    lost: () => {},
    failed: () => {},
    tick: () => {},
  })
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
