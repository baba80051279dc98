// Backoff: the formulas, jitter, bounds, and what is refused.

import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MAX_DURATION } from '../../src/job/values/duration.js'
import { isMillraceError } from '../../src/job/errors/errors.js'
import type { Backoff, BackoffOptions } from '../../src/job/retry.js'
import { backoffDelay, defaultBackoff, parseBackoff } from '../../src/job/retry.js'
import { thrown } from '../thrown.js'

const half = (): number => 0.5
const delays = (backoff: Backoff | undefined, count: number): number[] =>
  Array.from({ length: count }, (_, index) => backoffDelay(backoff, index + 1, half))

describe('backoffDelay', () => {
  it('doubles from 1 s', () => {
    const backoff = parseBackoff({ type: 'exponential', delay: 1_000 }, 'backoff')
    expect(delays(backoff, 4)).toEqual([1_000, 2_000, 4_000, 8_000])
  })

  it('doubles from 10 s up to 300 s', () => {
    const backoff = parseBackoff({ type: 'exponential', delay: '10s', max: '300s' }, 'backoff')
    expect(delays(backoff, 7)).toEqual([10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000])
  })

  it.each<[string, Backoff, number[]]>([
    ['stays the same when fixed', { type: 'fixed', delay: 1_000 }, [1_000, 1_000, 1_000]],
    ['grows evenly when linear', { type: 'linear', delay: 1_000 }, [1_000, 2_000, 3_000]],
    ['grows evenly up to its maximum', { type: 'linear', delay: 1_000, max: 2_500 }, [1_000, 2_000, 2_500]],
    ['grows by its factor', { type: 'exponential', delay: 100, factor: 3 }, [100, 300, 900]],
    ['is whole milliseconds', { type: 'exponential', delay: 1, factor: 1.5 }, [1, 2, 2]],
    ['may be nothing', { type: 'exponential', delay: 0 }, [0, 0, 0]],
    ['spreads by its jitter', { type: 'fixed', delay: 1_000, jitter: 0.2 }, [900, 900, 900]],
  ])('%s', (_, backoff, expected) => {
    expect(delays(backoff, 3)).toEqual(expected)
  })

  it('is the default one where none is given: from 1 s, at most 5 minutes, with full jitter', () => {
    expect(delays(undefined, 10)).toEqual(delays(defaultBackoff, 10))
    expect(delays(undefined, 10)).toEqual([500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 150_000])
    expect(backoffDelay(undefined, 1, () => 0)).toBe(1_000)
    expect(backoffDelay(undefined, 1, () => 1 - Number.EPSILON)).toBe(0)
  })

  const duration = fc.integer({ min: 0, max: MAX_DURATION })
  const optional = { requiredKeys: ['type', 'delay'] } satisfies { requiredKeys: ['type', 'delay'] }
  const jitter = fc.double({ min: 0, max: 1, noNaN: true })
  const anyBackoff: fc.Arbitrary<Backoff> = fc.oneof(
    fc.record({ type: fc.constant('fixed' as const), delay: duration, jitter }, optional),
    fc.record({ type: fc.constant('linear' as const), delay: duration, max: duration, jitter }, optional),
    fc.record(
      {
        type: fc.constant('exponential' as const),
        delay: duration,
        factor: fc.double({ min: 1, noNaN: true, noDefaultInfinity: true }),
        max: duration,
        jitter,
      },
      optional,
    ),
  )
  const anyRandom = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
  const anyAttempt = fc.oneof(fc.integer({ min: 1, max: 50 }), fc.maxSafeNat(), fc.constant(Infinity))

  it('is a whole number within the longest duration, whatever the backoff and attempt', () => {
    fc.assert(
      fc.property(anyBackoff, anyAttempt, anyRandom, (backoff, attempt, random) => {
        const delay = backoffDelay(backoff, attempt, () => random)
        expect(Number.isSafeInteger(delay) && delay >= 0 && delay <= MAX_DURATION).toBe(true)
        if (backoff.type !== 'custom' && backoff.type !== 'fixed' && backoff.max !== undefined) {
          expect(delay).toBeLessThanOrEqual(backoff.max)
        }
      }),
    )
  })

  it('lies between (1 - jitter) of the full delay and the full delay', () => {
    fc.assert(
      fc.property(anyBackoff, anyAttempt, anyRandom, jitter, (backoff, attempt, random, spread) => {
        const full = backoffDelay({ ...backoff, jitter: 0 } as Backoff, attempt, half)
        const delay = backoffDelay({ ...backoff, jitter: spread } as Backoff, attempt, () => random)
        expect(delay).toBeLessThanOrEqual(full)
        expect(delay).toBeGreaterThanOrEqual(Math.floor((1 - spread) * full) - 1)
      }),
    )
  })

  describe('by a custom function', () => {
    const backoff: Backoff = { type: 'custom', name: 'polite', delay: 50 }

    it('is what the function answers to the attempt, the error and the delay', () => {
      const seen: unknown[] = []
      const polite = (...given: unknown[]): string => {
        seen.push(given)
        return '2 minutes'
      }
      expect(backoffDelay(backoff, 3, half, { polite }, 'broken')).toBe(120_000)
      expect(seen).toEqual([[3, 'broken', 50]])
    })

    it.each(['polite', 'toString', '__proto__'])('is refused where %s is not registered', (name) => {
      const error = thrown(() => backoffDelay({ type: 'custom', name }, 1, half, { polit: () => 1 }))
      expect(isMillraceError(error, 'UNKNOWN_BACKOFF')).toBe(true)
    })

    it('suggests the name that was probably meant', () => {
      const error = thrown(() => backoffDelay(backoff, 1, half, { politely: () => 1 }))
      expect(error.message).toContain("'polite' is not registered on this worker; did you mean 'politely'?")
    })

    it.each<[string, () => number]>([
      [
        'throws',
        () => {
          throw new Error('oops')
        },
      ],
      ['answers nonsense', () => Number.NaN],
      ['answers less than nothing', () => -1],
    ])('blames the function if it %s', (_, polite) => {
      const error = thrown(() => backoffDelay(backoff, 1, half, { polite }))
      expect(isMillraceError(error, 'CALLBACK_FAILED')).toBe(true)
      expect(error.cause).toBeInstanceOf(Error)
    })
  })
})

