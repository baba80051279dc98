// The stream of a remote store: a connection that died is noticed, opened again and resumed, and its listeners learn what they
// may have missed.
import { describe, expect, it } from 'vitest'
import { http } from 'millrace/http'
import type { Notice, Store } from '../../../src/store/store.js'
import { watching, wire } from '../../../src/store/wire/wire.js'
import { closing } from '../../setup.js'
import { heldFetch, problem, virtualTime } from './virtual.js'
import type { Arrived } from './virtual.js'

const nothing: Notice = { work: [], due: [], revoked: [], events: [], gap: false }
const event = { type: 'waiting', id: 'a', queue: 'mail', name: 'send', at: 1 } as const

interface Stream {
  readonly url: URL
  readonly aborted: () => boolean
  send(text: string | Uint8Array): void
  notice(notice: Partial<Notice>): void
  end(): void
}

/** Answers a request for a stream. */
function opened({ url, init, answer }: Arrived): Stream {
  let controller!: ReadableStreamDefaultController<Uint8Array>
  const body = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) })
  init.signal!.addEventListener('abort', () => {
    try {
      controller.error(new Error('aborted'))
    } catch {
      // It had ended.
    }
  })
  answer(new Response(body))
  const send = (text: string | Uint8Array): void =>
    controller.enqueue(typeof text === 'string' ? new TextEncoder().encode(text) : text)
  return {
    url: new URL(url),
    aborted: () => init.signal!.aborted,
    send,
    notice: (notice) => send(`event: notice\ndata: ${watching.notice.encode({ ...nothing, ...notice })}\n\n`),
    end: () => controller.close(),
  }
}

function world(): { store: Store; arrived: Arrived[]; advance: (ms: number) => Promise<void> } {
  const { runtime, advance } = virtualTime()
  const { fetch, arrived } = heldFetch()
  return { store: closing(http('http://127.0.0.1:7070', { runtime, fetch })), arrived, advance }
}

const ready = 'event: ready\ndata: {}\n\n'
const batch = { writer: 'w', seq: 1, groups: [], renewals: [], asks: [] }
const isWatch = ({ url }: Arrived): boolean => url.includes('/watch')

describe('a stream', () => {
  it('is noticed to be dead within 25 s, opened again, and its listener learns that it missed something', async () => {
    const { store, arrived, advance } = world()
    const seen: Notice[] = []
    store.watch({}, (notice) => seen.push(notice))
    await advance(0)
    const first = opened(arrived[0]!)
    first.send(ready)
    await advance(15_000)
    first.send(': ping\n\n')
    await advance(19_000)
    expect(first.aborted()).toBe(false)
    await advance(6_000)
    expect(first.aborted()).toBe(true)
    expect(arrived).toHaveLength(2)
    expect(seen).toEqual([])
    opened(arrived[1]!).send(ready)
    await advance(0)
    expect(seen).toEqual([{ ...nothing, missed: true }])
  })

  it('ends when the store closes and when it is silent, though the fetch misses that it was aborted', async () => {
    const { store, arrived, advance } = world()
    const cancelled: number[] = []
    const answer = ({ answer: give }: Arrived, number: number): void => {
      const start = (controller: ReadableStreamDefaultController<Uint8Array>): void =>
        controller.enqueue(new TextEncoder().encode(ready))
      give(new Response(new ReadableStream({ start, cancel: () => void cancelled.push(number) })))
    }
    store.watch({}, () => {})
    await advance(0)
    answer(arrived[0]!, 0)
    await advance(30_000)
    expect(cancelled).toEqual([0])
    answer(arrived[1]!, 1)
    await advance(0)
    await store.close()
    expect(cancelled).toEqual([0, 1])
  })

  it('goes on after the last event that it received', async () => {
    const { store, arrived, advance } = world()
    const seen: Notice[] = []
    store.watch({ events: true }, (notice) => seen.push(notice))
    await advance(0)
    const first = opened(arrived[0]!)
    expect(first.url.search).toBe('?events=true')
    first.send(ready)
    first.notice({ events: [{ ...event, cursor: '7' }] })
    await advance(0)
    first.end()
    await advance(100)
    const second = opened(arrived[1]!)
    expect(second.url.searchParams.get('from')).toBe('7')
    second.send(ready)
    await advance(0)
    expect(seen.at(-1)).toEqual({ ...nothing, missed: true })
  })

  it('has a gap where it is not known which events came', async () => {
    const { store, arrived, advance } = world()
    const seen: Notice[] = []
    store.watch({ events: true }, (notice) => seen.push(notice))
    await advance(0)
    const first = opened(arrived[0]!)
    first.send(ready)
    await advance(0)
    first.end()
    await advance(100)
    opened(arrived[1]!).send(ready)
    await advance(0)
    expect(seen).toEqual([{ ...nothing, missed: true, gap: true }])
  })

  it('is read whatever chunks it comes in', async () => {
    const { store, arrived, advance } = world()
    const seen: Notice[] = []
    store.watch({ events: true }, (notice) => seen.push(notice))
    await advance(0)
    const stream = opened(arrived[0]!)
    const notice = { ...nothing, events: [{ ...event, name: 'größe 🎈', cursor: '1' }] }
    const text = `${ready}: ping\r\n\r\nevent: notice\r\ndata: ${watching.notice.encode(notice)}\r\n\r\n`
    for (const byte of new TextEncoder().encode(text)) stream.send(Uint8Array.of(byte))
    await advance(0)
    expect(seen).toEqual([notice])
  })

  it('is shared by all who listen to hints, and ends with the last of them', async () => {
    const { store, arrived, advance } = world()
    const seen: string[] = []
    const stops = ['a', 'b'].map((name) =>
      store.watch({}, () => {
        seen.push(name)
        throw new Error('of a listener')
      }),
    )
    await advance(0)
    expect(arrived).toHaveLength(1)
    const stream = opened(arrived[0]!)
    stream.send(ready)
    stream.notice({ work: ['mail'] })
    await advance(0)
    stops[0]!()
    stream.notice({ work: ['mail'] })
    await advance(0)
    expect(seen).toEqual(['a', 'b', 'b'])
    expect(stream.aborted()).toBe(false)
    stops[1]!()
    expect(stream.aborted()).toBe(true)
    await advance(60_000)
    expect(arrived).toHaveLength(1)
  })
})

