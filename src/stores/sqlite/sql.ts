// stores/sqlite/sql.ts: every statement, by its verb. States are literals where an index depends on them.
import type { JobState } from '../../job/job.js'

/** The data of a job, wherever it is. */
const DATA = 'CASE WHEN j.bulky THEN (SELECT b.data FROM millrace_body b WHERE b.seq = j.seq) ELSE j.data END AS data'

const RECORD = `j.seq, j.id, j.lane, j.kind, j.state, j.priority, j.ord, j.fence, j.attempt, j.attempts, j.worker,
  j.run_at, j.lease_until, j.broken_at, j.stale_at, j.stale, j.delete_at, j.due_at, j.chain, j.chain_index, j.parent,
  j.pending, j.stalls, j.ahead, j.errors, j.progress, j.result, j.error, j.created_at, j.started_at, j.finished_at,
  ${DATA}, j.settings, j.dedup`

const rows = (count: number, make: (row: number) => string): string =>
  Array.from({ length: count }, (_, row) => make(row)).join(', ')

/**
 * Waiting jobs of one lane with nothing special about them: ?1 is the first number, ?11 and on are the ids, each before its
 * data.
 */
const insertJobs = (count: number): string => `INSERT INTO millrace_job
  (seq, id, queue, lane, state, priority, ord, fence, attempts, created_at, settings, bulky, data) VALUES
  ${rows(
    count,
    (row) =>
      `(?1 + ${row}, ?${2 * row + 11}, ?2, ?3, 'waiting', ?4, (?1 + ${row}) * ?5 - (?5 < 0), ?6, ?7, ?8, ?9, ?10, ?${2 * row + 12})`,
  )}`

/** Adds to so many counters: each is given by its kind, whose it is, what it counts, and how many more there are. */
const count = (counters: number): string => `INSERT INTO millrace_counter (kind, of, what, n)
  VALUES ${rows(counters, () => '(?, ?, ?, ?)')} ON CONFLICT DO UPDATE SET n = n + excluded.n`

/** How many rows are inserted at once: from fifty on, more gains nothing. */
export const RUNS = [
  { rows: 50, insertJobs: 'insertJobs50' },
  { rows: 8, insertJobs: 'insertJobs8' },
] as const

const MOVE = `UPDATE millrace_job SET state = ?, priority = ?, ord = ?, fence = ?, attempt = ?, worker = ?, run_at = ?,
  lease_until = ?, broken_at = ?, stale_at = ?, stale = ?, delete_at = ?, due_at = ?, pending = ?, stalls = ?, ahead = ?,
  errors = ?, result = ?, error = ?, finished_at = ?, touched = 1 WHERE seq = ?`

const COMPLETE = `UPDATE millrace_job SET state = 'completed', fence = fence + 1, lease_until = NULL, due_at = NULL, ahead = 0,
  finished_at = ?1 WHERE fence = ?2 AND lease_until > ?1`

const CLAIM = `UPDATE millrace_job SET state = 'active', fence = fence + 1, attempt = attempt + 1, worker = ?1,
  lease_until = ?2, due_at = ?2, ahead = ?3, started_at = ?4 WHERE`

