// Who is answered at all: listening, hosts, tokens, roles of a host's own, rates.
import { writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { describe, expect, it } from 'vitest'
import type { Telemetry } from 'millrace/telemetry'
import { memory } from 'millrace/memory'
import { createToken, serve, tokenList, tokens } from 'millrace/server'
import type { Auth, ServeOptions, Server } from 'millrace/server'
import { virtualClock } from 'millrace/testing'
import { closing } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'

const file = freshFolder()
const ann = createToken({ name: 'ann', roles: ['admin'], queues: ['*'] })

function newServer(options: Partial<ServeOptions> = {}): Server {
  return closing(serve({ logger: false, store: closing(memory()), ...options }))
}

function get(
  server: Server,
  path: string,
  headers: Record<string, string> = {},
  origin = 'http://localhost',
): Promise<Response> {
  return server.fetch(new Request(`${origin}${path}`, { headers }))
}

/** Sends a request with headers that `fetch` does not let one set; returns status and body. */
function send(url: string, headers: Record<string, string>): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { headers }, (answer) => {
      let body = ''
      answer.on('data', (chunk: Buffer) => (body += chunk.toString()))
      answer.on('end', () => resolve({ status: answer.statusCode!, body }))
    })
    sent.on('error', reject)
    sent.end()
  })
}

describe('listening', () => {
  it.each(['0.0.0.0', '::', '192.168.1.1', 'example.com', '127.0.0.1.example.com', 'localhost.'])(
    'on %s is refused without auth',
    async (host) => {
      await expect(newServer().listen({ host, port: 0 })).rejects.toMatchObject({ code: 'AUTH_NEEDED' })
    },
  )

  it('on any address is possible with auth', async () => {
    const server = newServer({ auth: tokenList([ann.entry]) })
    const { port } = await server.listen({ host: '0.0.0.0', port: 0 })
    const answer = await send(`http://127.0.0.1:${port}/v1`, {
      authorization: `Bearer ${ann.token}`,
      host: 'jobs.example',
    })
    expect(answer.status).toBe(200)
  })

  it.each([{ port: -1 }, { port: 70_000 }, { host: '' }, { prt: 1 }])('refuses %j', async (options) => {
    await expect(newServer().listen(options)).rejects.toThrow(/server.listen/)
  })
})

