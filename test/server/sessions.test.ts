// Sessions of browsers: the cookie, its token, other origins, and how often one may fail.
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { createToken, serve, tokenList, tokens } from 'millrace/server'
import type { ServeOptions, Server } from 'millrace/server'
import { virtualClock } from 'millrace/testing'
import { writeFile } from 'node:fs/promises'
import { closing } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'

const file = freshFolder()
const ann = createToken({ name: 'ann', roles: ['admin'], queues: ['*'] })
const SAME = { 'sec-fetch-site': 'same-origin' }

function newServer(options: Partial<ServeOptions> = {}): Server {
  const store = options.store ?? closing(memory())
  return closing(serve({ auth: tokenList([ann.entry]), logger: false, ...options, store }))
}

function ask(server: Server, method: string, path: string, headers: Record<string, string> = {}): Promise<Response> {
  return server.fetch(new Request(`http://localhost${path}`, { method, headers }))
}

/** Logs in; returns the cookie as the browser sends it. */
async function logIn(server: Server, token = ann.token): Promise<string> {
  const response = await ask(server, 'POST', '/v1/session', { authorization: `Bearer ${token}`, ...SAME })
  expect(response.status).toBe(200)
  return response.headers.get('set-cookie')!.split(';')[0]!
}

const code = async (response: Response): Promise<readonly unknown[]> => {
  const { code: given } = (await response.json()) as { readonly code?: string }
  return [response.status, given]
}

describe('a session', () => {
  it('takes the place of its token, and ends', async () => {
    const server = newServer()
    const response = await ask(server, 'POST', '/v1/session', { authorization: `Bearer ${ann.token}`, ...SAME })
    const header = response.headers.get('set-cookie')!
    expect(header).toMatch(/^millrace=[\w.-]+; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/)
    expect(header).not.toContain(ann.token)
    expect(await response.json()).toMatchObject({ name: 'ann', roles: ['admin'], until: expect.any(Number) })
    const cookie = header.split(';')[0]!
    expect((await ask(server, 'GET', '/v1', { cookie })).status).toBe(200)
    expect((await ask(server, 'POST', '/v1/queues/mail/pause', { cookie, ...SAME })).status).toBe(200)
    const ended = await ask(server, 'DELETE', '/v1/session', { cookie, ...SAME })
    expect([ended.status, ended.headers.get('set-cookie')]).toEqual([204, expect.stringContaining('Max-Age=0')])
  })

  it('is bound to this host and to TLS where browsers reach the server by https', async () => {
    const server = newServer({ origin: 'https://jobs.example.com' })
    const response = await ask(server, 'POST', '/v1/session', {
      authorization: `Bearer ${ann.token}`,
      origin: 'https://jobs.example.com',
    })
    expect(response.headers.get('set-cookie')).toMatch(/^__Host-millrace=.*; Path=\/; .*; Secure$/)
  })

  it('cannot be made up, changed, or signed by another server', async () => {
    const server = newServer()
    const cookie = await logIn(server)
    const [text, signature] = cookie.slice('millrace='.length).split('.') as [string, string]
    const forever = Buffer.from(
      JSON.stringify({ ...JSON.parse(Buffer.from(text, 'base64url').toString()), until: 1e15 }),
    ).toString('base64url')
    const other = await logIn(newServer())
    for (const made of [
      `millrace=${forever}.${signature}`,
      `millrace=${text}.${'A'.repeat(signature.length)}`,
      `millrace=${text}.`,
      `millrace=${text}`,
      `millrace=.${signature}`,
      'millrace=',
      other,
      `x=${text}.${signature}`,
    ]) {
      expect(await code(await ask(server, 'GET', '/v1', { cookie: made })), made).toEqual([401, 'UNAUTHORIZED'])
    }
    expect((await ask(server, 'GET', '/v1', { cookie: `a=1; ${cookie}; b=2` })).status).toBe(200)
  })

  it('is read by all servers that have its secret, and outlives a restart', async () => {
    const session = { secret: 'a secret of thirty-two characters' }
    const cookie = await logIn(newServer({ session }))
    expect((await ask(newServer({ session }), 'GET', '/v1', { cookie })).status).toBe(200)
  })

  it('ends after its time, and when its token is taken out of the file or expires', async () => {
    const clock = virtualClock({ start: Date.now() })
    const store = closing(memory({ runtime: clock.runtime }))
    const path = file('tokens.json')
    const bob = createToken({ name: 'bob', roles: ['read'], queues: ['*'] })
    await writeFile(path, JSON.stringify([ann.entry, bob.entry]))
    const server = newServer({ store, auth: tokens(path, clock.runtime), session: { lasts: '1h' } })
    const [of, gone] = [await logIn(server), await logIn(server, bob.token)]
    expect((await ask(server, 'GET', '/v1', { cookie: gone })).status).toBe(200)
    await writeFile(path, JSON.stringify([ann.entry]))
    await clock.advance('2s')
    expect((await ask(server, 'GET', '/v1', { cookie: gone })).status).toBe(401)
    expect((await ask(server, 'GET', '/v1', { cookie: of })).status).toBe(200)
    await clock.advance('1h')
    expect((await ask(server, 'GET', '/v1', { cookie: of })).status).toBe(401)
  })

  it('counts for less than a token that is sent with it', async () => {
    const server = newServer()
    const cookie = await logIn(server)
    const headers = { cookie, authorization: 'Bearer mrt_ann.wrong' }
    expect((await ask(server, 'GET', '/v1', headers)).status).toBe(401)
  })

  it('is not made where the host has its own, or the server has no auth', async () => {
    for (const auth of [undefined, () => ({ name: 'host', roles: ['admin' as const], queues: ['*'] })]) {
      const { auth: _, ...rest } = { auth: undefined }
      const server = closing(serve({ store: closing(memory()), logger: false, ...rest, ...(auth && { auth }) }))
      const response = await ask(server, 'POST', '/v1/session', SAME)
      expect([response.status, response.headers.get('set-cookie')]).toEqual([200, null])
      expect(await response.json()).toMatchObject({ until: null })
    }
  })

  it('refuses a short secret, and an option that it does not know', () => {
    for (const session of [{ secret: 'short' }, { lasts: 0 }, { secre: 'x' }]) {
      expect(() => newServer({ session: session })).toThrow(/session/)
    }
  })
})

