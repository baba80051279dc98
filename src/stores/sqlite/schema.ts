// stores/sqlite/schema.ts: the current schema, and the migrations from older versions.

/** The version of `schema`; goes up by one with every migration. */
export const VERSION = 4

/**
 * All tables of Millrace in a file. Names start with `millrace_`, so that they can share the file with the tables of a
 * program. Times are milliseconds since 1970. JSON is text.
 */
export const schema = `
-- Queues, and the lanes in them: one for each name and version, and one more for those of its jobs that have a group.
-- Neither is ever removed, so their numbers can be kept.
CREATE TABLE millrace_queue (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);
CREATE TABLE millrace_lane (
  id      INTEGER PRIMARY KEY,
  queue   INTEGER NOT NULL,
  name    TEXT NOT NULL,
  version INTEGER NOT NULL,
  shared  INTEGER NOT NULL DEFAULT 0,        -- of jobs with a group
  UNIQUE (queue, name, version, shared)
);

-- Numbers kept so that nobody has to count: 'store' (number, fence, event, bytes, notice), 'lane' (jobs by state, and the leases
-- that lost their job), 'queue' (what has happened since it was made), 'turn' (what its groups have come to, by priority),
-- 'rate' (what was taken of one, as JSON, and when that is over), and 'writer': the last batch of each, with when it came
-- and its receipt, so that one sent again is answered and not applied. One tree, so that a commit writes one page.
CREATE TABLE millrace_counter (
  kind    TEXT NOT NULL,
  of      INTEGER NOT NULL,                  -- the lane or queue
  what    TEXT NOT NULL,
  n       INTEGER NOT NULL,
  at      INTEGER,
  receipt TEXT,
  PRIMARY KEY (kind, of, what)
) WITHOUT ROWID;

-- A job but for its bulk: it is rewritten with every step of its life.
CREATE TABLE millrace_job (
  seq         INTEGER PRIMARY KEY,           -- the order of insertion
  id          TEXT NOT NULL,
  queue       INTEGER NOT NULL,
  lane        INTEGER NOT NULL,
  kind        TEXT NOT NULL DEFAULT 'job',   -- job, schedule, signal
  state       TEXT NOT NULL,                 -- waiting, delayed, waiting-children, active, completed, failed, cancelled
  priority    INTEGER NOT NULL,              -- lower goes first
  ord         INTEGER NOT NULL,              -- place within a priority; below zero for last in, first out; of a group: its turn
  fence       INTEGER NOT NULL,              -- up by one with every move
  attempt     INTEGER NOT NULL DEFAULT 0,
  attempts    INTEGER,                       -- empty: no bound
  worker      TEXT,
  run_at      INTEGER,
  lease_until INTEGER,
  broken_at   INTEGER,                       -- a dependency ended badly, and nobody has decided
  stale_at    INTEGER,
  stale       INTEGER NOT NULL DEFAULT 0,
  delete_at   INTEGER,
  due_at      INTEGER,                       -- when it next wants attention
  chain       TEXT,                          -- the id of its chain's first job; empty: its own
  chain_index INTEGER NOT NULL DEFAULT 0,
  parent      TEXT,
  pending     INTEGER NOT NULL DEFAULT 0,    -- dependencies that are open or broken
  stalls      INTEGER NOT NULL DEFAULT 0,
  ahead       INTEGER NOT NULL DEFAULT 0,
  errors      INTEGER NOT NULL DEFAULT 0,    -- rows in millrace_failure
  touched     INTEGER NOT NULL DEFAULT 0,    -- something has happened to it besides being added and claimed
  bulky       INTEGER NOT NULL DEFAULT 0,    -- its data is in millrace_body
  data        TEXT,
  settings    TEXT,                          -- backoff, timeout, keep, extras
  dedup       TEXT,
  progress    TEXT,
  result      TEXT,
  error       TEXT,
  created_at  INTEGER NOT NULL,
  started_at  INTEGER,
  finished_at INTEGER,
  grp         TEXT,                          -- whose it is, among those who take turns
  memo        TEXT                           -- what was written down about its phases and deliveries
);
CREATE UNIQUE INDEX millrace_job_id ON millrace_job (id);
CREATE INDEX millrace_job_ready ON millrace_job (lane, priority, ord) WHERE state = 'waiting' AND kind = 'job';
CREATE INDEX millrace_job_list ON millrace_job (lane, state) WHERE state <> 'active';
CREATE INDEX millrace_job_due ON millrace_job (queue, due_at) WHERE due_at IS NOT NULL AND state <> 'active';
CREATE INDEX millrace_job_leased ON millrace_job (queue, due_at) WHERE state = 'active';
CREATE INDEX millrace_job_chain ON millrace_job (chain) WHERE chain IS NOT NULL;
CREATE INDEX millrace_job_parent ON millrace_job (parent) WHERE parent IS NOT NULL;
CREATE INDEX millrace_job_schedule ON millrace_job (queue) WHERE kind = 'schedule';
-- Only jobs with a group are in these: all of them, those that wait by turn, those under way, and those in rarer states.
-- A claim rewrites the second and the third, and the end of most jobs the third, which is small.
CREATE INDEX millrace_job_group ON millrace_job (queue, grp) WHERE grp IS NOT NULL;
CREATE INDEX millrace_job_turn ON millrace_job (queue, grp, lane, priority, ord)
  WHERE grp IS NOT NULL AND (state = 'waiting' AND kind = 'job');
CREATE INDEX millrace_job_group_leased ON millrace_job (queue, grp) WHERE grp IS NOT NULL AND state = 'active';
CREATE INDEX millrace_job_group_rare ON millrace_job (queue, grp, state)
  WHERE grp IS NOT NULL AND state IN ('delayed', 'waiting-children', 'failed', 'cancelled');

-- Data that would make its job's row too heavy to be rewritten.
CREATE TABLE millrace_body (
  seq  INTEGER PRIMARY KEY,
  data TEXT NOT NULL
);

-- Failed attempts, the last fifty of each job.
CREATE TABLE millrace_failure (
  job     INTEGER NOT NULL,
  fence   INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  error   TEXT NOT NULL,
  PRIMARY KEY (job, fence)
) WITHOUT ROWID;

CREATE TABLE millrace_log (
  job     INTEGER NOT NULL,
  n       INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  line    TEXT NOT NULL,
  PRIMARY KEY (job, n)
) WITHOUT ROWID;

-- What the steps of handlers came to, in the order in which they first ended.
CREATE TABLE millrace_step (
  job    INTEGER NOT NULL,
  n      INTEGER NOT NULL,
  name   TEXT NOT NULL,
  result TEXT,
  PRIMARY KEY (job, n),
  UNIQUE (job, name)
) WITHOUT ROWID;

-- Who waits for which chain. An edge goes with its dependent, and outlives what it points at.
CREATE TABLE millrace_edge (
  dependent INTEGER NOT NULL,
  place     INTEGER NOT NULL,
  chain     TEXT NOT NULL,
  policy    TEXT NOT NULL,                   -- fail, ignore, remove; with -all behind it: the others are cancelled first
  state     TEXT NOT NULL,                   -- open, ended, broken, closed
  name      TEXT NOT NULL DEFAULT '',        -- of the job that was to be waited for
  result    TEXT,                            -- what the last job of the chain returned
  error     TEXT,                            -- or failed with
  PRIMARY KEY (dependent, place)
) WITHOUT ROWID;
CREATE INDEX millrace_edge_chain ON millrace_edge (chain, dependent);
CREATE INDEX millrace_edge_open ON millrace_edge (chain, dependent) WHERE state <> 'ended';

-- Dedup keys, held until their job has finished or until their window is over.
CREATE TABLE millrace_key (
  key   TEXT PRIMARY KEY,
  job   TEXT NOT NULL,
  until INTEGER
) WITHOUT ROWID;
CREATE INDEX millrace_key_until ON millrace_key (until) WHERE until IS NOT NULL;

-- Leases whose job was taken away; they count against limits until they are given up or over.
CREATE TABLE millrace_orphan (
  id    TEXT NOT NULL,
  fence INTEGER NOT NULL,
  lane  INTEGER NOT NULL,
  until INTEGER NOT NULL,
  grp   TEXT,
  worker TEXT,                               -- who held it
  PRIMARY KEY (id, fence)
) WITHOUT ROWID;
CREATE INDEX millrace_orphan_until ON millrace_orphan (until);
CREATE INDEX millrace_orphan_worker ON millrace_orphan (worker);

-- Versioned settings: pauses, limits, the registry of workers.
CREATE TABLE millrace_cell (
  key     TEXT PRIMARY KEY,
  value   TEXT NOT NULL,
  version INTEGER NOT NULL,
  at      INTEGER NOT NULL
) WITHOUT ROWID;

-- Handles on this file that watch it, for as long as they are there; and until when events are to be recorded for them.
CREATE TABLE millrace_peer (
  id           TEXT PRIMARY KEY,
  until        INTEGER NOT NULL,
  events_until INTEGER NOT NULL
) WITHOUT ROWID;

-- What commits had to tell: hints for other handles, and a bounded run of events. A row for each commit, or
-- several where its events are large.
CREATE TABLE millrace_notice (
  n      INTEGER PRIMARY KEY,
  origin TEXT NOT NULL,
  body   TEXT NOT NULL
);
CREATE TABLE millrace_event (
  last  INTEGER PRIMARY KEY,                 -- the number of its last event
  start INTEGER NOT NULL,                    -- the size of all events before it
  body  TEXT NOT NULL
);

-- For people: every job with its names in words.
CREATE VIEW millrace_jobs AS
  SELECT j.seq, j.id, q.name AS queue, l.name AS name, l.version AS version, j.kind, j.state, j.priority, j.grp AS "group",
         j.attempt, j.attempts,
         coalesce(b.data, j.data) AS data, j.result, j.error, j.progress, j.worker,
         datetime(j.created_at / 1000, 'unixepoch') AS created, datetime(j.run_at / 1000, 'unixepoch') AS runs,
         datetime(j.started_at / 1000, 'unixepoch') AS started, datetime(j.finished_at / 1000, 'unixepoch') AS finished
  FROM millrace_job j
  JOIN millrace_queue q ON q.id = j.queue
  JOIN millrace_lane l ON l.id = j.lane
  LEFT JOIN millrace_body b ON b.seq = j.seq;
`

