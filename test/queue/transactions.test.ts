// `queue.transaction`: calls made inside belong to it, and what it rolls back was never there.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { EventType, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import type { SqliteTransaction, SqliteTx } from 'millrace/sqlite'
import { closing, event, gate, newWorker } from '../setup.js'

const folder = mkdtempSync(join(tmpdir(), 'millrace-transactions-'))
let files = 0
afterAll(() => rmSync(folder, { recursive: true, force: true }))

type Transacting = Store<SqliteTransaction, SqliteTx>

const stores: Readonly<Record<string, () => Transacting>> = {
  'on a file': () => sqlite(join(folder, `${++files}.db`)),
  'in memory': () => sqlite(':memory:'),
}

const turn = (): Promise<void> => new Promise((go) => setImmediate(go))
const no = new Error('no')

/** Gathers the events of a queue from here on: what happened, and to which job. */
function collected(queue: Queue, types: readonly EventType[]): string[] {
  const seen: string[] = []
  for (const type of types) queue.on(type, (each) => seen.push(`${each.type} ${'id' in each ? each.id : ''}`))
  return seen
}

describe.each(Object.entries(stores))('a transaction %s', (where, make) => {
  function setUp() {
    const store = closing(make())
    return { store, queue: closing(new Queue('work', { store, logger: false })) }
  }

  const data = async (queue: Queue): Promise<unknown[]> => (await queue.list()).jobs.map((job) => job.data)

  it('commits the user’s writes and the jobs together, and answers what the work answered', async () => {
    const { queue } = setUp()
    const answer = await queue.transaction(async (tx) => {
      tx.exec('CREATE TABLE own (n INTEGER)')
      tx.prepare('INSERT INTO own VALUES (?)').run(7)
      await queue.add('send', 1)
      await queue.addBulk([{ name: 'send', data: 2 }])
      await queue.add('send', 3, { tx })
      return (await queue.list()).jobs.length
    })
    expect(answer).toBe(3)
    expect(await data(queue)).toEqual([1, 2, 3])
    const rows = await queue.transaction(async (tx) => tx.prepare('SELECT n FROM own').all())
    expect(rows).toEqual([{ n: 7 }])
  })

  it('rolls all of it back when the work throws, and rejects with just that', async () => {
    const { queue } = setUp()
    await queue.add('send', 0, { id: 'standing' })
    const events = collected(queue, ['waiting', 'cancelled', 'paused', 'removed'])
    await queue.counts()
    const doomed = queue.transaction(async (tx) => {
      tx.exec('CREATE TABLE own (n INTEGER)')
      await queue.add('send', 1, { dedup: { key: 'k' } })
      expect(await queue.cancel('standing')).toBe(true)
      expect((await queue.get('standing'))?.state).toBe('cancelled')
      await queue.pause()
      throw no
    })
    await expect(doomed).rejects.toBe(no)
    expect(await data(queue)).toEqual([0])
    expect((await queue.get('standing'))?.state).toBe('waiting')
    expect(await queue.counts()).toMatchObject({ waiting: 1, cancelled: 0 })
    expect((await queue.explain('standing')).reasons.map(({ why }) => why)).not.toContain('paused')
    expect(await queue.add('send', 2, { dedup: { key: 'k' } })).toMatchObject({ duplicate: false })
    await queue.transaction(async (tx) => void tx.exec('CREATE TABLE own (n INTEGER)'))
    const marker = event(queue, 'waiting', ({ id }) => id === 'marker')
    await queue.add('send', 3, { id: 'marker' })
    await marker
    expect(events).toHaveLength(2) // those after the transaction
    expect(events.at(-1)).toBe('waiting marker')
  })

  it('publishes its events when it is committed, not before, and wakes workers at once', async () => {
    const { queue } = setUp()
    const ran = gate()
    newWorker(queue, { send: () => ran.open() }, { pollEvery: '10m' })
    const events = collected(queue, ['waiting'])
    await queue.counts()
    await queue.transaction(async () => {
      await queue.add('send', 1, { id: 'committed' })
      await turn()
      await turn()
      expect(events).toEqual([])
    })
    await ran.promise
    expect(events).toEqual(['waiting committed'])
  })

  it('holds back batches and other transactions without failing them, and lets them in afterwards', async () => {
    const { queue } = setUp()
    const [inside, go] = [gate(), gate()]
    const first = queue.transaction(async () => {
      await queue.add('send', 'first')
      inside.open()
      await go.promise
      await queue.add('send', 'second')
    })
    await inside.promise
    const outside = queue.add('send', 'outside')
    const second = queue.transaction(() => queue.add('send', 'third'))
    await turn()
    go.open()
    await Promise.all([first, outside, second])
    expect((await data(queue)).slice(0, 2)).toEqual(['first', 'second'])
    expect(new Set(await data(queue))).toEqual(new Set(['first', 'second', 'outside', 'third']))
  })

  it.skipIf(where === 'in memory')('is not seen by others, whose reads do not wait for it', async () => {
    const { queue } = setUp()
    const [inside, go] = [gate(), gate()]
    const work = queue.transaction(async () => {
      await queue.add('send', 1)
      inside.open()
      await go.promise
    })
    await inside.promise
    expect(await data(queue)).toEqual([])
    expect(await queue.counts()).toMatchObject({ waiting: 0 })
    go.open()
    await work
    expect(await queue.counts()).toMatchObject({ waiting: 1 })
  })

  it('inside another is a savepoint: what it rolls back is gone, and the rest stays', async () => {
    const { queue } = setUp()
    await queue.transaction(async (tx) => {
      tx.exec('CREATE TABLE own (n INTEGER)')
      await queue.add('send', 'outer')
      await expect(
        queue.transaction(async (inner) => {
          inner.exec('INSERT INTO own VALUES (1)')
          await queue.add('send', 'lost', { dedup: { key: 'k' } })
          await queue.transaction(() => queue.add('send', 'lost too'))
          throw no
        }),
      ).rejects.toBe(no)
      expect(await queue.transaction(() => queue.add('send', 'kept', { dedup: { key: 'k' } }))).toMatchObject({
        duplicate: false,
      })
      expect(tx.prepare('SELECT count(*) AS n FROM own').get()).toEqual({ n: 0 })
      expect(await queue.counts()).toMatchObject({ waiting: 2 })
    })
    expect(await data(queue)).toEqual(['outer', 'kept'])
  })

  it('keeps savepoints and calls made at once apart', async () => {
    const { queue } = setUp()
    await queue.transaction(async () => {
      const [inside, go] = [gate(), gate()]
      const lost = queue.transaction(async () => {
        await queue.add('send', 'lost')
        inside.open()
        await go.promise
        throw no
      })
      const kept = queue.transaction(async () => {
        await queue.add('send', 'kept')
        await turn()
      })
      await inside.promise
      const beside = [queue.add('send', 'beside'), queue.addBulk([{ name: 'send', data: 'bulk' }])]
      await turn()
      go.open()
      await expect(lost).rejects.toBe(no)
      await Promise.all([kept, ...beside])
    })
    expect(new Set(await data(queue))).toEqual(new Set(['kept', 'beside', 'bulk']))
  })

  it('and jobs agree exactly, however many there are at once, beside adds and a worker', async () => {
    const { queue } = setUp()
    await queue.transaction(async (tx) => void tx.exec('CREATE TABLE own (n INTEGER)'))
    const write = async (tx: SqliteTransaction, n: number, fails: boolean): Promise<void> => {
      tx.prepare('INSERT INTO own VALUES (?)').run(n)
      await queue.add('own', n)
      if (n % 3 === 0) await turn()
      if (fails) throw no
    }
    const ran: number[] = []
    newWorker(queue, { own: (job) => void ran.push(job.data as number), other: () => {} }, { concurrency: 5 })
    const all = Array.from({ length: 60 }, async (_each, n) => {
      const other = queue.add('other', n)
      const work = queue.transaction(async (tx) => {
        await write(tx, n, false)
        await queue.transaction((inner) => write(inner, 100 + n, n % 4 === 0)).catch(() => {})
        if (n % 5 === 0) throw no
      })
      await work.catch(() => {})
      await other
    })
    await Promise.all(all)
    const rows = await queue.transaction(async (tx) => tx.prepare('SELECT n FROM own').all() as { n: number }[])
    const committed = rows.map(({ n }) => n).toSorted((a, b) => a - b)
    expect(committed).toHaveLength(48 + 36)
    const { jobs } = await queue.list({ limit: 1_000 })
    expect(jobs).toHaveLength(60 + committed.length)
    await Promise.all(jobs.map((each) => each.result({ timeout: '25s' })))
    expect(ran.toSorted((a, b) => a - b)).toEqual(committed)
  })

  it('takes in calls of all queues on its store, and of no other store', async () => {
    const { store, queue } = setUp()
    const beside = closing(new Queue('beside', { store }))
    const elsewhere = closing(new Queue('work', { store: closing(memory()) }))
    const doomed = queue.transaction(async () => {
      await beside.add('send', 1)
      await elsewhere.add('send', 2)
      throw no
    })
    await expect(doomed).rejects.toBe(no)
    expect(await data(beside)).toEqual([])
    expect(await data(elsewhere)).toEqual([2])
  })

  it('of another store can be inside it, and each takes in its own', async () => {
    const { queue } = setUp()
    const other = setUp().queue
    const doomed = queue.transaction(async () => {
      await other.transaction(async () => {
        await other.add('send', 'other')
        await queue.add('send', 'mine')
      })
      throw no
    })
    await expect(doomed).rejects.toBe(no)
    expect(await data(queue)).toEqual([])
    expect(await data(other)).toEqual(['other'])
  })

  it('refuses at once what would wait for its own end', async () => {
    const { store, queue } = setUp()
    const standing = await queue.add('send', 1)
    await queue.transaction(async () => {
      await expect(standing.result()).rejects.toMatchObject({ code: 'IN_TRANSACTION' })
      await expect(standing.observe().next()).rejects.toMatchObject({ code: 'IN_TRANSACTION' })
      await expect(queue.close()).rejects.toMatchObject({ code: 'IN_TRANSACTION' })
      await expect(store.close()).rejects.toMatchObject({ code: 'IN_TRANSACTION' })
      await expect(store.transact!(async () => {})).rejects.toMatchObject({ code: 'IN_TRANSACTION' })
      expect(await standing.logs()).toEqual([])
      expect(await standing.cancel()).toBe(true)
      expect(standing.state).toBe('cancelled')
    })
    expect(await standing.refresh()).toMatchObject({ state: 'cancelled' })
  })

  it('an end by the work itself is reported, and the next transaction is not harmed', async () => {
    const { queue } = setUp()
    const ended = queue.transaction(async (tx) => {
      await queue.add('send', 1)
      tx.exec('ROLLBACK')
    })
    await expect(ended).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    await queue.transaction(() => queue.add('send', 2))
    expect(await data(queue)).toEqual([2])
  })

  it('is not spoilt by a statement that fails', async () => {
    const { queue } = setUp()
    await queue.transaction(async (tx) => {
      await queue.add('send', 1)
      expect(() => tx.exec('INSERT INTO nowhere VALUES (1)')).toThrow()
      await queue.add('send', 2)
    })
    expect(await data(queue)).toEqual([1, 2])
  })

  it('is waited for when its store is closed, and commits nothing more through it', async () => {
    const { store, queue } = setUp()
    const [inside, go] = [gate(), gate()]
    const work = queue.transaction(async () => {
      await queue.add('send', 1)
      inside.open()
      await go.promise
      await queue.add('send', 2)
    })
    await inside.promise
    const closed = store.close()
    go.open()
    await expect(work).rejects.toMatchObject({ code: 'STORE_CLOSED' })
    await closed
    await expect(queue.transaction(async () => {})).rejects.toMatchObject({ code: 'STORE_CLOSED' })
  })
})

