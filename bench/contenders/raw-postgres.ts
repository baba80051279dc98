// What a careful hand-written program reaches on PostgreSQL: named statements on `pg`, and nothing else.
//
// One table with one key, and one partial index to claim from. Finished jobs are kept. Calls in flight share an insert, a
// bulk is one insert of 1000 rows, and a drain claims and completes 1000 at a time on two connections; more of either is
// not faster on two cores. It does not validate, retry, renew or publish events, and protects against no failure but two
// workers that claim the same job.
import { Client } from 'pg'
import { BULK, CALLERS, Ledger, NAME, QUEUE, Tenths, account, payload } from '../measure/load.js'
import type { Weight } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import type { Session, Subject } from './contender.js'

/** Connections that work at the same time. */
const LANES = 2
/** Jobs that a drain claims at a time. */
const BATCH = 1000

const SCHEMA = `
  create table if not exists job (
    id bigint generated always as identity primary key, queue text not null, name text not null, data text not null,
    state text not null default 'waiting', priority int not null default 0, attempt int not null default 0,
    attempts int not null default 3, worker text, lease_until timestamptz, run_at timestamptz, result text,
    created_at timestamptz not null default now(), started_at timestamptz, finished_at timestamptz
  );
  create index if not exists job_claim on job (queue, priority, id) where state = 'waiting';`

const statements = {
  insert: 'insert into job (queue, name, data) values ($1, $2, $3) returning id',
  insertMany: 'insert into job (queue, name, data) select $1, $2, data from unnest($3::text[]) data',
  insertAs: `insert into job (queue, name, data, state, run_at)
    select $1, $2, data, $4, case $4 when 'delayed' then now() + interval '1 day' end from unnest($3::text[]) data`,
  insertAndNotify: `with added as (insert into job (queue, name, data) values ($1, $2, $3))
    select pg_notify('job', '')`,
  claim: `
    with head as materialized (
      select ctid from job where queue = $1 and state = 'waiting' order by priority, id limit $2 for update skip locked
    )
    update job set state = 'active', attempt = attempt + 1, worker = $3, lease_until = now() + interval '30 s',
      started_at = now()
    where ctid = any (array(select ctid from head)) returning id, name, data, attempt`,
  complete: `
    update job set state = 'completed', worker = null, lease_until = null, finished_at = now()
    where id = any ($1::bigint[]) and worker = $2 and state = 'active'`,
}

type Row = readonly [id: string, name: string, data: string, attempt: number]

/** A connection, and the program's statements on it. */
class Lane {
  readonly client: Client
  readonly #name: string

  constructor(url: string, name = 'raw') {
    this.client = new Client({ connectionString: url })
    this.#name = name
  }

  async open(): Promise<this> {
    await this.client.connect()
    return this
  }

  async #run(name: keyof typeof statements, values: unknown[]): Promise<{ rows: Row[]; count: number }> {
    const { rows, rowCount } = await this.client.query<unknown[]>({
      name,
      text: statements[name],
      values,
      rowMode: 'array',
    })
    return { rows: rows as unknown as Row[], count: rowCount ?? 0 }
  }

  async insert(data: string): Promise<void> {
    await this.#run('insert', [QUEUE, NAME, data])
  }

  async insertMany(data: readonly string[]): Promise<void> {
    await this.#run('insertMany', [QUEUE, NAME, data])
  }

  async insertAs(state: string, data: readonly string[]): Promise<void> {
    await this.#run('insertAs', [QUEUE, NAME, data, state])
  }

  async insertAndNotify(data: string): Promise<void> {
    await this.#run('insertAndNotify', [QUEUE, NAME, data])
  }

  async claim(limit: number): Promise<readonly number[]> {
    return (await this.#run('claim', [QUEUE, limit, this.#name])).rows.map(([id]) => Number(id))
  }

  async complete(ids: readonly number[]): Promise<void> {
    const { count } = await this.#run('complete', [ids, this.#name])
    if (count !== ids.length) throw new Error(`${ids.length - count} jobs were taken away.`)
  }

  async count(state: string): Promise<number> {
    const { rows } = await this.client.query<{ n: number }>('select count(*)::int as n from job where state = $1', [
      state,
    ])
    return rows[0]!.n
  }

  close(): Promise<void> {
    return this.client.end()
  }
}

const open = (url: string): Promise<readonly Lane[]> =>
  Promise.all(Array.from({ length: LANES }, (_, at) => new Lane(url, `raw ${at}`).open()))

const close = (lanes: readonly Lane[]): Promise<unknown> => Promise.all(lanes.map((lane) => lane.close()))

const text = (n: number, weight: Weight): string => JSON.stringify(payload(n, weight))
const texts = (from: number, count: number, weight: Weight): readonly string[] =>
  Array.from({ length: count }, (_, at) => text(from + at, weight))

