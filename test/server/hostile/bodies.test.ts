// Bodies that are made to harm: too large, too deep, too slow, compressed, or no JSON. Each with its status.
import { connect } from 'node:net'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { createToken, serve, tokenList } from 'millrace/server'
import type { LimitOptions, Server } from 'millrace/server'
import { closing } from '../../setup.js'

const ann = createToken({ name: 'ann', roles: ['admin'], queues: ['*'] })
const authorization = `Bearer ${ann.token}`
const PATH = '/v1/queues/mail/pause'

interface Hosted {
  readonly server: Server
  readonly queue: Queue
  /** Sends a body in process. */
  post(
    body: string | Uint8Array | ReadableStream<Uint8Array>,
    headers?: Record<string, string>,
  ): Promise<readonly [status: number, code: unknown]>
}

function newServer(limits: LimitOptions = {}): Hosted {
  const store = closing(memory())
  const server = closing(serve({ store, auth: tokenList([ann.entry]), limits, logger: false }))
  const queue = closing(new Queue('mail', { store, logger: false }))
  return {
    server,
    queue,
    async post(body, headers = {}) {
      const init = { method: 'POST', body, headers: { authorization, 'content-type': 'application/json', ...headers } }
      const answer = await server.fetch(new Request(`http://localhost${PATH}`, { ...init, duplex: 'half' }))
      return [answer.status, ((await answer.json()) as { code?: unknown }).code]
    },
  }
}

/** A stream of so many bytes, which counts those that were taken. */
function stream(bytes: number): { readonly body: ReadableStream<Uint8Array>; taken: number } {
  const chunk = new Uint8Array(65_536).fill(0x20)
  const made = {
    taken: 0,
    body: new ReadableStream<Uint8Array>({
      pull(controller) {
        if (made.taken >= bytes) return controller.close()
        made.taken += chunk.length
        controller.enqueue(chunk)
      },
    }),
  }
  return made
}

const MIB = 1_048_576

