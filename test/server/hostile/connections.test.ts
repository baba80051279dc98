// Connections that are made to harm: slow, idle, many, and requests that are no HTTP or try tricks. Each with its status.
// MILLRACE_CONNECTIONS: how many idle ones; npm run nightly opens 10,000.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { memory } from 'millrace/memory'
import { createToken, serve, tokenList } from 'millrace/server'
import type { LimitOptions } from 'millrace/server'
import { closing } from '../../setup.js'

const IDLE = Number(process.env['MILLRACE_CONNECTIONS'] ?? 500)

const ann = createToken({ name: 'ann', roles: ['admin'], queues: ['*'] })
const auth = `authorization: Bearer ${ann.token}\r\n`

/** Begins to serve; returns the port. */
async function listening(limits: LimitOptions = {}): Promise<number> {
  const server = closing(serve({ store: closing(memory()), auth: tokenList([ann.entry]), limits, logger: false }))
  return (await server.listen({ port: 0 })).port
}

/** Opens a connection. */
function open(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket))
    socket.once('error', reject)
    socket.on('error', () => {})
    onTestFinished(() => void socket.destroy())
  })
}

/** What comes back for this text, until the connection ends. */
async function answerTo(port: number, text: string): Promise<string> {
  const socket = await open(port)
  let answer = ''
  const ended = new Promise<void>((resolve) => socket.on('close', () => resolve()))
  socket.on('data', (chunk) => (answer += chunk.toString()))
  socket.write(text)
  await ended
  return answer
}

const statusIn = (answer: string): number => Number(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1])

/** A request whose connection ends with its answer. */
const get = (path: string, headers = `host: localhost\r\n${auth}`): string =>
  `GET ${path} HTTP/1.1\r\nconnection: close\r\n${headers}\r\n`

const isWell = async (port: number): Promise<boolean> => statusIn(await answerTo(port, get('/v1'))) === 200

describe('a path', () => {
  it.each([
    ['/v1', 200],
    ['/v1/../v1', 200], // as the URL standard reads it
    ['/v1/queues/../../v1', 200],
    ['/../../../../etc/passwd', 404],
    ['/v1/%2e%2e/%2e%2e/etc/passwd', 404],
    ['/v1/queues/..%2f..%2fetc', 200], // the name of a queue like any other
    ['/v1/queues/%00', 400],
    ['/v1/queues/a%0d%0ab', 400],
    ['/v1/queues/%ff', 400],
    ['/v1/queues/%', 400],
    ['/v1/queues/%ed%a0%80', 400],
    ['//v1', 404],
    ['/V1', 404],
    ['/v1/', 404],
    ['/v1//queues', 404],
    ['/v1;x', 404],
    ['/v1%2fqueues', 404],
    ['/v1/jobs/__proto__', 404],
    ['/v1/queues/constructor', 200],
    ['/v1/queues/millrace:audit', 403],
    ['/v1/queues/millrace%3Aaudit', 403],
    [`/v1/queues/${'x'.repeat(256)}`, 400],
    [`/v1?${'x'.repeat(9_000)}`, 400],
    [`/${'x'.repeat(17_000)}`, 431],
    ['/v1?x=1', 400],
    ['/v1/queues?limit=1&limit=2', 400],
    ['/v1/queues?__proto__=1', 400],
    ['http://evil.example/v1/nowhere', 404],
  ])('%s is answered with %i', async (path, status) => {
    const port = await listening()
    expect(statusIn(await answerTo(port, get(path)))).toBe(status)
    expect(await isWell(port)).toBe(true)
  })
})

