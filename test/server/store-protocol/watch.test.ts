// The stream of notices as a server sends it: signs of life, and an end for readers that are too slow, too many or gone.
import { describe, expect, it } from 'vitest'
import type { Notice, WatchOptions } from '../../../src/store/store.js'
import { noticeStream } from '../../../src/server/store-protocol/watch.js'
import { closing } from '../../setup.js'
import { memory } from 'millrace/memory'
import { serveStore } from '../../stores/http/bare-server.js'
import { virtualTime } from '../../stores/http/virtual.js'

const nothing: Notice = { work: [], due: [], revoked: [], events: [], gap: false }

interface Watched {
  readonly reader: ReadableStreamDefaultReader<Uint8Array>
  readonly advance: (ms: number) => Promise<void>
  readonly notify: (notice: Notice) => void
  readonly gone: AbortController
  readonly state: { watching: boolean; ended: number }
}

function watched(): Watched {
  const { runtime, advance } = virtualTime()
  const gone = new AbortController()
  const state = { watching: false, ended: 0 }
  let notify: (notice: Notice) => void = () => {}
  const watch = (_: WatchOptions, listener: (notice: Notice) => void): (() => void) => {
    state.watching = true
    notify = listener
    return () => void (state.watching = false)
  }
  const parts = { store: { watch }, runtime, filter: (notice: Notice) => notice, signal: gone.signal }
  const stream = noticeStream({}, { ...parts, ended: () => state.ended++ })
  const reader = stream.getReader() as ReadableStreamDefaultReader<Uint8Array>
  return { reader, advance, notify: (notice) => notify(notice), gone, state }
}

const textOf = async (reader: Watched['reader']): Promise<string> =>
  new TextDecoder().decode((await reader.read()).value)

describe('a stream of notices', () => {
  it('says that it watches, then sends what comes and signs of life', async () => {
    const { reader, advance, notify, state } = watched()
    expect(await textOf(reader)).toBe('event: ready\ndata: {}\n\n')
    expect(state.watching).toBe(true)
    notify({ ...nothing, work: ['mail'] })
    expect(await textOf(reader)).toMatch(/^event: notice\ndata: .*mail.*\n\n$/)
    await advance(8_000)
    expect(await textOf(reader)).toBe(': ping\n\n')
  })

  it('ends once its reader is 8 MiB behind, and holds no more than that', async () => {
    const { reader, notify, state } = watched()
    const large = { ...nothing, work: ['x'.repeat(2 ** 20)] }
    for (let sent = 0; sent < 7; sent++) notify(large)
    expect(state.watching).toBe(true)
    for (let sent = 0; sent < 20; sent++) notify(large)
    expect(state).toEqual({ watching: false, ended: 1 })
    await expect(reader.read()).rejects.toThrow('too far behind')
  })

  it('ends with its client, and with the server', async () => {
    const client = watched()
    await client.reader.cancel()
    expect(client.state).toEqual({ watching: false, ended: 1 })
    const server = watched()
    server.gone.abort()
    expect(server.state).toEqual({ watching: false, ended: 1 })
    await server.reader.read()
    expect((await server.reader.read()).done).toBe(true)
  })
})

it('a token has a bounded number of streams, and gets another when one has ended', async () => {
  const server = closing(await serveStore(closing(memory()), { limits: { streams: 2 } }))
  const gone = new AbortController()
  const open = (signal?: AbortSignal): Promise<Response> =>
    fetch(`${server.url}/v1/store/watch`, { headers: { 'millrace-protocol': '1' }, ...(signal && { signal }) })
  const [first, second] = [await open(gone.signal), await open()]
  expect([first.status, second.status]).toEqual([200, 200])
  const third = await open()
  expect(third.status).toBe(429)
  expect(await third.json()).toMatchObject({ code: 'RATE_LIMITED' })
  await second.body!.cancel()
  let status = 429
  for (let tries = 0; status === 429 && tries < 1_000; tries++) {
    const again = await open()
    ;({ status } = again)
    await again.body!.cancel()
  }
  expect(status).toBe(200)
  gone.abort()
})
