// With a million jobs, health and the first pages of every filter read indexes in their order, and a bounded number of rows.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Queue } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { ROWS_LOOKED } from '../../../src/store/read-pages.js'
import { lastJob } from '../../../src/stores/sqlite/filter-sql.js'
import type { Store } from '../../../src/store/store.js'
import { HEADS_READ } from '../../../src/store/tally.js'
import { fillMillion, MILLION, MILLION_QUEUE, millionFilters } from '../million.js'
import { drivers } from './folder.js'

/** Statements that were run, and the rows that they returned. */
const ran = new Map<string, number>()

/** A driver whose statements are watched. */
const Driver = drivers[0]!.Driver as unknown as new (path: string) => {
  prepare(sql: string): { all(...values: unknown[]): unknown[]; get(...values: unknown[]): unknown }
  exec(sql: string): void
  close(): void
}

class Watched extends Driver {
  override prepare(sql: string): ReturnType<InstanceType<typeof Driver>['prepare']> {
    const statement = super.prepare(sql)
    const count = (rows: number): void => void ran.set(sql, (ran.get(sql) ?? 0) + rows)
    return new Proxy(statement, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key)
        if (typeof value !== 'function') return value
        return (...values: unknown[]) => {
          const result: unknown = value.apply(target, values)
          if (key === 'all') count((result as unknown[]).length)
          else if (key === 'get') count(1)
          return result
        }
      },
    })
  }
}

let folder: string
let db: InstanceType<typeof Driver>
let store: Store
let queue: Queue

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-million-'))
  const path = join(folder, 'million.db')
  const first = sqlite(path)
  await first.open()
  db = new Watched(path)
  db.exec('PRAGMA synchronous = OFF')
  await fillMillion(first, 'sqlite', (sql) => db.exec(sql))
  await first.close()
  store = sqlite(db as never)
  queue = new Queue(MILLION_QUEUE, { store })
  expect(await queue.count({})).toEqual({ count: MILLION, exact: true })
}, 600_000)

afterAll(async () => {
  await queue.close()
  await store.close()
  db.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Tables that are small whatever happens, lists that a statement was given, and what is bounded by a limit. */
const small = /millrace_(queue|peer|writer|counter|lane|cell|orphan)\b|json_each|CONSTANT ROW|^SCAN (c|l|q)\b|subquery/i

/** What a call did that it should not, in words. */
async function misdeeds(call: () => Promise<unknown>, most: number): Promise<readonly string[]> {
  ran.clear()
  await call()
  const found: string[] = []
  let rows = 0
  for (const [sql, returned] of [...ran]) {
    if (!sql.includes('millrace_job') && !sql.includes('millrace_tag')) continue
    // Active jobs are few, and sorted; the last job is the first row of a scan.
    const sorts = sql.includes(`j.state = 'active'`)
    if (sql === lastJob) continue
    rows += returned
    // What is not bound is null.
    for (const step of Driver.prototype.prepare.call(db, `EXPLAIN QUERY PLAN ${sql}`).all()) {
      const { detail } = step as { detail: string }
      if ((detail.startsWith('SCAN') && !small.test(detail)) || (!sorts && detail.startsWith('USE TEMP B-TREE')))
        found.push(`${detail}: ${sql}`)
    }
  }
  if (rows > most) found.push(`${rows} rows of jobs`)
  expect(ran.size).toBeGreaterThan(0)
  return found
}

/** The rows that a page looks at, a few of each list beyond, and the jobs themselves. */
const MOST = 3 * ROWS_LOOKED

test('health reads the heads of indexes', async () => {
  expect(await misdeeds(() => queue.health(), HEADS_READ)).toEqual([])
})

test.each(millionFilters)('a page by %s is read from indexes, and so is the next one', async (_what, filter) => {
  for (const order of filter.order === undefined ? (['oldest', 'newest'] as const) : [filter.order]) {
    let cursor: string | undefined
    const page = async (): Promise<void> => {
      ;({ cursor } = await queue.list({ ...filter, order, cursor }))
    }
    expect(await misdeeds(page, MOST)).toEqual([])
    if (cursor !== undefined) expect(await misdeeds(page, MOST)).toEqual([])
  }
})
