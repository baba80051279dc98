// stores/postgres/schema.ts: the tables of this version, and the migrations from older ones. `{S}` stands for the schema name.
// docs/upgrades.md states what migrations keep.

/** The version of this schema and of its functions, whose names end in it; goes up by one with every migration. */
export const VERSION = 1

/** The oldest version whose functions are kept and work on these tables: its processes keep working after the migration. */
export const OLDEST = 1

/**
 * Everything that Millrace stores, in a schema of its own. Times are milliseconds since 1970. JSON is stored as text, so
 * that it reads back exactly as it was written. Names compare by bytes (collation "C"), whatever the database's locale.
 *
 * Of the tables with frequent updates, only `job` has indexes on columns that change, so that updates of the others are HOT
 * and stay in their page. `job` is vacuumed early, since every change of a job leaves a dead row.
 */
export const schema = `
-- The schema may exist already, created for a role that may not create schemas.
do $$ begin
  if to_regnamespace('{S}') is null then create schema {S}; end if;
end $$;

-- One row: the schema version, and a random id that distinguishes this database from others.
create table {S}.meta (
  only_one boolean primary key default true check (only_one),
  version  int not null,
  oldest   int not null,                    -- the oldest version whose functions still exist
  id       uuid not null default gen_random_uuid(),
  event    bigint not null default 0,       -- the number of the last numbered event
  bytes    bigint not null default 0,       -- the bytes of all events up to that one
  floor    bigint not null default 0        -- events up to this one are deleted
);

-- Queues, and the lanes in them: one for each name and version, and another one for those of its jobs that have a group.
-- Neither is ever removed, so that processes can cache their ids.
-- Ids of lanes are random: a failover may lose a lane that processes cache, and its id must not be given to another lane.
-- A claim from a queue with limits locks the queue's row.
create table {S}.queue (
  id   int generated always as identity primary key,
  name text collate "C" not null unique
);
create table {S}.lane (
  id      int generated always as identity primary key,
  queue   int not null,
  name    text collate "C" not null,
  version bigint not null,
  shared  boolean not null default false,   -- for jobs with a group: their order is a turn
  unique (queue, name, version, shared)
);

-- The turn that each queue has reached: the highest claimed turn of its shared lanes, or a lower one, because no claim
-- waits to write it.
create table {S}.turn (
  queue    int not null,
  priority bigint not null,
  reached  bigint not null,
  primary key (queue, priority)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Claims that count against the rate of a queue (''), a name ('n…') or a group ('g…'). A claim locks the queue's row
-- before it writes here.
create table {S}.rate (
  queue int not null,
  scope text collate "C" not null,
  at    bigint[] not null,                  -- the times of claims, and how many at each
  n     bigint[] not null,
  until bigint not null,                    -- when the last one stops counting
  primary key (queue, scope)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create sequence {S}.job_order increment 1024; -- insertion order, and order in a lane; a batch of many jobs also uses the numbers between
create sequence {S}.claim;                  -- numbers the commits that claimed jobs
create sequence {S}.fence minvalue 0 start 0; -- the highest fence of a removed job

-- Columns of fixed length that are never null come first: PostgreSQL finds them without reading the columns before them.
-- Each change of a job adds an entry to the primary key next to its earlier ones: the pages of that index are filled to
-- less than half.
create table {S}.job (
  seq         bigint not null,              -- insertion order
  priority    bigint not null,              -- lower goes first
  ord         bigint not null,              -- order within a priority; negative for last in, first out; with a group, its turn
  fence       bigint not null,              -- incremented with every move
  created_at  bigint not null,
  queue       int not null,
  lane        int not null,
  attempt     int not null default 0,
  chain_index int not null default 0,
  pending     int not null default 0,       -- dependencies that are open or broken
  stalls      int not null default 0,
  stale       boolean not null default false,
  ahead       boolean not null default false,
  touched     boolean not null default false, -- it has changed in another way than being added and claimed
  state       text collate "C" not null,    -- waiting, delayed, waiting-children, active, completed, failed, cancelled
  kind        text collate "C" not null default 'job',  -- job, schedule, signal
  id          text collate "C" constraint job_pkey primary key with (fillfactor = 40),
  attempts    bigint,                       -- null: unlimited
  due_at      bigint,                       -- when it is next due
  lease_until bigint,
  claim       bigint,                       -- the number of the commit that claimed it
  started_at  bigint,
  finished_at bigint,
  worker      text,
  data        text,
  run_at      bigint,
  broken_at   bigint,                       -- a dependency failed or was cancelled, and this is not handled yet
  stale_at    bigint,
  delete_at   bigint,
  chain       text collate "C",             -- the id of the first job of its chain; null: its own
  parent      text collate "C",
  grp         text collate "C",             -- the group: the tenant or account that the job belongs to
  settings    text,                         -- backoff, timeout, keep, extras with tags
  dedup       text,
  progress    text,
  result      text,
  error       text,
  errors      text[],                       -- failed attempts, the last fifty
  memo        text,                         -- state of phases and deliveries
  expires_at  bigint,                       -- when it is cancelled unless it was started before
  history     text                          -- attempts that ended without an error, as JSON
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 1, autovacuum_analyze_scale_factor = 0.1);
-- Waiting jobs in claim order: without a group, by turn, and by group; and a list of each group. The conditions overlap but
-- are written differently, so that the planner uses the index that a statement was written for.
create index job_ready on {S}.job (lane, priority, ord) where state = 'waiting' and kind = 'job' and grp is null;
create index job_turn on {S}.job (lane, priority, ord, seq) where grp is not null and state = 'waiting' and kind = 'job';
create index job_group on {S}.job (lane, grp, priority, ord, seq) where grp is not null and state = 'waiting';
create index job_group_list on {S}.job (queue, grp, state, seq) where grp is not null and (state || '') <> 'active';
create index job_list on {S}.job (lane, state, seq) where state <> 'active';
create index job_due on {S}.job (queue, due_at) where due_at is not null and state <> 'active';
create index job_leased on {S}.job (queue, due_at) where state = 'active';
create index job_chain on {S}.job (chain, seq) where chain is not null;
create index job_parent on {S}.job (parent, seq) where parent is not null;
create index job_schedule on {S}.job (queue, seq) where kind = 'schedule';

-- Jobs whose last attempt failed, by the cause and by the code of their error; and jobs that failed or were cancelled, by the
-- time of that. Jobs that go well are in none of them.
create index job_fingerprint on {S}.job (queue, (error::json->>'fingerprint') collate "C", seq) where error is not null and state <> 'completed';
create index job_code on {S}.job (queue, (error::json->>'code'), seq) where error is not null and state <> 'completed';
create index job_ended on {S}.job (queue, finished_at, seq) where state in ('failed', 'cancelled');

-- The tags of jobs, which their settings hold as well. A job without tags has no row here.
create table {S}.tag (
  queue int not null,
  tag   text collate "C" not null,
  seq   bigint not null,
  job   text collate "C" not null,
  primary key (queue, tag, seq)
);

create table {S}.log (
  job     text collate "C" not null,
  n       int not null,
  at      bigint not null,
  attempt int not null,
  line    text not null,
  primary key (job, n)
);

-- The results of the steps of handlers, in the order in which they first ended.
create table {S}.step (
  job    text collate "C" not null,
  name   text collate "C" not null,
  n      int not null,
  result text,
  ran    bigint,                            -- how many milliseconds it ran
  at     bigint,                            -- when it ended
  primary key (job, name)
);

-- The chains that jobs wait for. An edge is deleted with its dependent, and outlives the chain.
create table {S}.edge (
  dependent text collate "C" not null,
  position  int not null,                   -- its place among the edges of the dependent
  chain     text collate "C" not null,
  policy    text not null,                  -- fail, ignore, remove; with -all: unfinished chains of such edges are cancelled first
  state     text not null,                  -- open, ended, broken, closed
  name      text not null default '',       -- the name of the job that it waits for
  result    text,                           -- the result of the last job of the chain
  error     text,                           -- or its error
  primary key (dependent, position)
) with (fillfactor = 60);                   -- an edge is written twice, and the second version stays in its page
create index edge_chain on {S}.edge (chain);

-- Dedup keys, held until their job has finished or until their window has ended.
create table {S}.key (
  key   text collate "C" primary key,
  job   text not null,
  until bigint
);
create index key_until on {S}.key (until) where until is not null;

-- Revoked leases; they count against limits until their workers release them or they expire.
create table {S}.orphan (
  id    text collate "C" not null,
  fence bigint not null,
  lane  int not null,
  until bigint not null,
  grp   text collate "C",
  worker text collate "C",                   -- the lease holder
  primary key (id, fence)
);
create index orphan_until on {S}.orphan (until);

-- Versioned settings: pauses, limits, the registry of workers.
create table {S}.cell (
  key     text collate "C" primary key,
  value   text not null,
  version bigint not null,
  at      bigint not null
);

-- The last batch of each writer, with its receipt, so that a replay is answered and not applied again. And counts, so
-- that nothing has to be counted at read time: jobs of a lane by state ('12 waiting'), and totals of a queue ('3
-- +added'). Each writer has its own counts, so that writers do not wait for each other; the counts of inactive writers
-- are added up under ''.
create table {S}.writer (
  id      text collate "C" primary key,
  seq     bigint not null,
  at      bigint not null,
  receipt text not null,
  counts  jsonb not null default '{}'
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Processes that watch: until when they are present, and until when events are recorded for them.
create table {S}.peer (
  id           text collate "C" primary key,
  until        bigint not null,
  events_until bigint not null
);

-- The events of each commit, in one row; readers number the rows in the order in which they become visible.
create table {S}.event (
  serial bigint generated always as identity primary key,
  events int not null,
  last   bigint,                            -- the number of its last event
  start  bigint,                            -- the bytes of all events before it
  body   text not null
);
create index event_new on {S}.event (serial) where last is null;
create index event_last on {S}.event (last);

-- A view for people: every job with the names of its queue and its job.
create view {S}.jobs as
  select j.seq, j.id, q.name as queue, l.name as name, l.version, j.kind, j.state, j.priority, j.attempt, j.attempts,
         j.data, j.result, j.error, j.progress, j.worker, to_timestamp(j.created_at / 1000.0) as created,
         to_timestamp(j.run_at / 1000.0) as runs, to_timestamp(j.started_at / 1000.0) as started,
         to_timestamp(j.finished_at / 1000.0) as finished, j.grp as "group"
  from {S}.job j join {S}.queue q on q.id = j.queue join {S}.lane l on l.id = j.lane;
insert into {S}.meta (version, oldest) values (${VERSION}, ${OLDEST});
select nextval('{S}.fence');
`

/** The migration steps between versions, the oldest first; the functions of this version are created after them. */
export const steps: readonly { readonly from: number; readonly sql: string }[] = []
