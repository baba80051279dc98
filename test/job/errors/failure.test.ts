// Failures as they are stored: whatever was thrown, the description is plain, bounded and JSON.

import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MillraceError, UnrecoverableError } from '../../../src/job/errors/errors.js'
import { describeError, isUnrecoverable, placeOf } from '../../../src/job/errors/failure.js'
import type { ErrorInfo } from '../../../src/job/job.js'
import { decodeJson, encodeJson } from '../../../src/job/values/json.js'

/** Holds a description against what every store may rely on. */
function judge(info: ErrorInfo): void {
  const text = encodeJson(info, 'error')
  expect(decodeJson(text ?? '')).toStrictEqual(info)
  const { cause, errors = [], ...own } = info
  expect(Object.keys(own).filter((key) => !['name', 'message', 'code', 'stack'].includes(key))).toEqual([])
  for (const value of Object.values(own)) expect(typeof value).toBe('string')
  expect(info.name.length).toBeLessThanOrEqual(256)
  expect(info.code?.length ?? 0).toBeLessThanOrEqual(256)
  expect(info.message.length).toBeLessThanOrEqual(10_001)
  expect(info.stack?.length ?? 0).toBeLessThanOrEqual(20_001)
  for (const each of cause === undefined ? errors : [cause, ...errors]) judge(each)
  expect(JSON.stringify(info).length).toBeLessThanOrEqual(6 * 65_000) // each character may be escaped
}

/** An error with these fields, own and writable, whatever they are. */
function errorWith(fields: object): Error {
  const error = new Error('plain')
  void error.stack // written when it is first read, from the name and message that stand then
  return Object.defineProperties(error, Object.getOwnPropertyDescriptors(fields))
}

const hostile = (): never => {
  throw new Error('keep out')
}
const hostiles: [string, unknown][] = [
  [
    'an error whose name cannot be read',
    errorWith({
      get name() {
        return hostile()
      },
    }),
  ],
  [
    'an error whose message cannot be read',
    errorWith({
      get message() {
        return hostile()
      },
    }),
  ],
  [
    'an error whose code cannot be read',
    errorWith({
      get code() {
        return hostile()
      },
    }),
  ],
  [
    'an error whose stack cannot be read',
    errorWith({
      get stack() {
        return hostile()
      },
    }),
  ],
  ['an error whose name has no text', errorWith({ name: Object.create(null) as unknown })],
  ['an error whose message is a symbol', errorWith({ message: Symbol('m') })],
  ['a value that throws when turned into JSON', { toJSON: hostile }],
  ['a value that is nothing in JSON', { toJSON: () => undefined }],
  [
    'a value that throws when it is read',
    {
      get field() {
        return hostile()
      },
    },
  ],
  ['a function that throws when turned into text', Object.assign(() => 1, { toString: hostile })],
  ['an object without a prototype', Object.create(null)],
  ['a proxy that throws at everything', new Proxy({}, { get: hostile, getPrototypeOf: hostile, ownKeys: hostile })],
  [
    'a proxy of an error that throws at everything',
    new Proxy(new Error('x'), { get: hostile, getPrototypeOf: hostile }),
  ],
  ['a revoked proxy', revoked()],
  ['a cycle', cycle()],
  ['a BigInt inside', { value: 1n }],
]

