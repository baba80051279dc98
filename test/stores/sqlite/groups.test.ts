// What groups and rates cost in a file: what is read for them, and what a later process finds there.
import { expect, test } from 'vitest'
import { Driver, ask } from '../../../src/conformance/driver.js'
import { insert } from '../../../src/conformance/changes.js'
import { loadDriver } from '../../../src/stores/sqlite/file/driver.js'
import type { SqliteHandle } from '../../../src/stores/sqlite/file/driver.js'
import { sqlite } from '../../../src/stores/sqlite/store.js'
import { steppedClock } from '../../conformance/clock.js'
import { closing } from '../../setup.js'
import { freshFolder } from './folder.js'

const path = freshFolder()

/** Counts the rows that statements answer, and the statements. */
interface Counted {
  rows: number
  statements: number
}

/** A store in memory, and what it reads. */
async function counted(): Promise<{ readonly d: Driver; reading(work: () => Promise<unknown>): Promise<Counted> }> {
  const handle: SqliteHandle = new (await loadDriver())(':memory:')
  let count: Counted = { rows: 0, statements: 0 }
  const prepare = handle.prepare.bind(handle) as (sql: string) => object
  const counting = (sql: string): object =>
    new Proxy(prepare(sql), {
      get(statement, name) {
        const member: unknown = Reflect.get(statement, name)
        if (typeof member !== 'function') return member
        return (...values: unknown[]): unknown => {
          const answer: unknown = member.apply(statement, values)
          if (name === 'all' || name === 'get' || name === 'run') count.statements++
          if (name === 'all') count.rows += (answer as unknown[]).length
          return answer
        }
      },
    })
  Object.defineProperty(handle, 'prepare', { value: counting })
  const store = closing(sqlite(handle))
  await store.open()
  return {
    d: new Driver(store, 'w'),
    async reading(work) {
      count = { rows: 0, statements: 0 }
      await work()
      return count
    },
  }
}

test('a claim passes over all jobs of a group at its limit, or that has used up its rate, without reading them', async () => {
  const costs: Counted[] = []
  for (const backlog of [500, 10_000]) {
    const { d, reading } = await counted()
    await d.limit({ groups: { big: { concurrency: 1 }, fast: { rate: { max: 1, per: 60_000 } } } })
    await d.addMany(backlog, 'work', { group: 'big', priority: -1 })
    await d.addMany(backlog, 'work', { group: 'fast', priority: -1 })
    await d.addMany(300, 'work', { group: 'other' })
    expect((await d.claim(2)).map(({ group }) => group)).toEqual(['big', 'fast'])
    let given: readonly (string | undefined)[] = []
    costs.push(
      await reading(async () => {
        given = (await d.claim(40, { ahead: 40 })).map(({ group }) => group)
      }),
    )
    expect(given).toEqual(Array.from({ length: 80 }, () => 'other'))
  }
  expect(costs[1]).toEqual(costs[0])
  expect(costs[0]!.rows).toBeLessThan(250)
})

test('jobs with groups are added many at a time, and what is known of a group is not read again', async () => {
  const { d, reading } = await counted()
  const bulk = (count: number, groups: number): Promise<unknown> =>
    d.commit({
      groups: Array.from({ length: count }, (_, n) => [insert(d.id(), 'work', { group: `g${n % groups}` })]),
    })
  await bulk(1_000, 10)
  expect((await reading(() => bulk(1_000, 10))).statements).toBeLessThan(60)
  expect((await reading(() => bulk(1_000, 100))).statements).toBeLessThan(60)
})