describe('a body', () => {
  it('of 1 GB is refused after 8 MiB: 413', async () => {
    const { post } = newServer()
    const huge = stream(1_073_741_824)
    expect(await post(huge.body)).toEqual([413, 'BODY_TOO_LARGE'])
    expect(huge.taken).toBeLessThan(10 * MIB)
  })

  it('that announces 1 GB is refused before it is read: 413', async () => {
    const { server } = newServer()
    const { port } = await server.listen({ port: 0 })
    const head = `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: ${authorization}\r\ncontent-type: application/json\r\ncontent-length: 1073741824\r\n\r\n{`
    expect(await raw(port, head)).toMatch(/^HTTP\/1\.1 413 /)
  })

  it('of 1 GB over a connection is not read to its end: 413', async () => {
    const { server } = newServer()
    const { port } = await server.listen({ port: 0 })
    const head = `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: ${authorization}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`
    const { answer, sent } = await flood(port, head, 1_073_741_824)
    expect(answer).toMatch(/^HTTP\/1\.1 413 /)
    expect(sent).toBeLessThan(100 * MIB)
  })

  it('that is a gzip bomb is refused, by its size and by its ratio: 413', async () => {
    const { post } = newServer()
    const gzip = { 'content-encoding': 'gzip' }
    const bomb = gzipSync(Buffer.alloc(200 * MIB, 0x20))
    expect(bomb.length).toBeLessThan(MIB)
    expect(await post(new Uint8Array(bomb), gzip)).toEqual([413, 'BODY_TOO_LARGE'])
    const small = gzipSync(Buffer.alloc(4 * MIB, 0x20)) // within the limit, at a ratio of 1,000
    expect(await post(new Uint8Array(small), gzip)).toEqual([413, 'BODY_TOO_LARGE'])
    expect(await post(new Uint8Array(gzipSync('{"name":"send"}')), gzip)).toEqual([200, undefined])
  })

  it.each([
    ['broken gzip', { 'content-encoding': 'gzip' }, 400, 'INVALID_REQUEST'],
    ['an unknown compression', { 'content-encoding': 'br' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['two compressions', { 'content-encoding': 'gzip, gzip' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['text', { 'content-type': 'text/plain' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['parts', { 'content-type': 'multipart/form-data; boundary=x' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['UTF-16', { 'content-type': 'application/json; charset=utf-16' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
    ['two types', { 'content-type': 'application/json, text/plain' }, 415, 'UNSUPPORTED_MEDIA_TYPE'],
  ] as const)('that is announced as %s is refused', async (_what, headers, status, code) => {
    const { post } = newServer()
    expect(await post('{"name":"send"}', headers)).toEqual([status, code])
  })

  it.each([
    ['100,000 levels of arrays', `${'['.repeat(100_000)}${']'.repeat(100_000)}`],
    ['100,000 levels of objects', `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`],
    ['100,000 brackets that are not closed', '['.repeat(100_000)],
    ['half a text', '"'],
    ['two values', '{} {}'],
    ['NaN', '{"name":NaN}'],
    ['a comment', '{/**/}'],
    ['invalid UTF-8', new Uint8Array([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d])],
    ['an overlong slash', new Uint8Array([0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d])],
    ['a list', '[]'],
    ['null', 'null'],
    ['a number', '7'],
  ])('of %s is refused: 400', async (_what, body) => {
    const { post } = newServer()
    expect((await post(body))[0]).toBe(400)
  })

  it.each([
    '{"__proto__":{"name":"send"}}',
    '{"constructor":{"prototype":{"name":"send"}}}',
    '{"__proto__":null}',
    '{"toString":1}',
    '{"hasOwnProperty":1,"name":"send"}',
  ])('with the keys of %s changes no prototype, and is refused by name: 400', async (body) => {
    const { post, queue } = newServer()
    expect(await post(body)).toEqual([400, 'INVALID_REQUEST'])
    expect(({} as { name?: unknown }).name).toBeUndefined()
    expect(await queue.paused()).toEqual({ queue: false, names: [] })
  })

  it('with __proto__ in the data of a job is refused, since handlers could not read it: 400', async () => {
    const { server, queue } = newServer()
    const { id } = await queue.add('send')
    const body = '{"data":{"__proto__":{"admin":true},"a":1}}'
    const headers = { authorization, 'content-type': 'application/json' }
    const answer = await server.fetch(new Request(`http://localhost/v1/jobs/${id}`, { method: 'PATCH', headers, body }))
    expect([answer.status, await answer.json()]).toEqual([400, expect.objectContaining({ code: 'INVALID_DATA' })])
    expect(({} as { admin?: unknown }).admin).toBeUndefined()
  })

  it('that comes slowly is given up: 408', async () => {
    const { server } = newServer({ bodyTimeout: '300ms' })
    const { port } = await server.listen({ port: 0 })
    const head = `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: ${authorization}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{`
    expect(await raw(port, head)).toMatch(/^HTTP\/1\.1 408 /)
  })

  it('holds bytes of the server only while it is answered: 503 beyond, and room again', async () => {
    const { post, server } = newServer({ inFlight: 100_000 })
    let open!: () => void
    const held = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new Uint8Array(90_000).fill(0x20))
        open = () => {
          controller.enqueue(Buffer.from('{"name":"send"}'))
          controller.close()
        }
      },
    })
    const first = post(held)
    await new Promise((resolve) => setImmediate(resolve))
    await expect.poll(() => post(' '.repeat(50_000) + '{}')).toEqual([503, 'SERVER_BUSY'])
    open()
    expect(await first).toEqual([200, undefined])
    expect(await post(' '.repeat(50_000) + '{}')).toEqual([200, undefined])
    await server.close()
  })
})

/** Sends text on a connection; resolves to what comes back until it ends. */
function raw(port: number, text: string): Promise<string> {
  return new Promise((resolve) => {
    let answer = ''
    const socket = connect(port, '127.0.0.1', () => socket.write(text))
    socket.on('data', (chunk) => {
      answer += chunk.toString()
      if (answer.includes('\r\n\r\n')) socket.end()
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve(answer))
  })
}

/** Sends chunks until an answer comes, the connection ends, or all was sent. */
function flood(port: number, head: string, most: number): Promise<{ readonly answer: string; readonly sent: number }> {
  return new Promise((resolve) => {
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65_536, 0x20), Buffer.from('\r\n')])
    let answer = ''
    let sent = 0
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(head)
      const more = (): void => {
        while (!socket.destroyed && sent < most) {
          sent += chunk.length
          if (!socket.write(chunk)) return void socket.once('drain', more)
        }
        socket.end()
      }
      more()
    })
    socket.on('data', (data) => {
      answer += data.toString()
      socket.destroy()
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve({ answer, sent }))
  })
}