function revoked(): unknown {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

function cycle(): unknown {
  const value: { self?: unknown } = {}
  value.self = value
  return value
}

const anything = fc.anything({
  withBigInt: true,
  withDate: true,
  withMap: true,
  withNullPrototype: true,
  withObjectString: true,
  withSet: true,
  withSparseArray: true,
  withTypedArray: true,
  stringUnit: 'binary',
})
const text = fc.string({ unit: 'binary', maxLength: 50 })

describe('describeError', () => {
  it('contains the name, message and stack of an error, and its code where it has one', () => {
    const plain = new TypeError('not a number')
    expect(describeError(plain)).toStrictEqual({ name: 'TypeError', message: 'not a number', stack: plain.stack })
    const coded = new MillraceError('LEASE_LOST', 'lost')
    const expected = { name: 'MillraceError', message: 'lost', code: 'LEASE_LOST', stack: coded.stack }
    expect(describeError(coded)).toStrictEqual(expected)
  })

  it.each<[string, object, Partial<ErrorInfo>]>([
    ['has no name', { name: '' }, { name: 'Error' }],
    ['has a number for its name', { name: 5 }, { name: '5' }],
    ['has a number for its message', { message: 5 }, { message: '5' }],
  ])('describes an error that %s', (_, fields, expected) => {
    expect(describeError(errorWith(fields))).toMatchObject(expected)
  })

  it('leaves out a code or a stack that is no text', () => {
    expect(describeError(errorWith({ code: 23_505, stack: undefined }))).toStrictEqual({
      name: 'Error',
      message: 'plain',
    })
  })

  it.each<[unknown, string]>([
    ['text', 'text'],
    [undefined, 'undefined'],
    [null, 'null'],
    [42, '42'],
    [10n, '10'],
    [Symbol('s'), 'Symbol(s)'],
    [{ status: 404 }, '{"status":404}'],
    [[1, 2], '[1,2]'],
  ])('shows %o, which is no error, as its message', (thrown, message) => {
    expect(describeError(thrown)).toStrictEqual({ name: 'Error', message })
  })

  it('is JSON, plain and bounded, whatever was thrown', () => {
    fc.assert(
      fc.property(anything, (thrown) => judge(describeError(thrown))),
      { numRuns: 1_000 },
    )
  })

  it('is JSON, plain and bounded, whatever the fields of an error are', () => {
    const fields = fc.record(
      {
        name: fc.oneof(text, anything),
        message: fc.oneof(text, anything),
        code: fc.oneof(text, anything),
        stack: text,
        cause: fc.oneof(text, anything),
        errors: fc.oneof(fc.array(anything), anything),
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(fields, (given) => judge(describeError(errorWith(given)))),
      { numRuns: 1_000 },
    )
  })

  it.each(hostiles)('describes %s without throwing', (_, thrown) => {
    judge(describeError(thrown))
  })

  it('cuts what is too long, and never through the middle of a character', () => {
    const long = 'x'.repeat(9_999) + '😀'.repeat(20_000)
    const info = describeError(errorWith({ name: long, message: long, code: long, stack: long }))
    judge(info)
    expect(info.message).toBe(`${'x'.repeat(9_999)}\u{fffd}…`)
    judge(describeError(long))
    judge(describeError({ long }))
  })

  it('keeps the causes of an error, and what an aggregate sums up', () => {
    const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    const both = new AggregateError([refused, new Error('connect ENETUNREACH')], '')
    const failed = new TypeError('fetch failed', { cause: both })
    expect(describeError(failed)).toStrictEqual({
      name: 'TypeError',
      message: 'fetch failed',
      stack: failed.stack,
      cause: {
        name: 'AggregateError',
        message: '',
        stack: both.stack,
        errors: [
          { name: 'Error', message: 'connect ECONNREFUSED', code: 'ECONNREFUSED', stack: refused.stack },
          { name: 'Error', message: 'connect ENETUNREACH', stack: expect.any(String) as string },
        ],
      },
    })
    expect(describeError(new Error('outer', { cause: 'a text' })).cause).toStrictEqual({
      name: 'Error',
      message: 'a text',
    })
    for (const cause of [undefined, null])
      expect(describeError(new Error('outer', { cause }))).not.toHaveProperty('cause')
  })

  it('keeps all that an aggregate sums up, and of what looks like one the errors alone', () => {
    const aggregate = new AggregateError(['a text', 404, new Error('an error'), undefined])
    expect(describeError(aggregate).errors?.map(({ message }) => message)).toEqual(['a text', '404', 'an error'])
    const issues = Object.assign(new Error('invalid'), { errors: [{ path: ['a'] }, new Error('an error')] })
    expect(describeError(issues).errors?.map(({ message }) => message)).toEqual(['an error'])
  })

  it('knows an error of another realm, such as an AbortError of the system in Jest, by its shape', () => {
    const shape = {
      name: 'AbortError',
      message: 'aborted',
      stack: 'AbortError: aborted',
      [Symbol.toStringTag]: 'DOMException',
    }
    expect(describeError(shape)).toStrictEqual({ name: 'AbortError', message: 'aborted', stack: 'AbortError: aborted' })
    expect(describeError({ message: 'no stack' }).message).toBe('{"message":"no stack"}')
  })

  it('bounds causes in depth, in number and in length, and follows no cycle', () => {
    let deep = new Error('0')
    for (let level = 1; level < 20; level++) deep = new Error(String(level), { cause: deep })
    let depth = 0
    for (let each: ErrorInfo | undefined = describeError(deep).cause; each !== undefined; each = each.cause) depth++
    expect(depth).toBe(5)

    const many = Array.from(
      { length: 1000 },
      () => new Error('x'.repeat(50_000), { cause: new Error('y'.repeat(50_000)) }),
    )
    const wide = describeError(new AggregateError(many))
    judge(wide)
    expect(wide.errors!.length).toBeLessThan(9)

    const round: Error & { cause?: unknown } = new Error('round')
    round.cause = new AggregateError([round], 'again', { cause: round })
    expect(describeError(round).cause).toMatchObject({ message: 'again' })
    expect(describeError(round).cause).not.toHaveProperty('cause')
    expect(describeError(round).cause).not.toHaveProperty('errors')
  })

  it('replaces what JSON stores refuse: NUL characters and lone surrogates', () => {
    expect(describeError(new Error('a\0b\ud800c😀')).message).toBe('a\u{fffd}b\u{fffd}c😀')
  })
})

describe('isUnrecoverable', () => {
  it('knows an UnrecoverableError, its descendants, and one from another copy of the package', () => {
    class Worse extends UnrecoverableError {
      override name = 'Worse'
    }
    const foreign = errorWith({ name: 'UnrecoverableError' })
    for (const thrown of [new UnrecoverableError('no'), new Worse('no'), foreign])
      expect(isUnrecoverable(thrown)).toBe(true)
  })

  it('knows no other', () => {
    for (const thrown of [new Error('no'), 'UnrecoverableError', { name: 'UnrecoverableError' }, undefined, null]) {
      expect(isUnrecoverable(thrown)).toBe(false)
    }
  })

  it.each(hostiles)('takes %s for recoverable, without throwing', (_, thrown) => {
    expect(isUnrecoverable(thrown)).toBe(false)
  })

  it('never throws', () => {
    fc.assert(
      fc.property(anything, (thrown) => {
        expect(isUnrecoverable(thrown)).toBe(false)
      }),
    )
  })
})

describe('placeOf', () => {
  const own = '/app/src/mail.js:14:9'
  const stack = (...frames: string[]): string => ['Error: no', ...frames.map((frame) => `    at ${frame}`)].join('\n')
  const info = (text: string, over: Partial<ErrorInfo> = {}): ErrorInfo => ({
    name: 'Error',
    message: 'no',
    stack: text,
    ...over,
  })
  const millrace = new URL('../../../src/worker/runner.ts', import.meta.url).href

  it('is this file for an error made here', () => {
    expect(placeOf(describeError(new Error('no')))).toMatch(/\/test\/job\/errors\/failure\.test\.ts:\d+:\d+$/)
  })

  it.each<[string, string[], string]>([
    ['a function', [`send (${own})`], own],
    ['no function', [own], own],
    ['an async function', [`async send (${own})`, 'async Promise.all (index 0)'], own],
    ['an async frame without a function', [`async ${own}`], own],
    ['a constructor and an alias', [`new Mail [as post] (${own})`], own],
    ['a module', ['send (file:///app/src/my%20mail.js:14:9)'], '/app/src/my mail.js:14:9'],
    ['a URL that is not encoded well', ['send (file:///app/100%/mail.js:1:2)'], '/app/100%/mail.js:1:2'],
    ['a path with brackets', ['send (/home/ann (work)/mail.js:1:2)'], '/home/ann (work)/mail.js:1:2'],
    ['a path of Windows', ['send (C:\\app\\mail.js:1:2)'], 'C:\\app\\mail.js:1:2'],
    ['a URL of Windows', ['send (file:///C:/app/mail.js:1:2)'], 'C:/app/mail.js:1:2'],
  ])('reads a frame with %s', (_, frames, expected) => {
    expect(placeOf(info(stack(...frames)))).toBe(expected)
  })

  it.each([
    ['Node', 'node:internal/process/task_queues:95:5'],
    ['Node, in brackets', 'process.processTicksAndRejections (node:internal/process/task_queues:95:5)'],
    ['a package', 'connect (/app/node_modules/pg/lib/client.js:1:2)'],
    ['a package on Windows', 'connect (C:\\app\\node_modules\\pg\\client.js:1:2)'],
    ['a package by URL', 'connect (file:///app/node_modules/pg/lib/client.js:1:2)'],
    ['Millrace', `Runner.run (${millrace}:1:2)`],
    ['nothing', 'Array.map (<anonymous>)'],
    ['eval', 'eval (eval at run (/app/src/run.js:3:1), <anonymous>:1:1)'],
  ])('skips a frame of %s', (_, frame) => {
    expect(placeOf(info(stack(frame, `send (${own})`)))).toBe(own)
    expect(placeOf(info(stack(frame)))).toBeUndefined()
  })

  it('takes no line of a message for a frame', () => {
    const message = 'no\n    at other (/app/src/other.js:1:1)'
    expect(placeOf(info(`Error: ${message}\n    at ${own}`, { message }))).toBe(own)
  })

  it('is that of a cause, or of an aggregated error, if the error itself has none', () => {
    const cause = info(stack(own))
    expect(placeOf(info(stack('node:net:1:2'), { cause }))).toBe(own)
    expect(placeOf({ name: 'AggregateError', message: 'all', errors: [info(''), cause] })).toBe(own)
    expect(placeOf({ name: 'Error', message: 'none' })).toBeUndefined()
  })

  it('is found quickly in a stack that is made to be slow to read', () => {
    const line = `    at ${' ('.repeat(9000)}/`
    expect(placeOf(info(`Error: no\n${line}\n    at ${own}`))).toBe(own)
  })

  it('never throws, whatever the stack', () => {
    fc.assert(fc.property(text, text, (message, frames) => void placeOf({ name: 'Error', message, stack: frames })))
  })
})