describe('a page of another origin', () => {
  const foreign: readonly Record<string, string>[] = [
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: 'http://localhost:8080' },
    { 'sec-fetch-site': 'cross-site', origin: 'http://localhost' },
  ]

  it('changes nothing by the cookie of its user', async () => {
    const server = newServer()
    const cookie = await logIn(server)
    for (const headers of [...foreign, {}]) {
      const response = await ask(server, 'POST', '/v1/queues/mail/pause', { cookie, ...headers })
      expect(await code(response), JSON.stringify(headers)).toEqual([403, 'FORBIDDEN'])
    }
    const old = await ask(server, 'POST', '/v1/queues/mail/pause', { cookie, origin: 'http://localhost' })
    expect(old.status).toBe(200)
  })

  it('changes nothing on a server without auth on the machine of its user', async () => {
    const server = closing(serve({ store: closing(memory()), logger: false }))
    for (const headers of foreign) {
      const response = await ask(server, 'POST', '/v1/queues/mail/pause', headers)
      expect(await code(response), JSON.stringify(headers)).toEqual([403, 'FORBIDDEN'])
    }
    expect((await ask(server, 'POST', '/v1/queues/mail/pause')).status).toBe(200) // curl
  })

  it('is never granted a preflight, nor an answer', async () => {
    const server = newServer()
    const preflight = await ask(server, 'OPTIONS', '/v1/queues', {
      origin: 'https://evil.example',
      'access-control-request-method': 'GET',
    })
    expect(preflight.status).toBe(405)
    const answer = await ask(server, 'GET', '/v1', {
      authorization: `Bearer ${ann.token}`,
      origin: 'https://evil.example',
    })
    for (const { headers } of [preflight, answer]) {
      expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([])
      expect(headers.get('cross-origin-resource-policy')).toBe('same-origin')
      expect(headers.get('x-content-type-options')).toBe('nosniff')
      expect(headers.get('content-security-policy')).toContain("default-src 'none'")
      expect(headers.get('referrer-policy')).toBe('no-referrer')
      expect(headers.get('cache-control')).toBe('no-store')
    }
  })
})

describe('logins that fail', () => {
  const wrong = { authorization: 'Bearer mrt_ann.guessed', ...SAME }

  it('are bounded for each address, and those of others go on', async () => {
    const warned: string[] = []
    const log = (_: object, message: string): void => void warned.push(message)
    const server = newServer({ trustProxy: true, logger: { warn: log, error: log } })
    const from = (address: string): Record<string, string> => ({ 'x-forwarded-for': `10.0.0.1, ${address}` })
    for (let n = 0; n < 5; n++) {
      expect(await code(await ask(server, 'POST', '/v1/session', { ...wrong, ...from('1.1.1.1') }))).toEqual([
        401,
        'UNAUTHORIZED',
      ])
    }
    const right = { authorization: `Bearer ${ann.token}`, ...SAME }
    for (const headers of [wrong, right]) {
      const refused = await ask(server, 'POST', '/v1/session', { ...headers, ...from('1.1.1.1') })
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
      expect(await code(refused)).toEqual([429, 'RATE_LIMITED'])
    }
    expect((await ask(server, 'POST', '/v1/session', { ...right, ...from('2.2.2.2') })).status).toBe(200)
    expect(warned).toEqual(Array.from({ length: 5 }, () => 'A login from 1.1.1.1 failed.'))
  })

  it('write nothing to the store', async () => {
    const store = closing(memory())
    const queue = closing(new Queue('mail', { store, logger: false }))
    await queue.counts()
    let commits = 0
    const { commit } = store
    store.commit = (...given) => (commits++, commit.apply(store, given))
    const server = newServer({ store })
    for (let n = 0; n < 7; n++) await ask(server, 'POST', '/v1/session', wrong)
    expect(commits).toBe(0)
  })
})