/** All statements, by verb. */
export const sql = {
  // Transactions.
  begin: 'BEGIN IMMEDIATE',
  beginRead: 'BEGIN',
  commit: 'COMMIT',
  rollback: 'ROLLBACK',
  beginGroup: 'SAVEPOINT millrace_group',
  keepGroup: 'RELEASE millrace_group',
  rollbackGroup: 'ROLLBACK TO millrace_group',
  /** Within a transaction of the user's. */
  beginVisit: 'SAVEPOINT millrace_visit',
  keepVisit: 'RELEASE millrace_visit',
  rollbackVisit: 'ROLLBACK TO millrace_visit',
  /** Takes the lock to write, and changes nothing. */
  lock: 'UPDATE millrace_schema SET version = version WHERE rowid < 0',
  schemaVersion: 'SELECT version FROM millrace_schema WHERE rowid > 0 LIMIT 1',
  dataVersion: 'PRAGMA data_version',
  checkpoint: 'PRAGMA wal_checkpoint(PASSIVE)',
  emptyLog: 'PRAGMA wal_checkpoint(TRUNCATE)',

  // Queues, lanes and numbers.
  queueNamed: 'SELECT id FROM millrace_queue WHERE name = ?',
  queues: 'SELECT id, name FROM millrace_queue ORDER BY id',
  addQueue: 'INSERT INTO millrace_queue (name) VALUES (?) RETURNING id',
  laneNamed: 'SELECT id FROM millrace_lane WHERE queue = ? AND name = ? AND version = ?',
  lane: `SELECT l.id, l.queue, q.name AS queue_name, l.name, l.version FROM millrace_lane l JOIN millrace_queue q ON q.id = l.queue
    WHERE l.id = ?`,
  addLane: 'INSERT INTO millrace_lane (queue, name, version) VALUES (?, ?, ?) RETURNING id',
  numbers: `SELECT what, n FROM millrace_counter WHERE kind = 'store' AND of = 0`,
  setNumber: `INSERT INTO millrace_counter (kind, of, what, n) VALUES ('store', 0, ?1, ?2)
    ON CONFLICT DO UPDATE SET n = ?2`,
  count1: count(1),
  count2: count(2),
  count3: count(3),
  count4: count(4),
  readyLanes: `SELECT l.id FROM millrace_lane l JOIN millrace_counter c ON c.kind = 'lane' AND c.of = l.id
    AND c.what = 'waiting' WHERE l.queue = ? AND c.n > 0`,
  waitingIn: `SELECT total(c.n) FROM millrace_lane l JOIN millrace_counter c ON c.kind = 'lane' AND c.of = l.id
    AND c.what = 'waiting' WHERE l.queue = ?`,
  leasesIn: `SELECT l.name, total(c.n) FROM millrace_lane l JOIN millrace_counter c ON c.kind = 'lane' AND c.of = l.id
    AND c.what IN ('active', 'orphaned') WHERE l.queue = ? GROUP BY l.name`,
  backlogIn: `SELECT total(c.n) FROM millrace_lane l JOIN millrace_counter c ON c.kind = 'lane' AND c.of = l.id
    AND c.what IN ('waiting', 'delayed', 'waiting-children') WHERE l.queue = ?`,
  tallyOf: `SELECT l.name, c.what, total(c.n) FROM millrace_lane l JOIN millrace_counter c ON c.kind = 'lane' AND c.of = l.id
    WHERE l.queue = ? GROUP BY l.name, c.what HAVING total(c.n) > 0`,
  lifetimeOf: `SELECT what, n FROM millrace_counter WHERE kind = 'queue' AND of = ?`,

  // Jobs.
  jobById: `SELECT ${RECORD} FROM millrace_job j WHERE j.id = ?`,
  jobBySeq: `SELECT ${RECORD} FROM millrace_job j WHERE j.seq = ?`,
  seqOf: 'SELECT seq FROM millrace_job WHERE id = ?',
  insertJob: `INSERT INTO millrace_job (seq, id, queue, lane, kind, state, priority, ord, fence, attempts, run_at, broken_at,
    due_at, chain, chain_index, parent, pending, created_at, touched, bulky, data, settings, dedup)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  insertBody: 'INSERT INTO millrace_body (seq, data) VALUES (?, ?)',
  insertJobs50: insertJobs(50),
  insertJobs8: insertJobs(8),
  setData: 'UPDATE millrace_job SET data = ?, bulky = ? WHERE seq = ?',
  setProgress: 'UPDATE millrace_job SET progress = ?, touched = 1 WHERE seq = ?',
  move: MOVE,
  /** The same, by whoever holds the lease: refused where the fence is another or the lease is over. */
  moveHeld: `${MOVE} AND fence = ? AND lease_until > ?`,
  completeHeld: `UPDATE millrace_job SET state = 'completed', fence = fence + 1, lease_until = NULL, due_at = NULL, ahead = 0,
    finished_at = ?1, result = ?2 WHERE seq = ?3 AND fence = ?4 AND lease_until > ?1`,
  /** Many of one fence and without results: by a list of numbers, or from one number to another. */
  completeMany: `${COMPLETE} AND seq IN (SELECT value FROM json_each(?3))`,
  completeRun: `${COMPLETE} AND seq BETWEEN ?3 AND ?4`,
  renew: `UPDATE millrace_job SET lease_until = ?1, due_at = ?1, ahead = CASE WHEN ?2 THEN 0 ELSE ahead END
    WHERE seq = ?3 AND fence = ?4 AND state = 'active'`,
  removeJob: 'DELETE FROM millrace_job WHERE seq = ?',
  removeBody: 'DELETE FROM millrace_body WHERE seq = ?',
  removeLogs: 'DELETE FROM millrace_log WHERE job = ?',
  removeFailures: 'DELETE FROM millrace_failure WHERE job = ?',
  removeEdges: 'DELETE FROM millrace_edge WHERE dependent = ?',
  addFailure: 'INSERT INTO millrace_failure (job, fence, attempt, at, error) VALUES (?, ?, ?, ?, ?)',
  dropFailures: 'DELETE FROM millrace_failure WHERE job = ? AND fence < ?',
  failuresOf: 'SELECT fence, attempt, at, error FROM millrace_failure WHERE job = ? ORDER BY fence',
  lastLog: 'SELECT coalesce(max(n), 0) FROM millrace_log WHERE job = ?',
  addLog: 'INSERT INTO millrace_log (job, n, at, attempt, line) VALUES (?, ?, ?, ?, ?)',
  logsOf: 'SELECT at, attempt, line FROM millrace_log WHERE job = ? ORDER BY n',

  // Claims: the head of a lane after a place, and what takes it.
  laneHead: `SELECT j.seq, j.id, j.priority, j.ord, j.fence, j.attempt, j.attempts, j.stalls, j.created_at,
      ${DATA}, j.settings, j.dedup, j.touched
    FROM millrace_job j WHERE j.lane = ?1 AND j.state = 'waiting' AND j.kind = 'job' AND (j.priority, j.ord) > (?2, ?3)
    ORDER BY j.priority, j.ord LIMIT ?4`,
  claimMany: `${CLAIM} seq IN (SELECT value FROM json_each(?5))`,
  claimRun: `${CLAIM} seq BETWEEN ?5 AND ?6`,

  // Chains and edges.
  chainJobs: `SELECT seq, chain_index, state FROM millrace_job WHERE chain = ?1
    UNION ALL SELECT seq, chain_index, state FROM millrace_job WHERE id = ?1 AND chain IS NULL`,
  chainOf: 'SELECT coalesce(chain, id) FROM millrace_job WHERE id = ?',
  anyOpenEdge: `SELECT 1 FROM millrace_edge WHERE state = 'open' LIMIT 1`,
  openEdgesOn: `SELECT dependent, place FROM millrace_edge WHERE chain = ? AND state = 'open' ORDER BY dependent`,
  addEdge: 'INSERT INTO millrace_edge (dependent, place, chain, policy, state) VALUES (?, ?, ?, ?, ?)',
  turnEdge: 'UPDATE millrace_edge SET state = ? WHERE dependent = ? AND place = ?',
  closeBroken: `UPDATE millrace_edge SET state = 'closed' WHERE dependent = ? AND state = 'broken'`,
  edgesOf: 'SELECT chain, policy, state FROM millrace_edge WHERE dependent = ? ORDER BY place',
  edgesOn: `SELECT j.id, e.policy, e.state FROM millrace_edge e JOIN millrace_job j ON j.seq = e.dependent
    WHERE e.chain = ? ORDER BY e.dependent`,

  // Keys, orphans, cells, writers.
  keyHolder: 'SELECT job, until FROM millrace_key WHERE key = ?',
  takeKey:
    'INSERT INTO millrace_key (key, job, until) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET job = ?2, until = ?3',
  freeKey: 'DELETE FROM millrace_key WHERE key = ? AND job = ? AND until IS NULL',
  anyWindow: 'SELECT 1 FROM millrace_key WHERE until IS NOT NULL LIMIT 1',
  sweepKeys: `DELETE FROM millrace_key WHERE key IN
    (SELECT key FROM millrace_key WHERE until IS NOT NULL AND until <= ? ORDER BY until LIMIT 16)`,
  anyOrphan: 'SELECT 1 FROM millrace_orphan LIMIT 1',
  orphan: 'SELECT lane FROM millrace_orphan WHERE id = ? AND fence = ?',
  addOrphan: 'INSERT INTO millrace_orphan (id, fence, lane, until) VALUES (?, ?, ?, ?)',
  dropOrphan: 'DELETE FROM millrace_orphan WHERE id = ? AND fence = ?',
  orphansOver: 'SELECT id, fence, lane FROM millrace_orphan WHERE until <= ?',
  cell: 'SELECT key, value, version, at FROM millrace_cell WHERE key = ?',
  cellsUnder:
    'SELECT key, value, version, at FROM millrace_cell WHERE key >= ?1 AND substr(key, 1, length(?1)) = ?1 ORDER BY key',
  putCell: `INSERT INTO millrace_cell (key, value, version, at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET value = ?2, version = ?3, at = ?4`,
  dropCell: 'DELETE FROM millrace_cell WHERE key = ?',
  writer: `SELECT n FROM millrace_counter WHERE kind = 'writer' AND of = 0 AND what = ?`,
  receipt: `SELECT receipt FROM millrace_counter WHERE kind = 'writer' AND of = 0 AND what = ?`,
  addWriter: `INSERT INTO millrace_counter (kind, of, what, n, at, receipt) VALUES ('writer', 0, ?, ?, ?, ?)`,
  setWriter: `UPDATE millrace_counter SET n = ?2, at = ?3, receipt = ?4 WHERE kind = 'writer' AND of = 0 AND what = ?1`,
  /** Beyond a thousand, those that have long been silent are forgotten. */
  forgetWriters: `DELETE FROM millrace_counter WHERE kind = 'writer' AND of = 0 AND at < ?1
    AND (SELECT count(*) FROM millrace_counter WHERE kind = 'writer' AND of = 0) > 1000`,

  // Watching.
  peers: 'SELECT id, until, events_until FROM millrace_peer',
  setPeer: `INSERT INTO millrace_peer (id, until, events_until) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET until = ?2, events_until = ?3`,
  dropPeers: 'DELETE FROM millrace_peer WHERE until <= ?1 AND events_until <= ?1',
  addNotice: 'INSERT INTO millrace_notice (n, origin, body) VALUES (?, ?, ?)',
  dropNotices: 'DELETE FROM millrace_notice WHERE n <= ?',
  noticesAfter: 'SELECT n, origin, body FROM millrace_notice WHERE n > ? ORDER BY n',
  addEvents: 'INSERT INTO millrace_event (last, body) VALUES (?, ?)',
  dropEvents: 'DELETE FROM millrace_event WHERE last <= ?',
  eventsAfter: 'SELECT last, body FROM millrace_event WHERE last > ? ORDER BY last',

  // What is due: of leases, and of all else.
  dueUntil: `SELECT seq, due_at, id FROM millrace_job WHERE queue = ?1 AND due_at IS NOT NULL AND state <> 'active'
    AND due_at <= ?2 ORDER BY due_at, seq LIMIT ?3`,
  dueAfter: `SELECT due_at, id FROM millrace_job WHERE queue = ?1 AND due_at IS NOT NULL AND state <> 'active'
    AND due_at > ?2 ORDER BY due_at, seq LIMIT ?3`,
  leasedUntil: `SELECT seq, due_at, id FROM millrace_job WHERE queue = ?1 AND state = 'active' AND due_at <= ?2
    ORDER BY due_at, seq LIMIT ?3`,
  leasedAfter: `SELECT due_at, id FROM millrace_job WHERE queue = ?1 AND state = 'active' AND due_at > ?2
    ORDER BY due_at, seq LIMIT ?3`,
} as const

/** Which index a listing of jobs reads: that of a state, of schedules, of a chain or its first job, or of a parent. */
export interface Listing {
  readonly by: JobState | 'schedule' | 'chain' | 'id' | 'parent'
  readonly order: 'oldest' | 'newest'
}

const listedBy: Readonly<Record<Exclude<Listing['by'], JobState>, string>> = {
  schedule: `j.queue = ?1 AND j.kind = 'schedule'`,
  chain: 'j.chain = ?1',
  id: 'j.id = ?1 AND j.chain IS NULL',
  parent: 'j.parent = ?1',
}

/**
 * The numbers of jobs in their order, from a place on. What else a query says is looked at row by row: ?4 states, ?5 names,
 * ?6 a kind, ?7 a queue by name, ?8 a chain, ?9 a parent, each empty where it says nothing.
 */
export function listing({ by, order }: Listing): string {
  // Active jobs are few, and found by their leases.
  const active = `j.queue = ?1 AND j.state = 'active'`
  const where =
    by === 'active'
      ? active
      : by in listedBy
        ? listedBy[by as keyof typeof listedBy]
        : `j.queue = ?1 AND j.state = '${by}' AND j.state <> 'active'`
  const after = order === 'newest' ? 'j.seq < ?2' : 'j.seq > ?2'
  return `SELECT j.seq FROM millrace_job j JOIN millrace_lane l ON l.id = j.lane WHERE ${where} AND ${after}
    AND (?4 IS NULL OR j.state IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR l.name IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR j.kind = ?6)
    AND (?7 IS NULL OR j.queue = (SELECT id FROM millrace_queue WHERE name = ?7))
    AND (?8 IS NULL OR coalesce(j.chain, j.id) = ?8)
    AND (?9 IS NULL OR j.parent = ?9)
    ORDER BY j.seq ${order === 'newest' ? 'DESC' : 'ASC'} LIMIT ?3`
}