describe('a commit', () => {
  it('waits until the server watches, so that its events are announced', async () => {
    const { store, arrived, advance } = world()
    store.watch({}, () => {})
    const committed = store.commit(batch)
    await advance(1_000)
    expect(arrived.map(isWatch)).toEqual([true])
    const stream = opened(arrived[0]!)
    await advance(0)
    expect(arrived).toHaveLength(1)
    stream.send(ready)
    await advance(0)
    expect(arrived.map(isWatch)).toEqual([true, false])
    const receipt = { writer: 'w', seq: 1, now: 1, groups: [], renewals: [], asks: [] }
    arrived[1]!.answer(new Response(wire.commit.answer.encode(receipt)))
    expect(await committed).toEqual(receipt)
  })

  it('does not wait for a stream that the server refuses', async () => {
    const { store, arrived, advance } = world()
    store.watch({}, () => {})
    const committed = store.commit(batch)
    await advance(0)
    arrived[0]!.answer(problem(503, 'SERVER_BUSY'))
    await advance(0)
    const sent = arrived.find((each) => !isWatch(each))!
    sent.answer(problem(403, 'FORBIDDEN'))
    await expect(committed).rejects.toMatchObject({ code: 'FORBIDDEN' })
  })
})

it('a transaction is refused, with the way out', async () => {
  const { store } = world()
  for (const call of [store.commit(batch, {}), store.get(['a'], {}), store.find({}, {}), store.tally([], {})]) {
    await expect(call).rejects.toMatchObject({ code: 'INVALID_TRANSACTION' })
  }
})

it('a server that speaks later protocols alone is refused when the store is opened', async () => {
  const { store, arrived, advance } = world()
  const opening = store.open()
  await advance(0)
  arrived[0]!.answer(Response.json({ protocol: { oldest: 2, newest: 3 }, you: { name: 'a', roles: [] } }))
  await expect(opening).rejects.toMatchObject({ code: 'PROTOCOL_MISMATCH' })
})

it('the ids of workers begin with the name of the token, or with the one that the server knows', async () => {
  expect(closing(http('http://127.0.0.1:1', { token: 'mrt_team-a.c2VjcmV0' })).identity).toBe('team-a/')
  const { store, arrived, advance } = world()
  expect(store.identity).toBeUndefined()
  const opening = store.open()
  await advance(0)
  arrived[0]!.answer(Response.json({ protocol: { oldest: 1, newest: 1 }, you: { name: 'ann', roles: ['work'] } }))
  await opening
  expect(store.identity).toBe('ann/')
})