/** Calls that wait together share one insert. Each resolves when that has been committed. */
function coalescing(lanes: readonly Lane[]): (data: string) => Promise<void> {
  const idle = [...lanes]
  let waiting: { readonly data: string; answer(): void; refuse(error: unknown): void }[] = []
  let called = false
  const send = async (): Promise<void> => {
    called = false
    const lane = waiting.length === 0 ? undefined : idle.pop()
    if (lane === undefined) return
    const batch = waiting
    waiting = []
    try {
      await lane.insertMany(batch.map(({ data }) => data))
      for (const { answer } of batch) answer()
    } catch (error) {
      for (const { refuse } of batch) refuse(error)
    }
    idle.push(lane)
    call()
  }
  const call = (): void => {
    if (called) return
    called = true
    setImmediate(() => void send())
  }
  return (data) =>
    new Promise((answer, refuse) => {
      waiting.push({ data, answer, refuse })
      call()
    })
}

/** Inserts 1000 rows at a time, on all connections. */
async function insertAll(
  lanes: readonly Lane[],
  count: number,
  weight: Weight,
  insert: (lane: Lane, data: readonly string[]) => Promise<void>,
): Promise<void> {
  let next = 0
  await Promise.all(
    lanes.map(async (lane) => {
      for (let n = next; n < count; n = next) {
        next += BULK
        await insert(lane, texts(n, Math.min(BULK, count - n), weight))
      }
    }),
  )
}

/** The hand-written program. */
export const raw: Subject = {
  name: 'raw',
  durability: () => 'fsync',

  async add(url, way, { weight, count }) {
    const lanes = await open(url)
    const [first] = lanes as [Lane]
    await first.client.query(SCHEMA)
    const start = performance.now()
    if (way === 'awaited') {
      for (let n = 0; n < count; n++) await first.insert(text(n, weight))
    } else if (way === 'flight') {
      const add = coalescing(lanes)
      let next = 0
      const caller = async (): Promise<void> => {
        while (next < count) await add(text(next++, weight))
      }
      await Promise.all(Array.from({ length: CALLERS }, caller))
    } else {
      await insertAll(lanes, count, weight, (lane, data) => lane.insertMany(data))
    }
    const took = performance.now() - start
    const found = await first.count('waiting')
    await close(lanes)
    return {
      figures: { rate: rate(count, took) },
      lost: Math.max(0, count - found),
      doubled: Math.max(0, found - count),
    }
  },

  async fill(url, { weight, waiting, finished = 0, delayed = 0 }) {
    const lanes = await open(url)
    const [first] = lanes as [Lane]
    await first.client.query(SCHEMA)
    await insertAll(lanes, finished, weight, (lane, data) => lane.insertAs('completed', data))
    await insertAll(lanes, delayed, weight, (lane, data) => lane.insertAs('delayed', data))
    await insertAll(lanes, waiting, weight, (lane, data) => lane.insertMany(data))
    await first.client.query('analyze')
    await close(lanes)
  },

  async drain(url, { count }, { waiting, finished = 0 }) {
    const lanes = await open(url)
    const ledger = new Ledger(waiting)
    const tenths = new Tenths(count)
    let left = count
    const work = async (lane: Lane): Promise<void> => {
      for (;;) {
        const wanted = Math.min(BATCH, left)
        left -= wanted
        const ids = wanted === 0 ? [] : await lane.claim(wanted)
        if (ids.length === 0) return
        for (const id of ids) ledger.ran(id)
        await lane.complete(ids)
        tenths.ended(ids.length)
      }
    }
    const start = performance.now()
    await Promise.all(lanes.map(work))
    const took = performance.now() - start
    const completed = (await lanes[0]!.count('completed')) - finished
    await close(lanes)
    return { figures: { rate: rate(count, took), tail: tenths.tail() }, ...account(ledger, count, completed) }
  },

  async open(url) {
    const lane = await new Lane(url).open()
    await lane.client.query(SCHEMA)
    return session(url, lane)
  },
}

/** Claims on a notification, and then once more, because one notification may stand for several jobs. */
function session(url: string, lane: Lane): Session {
  let ear: Client | undefined
  let looking: Promise<void> = Promise.resolve()
  return {
    add: (n) => lane.insertAndNotify(text(n, 'light')),
    async work(started) {
      const look = async (): Promise<void> => {
        for (let ids = await lane.claim(1); ids.length > 0; ids = await lane.claim(1)) {
          for (const id of ids) started(id - 1)
          await lane.complete(ids)
        }
      }
      ear = new Client({ connectionString: url })
      await ear.connect()
      ear.on('notification', () => void (looking = looking.then(look)))
      await ear.query('listen job')
    },
    async close() {
      await ear?.end()
      await looking
      await lane.close()
    },
  }
}