/** Migrations from one version to the next, oldest first. */
export const steps: readonly { readonly from: number; readonly sql: string }[] = [
  {
    // Jobs were listed by queue and state, whatever their names; there were no groups; edges had neither
    // the name nor the outcome of their chains.
    from: 1,
    sql: `
DROP VIEW millrace_jobs;
DROP INDEX millrace_job_list;
CREATE INDEX millrace_job_list ON millrace_job (lane, state) WHERE state <> 'active';
CREATE TABLE millrace_lane_before AS SELECT id, queue, name, version FROM millrace_lane;
DROP TABLE millrace_lane;
CREATE TABLE millrace_lane (
  id      INTEGER PRIMARY KEY,
  queue   INTEGER NOT NULL,
  name    TEXT NOT NULL,
  version INTEGER NOT NULL,
  shared  INTEGER NOT NULL DEFAULT 0,
  UNIQUE (queue, name, version, shared)
);
INSERT INTO millrace_lane (id, queue, name, version) SELECT id, queue, name, version FROM millrace_lane_before;
DROP TABLE millrace_lane_before;
ALTER TABLE millrace_job ADD COLUMN grp TEXT;
ALTER TABLE millrace_orphan ADD COLUMN grp TEXT;
CREATE INDEX millrace_job_group ON millrace_job (queue, grp) WHERE grp IS NOT NULL;
CREATE INDEX millrace_job_turn ON millrace_job (queue, grp, lane, priority, ord)
  WHERE grp IS NOT NULL AND (state = 'waiting' AND kind = 'job');
CREATE INDEX millrace_job_group_leased ON millrace_job (queue, grp) WHERE grp IS NOT NULL AND state = 'active';
CREATE INDEX millrace_job_group_rare ON millrace_job (queue, grp, state)
  WHERE grp IS NOT NULL AND state IN ('delayed', 'waiting-children', 'failed', 'cancelled');
CREATE VIEW millrace_jobs AS
  SELECT j.seq, j.id, q.name AS queue, l.name AS name, l.version AS version, j.kind, j.state, j.priority, j.grp AS "group",
         j.attempt, j.attempts,
         coalesce(b.data, j.data) AS data, j.result, j.error, j.progress, j.worker,
         datetime(j.created_at / 1000, 'unixepoch') AS created, datetime(j.run_at / 1000, 'unixepoch') AS runs,
         datetime(j.started_at / 1000, 'unixepoch') AS started, datetime(j.finished_at / 1000, 'unixepoch') AS finished
  FROM millrace_job j
  JOIN millrace_queue q ON q.id = j.queue
  JOIN millrace_lane l ON l.id = j.lane
  LEFT JOIN millrace_body b ON b.seq = j.seq;
ALTER TABLE millrace_edge ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE millrace_edge ADD COLUMN result TEXT;
ALTER TABLE millrace_edge ADD COLUMN error TEXT;
DROP INDEX millrace_edge_open;
CREATE INDEX millrace_edge_open ON millrace_edge (chain, dependent) WHERE state <> 'ended';
UPDATE millrace_edge SET
  name = coalesce((SELECT l.name FROM millrace_job j JOIN millrace_lane l ON l.id = j.lane WHERE j.id = millrace_edge.chain), ''),
  result = CASE WHEN state = 'ended' THEN (SELECT j.result FROM millrace_job j WHERE j.id = millrace_edge.chain OR j.chain = millrace_edge.chain
    ORDER BY j.chain_index DESC, j.seq DESC LIMIT 1) END,
  error = CASE WHEN state IN ('broken', 'closed') THEN (SELECT json_remove(j.error, '$.stack') FROM millrace_job j
    WHERE j.id = millrace_edge.chain OR j.chain = millrace_edge.chain ORDER BY j.chain_index DESC, j.seq DESC LIMIT 1) END;
`,
  },
  {
    from: 2, // there were no phases, steps and deliveries
    sql: `
ALTER TABLE millrace_job ADD COLUMN memo TEXT;
CREATE TABLE millrace_step (
  job    INTEGER NOT NULL,
  n      INTEGER NOT NULL,
  name   TEXT NOT NULL,
  result TEXT,
  PRIMARY KEY (job, n),
  UNIQUE (job, name)
) WITHOUT ROWID;
`,
  },
  {
    from: 3, // events were bounded in number only; orphaned leases did not record their worker
    sql: `
CREATE TABLE millrace_event_before AS SELECT last, body FROM millrace_event;
DROP TABLE millrace_event;
CREATE TABLE millrace_event (
  last  INTEGER PRIMARY KEY,
  start INTEGER NOT NULL,
  body  TEXT NOT NULL
);
INSERT INTO millrace_event (last, start, body)
  SELECT last, sum(length(body)) OVER (ORDER BY last) - length(body), body FROM millrace_event_before;
DROP TABLE millrace_event_before;
INSERT INTO millrace_counter (kind, of, what, n) SELECT 'store', 0, 'bytes', coalesce(sum(length(body)), 0) FROM millrace_event;
ALTER TABLE millrace_orphan ADD COLUMN worker TEXT;
CREATE INDEX millrace_orphan_worker ON millrace_orphan (worker);
`,
  },
]
