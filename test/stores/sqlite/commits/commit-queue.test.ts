// Group commit across writers on SQLite: batches that wait at the same time land in one transaction, each by itself.
import { describe, expect, test } from 'vitest'
import { sqlite } from 'millrace/sqlite'
import type { SqliteOptions } from 'millrace/sqlite'
import { complete, insert, refusedChange } from '../../../../src/conformance/changes.js'
import { ask, Driver, ids, renewal } from '../../../../src/conformance/driver.js'
import { Listener } from '../../../../src/conformance/listener.js'
import { BATCH_BYTES } from '../../../../src/store/batch-size.js'
import type { Batch, Receipt, Store } from '../../../../src/store/store.js'
import { steppedClock } from '../../../conformance/clock.js'
import { closing } from '../../../setup.js'
import { drivers, freshFolder } from '../folder.js'

const at = freshFolder()
const { Driver: Native } = drivers[0]!

/** What the store sent: `BEGIN IMMEDIATE` and `COMMIT` in order, and what fails instead. */
interface Sent {
  readonly transactions: string[]
  /** Throws in place of a statement. */
  instead(sql: string, values: readonly unknown[]): void
}

/** A store whose transactions are counted, and can be made to fail. It has committed once. */
async function observed(options: SqliteOptions = {}): Promise<{ store: Store; sent: Sent }> {
  const sent: Sent = { transactions: [], instead: () => {} }
  class Observed extends Native {
    override prepare(sql: string): ReturnType<InstanceType<typeof Native>['prepare']> {
      const statement = super.prepare(sql)
      return new Proxy(statement, {
        get: (target, key) => {
          const value: unknown = Reflect.get(target, key, target)
          if (typeof value !== 'function') return value
          return (...values: unknown[]) => {
            sent.instead(sql, values)
            if (sql === 'BEGIN IMMEDIATE' || sql === 'COMMIT') sent.transactions.push(sql)
            return Reflect.apply(value, target, values) as unknown
          }
        },
      })
    }
  }
  const store = closing(sqlite(new Observed(at('jobs.db')), options))
  await new Driver(store, 'opener').commit({})
  sent.transactions.length = 0
  return { store, sent }
}

const commits = ({ transactions }: Sent): number => transactions.filter((sql) => sql === 'COMMIT').length

/** The next batch of a new writer. */
const from = (writer: string, parts: Partial<Batch>): Batch => {
  return { writer, seq: 1, groups: [], renewals: [], asks: [], ...parts }
}

const adds = (writer: string, count = 1, data?: string): Batch =>
  from(writer, {
    groups: Array.from({ length: count }, (_, n) => [
      insert(`${writer}-${n}`, 'work', data === undefined ? {} : { data }),
    ]),
  })

const writers = (count: number): readonly string[] => Array.from({ length: count }, (_, n) => `w${n}`)

/** What became of each batch: the number of groups that landed, or the code of the error. */
async function outcomes(all: readonly Promise<Receipt>[]): Promise<readonly unknown[]> {
  const settled = await Promise.allSettled(all)
  return settled.map((each) =>
    each.status === 'fulfilled'
      ? each.value.groups.filter(({ ok }) => ok).length
      : (each.reason as { code: unknown }).code,
  )
}

/** Makes the insert of any job whose id begins with `bad` fail: with its transaction, or by itself. */
function refuseBad(how: 'ABORT' | 'ROLLBACK'): void {
  const handle = new Native(at('jobs.db'))
  handle.exec(`CREATE TRIGGER refuses BEFORE INSERT ON millrace_job WHEN new.id LIKE 'bad%'
    BEGIN SELECT RAISE(${how}, 'not this one'); END`)
  handle.close()
}

