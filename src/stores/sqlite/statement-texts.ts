// stores/sqlite/statement-texts.ts: all SQL statements. States are literals where an index depends on them.
import { backlogStates } from '../../job/limits.js'
import type { JobState } from '../../job/job.js'
import { REVOKED_LISTED } from '../../store/store.js'
import { DUE_READ, HEADS_READ } from '../../store/tally.js'
import { RATES_READ } from '../heads.js'

/** The data of a job, wherever it is stored. */
const DATA = 'CASE WHEN j.bulky THEN (SELECT b.data FROM millrace_body b WHERE b.seq = j.seq) ELSE j.data END AS data'

const RECORD = `j.seq, j.id, j.lane, j.kind, j.state, j.priority, j.ord, j.fence, j.attempt, j.attempts, j.worker,
  j.run_at, j.lease_until, j.broken_at, j.stale_at, j.stale, j.delete_at, j.due_at, j.chain, j.chain_index, j.parent,
  j.pending, j.stalls, j.ahead, j.errors, j.progress, j.result, j.error, j.created_at, j.started_at, j.finished_at,
  ${DATA}, j.settings, j.dedup, j.grp, j.memo, j.expires_at, j.history`

/** A record without what changes do not need, which can be more than a megabyte. */
const LIGHT = RECORD.replace('j.progress,', 'NULL AS progress,')
  .replace(DATA, 'NULL AS data')
  .replace('j.memo', 'NULL AS memo')

/** A record without its payload, for due jobs. */
const HEADER = RECORD.replace(
  'j.errors, j.progress, j.result, j.error,',
  '0 AS errors, NULL AS progress, NULL AS result, NULL AS error,',
)
  .replace(DATA, 'NULL AS data')
  .replace('j.memo', 'NULL AS memo')
  .replace('j.history', 'NULL AS history')

/** Whether a job that waits may be claimed at a time: `hasExpired` in job/lifecycle.ts. */
const unexpired = (now: string): string => `(j.expires_at IS NULL OR j.expires_at > ${now} OR j.attempt > 0)`

/** The columns that a claim needs. Large data is read once its job is claimed: a claim may read more jobs than it takes. */
const HEAD = `SELECT j.seq, j.id, j.priority, j.ord, j.fence, j.attempt, j.attempts, j.stalls, j.created_at,
      j.data, j.settings, j.dedup, j.touched, j.parent, j.bulky`

const rows = (count: number, make: (row: number) => string): string =>
  Array.from({ length: count }, (_, row) => make(row)).join(', ')

/** Inserts plain waiting jobs of one lane: ?1 is the first number; from ?11 on come the ids, each followed by its data. */
const insertJobs = (count: number): string => `INSERT INTO millrace_job
  (seq, id, queue, lane, state, priority, ord, fence, attempts, created_at, settings, bulky, data) VALUES
  ${rows(
    count,
    (row) =>
      `(?1 + ${row}, ?${2 * row + 11}, ?2, ?3, 'waiting', ?4, (?1 + ${row}) * ?5 - (?5 < 0), ?6, ?7, ?8, ?9, ?10, ?${2 * row + 12})`,
  )}`

/** Inserts plain waiting jobs with groups: from ?10 on come the ids, each followed by its data, its group and its order. */
const insertShared = (count: number): string => `INSERT INTO millrace_job
  (seq, id, queue, lane, state, priority, ord, fence, attempts, created_at, settings, bulky, data, grp) VALUES
  ${rows(count, (row) => {
    const [id, data, grp, ord] = [10, 11, 12, 13].map((first) => `?${4 * row + first}`)
    return `(?1 + ${row}, ${id}, ?2, ?3, 'waiting', ?4, ${ord}, ?5, ?6, ?7, ?8, ?9, ${data}, ${grp})`
  })}`

/** Adds to counters, each given by its kind, its owner, its name, and the difference. */
const count = (counters: number): string => `INSERT INTO millrace_counter (kind, of, what, n)
  VALUES ${rows(counters, () => '(?, ?, ?, ?)')} ON CONFLICT DO UPDATE SET n = n + excluded.n`

/** The number of jobs from which writing them in one statement pays off. */
export const MIN_TOGETHER = 8

