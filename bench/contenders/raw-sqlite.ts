// What a careful hand-written program reaches: prepared statements on the driver, and nothing else.
//
// It does the same durable work, batch for batch: one transaction for an awaited add, for each 100 calls in flight, and
// for each 500 rows of a bulk. A drain settles its jobs (fenced) and claims the next ones in one transaction. It has one
// table, and one partial index to claim from. It does not wait for promises, validate, retry, renew or publish events.
import { systemRuntime } from '../../src/store/runtime.js'
import { openDatabase } from './sqlite-driver.js'
import type { Database } from './sqlite-driver.js'
import { CALLERS, Ledger, NAME, QUEUE, account, payload } from '../measure/load.js'
import type { Mode, Weight } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import type { Session, Subject } from './contender.js'

/** Rows in a transaction of a bulk or a drain, as in Millrace. */
const BATCH = 500
/** Rows in one INSERT of a bulk: faster than one by one, and no faster with more. */
const ROWS = 50
const LEASE = 30_000
const DAY = 86_400_000

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS job (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, queue TEXT NOT NULL, name TEXT NOT NULL, data TEXT NOT NULL,
    state TEXT NOT NULL, priority INTEGER NOT NULL, fence INTEGER NOT NULL, attempt INTEGER NOT NULL,
    attempts INTEGER NOT NULL, worker TEXT, lease_until INTEGER, run_at INTEGER, result TEXT,
    created_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER
  );
  CREATE INDEX IF NOT EXISTS job_claim ON job (queue, priority, seq) WHERE state = 'waiting';`

const COLUMNS = 'id, queue, name, data, state, priority, fence, attempt, attempts, run_at, created_at'
const VALUES = '(?, ?, ?, ?, ?, 0, 0, 0, 3, ?, ?)'

interface Held {
  readonly seq: number
  readonly fence: number
}

/** A transaction of a batch: settles the claimed jobs, then claims up to `size` more and returns them. */
export type Turn = (held: readonly Held[], size: number) => readonly Held[]

/** Opens a file with the settings of the program. */
export function openRaw(path: string, mode: Mode): Database {
  const db = openDatabase(path)
  db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${mode}; PRAGMA busy_timeout = 5000;`)
  db.exec(SCHEMA)
  return db
}

/** Adds the jobs numbered from `from` up, in one transaction. */
export type Insert = (from: number, count: number) => void

/** One by one within a transaction, as calls in flight arrive. A single job is a transaction of its own. */
export function singles(db: Database, weight: Weight): Insert {
  const { id, now } = systemRuntime()
  const insert = db.prepare(`INSERT INTO job (${COLUMNS}) VALUES ${VALUES}`)
  const [begin, commit] = [db.prepare('BEGIN IMMEDIATE'), db.prepare('COMMIT')]
  return (from, count) => {
    const at = now()
    if (count > 1) begin.run()
    for (let n = from; n < from + count; n++) {
      insert.run(id(), QUEUE, NAME, JSON.stringify(payload(n, weight)), 'waiting', null, at)
    }
    if (count > 1) commit.run()
  }
}

/** Many rows per statement, for jobs that arrive together. */
function together(db: Database, weight: Weight, state = 'waiting', delay?: number): Insert {
  const { id, now } = systemRuntime()
  const insert = db.prepare(`INSERT INTO job (${COLUMNS}) VALUES ${Array(ROWS).fill(VALUES).join(', ')}`)
  const [begin, commit] = [db.prepare('BEGIN IMMEDIATE'), db.prepare('COMMIT')]
  return (from, count) => {
    begin.run()
    const at = now()
    const due = delay === undefined ? null : at + delay
    for (let n = from; n < from + count; n += ROWS) {
      const values: unknown[] = []
      for (let row = n; row < n + ROWS; row++) {
        values.push(id(), QUEUE, NAME, JSON.stringify(payload(row, weight)), state, due, at)
      }
      insert.run(...values)
    }
    commit.run()
  }
}