describe('batches of several writers', () => {
  test('that are sent at the same time land in one transaction, and each gets its own receipt', async () => {
    const { store, sent } = await observed()
    const receipts = await Promise.all(writers(16).map((writer) => store.commit(adds(writer))))
    expect(commits(sent)).toBe(1)
    expect(receipts.map(({ writer, seq, groups: [first] }) => [writer, seq, first?.ok && ids(first.inserted)])).toEqual(
      writers(16).map((writer) => [writer, 1, [`${writer}-0`]]),
    )
    expect((await store.find({})).items).toHaveLength(16)
  })

  test('stay together from one batch to the next', async () => {
    const { store, sent } = await observed()
    const producers = writers(8).map((writer) => new Driver(store, writer))
    await Promise.all(
      producers.map(async (producer) => {
        for (let n = 0; n < 10; n++) await producer.add('work')
      }),
    )
    // The first of them may have left alone, before the others came.
    expect(commits(sent)).toBeLessThanOrEqual(11)
    expect((await store.find({})).items).toHaveLength(80)
  })

  test('claim different jobs, renew and settle in one transaction', async () => {
    const { store, sent } = await observed()
    const d = new Driver(store, 'd')
    await d.addMany(6, 'work')
    const [held, settled] = await d.claim(2)
    sent.transactions.length = 0
    const receipts = await Promise.all([
      store.commit(from('w1', { groups: [complete(settled!)], asks: [ask(2)] })),
      store.commit(from('w2', { renewals: [renewal(held!)], asks: [ask(2)] })),
    ])
    expect(commits(sent)).toBe(1)
    expect(receipts.map(({ asks }) => ids(asks[0]!))).toEqual([
      ['d-3', 'd-4'],
      ['d-5', 'd-6'],
    ])
    expect(receipts[1].renewals).toMatchObject([{ ok: true }])
  })

  test('are refused each by itself', async () => {
    const { store, sent } = await observed()
    await new Driver(store, 'd').add('work', {})
    sent.transactions.length = 0
    const refused = from('w1', { groups: [[insert('d-1', 'work')], [insert('half', 'work'), refusedChange()]] })
    const all = [store.commit(adds('w0')), store.commit(refused), store.commit(adds('w2', 2))]
    expect(await outcomes(all)).toEqual([1, 0, 2])
    expect(commits(sent)).toBe(1)
    expect(ids((await store.find({})).items)).toEqual(['d-1', 'w0-0', 'w2-0', 'w2-1'])
  })

  test('sent twice at once are applied once', async () => {
    const { store } = await observed()
    await store.commit(from('w1', {})) // the store knows this writer
    const [one, other] = [{ ...adds('w1', 3), seq: 2 }, adds('w2')]
    const [first, , again] = await Promise.all([store.commit(one), store.commit(other), store.commit(one)])
    expect(first.groups).toMatchObject([{ ok: true }, { ok: true }, { ok: true }])
    expect(again).toEqual(first)
    expect((await store.find({})).items).toHaveLength(4)
  })

  test('of the same writer are applied in order', async () => {
    const { store } = await observed()
    const batches = [1, 2, 3].flatMap((seq) =>
      writers(3).map((writer) => ({ ...from(writer, { groups: [[insert(`${writer}-${seq}`, 'work')]] }), seq })),
    )
    expect(await outcomes(batches.map((batch) => store.commit(batch)))).toEqual(batches.map(() => 1))
    expect(ids((await store.find({})).items)).toEqual(batches.map(({ writer, seq }) => `${writer}-${seq}`))
  })
})

