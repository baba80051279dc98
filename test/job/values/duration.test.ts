// Durations: what is read, what is refused, and agreement with `ms` and `parse-duration` where they overlap.

import * as fc from 'fast-check'
import ms from 'ms'
import type { StringValue } from 'ms'
import parseDurationPackage from 'parse-duration'
import { describe, expect, it } from 'vitest'
import { formatDuration, MAX_DURATION, parseDuration } from '../../../src/job/values/duration.js'
import { isMillraceError } from '../../../src/job/errors/errors.js'
import { thrown } from '../../thrown.js'

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour

/** Their answers are fractions, with the noise of binary ones; ours are rounded up. */
const roundedUp = (millis: number): number => Math.ceil(Math.round(millis * 1_000) / 1_000)

describe('parseDuration', () => {
  it.each([
    [0, 0],
    [1_500, 1_500],
    [0.1, 1],
    [1.5, 2],
    [MAX_DURATION, MAX_DURATION],
    ['250ms', 250],
    ['30s', 30_000],
    ['0s', 0],
    ['5 minutes', 5 * minute],
    ['1h30m', 90 * minute],
    ['1h 30m', 90 * minute],
    ['1 hour 30 minutes', 90 * minute],
    ['in 2 hours', 2 * hour],
    ['1.5h', 90 * minute],
    ['.5h', 30 * minute],
    ['1.1h', 3_960_000],
    ['0.2ms', 1],
    ['2 days', 2 * day],
    ['1 week', 7 * day],
    ['1w 2d 3h 4m 5s 6ms', 9 * day + 3 * hour + 4 * minute + 5_006],
    ['5 MINUTES', 5 * minute],
    ['5M', 5 * minute],
    ['  10s  ', 10_000],
    ['36525d', MAX_DURATION],
  ])('reads %o as %d ms', (value, millis) => {
    expect(parseDuration(value, 'delay')).toBe(millis)
  })

  it.each([
    ['1', ['ms', 'msec', 'msecs', 'millisecond', 'milliseconds']],
    ['1000', ['s', 'sec', 'secs', 'second', 'seconds']],
    ['60000', ['m', 'min', 'mins', 'minute', 'minutes']],
    ['3600000', ['h', 'hr', 'hrs', 'hour', 'hours']],
    ['86400000', ['d', 'day', 'days']],
    ['604800000', ['w', 'week', 'weeks']],
  ])('knows the units of %s ms', (millis, units) => {
    expect(units.map((unit) => String(parseDuration(`1${unit}`, 'delay')))).toEqual(units.map(() => millis))
  })

  it.each([
    ['', 'it is empty'],
    ['   ', 'it is empty'],
    ['90', 'it has no unit'],
    ['1.5', 'it has no unit'],
    ['in 90', 'it has no unit'],
    ['-5s', 'it is negative'],
    [-1, 'it is negative'],
    [Number.NaN, 'it is not a number'],
    [Infinity, 'it is over 100 years'],
    [MAX_DURATION + 1, 'it is over 100 years'],
    ['36526d', 'it is over 100 years'],
    [`${'9'.repeat(400)}s`, 'it is over 100 years'],
    ['soon', 'it cannot be read'],
    ['s', 'it cannot be read'],
    ['in', 'it cannot be read'],
    ['1h 30', 'it cannot be read'],
    ['1h, 30m', 'it cannot be read'],
    ['1,5h', 'it cannot be read'],
    ['1h -30m', 'it cannot be read'],
    ['1..5h', 'it cannot be read'],
    ['1e3s', "unit 'e' is unknown"],
    ['5 parsecs', "unit 'parsecs' is unknown"],
    ['1 month', 'months and years differ in length'],
    ['2y', 'months and years differ in length'],
    ['30m 1h', 'from large to small'],
    ['1h 2h', 'each at most once'],
  ])('refuses %o', (value, reason) => {
    const error = thrown(() => parseDuration(value, 'delay'))
    expect(isMillraceError(error, 'INVALID_DURATION')).toBe(true)
    expect(error.message).toContain(reason)
    expect(error.message).toMatch(/^delay must be a duration \(.*'1h 30m'.*\), not /)
  })

  it.each([undefined, null, true, {}, [5], 5n])('refuses %o, which no typed caller sends', (value) => {
    // @ts-expect-error not a duration
    expect(thrown(() => parseDuration(value, 'delay'))).toMatchObject({ code: 'INVALID_DURATION' })
  })

  it('answers a whole number within the limits, or refuses, whatever it is given', () => {
    const texts = fc.stringMatching(/^(in )?([0-9.]{0,4} ?[a-z]{0,3} ?){0,3}$/)
    fc.assert(
      fc.property(fc.oneof(texts, fc.string(), fc.double(), fc.integer()), (value) => {
        try {
          const millis = parseDuration(value, 'delay')
          expect(Number.isSafeInteger(millis) && millis >= 0 && millis <= MAX_DURATION).toBe(true)
          expect(Object.is(millis, -0)).toBe(false)
        } catch (error) {
          if (!isMillraceError(error, 'INVALID_DURATION')) throw error
        }
      }),
    )
  })

  const units = ['ms', 'msecs', 'millisecond', 's', 'sec', 'seconds', 'm', 'min', 'minutes', 'h', 'hr', 'hours', 'd']
  const amount = fc.oneof(
    fc.nat(2_000).map(String),
    fc.nat(10_000).map((n) => String(n / 100)),
  )

  it('agrees with `ms` on one amount and one unit', () => {
    const single = fc.tuple(amount, fc.constantFrom('', ' '), fc.constantFrom(...units, 'days', 'w', 'week'))
    fc.assert(
      fc.property(single, ([number, space, unit]) => {
        const text = number + space + unit
        expect(parseDuration(text, 'delay')).toBe(roundedUp(ms(text as StringValue)))
      }),
    )
  })

  it('agrees with `parse-duration` on several units', () => {
    const parts = fc.tuple(...['w', 'd', 'hours', 'm', 'sec', 'ms'].map((unit) => amount.map((n) => `${n}${unit}`)))
    const several = fc.tuple(fc.subarray([0, 1, 2, 3, 4, 5], { minLength: 1 }), parts, fc.constantFrom('', ' '))
    fc.assert(
      fc.property(several, ([chosen, all, space]) => {
        const text = chosen.map((index) => all[index]).join(space)
        const theirs = parseDurationPackage(text)
        expect(parseDuration(text, 'delay')).toBe(roundedUp(theirs ?? Number.NaN))
      }),
    )
  })
})

describe('formatDuration', () => {
  it.each([
    [0, '0ms'],
    [250, '250ms'],
    [1_000, '1s'],
    [1_250, '1s 250ms'],
    [90 * minute, '1h 30m'],
    [90 * day, '90d'],
    [-5_000, '-5s'],
    [0.4, '0ms'],
    [Infinity, 'Infinity'],
  ])('writes %d as %s', (millis, text) => {
    expect(formatDuration(millis)).toBe(text)
  })

  it('is read back by parseDuration', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: MAX_DURATION }), (millis) => {
        expect(parseDuration(formatDuration(millis), 'delay')).toBe(millis)
      }),
    )
  })
})
