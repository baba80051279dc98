// stores/sqlite/schema.ts: the schema of this version, and the migrations from older ones. docs/upgrades.md states what they keep.
import type { Schema } from './file/migrate.js'

/** The version of this schema; goes up by one with every migration. */
const VERSION = 1

/** The oldest version whose statements still work on these tables: its processes keep working after the migration. */
const OLDEST = 1

/**
 * All tables of Millrace in a file. Names start with `millrace_`, so that they can share the file with the tables of a
 * program. Times are milliseconds since 1970. JSON is text.
 */
const sql = `
-- One row: the version of these tables, and the oldest version of Millrace's statements that may use them.
CREATE TABLE millrace_schema (
  version INTEGER NOT NULL,
  oldest  INTEGER NOT NULL
) STRICT;
INSERT INTO millrace_schema (version, oldest) VALUES (${VERSION}, ${OLDEST});

-- Queues, and the lanes in them: one for each name and version, and another one for those of its jobs that have a group.
-- Neither is ever removed, so that processes can cache their ids.
CREATE TABLE millrace_queue (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);
CREATE TABLE millrace_lane (
  id      INTEGER PRIMARY KEY,
  queue   INTEGER NOT NULL,
  name    TEXT NOT NULL,
  version INTEGER NOT NULL,
  shared  INTEGER NOT NULL DEFAULT 0,        -- for jobs with a group: their order is a turn
  UNIQUE (queue, name, version, shared)
);

-- Counters, so that reads need not count rows. Kinds: 'store' (number, fence, event, bytes, floor, unrecorded, notice), 'lane'
-- (jobs by state, and orphaned leases), 'queue' (totals since it was created), 'turn' (the current turn of its groups, by
-- priority), 'rate' (the claims that count, as JSON, and when the last one expires) and 'writer' (the last batch of each
-- writer, its time and its receipt, for replays). One table, so that a commit writes one page.
CREATE TABLE millrace_counter (
  kind    TEXT NOT NULL,
  of      INTEGER NOT NULL,                  -- the lane or queue; 0 for 'store' and 'writer'
  what    TEXT NOT NULL,
  n       INTEGER NOT NULL,
  at      INTEGER,
  receipt TEXT,                              -- of a writer; of a rate: its claims
  PRIMARY KEY (kind, of, what)
) WITHOUT ROWID;

-- Jobs. A row is rewritten with every change, so large data is kept elsewhere.
CREATE TABLE millrace_job (
  seq         INTEGER PRIMARY KEY,           -- the order of insertion
  id          TEXT NOT NULL,
  queue       INTEGER NOT NULL,
  lane        INTEGER NOT NULL,
  kind        TEXT NOT NULL DEFAULT 'job',   -- job, schedule, signal
  state       TEXT NOT NULL,                 -- waiting, delayed, waiting-children, active, completed, failed, cancelled
  priority    INTEGER NOT NULL,              -- lower goes first
  ord         INTEGER NOT NULL,              -- order within a priority; negative for last in, first out; with a group, its turn
  fence       INTEGER NOT NULL,              -- incremented with every move
  attempt     INTEGER NOT NULL DEFAULT 0,
  attempts    INTEGER,                       -- NULL: unlimited
  worker      TEXT,
  run_at      INTEGER,
  lease_until INTEGER,
  broken_at   INTEGER,                       -- a dependency failed or was cancelled, and this is not handled yet
  stale_at    INTEGER,
  stale       INTEGER NOT NULL DEFAULT 0,
  delete_at   INTEGER,
  due_at      INTEGER,                       -- when it is next due
  chain       TEXT,                          -- the id of the first job of its chain; NULL: its own
  chain_index INTEGER NOT NULL DEFAULT 0,
  parent      TEXT,
  pending     INTEGER NOT NULL DEFAULT 0,    -- dependencies that are open or broken
  stalls      INTEGER NOT NULL DEFAULT 0,
  ahead       INTEGER NOT NULL DEFAULT 0,    -- leased before a slot was free
  errors      INTEGER NOT NULL DEFAULT 0,    -- rows in millrace_failure
  touched     INTEGER NOT NULL DEFAULT 0,    -- it has changed in another way than being added and claimed
  bulky       INTEGER NOT NULL DEFAULT 0,    -- its data is in millrace_body
  data        TEXT,
  settings    TEXT,                          -- backoff, timeout, keep, extras with tags
  dedup       TEXT,
  progress    TEXT,
  result      TEXT,
  error       TEXT,
  created_at  INTEGER NOT NULL,
  started_at  INTEGER,
  finished_at INTEGER,
  grp         TEXT,                          -- the group: the tenant or account that the job belongs to
  memo        TEXT,                          -- state of phases and deliveries
  expires_at  INTEGER,                       -- when it is cancelled unless it was started before
  history     TEXT                           -- attempts that ended without an error, as JSON
);
CREATE UNIQUE INDEX millrace_job_id ON millrace_job (id);
CREATE INDEX millrace_job_ready ON millrace_job (lane, priority, ord) WHERE state = 'waiting' AND kind = 'job';
CREATE INDEX millrace_job_list ON millrace_job (lane, state) WHERE state <> 'active';
CREATE INDEX millrace_job_due ON millrace_job (queue, due_at) WHERE due_at IS NOT NULL AND state <> 'active';
CREATE INDEX millrace_job_leased ON millrace_job (queue, due_at) WHERE state = 'active';
CREATE INDEX millrace_job_chain ON millrace_job (chain) WHERE chain IS NOT NULL;
CREATE INDEX millrace_job_parent ON millrace_job (parent) WHERE parent IS NOT NULL;
CREATE INDEX millrace_job_schedule ON millrace_job (queue) WHERE kind = 'schedule';
-- Indexes of jobs with a group: all, waiting ones by turn, active ones, and those in rarer states. A claim rewrites the
-- second and the third; most settlements rewrite the third, which is small.
CREATE INDEX millrace_job_group ON millrace_job (queue, grp) WHERE grp IS NOT NULL;
CREATE INDEX millrace_job_turn ON millrace_job (queue, grp, lane, priority, ord)
  WHERE grp IS NOT NULL AND (state = 'waiting' AND kind = 'job');
CREATE INDEX millrace_job_group_leased ON millrace_job (queue, grp) WHERE grp IS NOT NULL AND state = 'active';
CREATE INDEX millrace_job_group_rare ON millrace_job (queue, grp, state)
  WHERE grp IS NOT NULL AND state IN ('delayed', 'waiting-children', 'failed', 'cancelled');

-- Jobs whose last attempt failed, by the cause and by the code of their error; and jobs that failed or were cancelled, by the
-- time of that. Jobs that go well are in none of them.
CREATE INDEX millrace_job_fingerprint ON millrace_job (queue, json_extract(error, '$.fingerprint'))
  WHERE error IS NOT NULL AND state <> 'completed';
CREATE INDEX millrace_job_code ON millrace_job (queue, json_extract(error, '$.code'))
  WHERE error IS NOT NULL AND state <> 'completed';
CREATE INDEX millrace_job_ended ON millrace_job (queue, finished_at) WHERE state IN ('failed', 'cancelled');

-- The tags of jobs, which their settings hold as well. A job without tags has no row here.
CREATE TABLE millrace_tag (
  queue INTEGER NOT NULL,
  tag   TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (queue, tag, seq)
) WITHOUT ROWID;

-- Data that is too large for the row of its job.
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

-- The results of the steps of handlers, in the order in which they first ended.
CREATE TABLE millrace_step (
  job    INTEGER NOT NULL,
  n      INTEGER NOT NULL,
  name   TEXT NOT NULL,
  result TEXT,
  ran    INTEGER,                            -- how many milliseconds it ran
  at     INTEGER,                            -- when it ended
  PRIMARY KEY (job, n),
  UNIQUE (job, name)
) WITHOUT ROWID;

-- The chains that jobs wait for. An edge is deleted with its dependent, and outlives the chain.
CREATE TABLE millrace_edge (
  dependent INTEGER NOT NULL,
  position  INTEGER NOT NULL,                -- its place among the edges of the dependent
  chain     TEXT NOT NULL,
  policy    TEXT NOT NULL,                   -- fail, ignore, remove; with -all: unfinished chains of such edges are cancelled first
  state     TEXT NOT NULL,                   -- open, ended, broken, closed
  name      TEXT NOT NULL DEFAULT '',        -- the name of the job that it waits for
  result    TEXT,                            -- the result of the last job of the chain
  error     TEXT,                            -- or its error
  PRIMARY KEY (dependent, position)
) WITHOUT ROWID;
CREATE INDEX millrace_edge_chain ON millrace_edge (chain, dependent);
CREATE INDEX millrace_edge_open ON millrace_edge (chain, dependent) WHERE state <> 'ended';

-- Dedup keys, kept until their job has finished or until their window has ended.
CREATE TABLE millrace_key (
  key   TEXT PRIMARY KEY,
  job   TEXT NOT NULL,
  until INTEGER
) WITHOUT ROWID;
CREATE INDEX millrace_key_until ON millrace_key (until) WHERE until IS NOT NULL;

-- Revoked leases; they count against limits until their workers release them or they expire.
CREATE TABLE millrace_orphan (
  id     TEXT NOT NULL,
  fence  INTEGER NOT NULL,
  lane   INTEGER NOT NULL,
  until  INTEGER NOT NULL,
  grp    TEXT,
  worker TEXT,                               -- the lease holder
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

-- Handles that watch this file: until when they are present, and until when events are recorded for them.
CREATE TABLE millrace_peer (
  id           TEXT PRIMARY KEY,
  until        INTEGER NOT NULL,
  events_until INTEGER NOT NULL
) WITHOUT ROWID;

-- Hints of commits for other handles, and the ring of events. One row for each commit; several if its events are large.
CREATE TABLE millrace_notice (
  n      INTEGER PRIMARY KEY,
  origin TEXT NOT NULL,
  body   TEXT NOT NULL
);
CREATE TABLE millrace_event (
  last  INTEGER PRIMARY KEY,                 -- the number of its last event
  start INTEGER NOT NULL,                    -- the bytes of all events before it
  body  TEXT NOT NULL
);

-- A view for people: every job with the names of its queue and its job.
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

/** What a store migrates its file to. */
export const schema: Schema = {
  version: VERSION,
  oldest: OLDEST,
  sql,
  steps: [],
}
