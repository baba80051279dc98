import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { startProxy } from './proxy.js'
import type { Proxy } from './proxy.js'

let echo: Server
let proxy: Proxy
const made: Socket[] = []
/** The server's ends of the connections it has taken. */
let taken: Socket[] = []

beforeEach(async () => {
  taken = []
  echo = createServer((socket) => {
    taken.push(socket)
    socket.on('error', () => {})
    socket.pipe(socket)
  })
  echo.listen(0, '127.0.0.1')
  await once(echo, 'listening')
  proxy = await startProxy((echo.address() as AddressInfo).port)
})

afterEach(() => {
  for (const each of made.splice(0)) each.destroy()
  proxy.close()
  for (const each of taken) each.destroy()
  echo.close()
})

async function dial(): Promise<Socket> {
  const socket = connect(proxy.port, '127.0.0.1')
  made.push(socket)
  await once(socket, 'connect')
  socket.on('error', () => {})
  return socket
}

/** Sends a text and waits for as many bytes to come back. */
async function echoed(socket: Socket, text: string): Promise<string> {
  socket.write(text)
  let received = ''
  while (received.length < text.length) received += String((await once(socket, 'data'))[0])
  return received
}

/** What arrives from now on. */
function receiving(socket: Socket): () => string {
  let received = ''
  socket.on('data', (bytes) => (received += String(bytes)))
  return () => received
}

it('forwards what both sides send, and their end', async () => {
  const socket = await dial()
  expect(await echoed(socket, 'hello')).toBe('hello')
  socket.end()
  await once(socket, 'close')
  expect(proxy.connections).toBe(0)
})

it('delays, and keeps the order when the delay shrinks', async () => {
  const socket = await dial()
  await echoed(socket, 'first')
  const received = receiving(socket)
  const began = performance.now()
  proxy.delay(60)
  socket.write('slow ')
  await once(taken[0]!, 'data')
  expect(performance.now() - began).toBeGreaterThanOrEqual(60) // a lower bound: no machine is too slow for it
  proxy.delay(1)
  socket.write('quick')
  while (received() !== 'slow quick') await once(socket, 'data')
})

it('freezes without a sign: what is sent arrives nowhere until it forwards again', async () => {
  const socket = await dial()
  await echoed(socket, 'before')
  proxy.freeze()
  await new Promise((done) => socket.write('during', done)) // the kernel takes it, as of any living peer
  const other = await dial() // and this, too
  await new Promise((done) => other.write('newcomer', done))

  const both = [once(socket, 'data'), once(other, 'data')]
  await proxy.pass()
  expect((await Promise.all(both)).map(([bytes]) => String(bytes))).toEqual(['during', 'newcomer'])
})

it('can freeze standing connections alone, and hides the end of one from its other side', async () => {
  const socket = await dial()
  await echoed(socket, 'before')
  let noticed = false
  taken[0]!.on('close', () => (noticed = true))
  const received = receiving(socket)
  proxy.freeze('standing')
  await new Promise((done) => socket.write('during', done))
  expect(await echoed(await dial(), 'newcomer')).toBe('newcomer')
  expect(received()).toBe('')
  socket.destroy()
  await once(socket, 'close')
  expect(await echoed(await dial(), 'later')).toBe('later')
  expect(noticed).toBe(false)

  const closed = once(taken[0]!, 'close')
  await proxy.pass()
  await closed
})

it('mutes open connections: what is sent arrives, and the answer is held back', async () => {
  const socket = await dial()
  await echoed(socket, 'before')
  const received = receiving(socket)
  proxy.mute()
  const arrived = once(taken[0]!, 'data')
  socket.write('during')
  expect(String((await arrived)[0])).toBe('during')
  expect(await echoed(await dial(), 'newcomer')).toBe('newcomer')
  expect(received()).toBe('')
  const answer = once(socket, 'data')
  await proxy.pass()
  expect(String((await answer)[0])).toBe('during')
})

it('cuts both sides with a reset, and takes new connections', async () => {
  const socket = await dial()
  await echoed(socket, 'before')
  const resets = [once(socket, 'error'), once(taken[0]!, 'error')]
  proxy.cut()
  const errors = (await Promise.all(resets)).flat()
  expect(errors).toMatchObject([{ code: 'ECONNRESET' }, { code: 'ECONNRESET' }])
  expect(await echoed(await dial(), 'after')).toBe('after')
})

it('refuses new connections, leaves the standing alone, and takes them again on the same port', async () => {
  const socket = await dial()
  await echoed(socket, 'before')
  proxy.refuse()
  await expect(dial()).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  expect(await echoed(socket, 'still here')).toBe('still here')
  await proxy.pass()
  expect(await echoed(await dial(), 'after')).toBe('after')
})

it('puts itself into an address', () => {
  expect(proxy.through('postgres://me:secret@127.0.0.1:5432/db')).toBe(
    `postgres://me:secret@127.0.0.1:${proxy.port}/db`,
  )
})