it('a batch waits for a transaction of its own process however long that is open, and whatever the patience', async () => {
  const store = closing(sqlite(join(folder, 'patience.db'), { patience: 0 }))
  const queue = closing(new Queue('work', { store }))
  const [inside, go] = [gate(), gate()]
  const open = queue.transaction(async () => {
    await queue.add('send', 1)
    inside.open()
    await go.promise
  })
  await inside.promise
  const outside = queue.add('send', 2)
  for (let turns = 0; turns < 10; turns++) await turn()
  go.open()
  await Promise.all([open, outside])
  expect(await queue.counts()).toMatchObject({ waiting: 2 })
})

describe('a queue on a store without transactions', () => {
  it('is refused with the reason', async () => {
    const store: Store = closing(memory())
    const queue = closing(new Queue('work', { store }))
    await expect(queue.transaction(async () => {})).rejects.toMatchObject({ code: 'INVALID_TRANSACTION' })
    await expect(queue.add('send', 1, { tx: {} })).rejects.toMatchObject({ code: 'INVALID_TRANSACTION' })
    await expect(queue.cancel('a', { tx: {} })).rejects.toMatchObject({ code: 'INVALID_TRANSACTION' })
    expect((await queue.list()).jobs).toEqual([])
  })
})

describe('what names a transaction', () => {
  it('is refused where it is malformed', async () => {
    const queue = closing(new Queue('work', { store: closing(sqlite(':memory:')) }))
    await expect(queue.cancel('a', { txn: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
    await expect(queue.cancel('a', 'tx' as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.addBulk([{ name: 'a', options: { tx: 1 } as never }])).rejects.toMatchObject({
      code: 'UNKNOWN_OPTION',
    })
    await expect(queue.transaction('work' as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
})