/** How many rows are inserted at once; more than fifty are no faster. */
export const INSERT_SIZES = [
  { rows: 50, insertJobs: 'insertJobs50', insertShared: 'insertShared50' },
  { rows: 8, insertJobs: 'insertJobs8', insertShared: 'insertShared8' },
] as const

const MOVE = `UPDATE millrace_job SET state = ?, priority = ?, ord = ?, fence = ?, attempt = ?, worker = ?, run_at = ?,
  lease_until = ?, broken_at = ?, stale_at = ?, stale = ?, delete_at = ?, due_at = ?, pending = ?, stalls = ?, ahead = ?,
  errors = ?, result = ?, error = ?, finished_at = ?, expires_at = ?, history = ?, touched = 1 WHERE seq = ?`

const COMPLETE = `UPDATE millrace_job SET state = 'completed', fence = fence + 1, lease_until = NULL, due_at = NULL, ahead = 0,
  finished_at = ?1 WHERE fence = ?2 AND lease_until > ?1`

const CLAIM = `UPDATE millrace_job SET state = 'active', fence = fence + 1, attempt = attempt + 1, worker = ?1,
  lease_until = ?2, due_at = ?2, ahead = ?3, started_at = ?4 WHERE`

/** The states of jobs with a group that have an index of their own. */
const RARE = `state IN ('delayed', 'waiting-children', 'failed', 'cancelled')`

const FINGERPRINT = `json_extract(j.error, '$.fingerprint')`

/** The jobs of a queue whose last attempt failed. */
const FAILING = `millrace_job j INDEXED BY millrace_job_fingerprint
    WHERE j.queue = ?1 AND j.error IS NOT NULL AND j.state <> 'completed'`

