// A transaction of the user's wakes those who listen on another handle when it is committed, not when they next look.
import { expect, test } from 'vitest'
import { Queue } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { Listener } from '../../../../src/conformance/listener.js'
import { systemRuntime } from '../../../../src/store/runtime.js'
import type { SqliteHandle } from '../../../../src/stores/sqlite/file/driver.js'
import { closing } from '../../../setup.js'
import { drivers, freshFolder } from '../folder.js'

const at = freshFolder()
const { Driver } = drivers[0]!

/** A store, and another on the same file that never looks by itself: it has to be woken. */
async function setUp() {
  const db = new Driver(at('app.db'))
  const store = closing(sqlite(db))
  await store.open()
  const system = systemRuntime()
  const timer: typeof system.timer = (delay, work) => (delay < 50 ? system.timer(delay, work) : () => {})
  const other = closing(sqlite(at('app.db'), { runtime: { ...system, timer } }))
  await other.open()
  const listener = new Listener(other)
  await other.tally()
  return { db, store, queue: closing(new Queue('work', { store })), listener }
}

const ways: Readonly<Record<string, (queue: Queue, db: SqliteHandle) => Promise<void>>> = {
  'a transaction that is over at once': async (queue, db) => {
    db.exec('BEGIN IMMEDIATE')
    const added = queue.add('send', {}, { tx: db })
    db.exec('COMMIT')
    await added
  },
  'a transaction that takes its time': async (queue, db) => {
    db.exec('BEGIN IMMEDIATE')
    await queue.add('send', {}, { tx: db })
    for (let turns = 0; turns < 20; turns++) await new Promise((go) => setImmediate(go))
    db.exec('COMMIT')
  },
  'queue.transaction': (queue) => queue.transaction(async () => void (await queue.add('send', {}))),
  'a transaction whose store is closed right after it': async (queue, db) => {
    db.exec('BEGIN IMMEDIATE')
    void queue.add('send', {}, { tx: db })
    db.exec('COMMIT')
    await queue.close()
    await queue.store.close()
  },
}

test.each(Object.entries(ways))('%s wakes others when it is committed', async (_, commit) => {
  const { db, queue, listener } = await setUp()
  await commit(queue, db)
  await listener.until(() => listener.work.has('work'), 'the hint of the commit')
  expect(listener.work).toEqual(new Set(['work']))
  listener.stop()
  db.close()
})

test('a watcher that is so slow that notices are gone is informed that some were missed', async () => {
  const { db, store, queue, listener } = await setUp()
  db.exec('BEGIN IMMEDIATE')
  await queue.add('send', {}, { tx: db })
  await queue.add('send', {}, { tx: db })
  await store.commit({ writer: 'w', seq: 1, groups: [], renewals: [], asks: [] }, db) // all is in the file
  db.exec('DELETE FROM millrace_notice WHERE n < (SELECT max(n) FROM millrace_notice)')
  db.exec('COMMIT')
  await listener.until(() => listener.notices.some(({ missed }) => missed === true), 'the notice')
  await queue.add('send', {})
  const reported = listener.notices.length
  await listener.until(() => listener.notices.length > reported, 'the next commit is noticed')
  expect(listener.notices.at(-1)).not.toHaveProperty('missed')
  listener.stop()
  db.close()
})
