// Measures how soon `queue.health()` and the first page of every filter return with a million jobs of all kinds.
import { Client } from 'pg'
import { Queue, shutdown } from 'millrace'
import type { Store } from 'millrace'
import { fillMillion, MILLION_QUEUE, millionFilters } from '../../test/stores/million.js'
import { openDatabase } from '../contenders/sqlite-driver.js'
import { percentile } from '../measure/measure.js'
import type { Case, Sample } from '../measure/measure.js'
import type { Places } from '../measure/scratch-files.js'

/** Calls of each kind in a sample; the median counts. */
const CALLS = 11

/** The median time of a call; the statements of the first one are prepared before. */
async function timed(call: () => Promise<unknown>): Promise<number> {
  await call()
  const times: number[] = []
  for (let n = 0; n < CALLS; n++) {
    const start = performance.now()
    await call()
    times.push(performance.now() - start)
  }
  return percentile(times, 0.5)
}

async function measured(store: Store): Promise<Sample> {
  const queue = new Queue(MILLION_QUEUE, { store })
  await store.open()
  const health = await timed(() => queue.health())
  const pages: number[] = []
  for (const [, filter] of millionFilters) {
    for (const order of filter.order === undefined ? (['oldest', 'newest'] as const) : [filter.order]) {
      pages.push(await timed(() => queue.list({ ...filter, order })))
    }
  }
  await shutdown([queue, store])
  return { figures: { health, median: percentile(pages, 0.5), slowest: Math.max(...pages) }, lost: 0, doubled: 0 }
}

type Fill = (path: string, count: number) => Promise<void>

function filters(
  places: () => Places,
  openStore: (path: string) => Store,
  durability: string,
  fill: Fill,
  count: number,
): Case {
  const size = count === 1_000_000 ? '1M' : `${count / 1000}k`
  return {
    figures: [
      { key: 'health', name: `health, ${size} jobs`, unit: 'ms', targets: [{ kind: 'below', value: 10 }] },
      { key: 'median', name: `first page of ${millionFilters.length} filters, median, ${size} jobs`, unit: 'ms' },
      {
        key: 'slowest',
        name: `first page of ${millionFilters.length} filters, the slowest, ${size} jobs`,
        unit: 'ms',
        targets: [{ kind: 'below', value: 10 }],
      },
    ],
    contenders: [
      {
        name: 'millrace',
        durability,
        async run() {
          const path = await places().copy(`filters ${count}`, (template) => fill(template, count))
          try {
            return await measured(openStore(path))
          } finally {
            await places().drop(path)
          }
        },
      },
    ],
  }
}

/** The row on SQLite. */
export function sqliteFilters(places: Places, openStore: (path: string) => Store, count: number): Case {
  const fill: Fill = async (path, jobs) => {
    const store = openStore(path)
    await store.open()
    const db = openDatabase(path)
    await fillMillion(store, 'sqlite', (sql) => db.exec(sql), jobs)
    db.close()
    await store.close()
  }
  return filters(() => places, openStore, 'full', fill, count)
}

/** The row on PostgreSQL. */
export function postgresFilters(places: () => Places, openStore: (url: string) => Store, count: number): Case {
  const fill: Fill = async (url, jobs) => {
    const store = openStore(url)
    await store.open()
    const client = new Client(url)
    await client.connect()
    await fillMillion(store, 'postgres', (sql) => client.query(sql), jobs)
    await client.query('vacuum analyze')
    await client.end()
    await store.close()
  }
  return filters(places, openStore, 'fsync', fill, count)
}