/** All statements, by name. */
export const sql = {
  // Transactions.
  begin: 'BEGIN IMMEDIATE',
  beginRead: 'BEGIN',
  commit: 'COMMIT',
  rollback: 'ROLLBACK',
  beginBatch: 'SAVEPOINT millrace_batch',
  keepBatch: 'RELEASE millrace_batch',
  rollbackBatch: 'ROLLBACK TO millrace_batch',
  beginGroup: 'SAVEPOINT millrace_group',
  keepGroup: 'RELEASE millrace_group',
  rollbackGroup: 'ROLLBACK TO millrace_group',
  /** Inside a user transaction. */
  beginNested: 'SAVEPOINT millrace_nested',
  keepNested: 'RELEASE millrace_nested',
  rollbackNested: 'ROLLBACK TO millrace_nested',
  /** Takes the write lock, and changes nothing. */
  lock: 'UPDATE millrace_schema SET version = version WHERE rowid < 0',
  schemaVersion: 'SELECT version, oldest FROM millrace_schema WHERE rowid > 0 LIMIT 1',
  dataVersion: 'PRAGMA data_version',
  checkpoint: 'PRAGMA wal_checkpoint(PASSIVE)',
  truncateWal: 'PRAGMA wal_checkpoint(TRUNCATE)',

  // Queues, lanes and numbers.
  queueNamed: 'SELECT id FROM millrace_queue WHERE name = ?',
  queues: 'SELECT id, name FROM millrace_queue ORDER BY id',
  addQueue: 'INSERT INTO millrace_queue (name) VALUES (?) RETURNING id',
  laneNamed: 'SELECT id FROM millrace_lane WHERE queue = ? AND name = ? AND version = ? AND shared = ?',
  lane: `SELECT l.id, l.queue, q.name AS queue_name, l.name, l.version, l.shared
    FROM millrace_lane l JOIN millrace_queue q ON q.id = l.queue WHERE l.id = ?`,
  /** The lanes of a queue that have jobs, and what each contains. */
  laneCounts: `SELECT l.id, l.name, c.what FROM millrace_lane l JOIN millrace_counter c ON c.kind = 'lane' AND c.of = l.id
    WHERE l.queue = ? AND c.n > 0`,
  addLane: 'INSERT INTO millrace_lane (queue, name, version, shared) VALUES (?, ?, ?, ?) RETURNING id',
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
    AND c.what IN (${backlogStates.map((state) => `'${state}'`).join(', ')}) WHERE l.queue = ?`,
  tallyOf: `SELECT l.name, c.what, total(c.n) FROM millrace_lane l JOIN millrace_counter c ON c.kind = 'lane' AND c.of = l.id
    WHERE l.queue = ? GROUP BY l.name, c.what HAVING total(c.n) > 0`,
  lifetimeOf: `SELECT what, n FROM millrace_counter WHERE kind = 'queue' AND of = ?`,

  // Heads of indexes: of a lane, the job to be claimed next and the job added first; of a queue, what runs and what is due.
  nextOfLane: `SELECT created_at, run_at FROM millrace_job WHERE lane = ? AND state = 'waiting' AND kind = 'job'
    ORDER BY priority, ord LIMIT 1`,
  firstOfLane: `SELECT created_at, run_at FROM millrace_job WHERE lane = ? AND state = 'waiting' AND state <> 'active'
    ORDER BY seq LIMIT 1`,
  runningIn: `SELECT lane, started_at, ahead, grp FROM millrace_job WHERE queue = ? AND state = 'active'
    ORDER BY due_at LIMIT ${HEADS_READ}`,
  dueIn: `SELECT kind, state, due_at FROM millrace_job WHERE queue = ?1 AND due_at IS NOT NULL AND state <> 'active'
    AND due_at <= ?2 ORDER BY due_at LIMIT ${DUE_READ}`,
  leaseIn: `SELECT due_at FROM millrace_job WHERE queue = ? AND state = 'active' ORDER BY due_at LIMIT 1`,
  ratesIn: `SELECT what, receipt FROM millrace_counter WHERE kind = 'rate' AND of = ?1 AND what = ''
    UNION ALL SELECT what, receipt FROM millrace_counter WHERE kind = 'rate' AND of = ?1 AND what >= 'n' AND what < 'o'
    LIMIT ${RATES_READ}`,

  // Jobs.
  jobById: `SELECT ${RECORD} FROM millrace_job j WHERE j.id = ?`,
  jobBySeq: `SELECT ${RECORD} FROM millrace_job j WHERE j.seq = ?`,
  lightById: `SELECT ${LIGHT} FROM millrace_job j WHERE j.id = ?`,
  lightBySeq: `SELECT ${LIGHT} FROM millrace_job j WHERE j.seq = ?`,
  headerBySeq: `SELECT ${HEADER} FROM millrace_job j WHERE j.seq = ?`,
  seqOf: 'SELECT seq FROM millrace_job WHERE id = ?',
  insertJob: `INSERT INTO millrace_job (seq, id, queue, lane, kind, state, priority, ord, fence, attempts, run_at, broken_at,
    due_at, chain, chain_index, parent, pending, created_at, touched, bulky, data, settings, dedup, grp, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  bodyOf: 'SELECT data FROM millrace_body WHERE seq = ?',
  insertBody: 'INSERT INTO millrace_body (seq, data) VALUES (?, ?)',
  insertJobs50: insertJobs(50),
  insertJobs8: insertJobs(8),
  insertShared50: insertShared(50),
  insertShared8: insertShared(8),
  setData: 'UPDATE millrace_job SET data = ?, bulky = ? WHERE seq = ?',
  setProgress: 'UPDATE millrace_job SET progress = ?, touched = 1 WHERE seq = ?',
  setMemo: 'UPDATE millrace_job SET memo = ?, touched = 1 WHERE seq = ?',
  /** Writes memo and progress, for the lease holder. */
  noteHeld: `UPDATE millrace_job SET memo = coalesce(?, memo), progress = coalesce(?, progress), touched = 1
    WHERE seq = ? AND fence = ? AND lease_until > ?`,
  move: MOVE,
  /** A move by the lease holder: changes no row if the fence is another or the lease has expired. */
  moveHeld: `${MOVE} AND fence = ? AND lease_until > ?`,
  completeHeld: `UPDATE millrace_job SET state = 'completed', fence = fence + 1, lease_until = NULL, due_at = NULL, ahead = 0,
    finished_at = ?1, result = ?2 WHERE seq = ?3 AND fence = ?4 AND lease_until > ?1`,
  /** Completes many jobs of one fence without results: by a list of numbers, or by a range. */
  completeMany: `${COMPLETE} AND seq IN (SELECT value FROM json_each(?3))`,
  completeRange: `${COMPLETE} AND seq BETWEEN ?3 AND ?4`,
  /** Writes what `renewed` in job/lifecycle.ts does, under the conditions of `mayRenew`. */
  renew: `UPDATE millrace_job SET lease_until = ?1, due_at = ?1, ahead = CASE WHEN ?2 THEN 0 ELSE ahead END
    WHERE seq = ?3 AND fence = ?4 AND state = 'active'`,
  removeJob: 'DELETE FROM millrace_job WHERE seq = ?',
  addTag: 'INSERT INTO millrace_tag (queue, tag, seq) VALUES (?, ?, ?)',
  removeTag: 'DELETE FROM millrace_tag WHERE queue = ? AND tag = ? AND seq = ?',
  removeBody: 'DELETE FROM millrace_body WHERE seq = ?',
  removeLogs: 'DELETE FROM millrace_log WHERE job = ?',
  removeSteps: 'DELETE FROM millrace_step WHERE job = ?',
  removeFailures: 'DELETE FROM millrace_failure WHERE job = ?',
  removeEdges: 'DELETE FROM millrace_edge WHERE dependent = ?',
  addFailure: 'INSERT INTO millrace_failure (job, fence, attempt, at, error) VALUES (?, ?, ?, ?, ?)',
  dropFailures: 'DELETE FROM millrace_failure WHERE job = ? AND fence < ?',
  failuresOf: 'SELECT fence, attempt, at, error FROM millrace_failure WHERE job = ? ORDER BY fence',
  /** Failed attempts without their errors. */
  failuresIn: `SELECT fence, attempt, at, '{}' AS error FROM millrace_failure WHERE job = ? ORDER BY fence`,
  lastLog: 'SELECT coalesce(max(n), 0) FROM millrace_log WHERE job = ?',
  dropLogs: 'DELETE FROM millrace_log WHERE job = ? AND n <= ?',
  addLog: 'INSERT INTO millrace_log (job, n, at, attempt, line) VALUES (?, ?, ?, ?, ?)',
  stepsOf: 'SELECT n, name, result, ran, at FROM millrace_step WHERE job = ? AND n > ? ORDER BY n LIMIT ?',
  addStep: `INSERT INTO millrace_step (job, n, name, result, ran, at)
    VALUES (?1, (SELECT coalesce(max(n), 0) + 1 FROM millrace_step WHERE job = ?1), ?2, ?3, ?4, ?5)
    ON CONFLICT (job, name) DO UPDATE SET result = excluded.result, ran = excluded.ran, at = excluded.at`,
  logsOf: 'SELECT n, at, attempt, line FROM millrace_log WHERE job = ? AND n > ? ORDER BY n LIMIT ?',

  // Claims: the head of a lane after a position, and the updates that claim jobs.
  laneHead: `${HEAD}
    FROM millrace_job j WHERE j.lane = ?1 AND j.state = 'waiting' AND j.kind = 'job' AND (j.priority, j.ord) > (?2, ?3)
    AND ${unexpired('?5')} ORDER BY j.priority, j.ord LIMIT ?4`,
  /** The first and the last waiting job of a lane, expired or not. */
  laneStart: `SELECT j.seq FROM millrace_job j WHERE j.lane = ?1 AND j.state = 'waiting' AND j.kind = 'job'
    AND (j.priority, j.ord, j.seq) > (?2, ?3, ?4) ORDER BY j.priority, j.ord, j.seq LIMIT 1`,
  laneEnd: `SELECT j.priority, j.ord, j.seq FROM millrace_job j WHERE j.lane = ? AND j.state = 'waiting' AND j.kind = 'job'
    ORDER BY j.priority DESC, j.ord DESC, j.seq DESC LIMIT 1`,
  /** The head of a lane in fair order, where orders may be equal. */
  sharedHead: `${HEAD}, j.grp FROM millrace_job j WHERE j.lane = ?1 AND j.state = 'waiting' AND j.kind = 'job'
    AND (j.priority, j.ord, j.seq) > (?2, ?3, ?4) AND ${unexpired('?6')} ORDER BY j.priority, j.ord, j.seq LIMIT ?5`,
  /** The head of one group in a lane. */
  groupHead: `${HEAD}, j.grp FROM millrace_job j WHERE j.queue = ?1 AND j.grp = ?2 AND j.lane = ?3
    AND j.state = 'waiting' AND j.kind = 'job' AND (j.priority, j.ord, j.seq) > (?4, ?5, ?6)
    AND ${unexpired('?8')} ORDER BY j.priority, j.ord, j.seq LIMIT ?7`,
  claimMany: `${CLAIM} seq IN (SELECT value FROM json_each(?5))`,
  claimRange: `${CLAIM} seq BETWEEN ?5 AND ?6`,

  // Groups: turns, leases, backlogs, and tokens of rates.
  turn: `SELECT n FROM millrace_counter WHERE kind = 'turn' AND of = ? AND what = ?`,
  setTurn: `INSERT INTO millrace_counter (kind, of, what, n) VALUES ('turn', ?1, ?2, ?3) ON CONFLICT DO UPDATE SET n = ?3`,
  turnsAfter: `SELECT what FROM millrace_counter WHERE kind = 'turn' AND of = ? AND what > ? ORDER BY what LIMIT ?`,
  dropTurn: `DELETE FROM millrace_counter WHERE kind = 'turn' AND of = ? AND what = ?`,
  /** Whether a job with a group waits within a priority, or may return to its old order there. */
  needsTurn: `SELECT EXISTS (SELECT 1 FROM millrace_lane l JOIN millrace_job j ON j.lane = l.id AND j.priority = ?2
      AND j.state = 'waiting' AND j.kind = 'job' WHERE l.queue = ?1 AND l.shared)
    OR EXISTS (SELECT 1 FROM millrace_job WHERE queue = ?1 AND grp IS NOT NULL AND state = 'active' AND priority = ?2) AS goes`,
  /** For each group in a list, the highest turn of its waiting jobs within a priority, found lane by lane. */
  lastTurns: `SELECT g.value, (
      WITH RECURSIVE lanes (lane) AS (
        SELECT min(lane) FROM millrace_job WHERE queue = ?1 AND grp = g.value AND state = 'waiting' AND kind = 'job'
        UNION ALL
        SELECT (SELECT min(j.lane) FROM millrace_job j WHERE j.queue = ?1 AND j.grp = g.value AND j.state = 'waiting'
          AND j.kind = 'job' AND j.lane > lanes.lane) FROM lanes WHERE lanes.lane IS NOT NULL)
      SELECT max((SELECT j.ord FROM millrace_job j WHERE j.queue = ?1 AND j.grp = g.value AND j.lane = lanes.lane
        AND j.priority = ?2 AND j.state = 'waiting' AND j.kind = 'job' ORDER BY j.ord DESC LIMIT 1))
      FROM lanes WHERE lanes.lane IS NOT NULL) AS last
    FROM json_each(?3) g`,
  /** For each group, its first waiting job in a lane after a position, found group by group, however many jobs each has. */
  groupHeads: `WITH RECURSIVE groups (grp) AS (
      SELECT min(grp) FROM millrace_job WHERE queue = ?1 AND grp IS NOT NULL AND state = 'waiting' AND kind = 'job'
      UNION ALL
      SELECT (SELECT min(j.grp) FROM millrace_job j WHERE j.queue = ?1 AND j.grp > groups.grp AND j.state = 'waiting'
        AND j.kind = 'job') FROM groups WHERE groups.grp IS NOT NULL)
    SELECT groups.grp, first.priority, first.ord, first.seq FROM groups JOIN millrace_job first ON first.seq =
      (SELECT j.seq FROM millrace_job j WHERE j.queue = ?1 AND j.grp = groups.grp AND j.lane = ?2 AND j.state = 'waiting'
        AND j.kind = 'job' AND (j.priority, j.ord, j.seq) > (?3, ?4, ?5) AND ${unexpired('?6')}
        ORDER BY j.priority, j.ord, j.seq LIMIT 1)`,
  groupLeases: `SELECT grp, count(*) FROM millrace_job WHERE queue = ? AND grp IS NOT NULL AND state = 'active' GROUP BY grp`,
  groupOrphans: `SELECT o.grp, count(*) FROM millrace_orphan o JOIN millrace_lane l ON l.id = o.lane
    WHERE o.grp IS NOT NULL AND l.queue = ? GROUP BY o.grp`,
  groupBacklog: `SELECT (SELECT count(*) FROM millrace_job WHERE queue = ?1 AND grp = ?2 AND state = 'waiting' AND kind = 'job')
    + (SELECT count(*) FROM millrace_job WHERE queue = ?1 AND grp = ?2 AND ${RARE} AND state IN ('delayed', 'waiting-children') AND kind = 'job')`,
  oldestOfGroup: `SELECT min(seq) FROM (
    SELECT min(seq) AS seq FROM millrace_job WHERE queue = ?1 AND grp = ?2 AND state = 'waiting' AND kind = 'job'
    UNION ALL SELECT min(seq) FROM millrace_job WHERE queue = ?1 AND grp = ?2 AND ${RARE} AND state = 'delayed' AND kind = 'job'
    UNION ALL SELECT min(seq) FROM millrace_job WHERE queue = ?1 AND grp = ?2 AND ${RARE} AND state = 'waiting-children' AND kind = 'job')`,
  rate: `SELECT receipt FROM millrace_counter WHERE kind = 'rate' AND of = ? AND what = ?`,
  setRate: `INSERT INTO millrace_counter (kind, of, what, n, at, receipt) VALUES ('rate', ?1, ?2, 0, ?3, ?4)
    ON CONFLICT DO UPDATE SET at = ?3, receipt = ?4`,
  ratesAfter: `SELECT what, at FROM millrace_counter WHERE kind = 'rate' AND of = ?1 AND what > ?2 ORDER BY what LIMIT ?3`,
  dropRate: `DELETE FROM millrace_counter WHERE kind = 'rate' AND of = ? AND what = ?`,

  // Chains and edges.
  chainJobs: `SELECT seq, chain_index, state FROM millrace_job WHERE chain = ?1
    UNION ALL SELECT seq, chain_index, state FROM millrace_job WHERE id = ?1 AND chain IS NULL`,
  endOf: 'SELECT result, error FROM millrace_job WHERE seq = ?',
  chainOf:
    'SELECT coalesce(j.chain, j.id), l.name FROM millrace_job j JOIN millrace_lane l ON l.id = j.lane WHERE j.id = ?',
  /** Whether a chain has other jobs besides one, or that job has children. */
  hasRelatives: `SELECT 1 FROM millrace_job WHERE chain = ?1 AND id <> ?2
    UNION ALL SELECT 1 FROM millrace_job WHERE id = ?1 AND ?1 <> ?2 UNION ALL SELECT 1 FROM millrace_job WHERE parent = ?2 LIMIT 1`,
  /** Whether the end of any chain may affect a dependent. */
  anyOpenEdge: `SELECT 1 FROM millrace_edge WHERE state <> 'ended' LIMIT 1`,
  openEdgesOn: `SELECT e.dependent, e.position, e.state, j.pending, j.state AS job_state FROM millrace_edge e JOIN millrace_job j ON j.seq = e.dependent
    WHERE e.chain = ? AND e.state <> 'ended' ORDER BY e.dependent`,
  addEdge: `INSERT INTO millrace_edge (dependent, position, chain, name, policy, state, result, error)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
  setEdge: 'UPDATE millrace_edge SET state = ?, result = ?, error = ? WHERE dependent = ? AND position = ?',
  anyBroken: `SELECT 1 FROM millrace_edge WHERE dependent = ? AND state = 'broken' LIMIT 1`,
  /** Counts down the dependencies of a job that still waits for others. */
  countDown: 'UPDATE millrace_job SET pending = pending - ?2 WHERE seq = ?1',
  /** Open edges to many chains, in the order of the chains; and whether any of these chains has more than one job. */
  openEdgesOnAll: `SELECT e.dependent, e.state, j.pending, j.state AS job_state FROM json_each(?) c
    CROSS JOIN millrace_edge e ON e.chain = c.value AND e.state <> 'ended' CROSS JOIN millrace_job j ON j.seq = e.dependent
    ORDER BY c.key, e.dependent`,
  anyContinued: `SELECT 1 FROM json_each(?) c CROSS JOIN millrace_job j ON j.chain = c.value LIMIT 1`,
  endEdges: `UPDATE millrace_edge SET state = 'ended', result = (SELECT j.result FROM millrace_job j WHERE j.id = millrace_edge.chain)
    WHERE chain IN (SELECT value FROM json_each(?)) AND state <> 'ended'`,
  closeBroken: `UPDATE millrace_edge SET state = 'closed' WHERE dependent = ? AND state = 'broken'`,
  badEdgesOf: `SELECT position, chain, name, policy, state FROM millrace_edge WHERE dependent = ? AND state IN ('broken', 'closed')
    ORDER BY position`,
  chainsOf: 'SELECT chain FROM millrace_edge WHERE dependent = ? ORDER BY position',
  /** Edges after a position, with and without their outcomes. */
  edgesAfter:
    'SELECT position, chain, name, policy, state, result, error FROM millrace_edge WHERE dependent = ? AND position > ? ORDER BY position LIMIT ?',
  linksAfter:
    'SELECT position, chain, name, policy, state, NULL AS result, NULL AS error FROM millrace_edge WHERE dependent = ? AND position > ? ORDER BY position LIMIT ?',
  edgesOn: `SELECT j.id, e.name, e.policy, e.state, NULL AS result, NULL AS error FROM millrace_edge e JOIN millrace_job j ON j.seq = e.dependent
    WHERE e.chain = ?1 ORDER BY e.dependent LIMIT ?2`,

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
  addOrphan: 'INSERT INTO millrace_orphan (id, fence, lane, until, grp, worker) VALUES (?, ?, ?, ?, ?, ?)',
  orphansOf: `SELECT id, fence FROM millrace_orphan WHERE worker IN (SELECT value FROM json_each(?1)) LIMIT ${REVOKED_LISTED}`,
  dropOrphan: 'DELETE FROM millrace_orphan WHERE id = ? AND fence = ?',
  orphansOver: 'SELECT id, fence, lane FROM millrace_orphan WHERE until <= ?',
  cell: 'SELECT key, value, version, at FROM millrace_cell WHERE key = ?',
  cellsUnder:
    'SELECT key, value, version, at FROM millrace_cell WHERE key >= ?1 AND key > ?2 AND substr(key, 1, length(?1)) = ?1 ORDER BY key LIMIT ?3',
  putCell: `INSERT INTO millrace_cell (key, value, version, at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET value = ?2, version = ?3, at = ?4`,
  dropCell: 'DELETE FROM millrace_cell WHERE key = ?',
  writer: `SELECT n FROM millrace_counter WHERE kind = 'writer' AND of = 0 AND what = ?`,
  receipt: `SELECT receipt FROM millrace_counter WHERE kind = 'writer' AND of = 0 AND what = ?`,
  addWriter: `INSERT INTO millrace_counter (kind, of, what, n, at, receipt) VALUES ('writer', 0, ?, ?, ?, ?)`,
  setWriter: `UPDATE millrace_counter SET n = ?2, at = ?3, receipt = ?4 WHERE kind = 'writer' AND of = 0 AND what = ?1`,
  /** Forgets writers that are idle for a day; beyond a thousand writers, those that are idle for ten minutes. */
  forgetWriters: `DELETE FROM millrace_counter WHERE kind = 'writer' AND of = 0 AND at < ?1
    AND (at < ?2 OR (SELECT count(*) FROM millrace_counter WHERE kind = 'writer' AND of = 0) > 1000)`,

  // Watchers.
  peers: 'SELECT id, until, events_until FROM millrace_peer',
  setPeer: `INSERT INTO millrace_peer (id, until, events_until) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET until = ?2, events_until = ?3`,
  dropPeers: 'DELETE FROM millrace_peer WHERE until <= ?1 AND events_until <= ?1',
  addNotice: 'INSERT INTO millrace_notice (n, origin, body) VALUES (?, ?, ?)',
  dropNotices: 'DELETE FROM millrace_notice WHERE n <= ?',
  noticesAfter: 'SELECT n, origin, body FROM millrace_notice WHERE n > ? ORDER BY n LIMIT ?',
  addEvents: 'INSERT INTO millrace_event (last, start, body) VALUES (?, ?, ?)',
  dropEvents: 'DELETE FROM millrace_event WHERE last <= ?',
  eventsAfter: 'SELECT last, body FROM millrace_event WHERE last > ? ORDER BY last LIMIT 1',
  eventRowAfter: 'SELECT last, start FROM millrace_event WHERE last > ? ORDER BY last LIMIT 1',

  // Failing jobs by the fingerprint of their error: each next one, how many there are, and the first and the last added.
  nextFingerprint: `SELECT ${FINGERPRINT} FROM ${FAILING} AND ${FINGERPRINT} > ?2 ORDER BY ${FINGERPRINT} LIMIT 1`,
  countFingerprint: `SELECT count(*) FROM (SELECT 1 FROM ${FAILING} AND ${FINGERPRINT} = ?2 LIMIT ?3)`,
  oldestFailing: `SELECT j.seq FROM ${FAILING} AND ${FINGERPRINT} = ?2 ORDER BY j.seq LIMIT 1`,
  newestFailing: `SELECT j.seq FROM ${FAILING} AND ${FINGERPRINT} = ?2 ORDER BY j.seq DESC LIMIT 1`,

  // Due jobs: active ones by their lease, and all others.
  dueUntil: `SELECT seq, due_at, id FROM millrace_job WHERE queue = ?1 AND due_at IS NOT NULL AND state <> 'active'
    AND due_at <= ?2 ORDER BY due_at, seq LIMIT ?3`,
  dueAfter: `SELECT due_at, id FROM millrace_job WHERE queue = ?1 AND due_at IS NOT NULL AND state <> 'active'
    AND due_at > ?2 ORDER BY due_at, seq LIMIT ?3`,
  leasedUntil: `SELECT seq, due_at, id FROM millrace_job WHERE queue = ?1 AND state = 'active' AND due_at <= ?2
    ORDER BY due_at, seq LIMIT ?3`,
  leasedAfter: `SELECT due_at, id FROM millrace_job WHERE queue = ?1 AND state = 'active' AND due_at > ?2
    ORDER BY due_at, seq LIMIT ?3`,
} as const

/**
 * Which index a listing of jobs reads: the jobs of a lane in a state, the active jobs of a queue, its schedules, a
 * chain or its first job, the children of a parent, or a group, with or without a state.
 */
export interface Listing {
  readonly by: JobState | 'all' | 'schedule' | 'chain' | 'id' | 'parent' | 'group' | `group ${JobState}`
  readonly order: 'oldest' | 'newest'
}

const ofGroup = 'j.queue = ?1 AND j.grp = ?10'
const rareInGroup = (state: JobState): string => `${ofGroup} AND j.${RARE} AND j.state = '${state}'`

const listedBy: Readonly<Record<Exclude<Listing['by'], Exclude<JobState, 'active'>>, string>> = {
  active: `j.queue = ?1 AND j.state = 'active'`, // few, and found by their leases
  all: '?1 IS NULL', // in the order of the table itself
  schedule: `j.queue = ?1 AND j.kind = 'schedule'`,
  chain: 'j.chain = ?1',
  id: 'j.id = ?1 AND j.chain IS NULL',
  parent: 'j.parent = ?1',
  group: ofGroup,
  'group waiting': `${ofGroup} AND j.state = 'waiting' AND j.kind = 'job'`,
  'group active': `${ofGroup} AND j.state = 'active'`,
  'group completed': `${ofGroup} AND j.state = 'completed'`,
  'group delayed': rareInGroup('delayed'),
  'group waiting-children': rareInGroup('waiting-children'),
  'group failed': rareInGroup('failed'),
  'group cancelled': rareInGroup('cancelled'),
}

/**
 * Selects the numbers of jobs in order, after a number. The other filters of a query are checked row by row: ?4 states,
 * ?5 names, ?6 a kind, ?7 a queue by name, ?8 a chain, ?9 a parent, ?10 a group, each null if the query has none.
 */
export function listing({ by, order }: Listing): string {
  const where =
    by in listedBy ? listedBy[by as keyof typeof listedBy] : `j.lane = ?1 AND j.state = '${by}' AND j.state <> 'active'`
  const after = order === 'newest' ? 'j.seq < ?2' : 'j.seq > ?2'
  // Sorting the waiting jobs is faster than finding them among all that have finished.
  const from = by === 'group waiting' ? 'millrace_job j INDEXED BY millrace_job_turn' : 'millrace_job j'
  return `SELECT j.seq FROM ${from} WHERE ${where} AND ${after}
    AND (?4 IS NULL OR j.state IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR (SELECT l.name FROM millrace_lane l WHERE l.id = j.lane) IN (SELECT value FROM json_each(?5)))
    AND (?6 IS NULL OR j.kind = ?6)
    AND (?7 IS NULL OR j.queue = (SELECT id FROM millrace_queue WHERE name = ?7))
    AND (?8 IS NULL OR coalesce(j.chain, j.id) = ?8)
    AND (?9 IS NULL OR j.parent = ?9)
    AND (?10 IS NULL OR j.grp = ?10)
    ORDER BY j.seq ${order === 'newest' ? 'DESC' : 'ASC'} LIMIT ?3`
}
