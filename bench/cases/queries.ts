// Measures how soon a page of a list and the counts return with many jobs: of Millrace, and of a hand-written program.
//
// The hand-written program has one table, with an index by name, state and order of insertion. It has no counters: it counts
// rows.
import { Client } from 'pg'
import { Queue, shutdown } from 'millrace'
import type { Store } from 'millrace'
import { openDatabase } from '../contenders/sqlite-driver.js'
import { BULK, QUEUE, payload } from '../measure/load.js'
import { percentile } from '../measure/measure.js'
import type { Case, Sample } from '../measure/measure.js'
import type { Places } from '../measure/scratch-files.js'

/** Names of the jobs, in turn. Every other thousand of jobs is delayed. */
const NAMES = Array.from({ length: 10 }, (_, n) => `name ${n}`)
const WANTED = NAMES[3]!
const PAGE = 100
/** Calls of each kind in a sample. A program that counts all rows makes fewer. */
const CALLS = 200
const FEWER = 5

/** Reads of a contender. */
interface Asked {
  /**
   * Reads a page of one name in one state, from the start or from a cursor: how many jobs it holds, and the next cursor.
   */
  page(from?: string): Promise<readonly [jobs: number, next: string | undefined]>
  /** Counts all jobs by name and state. */
  counts(): Promise<number>
  close(): Promise<void>
}

/** A contender of these rows. */
interface Keeper {
  readonly name: string
  readonly durability: string
  readonly calls: number
  fill(path: string, count: number): Promise<void>
  open(path: string): Promise<Asked>
}

const nameOf = (n: number): string => NAMES[n % NAMES.length]!
const stateOf = (n: number): 'waiting' | 'delayed' => (Math.floor(n / BULK) % 2 === 0 ? 'waiting' : 'delayed')

function millraceOn(openStore: (path: string) => Store, durability: string): Keeper {
  return {
    name: 'millrace',
    durability,
    calls: CALLS,
    async fill(path, count) {
      const store = openStore(path)
      const queue = new Queue(QUEUE, { store })
      let next = 0
      const caller = async (): Promise<void> => {
        for (let from = next; from < count; from = next) {
          next += BULK
          const items = Array.from({ length: BULK }, (_, at) => ({
            name: nameOf(from + at),
            data: payload(from + at, 'light'),
            options: stateOf(from) === 'delayed' ? { delay: '1d' } : {},
          }))
          await queue.addBulk(items)
        }
      }
      await Promise.all([caller(), caller()])
      await shutdown([queue, store])
    },
    async open(path) {
      const store = openStore(path)
      const queue = new Queue(QUEUE, { store })
      await store.open()
      return {
        async page(cursor) {
          const page = await queue.list({ name: WANTED, state: 'delayed', limit: PAGE, ...(cursor && { cursor }) })
          return [page.jobs.length, page.cursor]
        },
        async counts() {
          const { total } = await queue.counts({ by: 'name' })
          return Object.values(total).reduce((sum, each) => sum + each, 0)
        },
        close: () => shutdown([queue, store]),
      }
    },
  }
}

const COLUMNS = `name text not null, state text not null, data text not null, priority int not null default 0, attempt int not null default 0,
  attempts int not null default 3, worker text, run_at bigint, result text, created_at bigint not null, finished_at bigint`
const INDEX = 'create index job_list on job (name, state, id)'

const rawSqlite: Keeper = {
  name: 'raw',
  durability: 'full',
  calls: FEWER,
  async fill(path, count) {
    const db = openDatabase(path)
    db.exec(`PRAGMA journal_mode = WAL; create table job (id integer primary key, ${COLUMNS}); ${INDEX}; BEGIN`)
    const insert = db.prepare('insert into job (name, state, data, created_at) values (?, ?, ?, 1)')
    for (let n = 0; n < count; n++) insert.run(nameOf(n), stateOf(n), JSON.stringify(payload(n, 'light')))
    db.exec('COMMIT')
    db.close()
  },
  async open(path) {
    const db = openDatabase(path)
    const page = db.prepare('select * from job where name = ? and state = ? and id > ? order by id limit ?')
    const counts = db.prepare('select name, state, count(*) as n from job group by name, state')
    return {
      async page(from = '0') {
        const rows = page.all(WANTED, 'delayed', Number(from), PAGE) as { id: number; data: string }[]
        for (const { data } of rows) JSON.parse(data)
        return [rows.length, rows.length < PAGE ? undefined : String(rows.at(-1)!.id)]
      },
      async counts() {
        return (counts.all() as { n: number }[]).reduce((sum, { n }) => sum + n, 0)
      },
      async close() {
        db.close()
      },
    }
  },
}

