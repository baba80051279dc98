import { describe, expect, it } from 'vitest'
import { flag, invalid, isObject, mustBe, oneOf, positive, whole } from '../../../src/job/values/options.js'

/** The code and message of what a check throws. */
function refusal(check: () => unknown): unknown {
  try {
    return { returned: check() }
  } catch (error) {
    const { code, message } = error as { code: string; message: string }
    return `${code}: ${message}`
  }
}

describe('checks of single options', () => {
  it('return a valid value', () => {
    expect(flag(true, 'x')).toBe(true)
    expect(flag(undefined, 'x')).toBe(false)
    expect(whole(3, 'x', 1, 3)).toBe(3)
    expect(oneOf('a', ['a', 'b'], 'x')).toBe('a')
    expect(positive('2s', 'x')).toBe(2000)
  })

  it('name the field, what it must be and the value', () => {
    expect(refusal(() => flag('yes', 'call: x'))).toBe("INVALID_OPTION: call: x must be true or false, not 'yes'.")
    expect(refusal(() => whole(1.5, 'x', 1))).toBe('INVALID_OPTION: x must be a whole number from 1 up, not 1.5.')
    expect(refusal(() => whole(4, 'x', 0, 3))).toBe('INVALID_OPTION: x must be a whole number from 0 to 3, not 4.')
    expect(refusal(() => whole('4' as never, 'x', 0))).toBe(
      "INVALID_OPTION: x must be a whole number from 0 up, not '4'.",
    )
    expect(refusal(() => positive(0, 'x'))).toBe('INVALID_DURATION: x must be longer than 0.')
    expect(mustBe('x', 'a list', null).message).toBe('x must be a list, not null.')
  })

  it('suggest the nearest of the known values', () => {
    expect(refusal(() => oneOf('ignor', ['fail', 'ignore'], 'x'))).toBe(
      "INVALID_OPTION: x must be one of 'fail', 'ignore', not 'ignor'; did you mean 'ignore'?",
    )
    expect(refusal(() => oneOf('zzzzzz', ['fail', 'ignore'], 'x'))).toBe(
      "INVALID_OPTION: x must be one of 'fail', 'ignore', not 'zzzzzz'.",
    )
  })

  it('keep the details of an error', () => {
    expect(invalid('no.', { field: 'x' }).details).toEqual({ field: 'x' })
    expect(invalid('no.').details).toEqual({})
  })

  it('distinguish objects from arrays and null', () => {
    expect([{}, Object.create(null), [], null, 'x', undefined].map(isObject)).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ])
  })
})
