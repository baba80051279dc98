// A server that goes while a connection to it is made: the caller gets an error, and no other call is harmed.
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { Pool } from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { postgres } from 'millrace/postgres'
import { closing } from '../../../setup.js'

/** A server that is being stopped: it greets, and ends the connection in the same packet. */
async function leavingServer(): Promise<string> {
  const message = (type: string, ...parts: readonly (string | Buffer)[]): Buffer => {
    const body = Buffer.concat(parts.map((part) => Buffer.from(part)))
    const length = Buffer.alloc(4)
    length.writeInt32BE(body.length + 4)
    return Buffer.concat([Buffer.from(type), length, body])
  }
  const greeting = Buffer.concat([
    message('R', Buffer.alloc(4)),
    message('Z', 'I'),
    message('E', 'SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0'),
  ])
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => socket.end(greeting))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `postgres://postgres@127.0.0.1:${(server.address() as AddressInfo).port}/postgres`
}

test.each(['a URL', 'a pool'])(
  'a server that leaves with its greeting is an error to whoever asked: %s',
  async (kind) => {
    const url = await leavingServer()
    const pool = new Pool({ connectionString: url })
    pool.on('error', () => {})
    onTestFinished(() => pool.end())
    const store = closing(postgres((kind === 'a URL' ? url : pool) as string))
    await expect(store.open()).rejects.toThrow()
  },
)