test('a receipt with turns, a time to ask again and a group that is full is the same from the file', async () => {
  const { runtime } = steppedClock()
  const d = new Driver(closing(sqlite(path('jobs.db'), { runtime })), 'w')
  await d.limit({
    rate: { max: 5, per: 60_000 },
    groups: { a: { weight: 3 }, full: { backlog: 1 } },
  })
  const groups = ['a', 'b', 'b', 'a', 'a', 'c', undefined, 'a', 'd', 'e', undefined, undefined, 'full', 'full'].map(
    (group) => [insert(d.id(), 'work', group === undefined ? {} : { group })],
  )
  const later = insert(d.id(), 'work', { group: 'b', run: { in: 5_000 } })
  const whole = ['f', 'g', 'f', 'f', undefined].map((group) =>
    insert(d.id(), 'work', group === undefined ? {} : { group }),
  )
  const first = await d.commit({ groups: [...groups, [later], whole], asks: [ask(3), ask(9)] })
  expect(first.again).toBeGreaterThan(first.now)
  expect(first.groups[13]).toMatchObject({ ok: false, why: 'full', job: { group: 'full' } })

  const other = closing(sqlite(path('jobs.db'), { runtime }))
  await other.open()
  expect(await other.commit(d.last)).toEqual(first)
})

test("jobs with groups that are added in a transaction of the user's have their turns, and leave none if it is undone", async () => {
  const handle = new (await loadDriver())(path('jobs.db'))
  const all = (sql: string, ...values: readonly unknown[]): object[] =>
    (handle.prepare(sql) as unknown as { all(...values: unknown[]): object[] }).all(...values)
  const executing = {
    execute: (sql: string, params: readonly unknown[]) => {
      const read = /^(SELECT|WITH|PRAGMA|INSERT.* RETURNING)/s.test(sql)
      if (read) return Promise.resolve(all(sql, ...params))
      ;(handle.prepare(sql) as unknown as { run(...values: unknown[]): void }).run(...params)
      return Promise.resolve([])
    },
  }
  const store = closing(sqlite(path('jobs.db')))
  const d = new Driver(store, 'w')
  await d.addMany(3, 'work', { group: 'a' })
  await d.addMany(1, 'work', { group: 'b' })
  for (const [n, tx] of [handle, executing].entries()) {
    const groups = ['a', 'b', 'b', 'c', 'a', 'd', 'd', 'e', 'c'].map((group, at) => [
      insert(`${n} ${at}`, 'work', { group }),
    ])
    const batch = { writer: 'tx', seq: 1, groups, renewals: [], asks: [] }
    handle.exec('BEGIN')
    const [first] = (await store.commit(batch, tx)).groups
    handle.exec('ROLLBACK')
    handle.exec('BEGIN')
    expect((await store.commit(batch, tx)).groups[0]).toEqual({ ...first, inserted: [expect.anything()] })
    handle.exec('COMMIT')
  }
  expect(all('SELECT "group" FROM millrace_jobs WHERE id = ?', '1 3')).toEqual([{ group: 'c' }])
  const given = (await d.claim(50)).map(({ group }) => group).join('')
  expect(given).toBe(['abcde', 'abdce', 'abcd', 'abdc', 'ab', 'a', 'a'].join(''))
  handle.close()
})

test('what was taken of rates is cleared away as others are taken', async () => {
  const { runtime, advance } = steppedClock()
  const store = closing(sqlite(path('jobs.db'), { runtime }))
  const d = new Driver(store, 'w')
  await d.limit({ group: { rate: { max: 1, per: 1_000 } } })
  const rates = async (): Promise<number> => {
    const handle = new (await loadDriver())(path('jobs.db'))
    const [row] = handle.prepare(`SELECT count(*) AS n FROM millrace_counter WHERE kind = 'rate'`).all() as {
      n: number
    }[]
    handle.close()
    return row!.n
  }
  for (let round = 0; round < 10; round++) {
    const added = Array.from({ length: 100 }, (_, n) => [insert(d.id(), 'work', { group: `round ${round} ${n}` })])
    await d.commit({ groups: added })
    expect((await d.claim(100)).length).toBe(100)
    await advance(2_000)
  }
  expect(await rates()).toBeLessThan(300)
})
