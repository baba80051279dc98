// Calls of a remote store: sent again while the server does not answer, for as long as `patience`; what an answer means.
import { gunzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import type { HttpOptions } from 'millrace/http'
import { Calls } from '../../../src/stores/http/calls.js'
import { parseOptions } from '../../../src/stores/http/options.js'
import { heldFetch, problem, refusedConnection, virtualTime } from './virtual.js'
import type { Arrived } from './virtual.js'

interface World {
  readonly calls: Calls
  readonly arrived: Arrived[]
  readonly advance: (ms: number) => Promise<void>
}

function world(options: HttpOptions = {}, url = 'http://127.0.0.1:7070'): World {
  const { runtime, advance } = virtualTime()
  const { fetch, arrived } = heldFetch()
  return { calls: new Calls(parseOptions(url, { runtime, fetch, ...options })), arrived, advance }
}

const request = { method: 'POST', path: '/v1/store/get', body: '[[]]' } as const

/** The code with which a call is rejected. */
const codeOf = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    () => 'answered',
    (error: { readonly code?: unknown }) => error.code,
  )

describe('a call without an answer', () => {
  it('is sent again as it was, with growing pauses, and is answered', async () => {
    const { calls, arrived, advance } = world({ token: 'mrt_a.b' })
    const sent = calls.send(request)
    await advance(0)
    for (const pause of [25, 50, 100, 200, 400, 500, 500]) {
      const before = arrived.length
      arrived.at(-1)!.fail(new TypeError('fetch failed'))
      await advance(pause - 1)
      expect(arrived.length).toBe(before)
      await advance(1)
      expect(arrived.length).toBe(before + 1)
    }
    arrived.at(-1)!.answer(new Response('done'))
    expect(await sent).toBe('done')
    const bodies = arrived.map(({ init }) => init.body)
    expect(new Set(bodies)).toEqual(new Set(['[[]]']))
    expect(arrived[0]!.init.headers).toMatchObject({ authorization: 'Bearer mrt_a.b', 'millrace-protocol': '1' })
  })

  it('fails after its patience; nothing was sent where no connection was made', async () => {
    const { calls, arrived, advance } = world({ patience: '15s' })
    const settled = codeOf(calls.send(request))
    let code: unknown
    void settled.then((found) => (code = found))
    for (let passed = 0; passed < 14_000; passed += 500) {
      await advance(500)
      arrived.at(-1)!.fail(refusedConnection())
      expect(code).toBeUndefined()
    }
    for (let passed = 0; passed < 2_000; passed += 500) {
      await advance(500)
      arrived.at(-1)!.fail(refusedConnection())
    }
    expect(await settled).toBe('SERVER_UNREACHABLE')
  })

  it('may have been applied where any try reached the server', async () => {
    const { calls, arrived, advance } = world({ patience: 100 })
    const settled = codeOf(calls.send(request))
    await advance(0)
    arrived.at(-1)!.fail(new TypeError('terminated'))
    await advance(50)
    arrived.at(-1)!.fail(refusedConnection())
    await advance(50)
    arrived.at(-1)!.fail(refusedConnection())
    expect(await settled).toBe('STORE_UNAVAILABLE')
  })

  it('is given up and sent again where the connection is dead', async () => {
    const { calls, arrived, advance } = world()
    const sent = calls.send(request)
    await advance(14_999)
    expect(arrived).toHaveLength(1)
    await advance(100)
    expect(arrived).toHaveLength(2)
    arrived[1]!.answer(new Response('late'))
    expect(await sent).toBe('late')
  })

  it('is not sent again once the store closes', async () => {
    const { calls, arrived, advance } = world()
    const settled = codeOf(calls.send(request))
    await advance(0)
    arrived[0]!.fail(refusedConnection())
    await advance(1)
    calls.end()
    expect(await settled).toBe('SERVER_UNREACHABLE')
    expect(arrived).toHaveLength(1)
  })
})

