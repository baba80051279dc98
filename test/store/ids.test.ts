// Ids: valid UUIDv7, strictly increasing whatever the clock does, and the same from the same seed.

import { randomFillSync } from 'node:crypto'
import * as fc from 'fast-check'
import { UUID } from 'uuidv7'
import { describe, expect, it } from 'vitest'
import { createIds } from '../../src/store/ids.js'

const fill = (target: Uint8Array): void => void randomFillSync(target)
const millisOf = (id: string): number => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)

function seeded(): () => string {
  let state = 7
  const next = (): number => (state = (state * 31 + 11) & 0xff)
  return createIds(
    () => 1_000,
    (target) => target.set(Array.from(target, next)),
  )
}

describe('ids', () => {
  it('are UUIDv7, as the uuidv7 package reads them', () => {
    const ids = createIds(Date.now, fill)
    for (let i = 0; i < 1_000; i++) {
      const id = ids()
      expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
      const uuid = UUID.parse(id)
      expect([uuid.getVersion(), uuid.getVariant(), uuid.toString()]).toEqual([7, 'VAR_10', id])
    }
  })

  it('carry the time they were made', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 48 - 1 }), (time) => {
        expect(millisOf(createIds(() => time + 0.9, fill)())).toBe(time)
      }),
    )
  })

  it('increase strictly, whatever the clock does', () => {
    const readings = fc.array(fc.tuple(fc.integer({ min: 0, max: 5_000 }), fc.integer({ min: 1, max: 50 })))
    fc.assert(
      fc.property(readings, (clock) => {
        let now = 0
        const ids = createIds(() => now, fill)
        let last = ''
        for (const [time, count] of clock) {
          now = time
          for (let i = 0; i < count; i++) {
            const id = ids()
            expect(id > last).toBe(true)
            last = id
          }
        }
      }),
    )
  })

  it('increase strictly within one millisecond, running ahead of the clock when its counter is full', () => {
    const ids = createIds(() => 1_000, fill)
    const made = Array.from({ length: 20_000 }, ids)
    expect(made.every((id, index) => index === 0 || id > made[index - 1]!)).toBe(true)
    expect(millisOf(made[0]!)).toBe(1_000)
    expect(millisOf(made[2_048]!)).toBe(1_000)
    expect(millisOf(made.at(-1)!)).toBeLessThanOrEqual(1_005)
  })

  it('go back to the clock once it has caught up', () => {
    let now = 2_000
    const ids = createIds(() => now, fill)
    ids()
    now = 1_000
    expect(millisOf(ids())).toBe(2_000)
    now = 2_001
    expect(millisOf(ids())).toBe(2_001)
  })

  it('are unique across generators on the same clock', () => {
    const generators = Array.from({ length: 20 }, () => createIds(() => 1_000, fill))
    const made = generators.flatMap((ids) => Array.from({ length: 1_000 }, ids))
    expect(new Set(made).size).toBe(20_000)
  })

  it('use every random bit', () => {
    const zeros = createIds(
      () => 0,
      (target) => void target.fill(0),
    )()
    const ones = createIds(
      () => 0,
      (target) => void target.fill(0xff),
    )()
    expect(zeros).toBe('00000000-0000-7000-8000-000000000000')
    expect(ones).toBe('00000000-0000-77ff-bfff-ffffffffffff')
  })

  it('are the same from the same clock and random bits', () => {
    expect(Array.from({ length: 1_000 }, seeded())).toEqual(Array.from({ length: 1_000 }, seeded()))
  })
})