describe('a batch that fails', () => {
  test.each(['ABORT', 'ROLLBACK'] as const)('by a constraint that does a %s does not fail the others', async (how) => {
    const { store } = await observed()
    refuseBad(how)
    const all = ['w0', 'bad1', 'w2', 'bad2', 'w4'].map((writer) => store.commit(adds(writer, 2)))
    expect(await outcomes(all)).toEqual([2, 'DATABASE_FAILED', 2, 'DATABASE_FAILED', 2])
    expect((await store.find({})).items).toHaveLength(6)
    const [tally] = await store.tally()
    expect(tally?.names['work']).toMatchObject({ waiting: 6 })
    expect((await store.commit(adds('after'))).groups).toMatchObject([{ ok: true }])
  })

  test('leaves no trace, and costs the others no transaction of their own', async () => {
    const { store, sent } = await observed()
    refuseBad('ABORT')
    const bad = from('w1', { groups: [[insert('first', 'work'), insert('other', 'more')], [insert('bad', 'work')]] })
    const all = [adds('w0'), bad, adds('w2'), adds('w3')].map((batch) => store.commit(batch))
    expect(await outcomes(all)).toEqual([1, 'DATABASE_FAILED', 1, 1])
    expect(commits(sent)).toBe(1)
    expect(ids((await store.find({})).items)).toEqual(['w0-0', 'w2-0', 'w3-0'])
    expect((await store.tally()).map(({ names }) => names)).toMatchObject([{ work: { waiting: 3 } }])
  })

  test('because its writer is behind, or it is too large, does not fail the others', async () => {
    const { store, sent } = await observed()
    await store.commit({ ...from('late', {}), seq: 5 })
    sent.instead = (_, values) => {
      if (values.includes('large-0')) throw Object.assign(new Error('too big'), { code: 'SQLITE_TOOBIG', errcode: 18 })
    }
    const all = ['w0', 'late', 'w2', 'large', 'w4'].map((writer) => store.commit(adds(writer)))
    expect(await outcomes(all)).toEqual([1, 'WRITER_BEHIND', 1, 'DATA_TOO_LARGE', 1])
    expect(ids((await store.find({})).items)).toEqual(['w0-0', 'w2-0', 'w4-0'])
  })

  test('can be sent again, as if it had never been sent', async () => {
    const { store } = await observed()
    refuseBad('ABORT')
    const bad = adds('bad')
    expect(await outcomes([store.commit(adds('w0')), store.commit(bad)])).toEqual([1, 'DATABASE_FAILED'])
    const handle = new Native(at('jobs.db'))
    handle.exec('DROP TRIGGER refuses')
    handle.close()
    expect(await outcomes([store.commit(adds('w1')), store.commit(bad)])).toEqual([1, 1])
  })
})

describe('a joint transaction that fails', () => {
  /** Makes the next COMMIT fail for lack of space. */
  const failNextCommit = (sent: Sent): void => {
    sent.instead = (sql) => {
      if (sql !== 'COMMIT') return
      sent.instead = () => {}
      throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL', errcode: 13 })
    }
  }

  test('acknowledges and announces nothing; each batch is then committed alone', async () => {
    const { store, sent } = await observed()
    const listener = new Listener(store, { events: true })
    await new Driver(store, 'marker').commit({})
    sent.transactions.length = 0
    failNextCommit(sent)
    const all = writers(3).map((writer) => store.commit(adds(writer)))
    expect(await outcomes(all)).toEqual([1, 1, 1])
    expect(sent.transactions.filter((sql) => sql === 'BEGIN IMMEDIATE')).toHaveLength(4)
    await listener.until(() => listener.events.length >= 3, 'told of all three')
    await new Driver(store, 'end').commit({})
    expect(listener.events.map(({ id }) => id)).toEqual(['w0-0', 'w1-0', 'w2-0'])
    listener.stop()
  })
})

describe('what one transaction takes', () => {
  test('is bounded in changes', async () => {
    const { store, sent } = await observed()
    await outcomes(writers(10).map((writer) => store.commit(adds(writer, 200))))
    expect(commits(sent)).toBe(5)
  })

  test('is bounded in claimed jobs', async () => {
    const { store, sent } = await observed()
    const d = new Driver(store, 'd')
    for (let n = 0; n < 5; n++) await d.addMany(200, 'work')
    sent.transactions.length = 0
    const receipts = await Promise.all(writers(5).map((writer) => store.commit(from(writer, { asks: [ask(200)] }))))
    expect(receipts.map(({ asks }) => asks[0]!.length)).toEqual([200, 200, 200, 200, 200])
    expect(commits(sent)).toBe(3)
  })

  test('is bounded in bytes', async () => {
    const { store, sent } = await observed()
    const data = 'x'.repeat(BATCH_BYTES / 10)
    await outcomes(writers(6).map((writer) => store.commit(adds(writer, 4, data))))
    expect(commits(sent)).toBe(3)
  })

  test('leaves the event loop a turn before the next', async () => {
    const { store, sent } = await observed()
    const seen: number[] = []
    let ended = false
    const turns = (): void => {
      seen.push(commits(sent))
      if (!ended) setImmediate(turns)
    }
    setImmediate(turns)
    await Promise.all(writers(8).map((writer) => store.commit(adds(writer, 250))))
    ended = true
    const together = seen.map((count, turn) => count - (seen[turn - 1] ?? 0))
    expect(Math.max(...together)).toBe(1)
  })
})