describe('the host of a request', () => {
  it('must be this machine where there is no auth, so that no page can point its name here', async () => {
    const server = newServer()
    const { url, port } = await server.listen({ port: 0 })
    for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`, 'LOCALHOST']) {
      expect((await send(`${url}/v1`, { host })).status, host).toBe(200)
    }
    for (const host of [
      'evil.example',
      'localhost.evil.example',
      `127.0.0.1.nip.io:${port}`,
      '127.0.0.2',
      '0.0.0.0',
      'localhost:x',
    ]) {
      const { status, body } = await send(`${url}/v1`, { host })
      expect([400, 421], `${host}: ${body}`).toContain(status)
    }
    const rebound = await send(`${url}/v1`, { host: 'evil.example' })
    expect([rebound.status, JSON.parse(rebound.body).code]).toEqual([421, 'HOST_NOT_ALLOWED'])
  })
})

describe('tokens', () => {
  it('of a file are read again when it changes, and expire', async () => {
    const clock = virtualClock({ start: Date.now() })
    const path = file('tokens.json')
    const soon = new Date(Date.now() + 60_000).toISOString()
    const bob = createToken({ name: 'bob', roles: ['read'], queues: ['*'], expires: soon })
    await writeFile(path, JSON.stringify([ann.entry]))
    const server = newServer({ auth: tokens(path, clock.runtime) })
    const status = async (token: string): Promise<number> =>
      (await get(server, '/v1', { authorization: `Bearer ${token}` })).status
    expect([await status(ann.token), await status(bob.token)]).toEqual([200, 401])
    await writeFile(path, JSON.stringify([bob.entry]))
    await clock.advance('1s')
    expect([await status(ann.token), await status(bob.token)]).toEqual([401, 200])
    await clock.advance('1m')
    expect(await status(bob.token)).toBe(401)
    await writeFile(path, '[{ broken')
    await clock.advance('1s')
    // An old list might hold a token that was taken out of it.
    const broken = await get(server, '/v1', { authorization: `Bearer ${ann.token}` })
    expect(broken.status).toBe(500)
    expect(await broken.text()).not.toContain('tokens.json')
  })

  it('of one name stand side by side, so that one can replace the other', async () => {
    const other = createToken({ name: 'ann', roles: ['read'], queues: ['mail'] })
    const auth = tokenList([ann.entry, other.entry])
    for (const { token, entry } of [ann, other]) {
      const answer = await get(newServer({ auth }), '/v1', { authorization: `Bearer ${token}` })
      expect(await answer.json()).toMatchObject({ you: { name: 'ann', roles: entry.roles } })
    }
  })

  it('are kept as hashes, and compared in constant time', async () => {
    const text = JSON.stringify(ann.entry)
    expect(text).not.toContain(ann.token.split('.')[1])
    const source = await import('node:fs/promises').then(({ readFile }) => readFile('src/server/tokens.ts', 'utf8'))
    expect(source).toContain('timingSafeEqual(hash,')
  })

  it.each([
    '',
    'Bearer',
    'Bearer ',
    'Basic YTpi',
    'Bearer mrt_ann',
    'Bearer mrt_ann.',
    `Bearer ${'x'.repeat(600)}`,
    'Bearer mrt_.x',
    'mrt_ann.x',
  ])('are not guessed by %j', async (authorization) => {
    const answer = await get(newServer({ auth: tokenList([ann.entry]) }), '/v1', { authorization })
    expect(answer.status).toBe(401)
    expect(answer.headers.get('www-authenticate')).toBe('Bearer')
  })

  it.each([
    { name: 'a b' },
    { hash: 'x' },
    { roles: [] },
    { roles: ['root'] },
    { queues: [] },
    { queues: [''] },
    { expires: 'soon' },
    { role: 'admin' },
  ])('of a list must be well-formed: %j', (wrong) => {
    expect(() => tokenList([{ ...ann.entry, ...wrong } as never])).toThrow(/tokenList\[0\]/)
  })
})

describe("a host's own auth", () => {
  it.each([
    {},
    { name: 'x', roles: ['root'], queues: ['*'] },
    { name: 'a b', roles: ['admin'], queues: ['*'] },
    { name: 'x', roles: ['admin'] },
    'admin',
    true,
  ])('opens nothing by a mistake: %j', async (principal) => {
    const server = newServer({ auth: (() => principal) as unknown as Auth })
    expect((await get(server, '/v1')).status).not.toBe(200)
  })

  it('that throws answers 500 and shows nothing of it', async () => {
    const server = newServer({
      auth: () => {
        throw new Error('ldap://admin:pw@host')
      },
    })
    const answer = await get(server, '/v1')
    expect(answer.status).toBe(500)
    expect(await answer.text()).not.toContain('ldap')
  })
})

describe('the rate of a token', () => {
  it('bounds its requests, and not those of others', async () => {
    const clock = virtualClock()
    const bob = createToken({ name: 'bob', roles: ['read'], queues: ['*'] })
    const server = newServer({
      store: closing(memory({ runtime: clock.runtime })),
      auth: tokenList([ann.entry, bob.entry]),
      rate: { max: 3, per: '1m' },
    })
    const status = async (token: string): Promise<number> =>
      (await get(server, '/v1/openapi.json', { authorization: `Bearer ${token}` })).status
    for (let n = 0; n < 3; n++) expect(await status(ann.token)).toBe(200)
    const refused = await get(server, '/v1', { authorization: `Bearer ${ann.token}` })
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '20'])
    expect(await status(bob.token)).toBe(200)
    await clock.advance('20s')
    expect([await status(ann.token), await status(ann.token)]).toEqual([200, 429])
  })
})

describe('telemetry', () => {
  it('measures the queues that the server makes', async () => {
    const observed: unknown[] = []
    const telemetry = {
      trace: () => undefined,
      process: () => {},
      observe: (of: unknown) => {
        observed.push(of)
        return () => {}
      },
    }
    const store = closing(memory())
    const server = newServer({ store, telemetry: telemetry as unknown as Telemetry })
    expect((await get(server, '/v1/queues/mail')).status).toBe(200)
    expect(observed).toEqual([store])
  })
})

describe('options of serve', () => {
  it.each([
    { redact: 'all' },
    { origin: 'jobs.example.com' },
    { origin: 'https://jobs.example.com/path' },
    { trustProxy: 'yes' },
    { telemetry: {} },
    { dashboard: true },
    { base: 'x' },
    { rate: { max: 0, per: '1s' } },
    { limits: { body: 0 } },
    { limits: { boddy: 1 } },
    { queues: [] },
    { auth: 'token' },
  ])('%j is refused', (wrong) => {
    expect(() => newServer(wrong as never)).toThrow(/serve/)
  })
})
