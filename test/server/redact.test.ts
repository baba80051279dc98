// What read routes hide: by keys, by paths, and in lines of text; and that all else stays as it was stored.
import { describe, expect, it } from 'vitest'
import { parseRedact } from '../../src/server/redact.js'

const redactor = parseRedact(undefined)
const shown = (text: string): unknown => JSON.parse(redactor.json(text, 'data'))

describe('JSON', () => {
  it('hides values under telling keys, at any depth and of any kind', () => {
    const data = {
      user: 'ann',
      password: 'x',
      nested: [{ apiKey: { a: 1 } }, { 'X-Auth-Token': [1, 2] }],
      cardNumber: 4,
    }
    expect(shown(JSON.stringify(data))).toEqual({
      user: 'ann',
      password: '•••',
      nested: [{ apiKey: '•••' }, { 'X-Auth-Token': '•••' }],
      cardNumber: '•••',
    })
  })

  it('leaves numbers, order and spaces as they were stored', () => {
    const text = '{ "big" : 12345678901234567890123, "e": 1.50e+3, "secret" : {"a": [1, "}"]} , "last":[ ] }'
    expect(redactor.json(text, 'data')).toBe(
      '{ "big" : 12345678901234567890123, "e": 1.50e+3, "secret" : "•••" , "last":[ ] }',
    )
  })

  it('finds a key that is written with escapes', () => {
    expect(shown('{"pass\\u0077ord":"x","p\\u0061ssword":"y"}')).toEqual({ password: '•••' })
    expect(shown('{"\\u0074oken":"x"}')).toEqual({ token: '•••' })
  })

  it('is not misled by values that look like keys, or by quotes and braces in texts', () => {
    const data = { note: '"password":"x"', list: ['token', 'secret: {'], tail: '\\"', key: 'kept' }
    expect(shown(JSON.stringify({ ...data, token: 't' }))).toEqual({ ...data, token: '•••' })
  })

  it('goes through data that is nested 100,000 levels deep', () => {
    const deep = `${'['.repeat(100_000)}{"token":1}${']'.repeat(100_000)}`
    expect(redactor.json(deep, 'data')).toBe(deep.replace('{"token":1}', '{"token":"•••"}'))
  })

  it('hides listed paths, with * for any key or index', () => {
    const listed = parseRedact({ keys: /^never$/, paths: ['data.user.email', 'data.list.*.ssid', 'data.at.1'] })
    const hide = (value: unknown): unknown => JSON.parse(listed.json(JSON.stringify(value), 'data'))
    expect(
      hide({ user: { email: 'a', name: 'b' }, list: [{ ssid: 1 }, { ssid: 2, x: 3 }], at: [0, 1, 2], email: 'c' }),
    ).toEqual({
      user: { email: '•••', name: 'b' },
      list: [{ ssid: '•••' }, { ssid: '•••', x: 3 }],
      at: [0, '•••', 2],
      email: 'c',
    })
  })

  it('puts in place what `with` returns, and hides the value where that throws', () => {
    const partial = parseRedact({
      with: (value, place) => (place === 'data.token' ? `…${String(value).slice(-2)}` : JSON.parse('{')),
    })
    expect(JSON.parse(partial.json('{"token":"abcd","secret":1}', 'data'))).toEqual({ token: '…cd', secret: '•••' })
  })

  it('finds keys by an expression that remembers where it was, and by one that is anchored', () => {
    const anchored = parseRedact({ keys: /^pin$/gy })
    expect(JSON.parse(anchored.json('{"pin":1,"spin":2,"b":{"pin":3}}', 'data'))).toEqual({
      pin: '•••',
      spin: 2,
      b: { pin: '•••' },
    })
  })

  it('changes no JSON that holds nothing to hide, whatever it is', () => {
    const values = [null, true, 0, -1.5, '', '"', '\\', [], {}, [[]], [{}], { a: [] }, [1, [2, [3]], { b: { c: [4] } }]]
    const always = parseRedact({ keys: /^never$/ })
    for (const value of values) expect(always.json(JSON.stringify(value), 'data')).toBe(JSON.stringify(value))
  })
})

describe('text', () => {
  const lines = [
    ['login with password=hunter2 failed', 'login with password=••• failed'],
    ['Authorization: Bearer abc.def', 'Authorization: •••'],
    ['sent Bearer abcdefghijkl to it', 'sent Bearer ••• to it'],
    ['{"apiKey":"s3cr3t","a":1}', '{"apiKey":•••,"a":1}'],
    ['connect postgres://bob:pw@db/x', 'connect postgres://•••@db/x'],
    ['token mrt_ann.abcdefghijklmnopqrstuvwxyz0123456789abcdefg used', 'token ••• used'],
    ['refused: password=hunter2, user: ann', 'refused: password=•••, user: ann'],
    ['12 jobs done: 3 left', '12 jobs done: 3 left'],
  ] as const
  it.each(lines)('%s', (line, expected) => {
    expect(redactor.text(line)).toBe(expected)
  })

  it('comes to an end on long lines that are made to be slow', () => {
    for (const line of [
      'a'.repeat(200_000),
      `${'a.'.repeat(50_000)}=`,
      'key: '.repeat(50_000),
      `"${'\\'.repeat(99_999)}`,
    ]) {
      expect(redactor.text(line)).toBe(line)
    }
  })
})

describe('the option', () => {
  it('false hides nothing', () => {
    expect(parseRedact(false).json('{"token":1}', 'data')).toBe('{"token":1}')
  })

  it.each([{ keys: 'token' }, { paths: 'data' }, { paths: ['elsewhere.x'] }, { with: 1 }, { key: /x/ }])(
    'refuses %j',
    (given) => {
      expect(() => parseRedact(given as never)).toThrow(/redact/)
    },
  )
})