test('a writer that is alone commits at once, before anything else runs', async () => {
  // By a clock that stands still it has not used the file for long, and need not yield to others.
  const { store, sent } = await observed({ runtime: steppedClock().runtime })
  const d = new Driver(store, 'd')
  await d.add('work') // after the last commit of another writer
  sent.transactions.length = 0
  const adding = d.add('work')
  expect(commits(sent)).toBe(1)
  await adding
})

test('in memory nothing waits for its turn, because a transaction costs no sync', async () => {
  const store = closing(sqlite(':memory:'))
  await new Driver(store, 'd').commit({})
  const answered: string[] = []
  const all = writers(3).map((writer) => store.commit(adds(writer)).then(() => answered.push(writer)))
  setImmediate(() => answered.push('next turn'))
  await Promise.all(all)
  await new Promise((turn) => setImmediate(turn))
  expect(answered).toEqual([...writers(3), 'next turn'])
})

describe('while another program has the file locked', () => {
  /** Waits until the store has tried so many times more. */
  const tries = async ({ transactions }: Sent, count: number): Promise<void> => {
    const before = transactions.length
    while (transactions.length < before + count) await new Promise((turn) => setImmediate(turn))
  }

  test('what comes meanwhile leaves together once it is free', async () => {
    const { store, sent } = await observed()
    const lock = new Native(at('jobs.db'))
    lock.exec('BEGIN IMMEDIATE')
    const first = writers(3).map((writer) => store.commit(adds(writer)))
    await new Promise((turn) => setImmediate(turn))
    await new Promise((turn) => setImmediate(turn))
    const more = ['late1', 'late2'].map((writer) => store.commit(adds(writer)))
    lock.exec('COMMIT')
    lock.close()
    expect(await outcomes([...first, ...more])).toEqual([1, 1, 1, 1, 1])
    expect(commits(sent)).toBe(1)
  })

  test('each batch waits for as long as its patience', async () => {
    const { runtime, advance } = steppedClock()
    const { store, sent } = await observed({ runtime, patience: 1_000 })
    const lock = new Native(at('jobs.db'))
    lock.exec('BEGIN IMMEDIATE')
    const first = store.commit(adds('w1'))
    await tries(sent, 2)
    await advance(600)
    const later = store.commit(adds('w2'))
    await tries(sent, 2)
    await advance(600)
    await expect(first).rejects.toMatchObject({ code: 'DATABASE_LOCKED', details: { waited: 1_200 } })
    lock.exec('COMMIT')
    lock.close()
    expect((await later).groups).toMatchObject([{ ok: true }])
    expect(ids((await store.find({})).items)).toEqual(['w2-0'])
  })
})

describe('closing', () => {
  test('commits what waits for its turn', async () => {
    const { store } = await observed()
    const all = writers(3).map((writer) => store.commit(adds(writer)))
    const closed = store.close()
    expect(await outcomes(all)).toEqual([1, 1, 1])
    await closed
    await expect(store.commit(adds('late'))).rejects.toMatchObject({ code: 'STORE_CLOSED' })
  })

  test('refuses what waits for the file', async () => {
    const { store } = await observed()
    const lock = new Native(at('jobs.db'))
    lock.exec('BEGIN IMMEDIATE')
    const all = writers(3).map((writer) => store.commit(adds(writer)))
    await store.close()
    expect(await outcomes(all)).toEqual(['STORE_CLOSED', 'STORE_CLOSED', 'STORE_CLOSED'])
    lock.exec('COMMIT')
    lock.close()
  })
})