describe('parseBackoff', () => {
  it.each<[BackoffOptions | number | string, Backoff]>([
    ['5s', { type: 'fixed', delay: 5_000 }],
    [250, { type: 'fixed', delay: 250 }],
    [
      { type: 'fixed', delay: '1m', jitter: 0.5 },
      { type: 'fixed', delay: 60_000, jitter: 0.5 },
    ],
    [
      { type: 'linear', delay: '1s', max: '1m' },
      { type: 'linear', delay: 1_000, max: 60_000 },
    ],
    [
      { type: 'exponential', delay: '1s', factor: undefined },
      { type: 'exponential', delay: 1_000 },
    ],
    [
      { type: 'exponential', delay: '1s', factor: 1.5, max: '5m', jitter: 1 },
      { type: 'exponential', delay: 1_000, factor: 1.5, max: 300_000, jitter: 1 },
    ],
    [
      { type: 'custom', name: 'polite' },
      { type: 'custom', name: 'polite' },
    ],
    [
      { type: 'custom', name: 'polite', delay: '1s' },
      { type: 'custom', name: 'polite', delay: 1_000 },
    ],
  ])('reads %o', (input, backoff) => {
    expect(parseBackoff(input, 'backoff')).toStrictEqual(backoff)
    expect(parseBackoff(backoff, 'backoff')).toStrictEqual(backoff)
  })

  it.each<[unknown, string, string]>([
    [{ type: 'exponentail', delay: 1 }, 'INVALID_BACKOFF', "'exponentail'; did you mean 'exponential'?"],
    [{ type: 'zigzag', delay: 1 }, 'INVALID_BACKOFF', 'one of fixed, linear, exponential, custom'],
    [{ type: 'toString', delay: 1 }, 'INVALID_BACKOFF', 'backoff.type'],
    [{ delay: 1 }, 'INVALID_BACKOFF', 'backoff.type cannot be undefined'],
    ['exponential', 'INVALID_BACKOFF', "write { type: 'exponential'"],
    [null, 'INVALID_BACKOFF', 'not null'],
    [[1, 2], 'INVALID_BACKOFF', 'not an array'],
    [{ type: 'fixed', delay: 1, dealy: 2 }, 'UNKNOWN_OPTION', "'dealy' in backoff; did you mean 'delay'?"],
    [{ type: 'fixed', delay: 1, max: 2 }, 'UNKNOWN_OPTION', "'max' in backoff"],
    [{ type: 'fixed' }, 'INVALID_DURATION', 'backoff.delay must be a duration'],
    [{ type: 'fixed', delay: -1 }, 'INVALID_DURATION', 'backoff.delay'],
    [{ type: 'linear', delay: 1, max: 'soon' }, 'INVALID_DURATION', 'backoff.max'],
    ['soon', 'INVALID_DURATION', 'backoff must be a duration'],
    [
      { type: 'exponential', delay: 1, factor: 0.5 },
      'INVALID_BACKOFF',
      'backoff.factor must be a number of at least 1',
    ],
    [{ type: 'exponential', delay: 1, factor: Infinity }, 'INVALID_BACKOFF', 'not Infinity'],
    [{ type: 'exponential', delay: 1, factor: '2' }, 'INVALID_BACKOFF', "not '2'"],
    [{ type: 'fixed', delay: 1, jitter: 1.1 }, 'INVALID_BACKOFF', 'backoff.jitter must be a number from 0 to 1'],
    [{ type: 'fixed', delay: 1, jitter: -0.1 }, 'INVALID_BACKOFF', 'not -0.1'],
    [{ type: 'fixed', delay: 1, jitter: Number.NaN }, 'INVALID_BACKOFF', 'not NaN'],
    [{ type: 'custom' }, 'INVALID_NAME', 'backoff name'],
  ])('refuses %o as %s', (input, code, message) => {
    const error = thrown(() => parseBackoff(input as BackoffOptions, 'backoff'))
    expect(error).toMatchObject({ name: 'MillraceError', code })
    expect(error.message).toContain(message)
  })
})
