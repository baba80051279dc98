// The JSON guard: what passes comes back exactly, and what does not is named by its place.

import { deepStrictEqual } from 'node:assert'
import { runInNewContext } from 'node:vm'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isMillraceError } from '../../../src/job/errors/errors.js'
import { decodeJson, DEFAULT_JSON_LIMIT, encodeJson, MAX_JSON_DEPTH } from '../../../src/job/values/json.js'
import { thrown } from '../../thrown.js'

function nested(depth: number): unknown {
  let value: unknown = 1
  for (let level = 0; level < depth; level++) value = level % 2 === 0 ? [value] : { a: value }
  return value
}

/** The same without keys that are set to undefined, which are absent in JSON. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([, each]) => each !== undefined)
  return Object.fromEntries(entries.map(([name, each]) => [name, withoutUndefined(each)]))
}

class Point {
  x = 1
}

class Money {
  toJSON(): string {
    return '1 EUR'
  }
}

class Bag extends Array {}

const text = fc.string({ unit: 'binary' }).filter((string) => !string.includes('\0'))
const number = fc.oneof(
  fc.integer(),
  fc.maxSafeInteger(),
  fc.double({ noNaN: true, noDefaultInfinity: true }).filter((n) => !Object.is(n, -0)),
)
const key = text.filter((name) => name !== '__proto__')
const { json } = fc.letrec((tie) => ({
  json: fc.oneof(
    { maxDepth: 5, depthSize: 'small' },
    fc.oneof(text, number, fc.boolean(), fc.constant(null)),
    fc.array(tie('json')),
    fc.dictionary(key, tie('json'), { noNullPrototype: true }),
  ),
}))

describe('what passes', () => {
  it('comes back exactly', () => {
    fc.assert(
      fc.property(json, (value) => {
        const encoded = encodeJson(value, 'data')
        expect(encoded).toBe(JSON.stringify(value))
        deepStrictEqual(decodeJson(encoded ?? ''), value)
      }),
    )
  })

  it('comes back exactly or is refused by name, whatever it is', () => {
    const anything = fc.anything({
      withBigInt: true,
      withDate: true,
      withMap: true,
      withSet: true,
      withSparseArray: true,
      withTypedArray: true,
      withBoxedValues: true,
      withObjectString: true,
      withUnicodeString: true,
    })
    fc.assert(
      fc.property(anything, (value) => {
        let encoded: string | undefined
        try {
          encoded = encodeJson(value, 'data')
        } catch (error) {
          if (!isMillraceError(error, 'INVALID_DATA')) throw error
          expect(error.message).toMatch(/^data/)
          return
        }
        deepStrictEqual(encoded === undefined ? undefined : decodeJson(encoded), withoutUndefined(value))
      }),
      { numRuns: 1_000 },
    )
  })

  it('is absent where it is undefined', () => {
    expect(encodeJson(undefined, 'data')).toBeUndefined()
  })

  it.each<[string, unknown, string]>([
    ['null', null, 'null'],
    ['an escape that only looks like NUL', 'a\\u0000', '"a\\\\u0000"'],
    ['other control characters', '\x01\n', '"\\u0001\\n"'],
    ['a whole surrogate pair', '😀', '"😀"'],
    ['an object without a prototype', Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ['plain values of another realm', runInNewContext('({ a: [{ b: 1 }] })'), '{"a":[{"b":1}]}'],
    ['a toJSON that is no function', { toJSON: 1 }, '{"toJSON":1}'],
    ['the same object twice', (({ a }) => [a, a])({ a: { b: 1 } }), '[{"b":1},{"b":1}]'],
    ['the largest safe integer', Number.MAX_SAFE_INTEGER, '9007199254740991'],
    ['the smallest fraction', Number.MIN_VALUE, '5e-324'],
    ['an integer that is not safe, and yet exact', 2 ** 53, '9007199254740992'],
    ['a large integer', 123_456_789_012_345_680_000, '123456789012345680000'],
    ['a huge number', [1e300, -Number.MAX_VALUE], '[1e+300,-1.7976931348623157e+308]'],
    ['an object without its keys that are undefined', { a: { b: undefined, c: 1 }, d: undefined }, '{"a":{"c":1}}'],
    ['an object of nothing else', [{ a: undefined }], '[{}]'],
  ])('includes %s', (_, value, encoded) => {
    expect(encodeJson(value, 'data')).toBe(encoded)
  })

  it('is nested at most 500 levels deep', () => {
    expect(encodeJson(nested(MAX_JSON_DEPTH), 'data')).toBe(JSON.stringify(nested(MAX_JSON_DEPTH)))
    const error = thrown(() => encodeJson(nested(MAX_JSON_DEPTH + 1), 'data'))
    expect(error).toMatchObject({ code: 'INVALID_DATA' })
    expect(error.message).toContain('more than 500 levels deep')
  })
})

it('what libraries hang on values beside JSON is left out, as JSON does', () => {
  const noted = { a: 1, [Symbol('note')]: 2 }
  const named = Object.assign([1, 2], { note: 3 })
  const computed = {
    get total() {
      return 5
    },
  }
  expect(encodeJson({ noted, named, computed }, 'data')).toBe('{"noted":{"a":1},"named":[1,2],"computed":{"total":5}}')
})

describe('what is refused', () => {
  const holey = Array<number>(3)
  holey[0] = 1
  holey[2] = 3

  const flawed: [string, unknown, string][] = [
    ['undefined in an array', [1, undefined], 'data[1] is undefined'],
    ['a hole in an array', { list: holey }, 'data.list[1] is a hole'],
    ['a function', { go: () => 1 }, 'data.go is a function'],
    ['a function by itself', () => 1, 'data is a function'],
    ['a symbol', [Symbol('s')], 'data[0] is a symbol'],
    ['a BigInt', { id: 1n }, 'data.id is a BigInt'],
    ['NaN', { n: Number.NaN }, 'data.n is NaN'],
    ['Infinity', { n: -Infinity }, 'data.n is -Infinity'],
    ['-0', { n: -0 }, 'data.n is -0'],
    ['a NUL character', { s: 'a\0b' }, 'data.s holds a NUL character'],
    ['a NUL character in a key', { o: { 'a\0b': 1 } }, "data.o has the key 'a\\u0000b', which holds a NUL"],
    ['half a surrogate pair', ['\ud83d'], 'data[0] holds half of a surrogate pair'],
    ['half a surrogate pair in a key', { '\udc00': 1 }, "data has the key '\\udc00', which holds half"],
    ['a Date', { items: [0, 0, 0, { when: new Date() }] }, 'data.items[3].when is a Date'],
    ['a Map', { m: new Map() }, 'data.m is a Map'],
    ['a Set', { s: new Set() }, 'data.s is a Set'],
    ['a Promise', { p: Promise.resolve() }, 'data.p is a Promise: await it first'],
    ['binary', { b: new Uint8Array(2) }, 'data.b is binary'],
    ['an instance of a class', { p: new Point() }, 'data.p is an instance of Point'],
    ['an instance with toJSON', { m: new Money() }, 'data.m is an instance of Money with a toJSON() method'],
    ['an object with toJSON', { m: { toJSON: () => 1 } }, 'data.m has a toJSON() method'],
    ['a boxed primitive', { s: Object('text') }, 'data.s is an instance of String'],
    ['an object made from another', Object.create({ a: 1 }), 'data is an instance of'],
    ['an Error', { e: new TypeError('x') }, 'data.e is an instance of TypeError'],
    ['a subclass of Array', { bag: new Bag() }, 'data.bag is an instance of Bag'],
    ['__proto__ as a key', JSON.parse('{"a":{"__proto__":1}}'), 'data.a.__proto__ is a key'],
    ['a value under an odd key', { 'a b': { '': [undefined] } }, "data['a b'][''][0] is undefined"],
  ]

  it.each(flawed)('is %s, named by its place', (_, value, message) => {
    const error = thrown(() => encodeJson(value, 'data'))
    expect(isMillraceError(error, 'INVALID_DATA')).toBe(true)
    expect(error.message).toContain(message)
  })

  it('is a cycle, with the place where it closes', () => {
    const parent: Record<string, unknown> = { name: 'p' }
    parent['children'] = [{ name: 'c', parent }]
    const error = thrown(() => encodeJson({ parent }, 'data'))
    expect(error).toMatchObject({ code: 'INVALID_DATA' })
    expect(error.message).toContain('data.parent.children[0].parent refers back to data.parent, a cycle')
  })

  it('is an array that holds itself', () => {
    const loop: unknown[] = []
    loop.push(loop)
    expect(thrown(() => encodeJson(loop, 'data')).message).toContain('data[0] refers back to data, a cycle')
  })

  it('is found at any depth in any value', () => {
    const step = fc.oneof(fc.nat(5), fc.constantFrom('a', 'b1', '$c', '_d'))
    const single = flawed.filter(([what]) => ['a BigInt', 'NaN', 'Infinity', '-0'].includes(what))
    fc.assert(
      fc.property(fc.array(step, { maxLength: 20 }), fc.constantFrom(...single), (steps, flaw) => {
        const [, { n, id }] = flaw as [string, { n?: number; id?: bigint }, string]
        const value = steps.reduceRight<unknown>((inner, place) => {
          return typeof place === 'string' ? { [place]: inner } : [...Array<number>(place).fill(0), inner]
        }, n ?? id)
        const path = steps.map((place) => (typeof place === 'string' ? `.${place}` : `[${place}]`)).join('')
        expect(thrown(() => encodeJson(value, 'data')).message).toContain(`data${path} is `)
      }),
    )
  })
})

describe('the size', () => {
  it.each([
    ['ASCII', 'a'],
    ['two bytes', 'é'],
    ['three bytes', '日'],
    ['four bytes', '😀'],
    ['escapes', '\n'],
  ])('is counted in bytes of UTF-8, for %s', (_, character) => {
    const value = { s: character.repeat(100) }
    const bytes = Buffer.byteLength(JSON.stringify(value))
    expect(encodeJson(value, 'data', bytes)).toBe(JSON.stringify(value))
    const error = thrown(() => encodeJson(value, 'data', bytes - 1))
    expect(error).toMatchObject({ code: 'DATA_TOO_LARGE', details: { field: 'data', limit: bytes - 1, bytes } })
    expect(error.message).toContain(`${bytes} bytes as JSON, and the limit is ${bytes - 1}`)
  })

  it('is refused exactly when the text is over the limit', () => {
    fc.assert(
      fc.property(json, fc.nat(40), (value, slack) => {
        const bytes = Buffer.byteLength(JSON.stringify(value))
        const limit = bytes + 20 - slack
        if (bytes <= limit) expect(encodeJson(value, 'data', limit)).toBe(JSON.stringify(value))
        else expect(thrown(() => encodeJson(value, 'data', limit))).toMatchObject({ code: 'DATA_TOO_LARGE' })
      }),
    )
  })

  it('is 1 MiB at most unless a limit is given', () => {
    expect(encodeJson('a'.repeat(DEFAULT_JSON_LIMIT - 2), 'data')).toHaveLength(DEFAULT_JSON_LIMIT)
    expect(thrown(() => encodeJson('a'.repeat(DEFAULT_JSON_LIMIT - 1), 'data'))).toMatchObject({
      code: 'DATA_TOO_LARGE',
    })
  })

  it('is refused without writing out a small object that unfolds into a huge one', () => {
    let value: unknown = 1
    for (let level = 0; level < 60; level++) value = [value, value]
    expect(thrown(() => encodeJson(value, 'data'))).toMatchObject({ code: 'DATA_TOO_LARGE' })
  })
})
