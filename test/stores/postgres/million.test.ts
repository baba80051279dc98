// With a million jobs, health and the first pages of every filter read no more rows than the bound of a page.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Queue } from 'millrace'
import { postgres } from 'millrace/postgres'
import { filterQuery } from '../../../src/queue/operations/filter.js'
import { ROWS_LOOKED } from '../../../src/store/read-pages.js'
import type { Store } from '../../../src/store/store.js'
import { HEADS_READ } from '../../../src/store/tally.js'
import { FIRST_ADDED, fillMillion, MILLION, MILLION_QUEUE, millionFilters } from '../million.js'
import { explainedPool } from './plans.js'
import type { ExplainedPool } from './plans.js'
import { newDatabase } from './server/shared.js'
import { run } from './server/clients.js'

let explained: ExplainedPool
let store: Store
let queue: Queue

beforeAll(async () => {
  const url = await newDatabase()
  const first = postgres(url)
  await first.open()
  await fillMillion(first, 'postgres', (sql) => run(url, sql))
  await first.close()
  explained = explainedPool(url)
  store = postgres(explained.pool)
  queue = new Queue(MILLION_QUEUE, { store })
  expect(await queue.count({})).toEqual({ count: MILLION, exact: true })
}, 600_000)

afterAll(async () => {
  await queue.close()
  await store.close()
  await explained.pool.end()
})

test('health reads the heads of indexes', async () => {
  const { found, onJobs } = await explained.misdeeds(() => queue.health(), HEADS_READ)
  expect({ found, read: onJobs > 0 }).toEqual({ found: [], read: true })
})

/** A few rows of each list, and in the lists of each state as many as a page looks at. */
const MOST = 2 * ROWS_LOOKED

test.each(millionFilters)('a page by %s is read from indexes, and so is the next one', async (_what, filter) => {
  for (const order of filter.order === undefined ? (['oldest', 'newest'] as const) : [filter.order]) {
    let cursor: string | undefined
    const page = async (): Promise<void> => {
      ;({ cursor } = await queue.list({ ...filter, order, cursor }))
    }
    expect((await explained.misdeeds(page, MOST)).found).toEqual([])
    if (cursor !== undefined) expect((await explained.misdeeds(page, MOST)).found).toEqual([])
  }
})

test.each(millionFilters.filter(([, { order }]) => order === undefined))(
  'a page of a count by %s is read from indexes',
  async (_what, filter) => {
    const query = { ...filterQuery(MILLION_QUEUE, filter, FIRST_ADDED), count: true } as const
    expect((await explained.misdeeds(() => store.find(query), MOST)).found).toEqual([])
  },
)
