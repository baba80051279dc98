// Watching a memory store: when listeners are called, what they can resume from, and what recording costs without watchers.
import { describe, expect, test } from 'vitest'
import type { Insert } from '../../../src/job/change.js'
import { systemRuntime } from '../../../src/store/runtime.js'
import type { Notice, Store } from '../../../src/store/store.js'
import { memory } from '../../../src/stores/memory/store.js'
import { insert } from './table.making.js'

interface Setup {
  readonly store: Store
  now: number
  add(...inserts: Insert[]): Promise<void>
}

function setUp(ring?: number): Setup {
  const clock = { now: 1_000 }
  const store = memory({ runtime: { ...systemRuntime(), now: () => clock.now }, ...(ring && { ring }) })
  let seq = 0
  return {
    store,
    get now() {
      return clock.now
    },
    set now(time) {
      clock.now = time
    },
    async add(...inserts) {
      await store.commit({ writer: 'w', seq: ++seq, groups: inserts.map((change) => [change]), renewals: [], asks: [] })
      await published()
    },
  }
}

/** Notices leave in microtasks; by the next turn all have been given. */
const published = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve))

const seen = (notices: readonly Notice[]): string[] =>
  notices.flatMap((notice) => [...(notice.gap ? ['gap'] : []), ...notice.events.map((event) => event.id)])

describe('a watcher of a memory store', () => {
  test('receives events with cursors that count up without gaps, and resumes after any of them', async () => {
    const { store, add } = setUp()
    const first: Notice[] = []
    store.watch({ events: true }, (notice) => void first.push(notice))
    await add(insert('a'), insert('b'))
    await add(insert('c'))
    const cursors = first.flatMap((notice) => notice.events.map((event) => event.cursor))
    expect(cursors).toEqual(['1', '2', '3'])
    for (const [at, from] of ['0', ...cursors].entries()) {
      const resumed: Notice[] = []
      store.watch({ events: true, from }, (notice) => void resumed.push(notice))
      await published()
      expect(seen(resumed)).toEqual(['a', 'b', 'c'].slice(at))
    }
  })

  test('learns of a gap when what it missed is more than the ring holds', async () => {
    const { store, add } = setUp(3)
    store.watch({ events: true }, () => {})
    await add(insert('a'), insert('b'))
    await add(insert('c'), insert('d'), insert('e'))
    for (const [from, expected] of [
      ['1', ['gap', 'c', 'd', 'e']],
      ['2', ['c', 'd', 'e']],
      ['4', ['e']],
      ['5', []],
      ['99', ['gap', 'c', 'd', 'e']],
      ['of another store', ['gap', 'c', 'd', 'e']],
    ] as const) {
      const resumed: Notice[] = []
      store.watch({ events: true, from }, (notice) => void resumed.push(notice))
      await published()
      expect(seen(resumed), `from ${from}`).toEqual(expected)
    }
  })

  test('receives every event of a commit that has more than the ring holds', async () => {
    const { store, add } = setUp(2)
    const notices: Notice[] = []
    store.watch({ events: true }, (notice) => void notices.push(notice))
    await add(insert('a'), insert('b'), insert('c'), insert('d'))
    expect(seen(notices)).toEqual(['a', 'b', 'c', 'd'])
  })

  test('can come back within ten minutes, and learns of a gap after', async () => {
    const made = setUp()
    const { store, add } = made
    const stop = store.watch({ events: true }, () => {})
    await add(insert('a'))
    stop()
    made.now += 599_999
    await add(insert('b'))
    const soon: Notice[] = []
    store.watch({ events: true, from: '1' }, (notice) => void soon.push(notice))()
    const resumed: Notice[] = []
    const leave = store.watch({ events: true, from: '1' }, (notice) => void resumed.push(notice))
    await published()
    leave()
    expect(seen(soon), 'stopped before it received any').toEqual([])
    expect(seen(resumed)).toEqual(['b'])
    made.now += 600_000
    await add(insert('c'))
    const late: Notice[] = []
    store.watch({ events: true, from: '2' }, (notice) => void late.push(notice))
    await add(insert('d'))
    expect(seen(late)).toEqual(['gap', 'd'])
  })

  test('of hints alone causes no recording, and receives no events', async () => {
    const { store, add } = setUp()
    const notices: Notice[] = []
    store.watch({}, (notice) => void notices.push(notice))
    await add(insert('a'), insert('b', { run: { in: 7 } }))
    expect(notices).toEqual([
      { work: ['mill'], due: [{ queue: 'mill', at: 1_007 }], revoked: [], events: [], gap: false },
    ])
    const resumed: Notice[] = []
    store.watch({ events: true, from: '0' }, (notice) => void resumed.push(notice))
    await published()
    expect(seen(resumed), 'nothing was recorded').toEqual(['gap'])
  })

  test('does not receive what was committed before it subscribed, though others have yet to receive it', async () => {
    const { store } = setUp()
    const early: Notice[] = []
    const late: Notice[] = []
    store.watch({ events: true }, (notice) => void early.push(notice))
    const batch = { writer: 'w', seq: 1, groups: [[insert('a')]], renewals: [], asks: [] }
    const committed = store.commit(batch)
    expect(early, 'never inside a commit').toEqual([])
    store.watch({ events: true }, (notice) => void late.push(notice))
    await committed
    await published()
    expect([seen(early), seen(late)]).toEqual([['a'], []])
  })

  test('may throw without harm to the others or to the commit', async () => {
    const { store, add } = setUp()
    const notices: Notice[] = []
    store.watch({ events: true }, () => {
      throw new Error('boom')
    })
    store.watch({ events: true }, (notice) => void notices.push(notice))
    await add(insert('a'))
    expect(seen(notices)).toEqual(['a'])
  })

  test('receives nothing after it was stopped, not even of a commit made before', async () => {
    const { store } = setUp()
    const notices: Notice[] = []
    const stop = store.watch({ events: true }, (notice) => void notices.push(notice))
    const committed = store.commit({ writer: 'w', seq: 1, groups: [[insert('a')]], renewals: [], asks: [] })
    stop()
    stop()
    await committed
    await published()
    expect(notices).toEqual([])
  })

  test('is released when the store closes', async () => {
    const { store } = setUp()
    const notices: Notice[] = []
    store.watch({}, (notice) => void notices.push(notice))
    await store.commit({ writer: 'w', seq: 1, groups: [[insert('a')]], renewals: [], asks: [] })
    const received = notices.length
    await store.close()
    await published()
    expect(notices).toHaveLength(received)
  })
})