const rawPostgres: Keeper = {
  name: 'raw',
  durability: 'fsync',
  calls: FEWER,
  async fill(url, count) {
    const client = new Client(url)
    await client.connect()
    await client.query(`create table job (id bigint generated always as identity primary key, ${COLUMNS}); ${INDEX}`)
    for (let from = 0; from < count; from += BULK) {
      const numbers = Array.from({ length: BULK }, (_, at) => from + at)
      await client.query(
        'insert into job (name, state, data, created_at) select *, 1 from unnest($1::text[], $2::text[], $3::text[])',
        [numbers.map(nameOf), numbers.map(stateOf), numbers.map((n) => JSON.stringify(payload(n, 'light')))],
      )
    }
    await client.query('analyze job')
    await client.end()
  },
  async open(url) {
    const client = new Client(url)
    await client.connect()
    return {
      async page(from = '0') {
        const { rows } = await client.query<{ id: string; data: string }>({
          name: 'page',
          text: 'select * from job where name = $1 and state = $2 and id > $3 order by id limit $4',
          values: [WANTED, 'delayed', from, PAGE],
        })
        for (const { data } of rows) JSON.parse(data)
        return [rows.length, rows.length < PAGE ? undefined : rows.at(-1)!.id]
      },
      async counts() {
        const { rows } = await client.query<{ n: string }>(
          'select name, state, count(*) as n from job group by name, state',
        )
        return rows.reduce((sum, { n }) => sum + Number(n), 0)
      },
      close: () => client.end(),
    }
  },
}

async function timed(calls: number, call: () => Promise<unknown>): Promise<number> {
  const times: number[] = []
  for (let n = 0; n < calls; n++) {
    const start = performance.now()
    await call()
    times.push(performance.now() - start)
  }
  return percentile(times, 0.5)
}

async function measured(keeper: Keeper, path: string, count: number): Promise<Sample> {
  const asked = await keeper.open(path)
  const matching = count / 2 / NAMES.length
  let from: string | undefined
  let seen = 0
  while (seen < matching * 0.9) {
    const [jobs, next] = await asked.page(from)
    seen += jobs
    from = next
  }
  const figures = {
    first: await timed(CALLS, () => asked.page()),
    deep: await timed(CALLS, () => asked.page(from)),
    counts: await timed(keeper.calls, () => asked.counts()),
  }
  const all = await asked.counts()
  await asked.close()
  return { figures, lost: Math.max(0, count - all), doubled: Math.max(0, all - count) }
}

function queries(places: () => Places, keepers: readonly Keeper[], count: number, size: string): Case {
  return {
    figures: [
      {
        key: 'first',
        name: `list by name and state, first page of 100, ${size} jobs`,
        unit: 'ms',
        targets: [{ kind: 'below', value: 10 }],
      },
      {
        key: 'deep',
        name: `list by name and state, a deep page, ${size} jobs`,
        unit: 'ms',
        targets: [{ kind: 'below', value: 10 }],
      },
      {
        key: 'counts',
        name: `counts by name and state, ${size} jobs`,
        unit: 'ms',
        targets: [{ kind: 'below', value: 10 }],
      },
    ],
    contenders: keepers.map((keeper) => ({
      name: keeper.name,
      durability: keeper.durability,
      async run() {
        const path = await places().copy(`query ${keeper.name} ${count}`, (template) => keeper.fill(template, count))
        try {
          return await measured(keeper, path, count)
        } finally {
          await places().drop(path)
        }
      },
    })),
  }
}

/** The row on SQLite. */
export function sqliteQueries(places: Places, openStore: (path: string) => Store, count: number, size: string): Case {
  return queries(() => places, [millraceOn(openStore, 'full'), rawSqlite], count, size)
}

/** The row on PostgreSQL. */
export function postgresQueries(
  places: () => Places,
  openStore: (url: string) => Store,
  count: number,
  size: string,
): Case {
  return queries(places, [millraceOn(openStore, 'fsync'), rawPostgres], count, size)
}
