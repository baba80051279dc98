// The connection: who holds the same store shares its lanes and its opening.

import { beforeEach, describe, expect, it } from 'vitest'
import { isMillraceError, MillraceError } from '../../src/job/errors/errors.js'
import { connect } from '../../src/store/connection.js'
import type { Store } from '../../src/store/store.js'
import { ManualRuntime, ScriptedStore, group, landed, listen, renewals, turn } from './manual-store.js'

let runtime: ManualRuntime
let scripted: ScriptedStore
let openings: { open(): void; fail(error: unknown): void }[]
let store: Store

const unused = (): never => {
  throw new Error('a connection has no use for this')
}

function storeIn(world: ManualRuntime | undefined): Store {
  return {
    name: 'scripted',
    can: { transactions: false, share: 'process' },
    ...(world && { runtime: world }),
    open: () => new Promise((open, fail) => void openings.push({ open, fail })),
    commit: (batch) => scripted.commit(batch),
    get: unused,
    find: unused,
    details: unused,
    tally: unused,
    due: unused,
    watch: unused,
    close: unused,
  }
}

beforeEach(() => {
  runtime = new ManualRuntime()
  scripted = new ScriptedStore()
  openings = []
  store = storeIn(runtime)
})

describe('connect', () => {
  it('answers the same connection for the same store, and another for another', () => {
    const connection = connect(store)
    expect(connect(store)).toBe(connection)
    expect(connect(storeIn(runtime))).not.toBe(connection)
    expect(connection.store).toBe(store)
  })

  it('lives in the world of the store, or in the real one', () => {
    expect(connect(store).runtime).toBe(runtime)
    expect(connect(storeIn(undefined)).runtime.id()).toMatch(/^[0-9a-f-]{36}$/)
  })

  it('touches nothing by itself', async () => {
    connect(store)
    await runtime.proceed()
    expect([openings.length, scripted.sent.length]).toEqual([0, 0])
  })

  it('gives each lane of each connection a writer of its own', async () => {
    for (const each of [connect(store), connect(storeIn(runtime))]) {
      void each.main.commit(group('a'))
      void each.renewals.renew(renewals('x'))
    }
    await runtime.proceed()
    for (const opening of openings) opening.open()
    await runtime.proceed()
    const writers = scripted.sent.map(({ batch }) => batch.writer)
    expect([writers.length, new Set(writers).size]).toEqual([4, 4])
  })
})

describe('ready', () => {
  it('opens the store once, however often it is called', async () => {
    const connection = connect(store)
    const first = [connection.ready(), connection.ready()]
    openings[0]!.open()
    await Promise.all([...first, connection.ready()])
    expect(openings.length).toBe(1)
  })

  it('opens it again after an opening that failed', async () => {
    const connection = connect(store)
    const error = new Error('locked')
    const failing = [connection.ready(), connection.ready()].map((each) => listen(each))
    openings[0]!.fail(error)
    await turn()
    expect(failing.map((each) => each.error)).toEqual([error, error])
    const again = connection.ready()
    openings[1]!.open()
    await again
    await connection.ready()
    expect(openings.length).toBe(2)
  })
})

describe('a batch', () => {
  it('waits for the store to be open, and opens it', async () => {
    const settled = listen(connect(store).main.commit(group('a')))
    await runtime.proceed()
    expect([openings.length, scripted.sent.length]).toEqual([1, 0])
    openings[0]!.open()
    await turn()
    expect(scripted.ids).toEqual([['a']])
    scripted.last.land()
    await turn()
    expect(settled.value).toBe(landed)
  })

  it('shares the opening with all lanes and with ready', async () => {
    const connection = connect(store)
    const opened = connection.ready()
    void connection.main.commit(group('a'))
    void connection.renewals.renew(renewals('x'))
    await runtime.proceed()
    expect([openings.length, scripted.sent.length]).toEqual([1, 0])
    openings[0]!.open()
    await opened
    await turn()
    expect([openings.length, scripted.sent.length]).toEqual([1, 2])
  })

  it('goes straight to a store that is open', async () => {
    const connection = connect(store)
    const opened = connection.ready()
    openings[0]!.open()
    await opened
    for (const id of ['a', 'b']) {
      void connection.main.commit(group(id))
      await runtime.proceed()
      scripted.last.land()
      await turn()
    }
    expect(scripted.ids).toEqual([['a'], ['b']])
    expect(openings.length).toBe(1)
  })

  it('is sent again, and the store opened again, after an opening that failed', async () => {
    const settled = listen(connect(store).main.commit(group('a')))
    await runtime.proceed()
    openings[0]!.fail(new Error('locked'))
    await turn()
    await runtime.fire()
    expect([openings.length, scripted.sent.length]).toEqual([2, 0])
    openings[1]!.open()
    await turn()
    expect(scripted.last.batch).toMatchObject({ seq: 1, groups: [group('a')] })
    scripted.last.land()
    await turn()
    expect(settled.value).toBe(landed)
  })

  it('is given up if the store cannot be opened, with the store’s error', async () => {
    const error = new Error('locked')
    const settled = listen(connect(store).main.commit(group('a')))
    await runtime.proceed()
    for (let tries = 0; tries <= 5; tries++) {
      openings[tries]!.fail(error)
      await turn()
      await runtime.fire()
    }
    expect(isMillraceError(settled.error, 'STORE_UNAVAILABLE')).toBe(true)
    expect(settled.error).toMatchObject({ cause: error })
    expect([openings.length, scripted.sent.length]).toEqual([6, 0])
  })

  it('is refused at once by a store that was closed before it opened', async () => {
    const closed = new MillraceError('STORE_CLOSED', 'closed')
    const settled = listen(connect(store).main.commit(group('a')))
    await runtime.proceed()
    openings[0]!.fail(closed)
    await turn()
    expect(settled.error).toBe(closed)
    expect(runtime.timers).toEqual([])
  })
})