/** The program's worker. */
export function turns(db: Database): Turn {
  const [begin, commit] = [db.prepare('BEGIN IMMEDIATE'), db.prepare('COMMIT')]
  const settle = db.prepare(
    `UPDATE job SET state = 'completed', worker = NULL, lease_until = NULL, finished_at = ?
     WHERE seq = ? AND fence = ? AND state = 'active'`,
  )
  const next = db.prepare(
    `SELECT seq, id, name, data, fence + 1 AS fence, attempt + 1 AS attempt FROM job
     WHERE queue = ? AND state = 'waiting' ORDER BY priority, seq LIMIT ?`,
  )
  const claim = db.prepare(
    `UPDATE job SET state = 'active', fence = fence + 1, attempt = attempt + 1, worker = ?, lease_until = ?,
       started_at = ? WHERE seq IN (SELECT value FROM json_each(?))`,
  )
  return (held, size) => {
    begin.run()
    const now = Date.now()
    for (const job of held) {
      if (Number(settle.run(now, job.seq, job.fence).changes) !== 1) throw new Error(`Job ${job.seq} was taken away.`)
    }
    const claimed = size === 0 ? [] : (next.all(QUEUE, size) as Held[])
    if (claimed.length > 0) claim.run('raw', now + LEASE, now, JSON.stringify(claimed.map((job) => job.seq)))
    commit.run()
    return claimed
  }
}

function countOf(db: Database, state: string): number {
  return Number((db.prepare('SELECT count(*) AS n FROM job WHERE state = ?').get(state) as { n: number }).n)
}

/** The hand-written program. */
export const raw: Subject = {
  name: 'raw',
  durability: (mode) => mode,

  async add(path, way, { mode, weight, count }) {
    const db = openRaw(path, mode)
    const insert = way === 'bulk' ? together(db, weight) : singles(db, weight)
    const size = { awaited: 1, flight: CALLERS, bulk: BATCH }[way]
    const start = performance.now()
    for (let n = 0; n < count; n += size) insert(n, size)
    const took = performance.now() - start
    const found = countOf(db, 'waiting')
    db.close()
    return {
      figures: { rate: rate(count, took) },
      lost: Math.max(0, count - found),
      doubled: Math.max(0, found - count),
    }
  },

  async fill(path, { weight, waiting, finished = 0, delayed = 0 }) {
    const db = openRaw(path, 'normal')
    const insertAll = (count: number, insert: Insert): void => {
      for (let n = 0; n < count; n += BATCH) insert(n, BATCH)
    }
    insertAll(waiting, together(db, weight))
    insertAll(finished, together(db, weight, 'completed'))
    insertAll(delayed, together(db, weight, 'delayed', DAY))
    db.close()
  },

  async drain(path, { mode, count }, { waiting, finished = 0 }) {
    const db = openRaw(path, mode)
    const turn = turns(db)
    const ledger = new Ledger(waiting)
    const start = performance.now()
    let held: readonly Held[] = []
    let ended = 0
    do {
      ended += held.length
      held = turn(held, Math.min(BATCH, count - ended))
      for (const job of held) ledger.ran(job.seq)
    } while (held.length > 0)
    const took = performance.now() - start
    const completed = countOf(db, 'completed') - finished
    db.close()
    return { figures: { rate: rate(count, took) }, ...account(ledger, count, completed) }
  },

  async open(path, mode) {
    return session(openRaw(path, mode))
  },
}

/** Looks for a commit of another process each millisecond, and at once after a commit of its own. */
function session(db: Database): Session {
  const insert = singles(db, 'light')
  const turn = turns(db)
  const version = db.prepare('PRAGMA data_version')
  const seen = (): number => Number((version.get() as { data_version: number }).data_version)
  let look = (): void => {}
  let poll: NodeJS.Timeout | undefined
  return {
    async add(n) {
      insert(n, 1)
      setImmediate(look)
    },
    async work(started) {
      look = () => {
        const held = turn([], 1)
        for (const job of held) started(job.seq - 1)
        if (held.length > 0) turn(held, 0)
      }
      let last = seen()
      poll = setInterval(() => {
        const current = seen()
        if (current === last) return
        last = current
        look()
      }, 1)
    },
    async close() {
      clearInterval(poll)
      look = () => {}
      db.close()
    },
  }
}