describe('an answer', () => {
  it.each(['SERVER_BUSY', 'STORE_CLOSED', 'STORE_UNAVAILABLE', 'RATE_LIMITED'])(
    'of %s is waited for, as long as the server asks',
    async (passing) => {
      const { calls, arrived, advance } = world()
      const sent = calls.send(request)
      await advance(0)
      arrived[0]!.answer(problem(503, passing, { 'retry-after': '2' }))
      await advance(1_999)
      expect(arrived).toHaveLength(1)
      await advance(1)
      arrived[1]!.answer(new Response('done'))
      expect(await sent).toBe('done')
    },
  )

  it.each(['UNAUTHORIZED', 'FORBIDDEN', 'WRITER_BEHIND', 'DATABASE_FULL', 'INVALID_REQUEST'])(
    'of %s is the error of the call, with its details',
    async (code) => {
      const { calls, arrived, advance } = world()
      const sent = calls.send(request)
      await advance(0)
      arrived[0]!.answer(problem(400, code))
      await expect(sent).rejects.toMatchObject({ code, message: `the ${code}`, details: { at: 'here' } })
    },
  )

  it('of a body that is too large asks for less at once', async () => {
    const { calls, arrived, advance } = world()
    const settled = codeOf(calls.send(request))
    await advance(0)
    arrived[0]!.answer(problem(413, 'BODY_TOO_LARGE'))
    expect(await settled).toBe('DATA_TOO_LARGE')
  })

  it('that is no problem of Millrace is a proxy without its server, or another site', async () => {
    const { calls, arrived, advance } = world({ patience: 0 })
    const proxied = codeOf(calls.send(request))
    await advance(0)
    arrived[0]!.answer(new Response('<h1>Bad Gateway</h1>', { status: 502 }))
    expect(await proxied).toBe('STORE_UNAVAILABLE')
    const elsewhere = codeOf(calls.send(request))
    await advance(0)
    arrived[1]!.answer(new Response('<h1>Not Found</h1>', { status: 404 }))
    expect(await elsewhere).toBe('INVALID_REQUEST')
  })
})

describe('a large body', () => {
  const jobs = Array.from({ length: 2_000 }, (_, n) => `job-${n * 7919}`).join(' ')

  it('is compressed on its way to another machine', async () => {
    const { calls, arrived, advance } = world({}, 'https://jobs.example.com/base/')
    void calls.send({ ...request, body: jobs }).catch(() => {})
    while (arrived.length === 0) await advance(0)
    const { url, init } = arrived[0]!
    expect(url).toBe('https://jobs.example.com/base/v1/store/get')
    expect(init.headers).toMatchObject({ 'content-encoding': 'gzip', 'accept-encoding': 'gzip' })
    expect(gunzipSync(init.body as unknown as Uint8Array).toString()).toBe(jobs)
    calls.close()
  })

  it.each([
    ['to this machine', {}, 'http://localhost:1', jobs],
    ['where that is off', { compression: false }, 'https://jobs.example.com', jobs],
    ['where it would shrink so far that a server refuses it', {}, 'https://jobs.example.com', 'x'.repeat(100_000)],
  ])('is sent as it is %s', async (_, options, url, body) => {
    const { calls, arrived, advance } = world(options, url)
    void calls.send({ ...request, body }).catch(() => {})
    while (arrived.length === 0) await advance(0)
    expect(arrived[0]!.init.body).toBe(body)
    calls.close()
  })
})

describe('options', () => {
  it.each([
    ['an address of another protocol', () => parseOptions('ftp://a', {}), /address of a server/],
    ['an address with a password', () => parseOptions('http://u:p@a', {}), /use the option token/],
    ['an address with a query', () => parseOptions('http://a?b', {}), /without a query/],
    ['no address', () => parseOptions(undefined as unknown as string, {}), /address of a server/],
    ['an unknown option', () => parseOptions('http://a', { tokn: 'x' } as HttpOptions), /did you mean 'token'/],
    ['a token with a space', () => parseOptions('http://a', { token: 'a b' }), /token/],
    ['a patience that is none', () => parseOptions('http://a', { patience: -1 }), /patience/],
  ])('%s is refused', (_, call, message) => {
    expect(call).toThrow(message)
  })

  it('an error does not repeat a token or a password', () => {
    for (const call of [
      () => parseOptions('http://u:hunter2@a', {}),
      () => parseOptions('http://a', { token: 'hun ter2' }),
    ]) {
      expect(call).not.toThrow(/hun ?ter2/)
    }
  })
})
