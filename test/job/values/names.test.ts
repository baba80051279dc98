// Names and ids: what is refused, and what is suggested for a slip of the finger.

import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isMillraceError } from '../../../src/job/errors/errors.js'
import { checkName, MAX_NAME_LENGTH, nearest, refuseUnknown } from '../../../src/job/values/names.js'
import { thrown } from '../../thrown.js'

describe('checkName', () => {
  it.each(['emails', 'send-email', 'a b', 'é', '日本', '😀', 'constructor', 'a'.repeat(MAX_NAME_LENGTH)])(
    'answers %o unchanged',
    (name) => {
      expect(checkName(name, 'queue name')).toBe(name)
    },
  )

  it.each([
    ['a number', 5, '5 cannot be a queue name: it must be a string'],
    ['nothing', undefined, 'undefined cannot be a queue name: it must be a string'],
    ['an object', {}, 'an object cannot be a queue name: it must be a string'],
    ['an empty text', '', "'' cannot be a queue name: it must not be empty"],
    ['256 characters', 'a'.repeat(256), 'it has 256 characters, and 255 is the most'],
    ['NUL', 'a\0b', 'control characters'],
    ['a line break', 'a\nb', "'a\\nb' cannot be a queue name"],
    ['DEL', 'a\x7f', 'control characters'],
    ['a C1 control', 'a\x85', 'control characters'],
    ['half a surrogate pair', 'a\ud83d', 'lone surrogates'],
  ])('refuses %s', (_, value, message) => {
    const error = thrown(() => checkName(value, 'queue name'))
    expect(isMillraceError(error, 'INVALID_NAME')).toBe(true)
    expect(error.message).toContain(message)
  })

  it('refuses ids under a code of their own', () => {
    expect(thrown(() => checkName('', 'job id'))).toMatchObject({ code: 'INVALID_ID' })
  })

  it('quotes what it refuses on one short line', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 256, maxLength: 2_000 }), (text) => {
        const { message } = thrown(() => checkName(text, 'job name'))
        expect(message.length).toBeLessThan(600)
        expect(message).not.toContain('\n')
      }),
    )
  })
})

describe('nearest', () => {
  const known = ['delay', 'priority', 'attempts', 'removeOnComplete', 'removeOnFail', 'id']

  it.each([
    ['prioritty', 'priority'],
    ['Priority', 'priority'],
    ['dealy', 'delay'],
    ['attempt', 'attempts'],
    ['removeOnCompleted', 'removeOnComplete'],
    ['ID', 'id'],
  ])('takes %s for %s', (name, meant) => {
    expect(nearest(name, known)).toBe(meant)
  })

  it.each(['colour', 'x', '', 'zzzzzzzzzzzz'])('has no suggestion for %o', (name) => {
    expect(nearest(name, known)).toBeUndefined()
  })

  it('takes a name with one letter changed, dropped or added for the name itself', () => {
    const name = fc.constantFrom('priority', 'attempts', 'removeOnFail')
    fc.assert(
      fc.property(name, fc.nat(7), fc.constantFrom('', 'q', 'qq'), (meant, place, letters) => {
        const slip = meant.slice(0, place) + letters + meant.slice(place + 1)
        expect(nearest(slip, known)).toBe(meant)
      }),
    )
  })
})

describe('refuseUnknown', () => {
  const known = ['priority', 'delay']

  it('lets known options pass, and keys that are set to undefined', () => {
    expect(() => refuseUnknown({ priority: 1, delay: undefined, color: undefined }, known, 'x')).not.toThrow()
  })

  it('names the option, the place and the nearest known option', () => {
    const error = thrown(() => refuseUnknown({ prioritty: 1 }, known, 'queue.add options'))
    expect(isMillraceError(error, 'UNKNOWN_OPTION')).toBe(true)
    expect(error.message).toBe("unknown option 'prioritty' in queue.add options; did you mean 'priority'?")
  })

  it('lists what is known where nothing is near', () => {
    const error = thrown(() => refuseUnknown({ color: 1 }, known, 'queue.add options'))
    expect(error.message).toBe("unknown option 'color' in queue.add options; it knows priority, delay")
  })
})