describe('a request', () => {
  it.each([
    ['without a host', `GET /v1 HTTP/1.1\r\n${auth}connection: close\r\n\r\n`, 400],
    ['with two hosts', get('/v1', `host: localhost\r\nhost: evil.example\r\n${auth}`), 400],
    ['with a host that is none', get('/v1', `host: a b\r\n${auth}`), 400],
    ['with two lengths', `POST /v1/session HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n`, 400],
    [
      'with a length and chunks',
      `POST /v1/session HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
    ],
    [
      'with a broken chunk',
      `POST /v1/queues/a/pause HTTP/1.1\r\nhost: x\r\n${auth}transfer-encoding: chunked\r\n\r\nzz\r\n`,
      400,
    ],
    ['with a folded header', get('/v1', `host: localhost\r\nx: a\r\n b\r\n${auth}`), 400],
    ['with a NUL in a header', get('/v1', `host: localhost\r\nx: a\0b\r\n${auth}`), 400],
    ['with a header of 20 KB', get('/v1', `host: localhost\r\nx: ${'a'.repeat(20_000)}\r\n${auth}`), 431],
    [
      'with 3,000 headers, of which 100 are read',
      get('/v1', `host: localhost\r\n${'x: y\r\n'.repeat(3_000)}${auth}`),
      401,
    ],
    ['of an unknown method', `FETCH /v1 HTTP/1.1\r\nhost: x\r\n\r\n`, 400],
    ['of HTTP/9', `GET /v1 HTTP/9.9\r\nhost: x\r\n\r\n`, 400],
    ['that is no HTTP', `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03`, 400],
    ['to trace', `TRACE /v1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`, 405],
    ['with an unknown way to ask', `PROPFIND /v1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`, 405],
  ])('%s is answered with %i', async (_what, text, status) => {
    const port = await listening()
    expect(statusIn(await answerTo(port, text))).toBe(status)
    expect(await isWell(port)).toBe(true)
  })

  it('with two tokens is one without a token', async () => {
    const port = await listening()
    const twice = get('/v1', `host: localhost\r\n${auth}authorization: Bearer mrt_x.y\r\n`)
    expect([200, 401]).toContain(statusIn(await answerTo(port, twice)))
    const reversed = get('/v1', `host: localhost\r\nauthorization: Bearer mrt_x.y\r\n${auth}`)
    expect(statusIn(await answerTo(port, reversed))).toBe(401)
  })

  it('is not waited for when the server closes, unless it has come', async () => {
    const server = serve({ store: closing(memory()), auth: tokenList([ann.entry]), logger: false })
    const { port } = await server.listen({ port: 0 })
    const silent = await open(port)
    const half = await open(port)
    half.write('GET /v1 HT')
    await roundTrip(await open(port))
    const ended = [silent, half].map((socket) => new Promise<void>((resolve) => socket.on('close', () => resolve())))
    await server.close()
    await Promise.all(ended)
  })

  it('that is smuggled behind another is answered by itself, and needs its own token', async () => {
    const port = await listening()
    const answer = await answerTo(
      port,
      `GET /v1 HTTP/1.1\r\nhost: localhost\r\n${auth}\r\n${get('/v1', 'host: localhost\r\n')}`,
    )
    expect(answer.match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 401'])
  })
})

describe('connections', () => {
  it('that send their headers slowly are closed: 408', async () => {
    const port = await listening({ bodyTimeout: '300ms' })
    const socket = await open(port)
    let answer = ''
    socket.on('data', (chunk) => (answer += chunk.toString()))
    const ended = new Promise<void>((resolve) => socket.on('close', () => resolve()))
    const drip = setInterval(() => socket.write('x: y\r\n'), 20)
    onTestFinished(() => clearInterval(drip))
    socket.write('GET /v1 HTTP/1.1\r\nhost: localhost\r\n')
    await ended
    expect(answer).toMatch(/^(HTTP\/1\.1 408 |$)/)
    expect(await isWell(port)).toBe(true)
  })

  it('beyond the most are closed, and others go on', async () => {
    const port = await listening({ connections: 5 })
    const sockets = await Promise.all(Array.from({ length: 5 }, () => open(port)))
    for (const socket of sockets) await roundTrip(socket)
    const refused = await open(port)
    await new Promise<void>((resolve) => {
      refused.on('close', () => resolve())
      refused.resume()
    })
    await roundTrip(sockets[0]!)
    const gone = new Promise<void>((resolve) => sockets[1]!.on('close', () => resolve()))
    sockets[1]!.destroy()
    await gone
    await expect.poll(() => isWell(port).catch(() => false)).toBe(true)
  })

  it(`that are idle, ${IDLE} of them, hinder nobody`, { timeout: 180_000 }, async () => {
    const port = await listening()
    const program = fileURLToPath(new URL('idle-clients.mjs', import.meta.url))
    const child = spawn(process.execPath, [program, String(port), String(IDLE)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const ended = once(child, 'close')
    try {
      await once(child.stdout, 'data')
      for (let n = 0; n < 50; n++) expect(await isWell(port)).toBe(true)
    } finally {
      child.kill('SIGKILL')
      await ended
    }
    expect(await isWell(port)).toBe(true)
  })

  it('that never ask are closed when the time for headers is over', async () => {
    const port = await listening({ bodyTimeout: '300ms' })
    const silent = await open(port)
    silent.resume()
    await new Promise<void>((resolve) => silent.on('close', () => resolve()))
    expect(await isWell(port)).toBe(true)
  })
})

/** Asks on a connection that stays open. */
async function roundTrip(socket: Socket): Promise<void> {
  const answered = new Promise<string>((resolve, reject) => {
    let answer = ''
    const receive = (chunk: Buffer): void => {
      answer += chunk.toString()
      if (!answer.endsWith('{"ok":true}')) return
      socket.off('data', receive)
      resolve(answer)
    }
    socket.on('data', receive)
    socket.once('close', () => reject(new Error('The connection was closed.')))
  })
  socket.write('GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n')
  expect(statusIn(await answered)).toBe(200)
}
