// job/errors/catalogue.ts: every error code with its meaning and remedy; docs/errors.md is generated from it.
import { serverErrors } from './server-errors.js'

/** The catalogue's entry for one code. */
export type ErrorEntry = {
  /** What happened, and why. */
  readonly summary: string
  /** What to do about it. */
  readonly remedy: string
}

/** Errors of stores, by their codes. */
export const storeErrors = {
  // The store.
  STORE_BUSY: {
    summary: 'An open transaction of another caller holds a row that the write needs. Nothing was written.',
    remedy: 'Try again. Keep transactions that touch jobs short.',
  },
  STORE_CLOSED: {
    summary: 'The store was used after it was closed.',
    remedy: 'Close workers and queues before their store. `shutdown([...])` closes all of them in the right order.',
  },
  STORE_UNAVAILABLE: {
    summary: 'The store cannot be reached or does not respond. A pending write may or may not have been applied.',
    remedy: "Check that the database is up and reachable. The driver's error is in `cause`.",
  },
  DATABASE_UNREACHABLE: {
    summary: 'The store could not connect to the database server. Nothing was sent.',
    remedy:
      "Check the address in the message, the network, and that PostgreSQL listens there and has free connections. The driver's error is in `cause`.",
  },
  POOL_EXHAUSTED: {
    summary: 'All connections of the pool were in use for too long. Nothing was sent.',
    remedy: 'Release connections sooner, or make the pool larger. A transaction keeps its connection until it ends.',
  },
  POOL_TOO_SMALL: {
    summary: 'The pool has fewer than two connections. A transaction keeps one, so the store would wait for itself.',
    remedy: 'Give the pool at least two connections: `max` of `pg` and `postgres`, `connections` of the store.',
  },
  WRITER_BEHIND: {
    summary: 'A batch has a lower sequence number than the last one that the store applied for its writer.',
    remedy: 'Give each process its own writer. Never share or copy one.',
  },

  // Transactions.
  INVALID_TRANSACTION: {
    summary:
      'The value given as `tx` is not a transaction that this store can write to, or the store has no transactions.',
    remedy: "Pass what the message lists: the driver's own handle or client, or an object with `execute(sql, params)`.",
  },
  TRANSACTION_ENDED: {
    summary:
      'A call was made in a transaction that is not open. The `tx` was committed, rolled back or never begun, or the calling code was started inside a transaction that has ended since.',
    remedy:
      'Begin the transaction first, and await every call made in it before it ends. Start code that outlives the transaction outside of it.',
  },
  OTHER_DATABASE: {
    summary: "The `tx` is a transaction on another database than the store's.",
    remedy: "Pass a transaction on the store's database, or give the queue a store on the other one.",
  },
  SECOND_SQLITE: {
    summary:
      "Two copies of SQLite in one process would use the same file: two drivers, or one driver installed twice. They do not see each other's locks, and each overwrites what the other commits. Nothing was written.",
    remedy:
      'Use one driver for the file. If you have a handle of your own, open the store with it: `sqlite(db)`. First close the store that has the file open.',
  },
  TRANSACTION_STALE: {
    summary: 'A transaction cannot write, because others have written since it first read.',
    remedy:
      'Roll it back and run it again. On SQLite, begin it with `BEGIN IMMEDIATE`; on PostgreSQL, use read committed.',
  },
  IN_TRANSACTION: {
    summary:
      'A call inside a transaction would wait for something that can happen only after the transaction has ended.',
    remedy: 'Make the call after the transaction has ended.',
  },
  TRANSACTION_TOO_LONG: {
    summary:
      "A handler's transaction was still open shortly before a lease expired. It was rolled back, and the attempt failed.",
    remedy:
      'Move slow work out of `ctx.prepare` and `ctx.complete`, return soon after `ctx.complete`, or use a longer `lease`.',
  },
  TRANSACTION_TOO_LARGE: {
    summary:
      'A transaction needs more locks than the server has. Each job id and deduplication key that you choose takes one until the transaction ends.',
    remedy:
      "Roll it back and add fewer such jobs in one transaction, let Millrace create the ids, or raise the server's `max_locks_per_transaction`.",
  },
  OWN_JOB: {
    summary: 'A handler tried to cancel, remove or complete its own job inside the transaction that settles it.',
    remedy:
      'Throw an `UnrecoverableError` to fail the job for good, return to complete it, or cancel it outside `ctx.prepare` and `ctx.complete`.',
  },
  WRONG_CONTINUATION: {
    summary: 'A job continued its chain with a job that its declaration does not list.',
    remedy: 'Continue with a job listed in `next` of `job({ … })`, or add it there.',
  },
  WRONG_DEPENDENCIES: {
    summary: 'A job was added with other dependencies than `after` of its declaration lists.',
    remedy: 'Pass as many dependencies as are declared, in that order, or change the declaration.',
  },
  CALLED_OUT_OF_ORDER: {
    summary:
      'One of `prepare`, `complete`, `add`, `continueWith` and `waitFor` was called twice, too late, or before the call that must come first; or a job that was claimed by hand had been settled.',
    remedy:
      'Call `ctx.prepare` first, if at all, then `ctx.complete` once, and the others inside its callback. Settle a claimed job once.',
  },
  ASYNC_SCHEMA: {
    summary:
      'A job was added with `tx`, but the schema of its data is asynchronous, so the transaction may end before the data is checked.',
    remedy: 'Use `queue.transaction`, which waits for the schema, or use a synchronous schema.',
  },
  STORE_NOT_OPEN: {
    summary: 'A `tx` was given to a store that has not been opened, so its tables may not exist.',
    remedy: 'Call `await store.open()` before you begin the transaction.',
  },

  // Databases: a SQLite file, or a server.
  MISSING_DRIVER: {
    summary:
      'An optional package (a database driver, or OpenTelemetry) is not installed, or cannot be loaded. `details.installed` says which.',
    remedy:
      'Install the package that the message names: `pg` for PostgreSQL; for SQLite `@photostructure/sqlite@1`, or use Node 22.13 or later, which includes SQLite. If you bundle, mark the package as external.',
  },
  DATABASE_PATH_MISSING: {
    summary: 'The folder of the SQLite database file does not exist.',
    remedy: 'Create the folder, or correct the path. Millrace creates only the file.',
  },
  DATABASE_IS_DIRECTORY: {
    summary: 'The path of the SQLite database file is a folder.',
    remedy: 'Pass the path of a file, for example `jobs.db` in that folder.',
  },
  DATABASE_NOT_WRITABLE: {
    summary:
      'The database is read-only: its file, its folder, its handle, or its server (a standby). Nothing was written.',
    remedy:
      'Give the process write access to the file and its folder, where SQLite keeps its log, or connect to the primary server.',
  },
  DATABASE_INVALID: {
    summary:
      'The file is not an SQLite database, is encrypted, or its tables are not those of a version that Millrace can use.',
    remedy: 'Correct the path, or move the file away. Millrace has not changed it.',
  },
  DATABASE_FULL: {
    summary: 'The disk is full, or the database has reached its maximum size. Nothing was written, not even in part.',
    remedy: 'Free space on the disk of the file or server, then repeat the call.',
  },
  DATABASE_LOCKED: {
    summary:
      'Another program held the lock that a write needs for too long: on the SQLite file, or on rows or tables of a server. Nothing was written.',
    remedy:
      'Find the program that keeps a transaction open, end that transaction, and try again. Keep transactions short.',
  },
  DATABASE_CORRUPT: {
    summary: 'The SQLite database file is damaged.',
    remedy:
      'Stop every process that uses the file, keep a copy of it, and restore a backup. docs/backup.md lists other ways to recover data.',
  },
  DATABASE_OVERWRITTEN: {
    summary:
      'Commits of this process are missing from the SQLite database file: another copy of SQLite in this process overwrote them, or the file was restored in place. The store stops writing.',
    remedy:
      'Stop the process, check the file as docs/backup.md describes, and use one driver for it: open the store with your own handle, `sqlite(db)`.',
  },
  DATABASE_FORBIDDEN: {
    summary:
      'The database server rejects this user, or the user lacks a right that the store needs. Nothing was written.',
    remedy:
      "Check the user, the password and the rights on the store's schema. The store recovers once they are correct.",
  },
  DATABASE_MISSING: {
    summary: 'The server has no database of that name.',
    remedy: 'Create the database. The store creates only its schema in it.',
  },
  SCHEMA_MISSING: {
    summary: "The store's schema is missing from the database, or is older than this version needs.",
    remedy: 'Run the SQL that `migrationSql()` returns, as the owner of the schema, or leave `migrate` on.',
  },
  DATABASE_GONE: {
    summary: 'The SQLite database file was deleted or replaced while it was open.',
    remedy: 'Put the file back and restart the processes that use it. Stop them before you move or restore a database.',
  },
  THREAD_NOT_STARTED: {
    summary: 'The thread of a SQLite store with `{ thread: true }` did not start. Nothing was written.',
    remedy:
      'Leave millrace out of the bundle, so that the file of its thread stays where it is installed, or open the store without a thread.',
  },
  THREAD_ENDED: {
    summary:
      'The thread of a SQLite store with `{ thread: true }` ended by itself. A pending write may or may not have been applied.',
    remedy: 'The next call starts a new thread. If it happens again, the message and `cause` say what ended it.',
  },
  DATABASE_FAILED: {
    summary: 'SQLite could not read or write its file, for a reason without a code of its own.',
    remedy: "Read the driver's error in `cause`. Check the disk, and that the file is on a local disk.",
  },
  SCHEMA_TOO_NEW: {
    summary:
      'A later version of Millrace, which does not support this one, has migrated the tables. Nothing was written.',
    remedy: 'Update `millrace` to the version that the other processes use. Migrations cannot be reversed.',
  },
} as const satisfies Record<string, ErrorEntry>

/** Every error that Millrace throws or reports, by its stable code. A code is never renamed and never reused. */
export const errorCatalogue = {
  // The request is malformed: nothing was sent to the store.
  INVALID_NAME: {
    summary: 'A name is not a string, is empty, is too long, or contains control characters or lone surrogates.',
    remedy: 'Use a name of 1 to 255 printable characters.',
  },
  INVALID_ID: {
    summary: 'A job id is not a string, is empty, is too long, or contains control characters or lone surrogates.',
    remedy: 'Use an id of 1 to 255 printable characters, or omit it and let Millrace create one.',
  },
  RESERVED_NAME: {
    summary:
      "A queue name or job id begins with 'millrace:', or a job id begins with 'run:' or 'schedule:'. Millrace reserves these prefixes.",
    remedy: 'Choose another name or id.',
  },
  INVALID_DATA: {
    summary: 'A value would change on its way through JSON. The message names the place inside the value.',
    remedy: 'Convert that place to plain JSON, for example a Date to an ISO string.',
  },
  DATA_TOO_LARGE: {
    summary:
      'A value has more bytes as JSON than its limit, or data that is written together (a job with its result and children, a flow) is more than the store accepts at once. Nothing was written. A job whose settlement is too large fails for good with this code.',
    remedy:
      'Store large data elsewhere and send a reference, raise `maxDataBytes` of the queue, or add fewer jobs in one `ctx.add` or flow.',
  },
  INVALID_DURATION: {
    summary: 'A duration cannot be parsed, is negative, or is over 100 years.',
    remedy: "Pass milliseconds as a number, or text with units such as '30s', '1h 30m' or '5 minutes'.",
  },
  INVALID_DATE: {
    summary: 'A date cannot be parsed or is out of range.',
    remedy: 'Pass a valid Date, or milliseconds since 1970.',
  },
  INVALID_PRIORITY: {
    summary: 'A priority is not an integer within the allowed range.',
    remedy: 'Use an integer. Lower runs first, and 0 is the default.',
  },
  INVALID_ATTEMPTS: {
    summary: 'A number of attempts is neither an integer of at least 1 nor Infinity.',
    remedy: 'Use 1 for no retries, a larger integer, or Infinity to retry without end.',
  },
  INVALID_BACKOFF: {
    summary: 'A backoff has an unknown type, or one of its settings is out of range.',
    remedy: "Use a duration, or one of the types 'fixed', 'linear', 'exponential' and 'custom' with its settings.",
  },
  INVALID_SCHEDULE: {
    summary:
      'The times of a schedule cannot be parsed, contradict each other, or never occur. `details.field` names the wrong option.',
    remedy: 'Correct what the message names: a field of the cron expression, the time zone, or another option.',
  },
  NO_FILTER: {
    summary: 'A call would change every job of the queue, because its filter has no condition.',
    remedy:
      "Say which jobs: `queue.retry({ state: 'failed' })`, or `where: { state: 'failed' }` for `queue.operate`. If you mean all of them, pass `all: true` instead.",
  },
  INVALID_OPERATION: {
    summary: 'The row of a bulk operation cannot be read: a later version of Millrace wrote it.',
    remedy: 'Run a worker of that version, or cancel the operation as the message shows.',
  },
  OPERATION_NOT_FOUND: {
    summary: 'There is no such bulk operation in this queue, or it ended more than 30 days ago and was removed.',
    remedy: 'Check the id. `queue.operations()` lists those that are kept.',
  },
  INVALID_OPTION: {
    summary: 'An option has a value that is not allowed.',
    remedy: 'Correct the option that the message names.',
  },
  NO_SEARCH_INDEX: {
    summary: 'The store has no index of values in data and results, which `queue.searchIndex` asked for.',
    remedy: 'Find jobs by tags, or search job by job. PostgreSQL has such an index.',
  },
  INVALID_TAGS: {
    summary: 'Tags are not a list of at most 10 different texts of 1 to 64 printable characters.',
    remedy: 'Give fewer or shorter tags. What a job is about in detail belongs in its data.',
  },
  INVALID_RANGE: {
    summary: 'A range of time ends before it begins, or where it begins.',
    remedy:
      "Exchange its ends. A duration is so long ago, so that the longer one comes first: `{ from: '2h', to: '1h' }`.",
  },
  INVALID_CURSOR: {
    summary:
      'A cursor does not come from a page of the same list: the filter or the order is another, or it is no cursor.',
    remedy: 'Repeat the call that gave the cursor, with the same filter and order, or start over without a cursor.',
  },
  UNKNOWN_OPTION: {
    summary: 'The call has no option of this name.',
    remedy:
      'Check the spelling. The message suggests the closest name, or our name for an option of another job queue.',
  },
  UNKNOWN_FIELD: {
    summary: 'A field or method of a job was used by the name that another job queue has for it.',
    remedy: 'Use the name in the message.',
  },
  INVALID_HANDLER: {
    summary:
      'A handler is not a function, a result of `phases()`, or an object with a `run` function; or its phases differ from those declared.',
    remedy:
      'Pass one handler, or an object of handlers by job name, each with exactly the phases that its job declares.',
  },
  INVALID_SCHEMA: {
    summary: 'A declared schema does not implement the Standard Schema interface.',
    remedy: 'Use a library that implements Standard Schema, such as Zod, Valibot or ArkType.',
  },
  INVALID_PAYLOAD: {
    summary: 'The input schema declared for a job rejected its data.',
    remedy: "Correct the data. The schema's issues are in `details.issues`.",
  },
  BATCH_RESULTS: {
    summary:
      'A batch handler did not return one result for each job. All jobs of the batch failed, each with its own retries.',
    remedy: 'Return an array as long as `jobs`, in the same order, with an `Error` for each job that failed.',
  },
  NOT_IN_BATCH: {
    summary: 'A batch handler used `ctx.prepare` or `ctx.complete`, which are for a single job.',
    remedy: 'Use a handler of one job, or write in `queue.transaction` before you return the results.',
  },
  OTHER_VERSION: {
    summary:
      'The data of a job cannot be changed here, because the job was added with another version than the one declared here.',
    remedy: 'Change it from a program that declares that version, or remove the job and add it again.',
  },
  INVALID_RESULT: {
    summary: 'The output schema declared for a job rejected the value that its handler returned.',
    remedy: "Correct the handler or the schema. The schema's issues are in `details.issues`.",
  },
  UNKNOWN_JOB: {
    summary: 'A job name is not declared in the `jobs` of this queue or worker.',
    remedy: 'Declare it with `defineJobs`, or correct the spelling.',
  },
  UNKNOWN_BACKOFF: {
    summary: 'A job uses a custom backoff that is not registered on the worker that ran it.',
    remedy: "Register a function of that name in the worker's `backoff` option.",
  },

  // The request is well formed, but conflicts with the current state of the store.
  DUPLICATE_JOB: {
    summary: "An existing job has the same deduplication key, and the mode is 'reject'.",
    remedy: 'Wait for the existing job, or use another deduplication mode, which returns that job.',
  },
  DUPLICATE_ID: {
    summary: 'A job with another name or in another queue has this id. Ids are unique in a store.',
    remedy: 'Choose another id, or omit it and let Millrace create one.',
  },
  DEDUP_TAKEN: {
    summary: 'A job cannot be retried because another job has its deduplication key now.',
    remedy: 'Wait until the other job has finished, or cancel it, then retry.',
  },
  DEPENDENCY_MISSING: {
    summary: 'A job was added to run after a job that does not exist.',
    remedy: 'Add the dependency first, and await that call.',
  },
  DEPENDENCY_FAILED: {
    summary:
      'A job failed, or cannot be retried, because a job that it depends on failed, was cancelled or was removed.',
    remedy: "Retry the dependency, then this job, or use the policy 'ignore' for that dependency.",
  },
  JOB_NOT_FOUND: {
    summary: 'The store has no job with this id.',
    remedy: 'Check the id. Finished jobs are removed when their retention ends.',
  },
  JOB_REMOVED: {
    summary: 'The job was removed while a caller waited for it or a worker ran it.',
    remedy: 'If the removal was not intended, keep finished jobs longer.',
  },
  WAIT_CYCLE: {
    summary:
      'A job was about to wait for a job that waits for it, directly or through others. None of them would ever run.',
    remedy: 'Break the cycle. `details.cycle` lists its jobs in order, from the job back to itself.',
  },
  JOB_HAS_DEPENDENTS: {
    summary: 'A job cannot be removed while other jobs wait for it.',
    remedy:
      'Cancel the job instead, or first cancel or remove the jobs that wait. `details.dependents` lists up to 1000 of them, `details.count` has their number.',
  },
  JOB_ENDS_CHAIN: {
    summary: 'A job cannot be removed alone because it is the last of a chain whose earlier jobs still exist.',
    remedy: 'Remove the chain, `queue.chain(id).remove()`, or remove the earlier jobs first.',
  },
  INVALID_STATE: {
    summary: 'The operation is not possible in the current state of the job.',
    remedy: 'Check `details.state`. The message lists the states that allow the operation.',
  },
  QUEUE_FULL: {
    summary: 'The queue, or the group of the job, has reached its limit of jobs that have not started.',
    remedy: 'Add the job later, add workers, or raise `maxBacklog` with `queue.limit`.',
  },
  SCHEDULE_NOT_FOUND: {
    summary: 'There is no schedule of this key in the queue.',
    remedy: 'List those that there are with `queue.schedules()`. Make it with `queue.schedule(key, options)`.',
  },
  SCHEDULE_OVERLAP: {
    summary: 'A schedule was triggered while a run before has not finished, and its `overlap` allows no other.',
    remedy: "Wait for that run, cancel it, or trigger with `{ overlap: 'allow' }`.",
  },
  SCHEDULE_OWNED: {
    summary: 'A set of schedules contains a key that belongs to another owner.',
    remedy: 'Rename it in one of the two sets, or remove the schedule from the queue first.',
  },
  BACKFILL_TOO_LARGE: {
    summary: 'A backfill would add more than 1,000 runs or 64 MiB of data.',
    remedy: 'Backfill shorter ranges, one after the other.',
  },
  TOO_MANY_HOLDS: {
    summary: 'The queue has as many holds as it may have at one time: 1,000.',
    remedy: 'Hold a name or the whole queue instead of single groups, or give groups a rate with `queue.limit`.',
  },

  // How jobs and attempts end.
  JOB_DROPPED: {
    summary: 'The job was cancelled in favour of a newer one because the backlog of its group was full.',
    remedy: "Raise the group's `maxBacklog`, or use `onFull: 'reject'` to get an error when you add.",
  },
  JOB_FAILED: {
    summary: 'The job whose result was awaited failed for good.',
    remedy: "Read `cause` and the job's errors. Fix the reason, then retry the job.",
  },
  JOB_EXPIRED: {
    summary: 'The job was not started before the time in its `expires` option, and was cancelled.',
    remedy:
      'Add workers or raise `expires` if it should have run. Retry the job to run it all the same: it then no longer expires.',
  },
  JOB_CANCELLED: {
    summary: 'The job was cancelled while a caller waited for it or a worker ran it.',
    remedy: 'If the cancellation was not intended, retry the job.',
  },
  JOB_EXHAUSTED: {
    summary: 'The lease of a job expired on its last attempt. Its worker probably crashed or froze.',
    remedy: 'Look for crashes, exhausted memory or a blocked event loop in the workers, then retry the job.',
  },
  SIGNAL_TIMEOUT: {
    summary: 'A signal that a handler waited for did not arrive in time, or was removed.',
    remedy:
      'Catch the error if the handler can continue without the signal, or raise `timeout` of `ctx.waitForSignal`.',
  },
  NOT_AWAITED: {
    summary:
      'A handler or phase returned without awaiting `ctx.sleep`, `ctx.waitForSignal` or `ctx.complete({ tx })`. The job failed for good.',
    remedy: 'Await the call, then retry the job. Completed steps do not run again.',
  },
  WORKER_DIED: {
    summary: "A worker started with `recovery: 'fail'` and found that the process that ran the job is dead.",
    remedy: "Find out why the process ended and how far the job got, then retry the job; or use `recovery: 'retry'`.",
  },
  JOB_TIMEOUT: {
    summary: "A handler ran longer than the job's timeout.",
    remedy: 'Raise `timeout`, or make the handler faster. Pass `ctx.signal` to the calls that it awaits.',
  },
  RESULT_TIMEOUT: {
    summary:
      'The job did not finish within the time that the caller wanted to wait for its result. The job itself continues.',
    remedy: 'Wait longer, or check that a worker handles this name.',
  },
  HANDLER_STUCK: {
    summary: 'A handler kept running after its signal was aborted.',
    remedy: 'Pass `ctx.signal` to the calls that the handler awaits, or check it in loops.',
  },
  LOG_OVERFLOW: {
    summary:
      'A log line was dropped: the handler does not await `ctx.log`, and more than 4 MiB of its lines were not written yet.',
    remedy: 'Await `ctx.log` at least from time to time, or log less.',
  },
  LEASE_LOST: {
    summary:
      'The worker no longer has the lease of the job, or the handler had ended, so its progress, log line or result was not written. For a job that was claimed by hand, `details.reason` is why.',
    remedy:
      'Await the calls of `ctx` in the handler. If leases are lost often, use a longer `lease`, or send heartbeats for jobs that you claim by hand. The job runs elsewhere or was cancelled.',
  },
  EVENT_LOOP_BLOCKED: {
    summary: 'The event loop was blocked for so long that leases could not be renewed in time.',
    remedy: 'Move long synchronous work to another thread, or use a longer `lease`.',
  },

  // Webhooks.
  WEBHOOK_FAILED: {
    summary: 'The webhook of a finished job could not be delivered. The job itself is not affected.',
    remedy: 'Read `job.webhook.deliveries`, repair the receiver, and call `queue.redeliver(id)`.',
  },
  WEBHOOK_REFUSED: {
    summary:
      'The URL of a webhook is not allowed, or its address is not public (private, loopback, link-local, metadata).',
    remedy: 'Use a public https URL; in development, `webhooks({ allowPrivate: true })`.',
  },
  WEBHOOK_UNVERIFIED: {
    summary: 'A received webhook is not signed with any of the given secrets, or was signed too long ago.',
    remedy: 'Respond with 400 and do nothing. Check the secret, the clock, and that the raw body is verified.',
  },

  ...storeErrors,
  ...serverErrors,

  // Queues, workers and the code they call.
  QUEUE_CLOSED: {
    summary: 'The queue was used after it was closed.',
    remedy: 'Close a queue only when nothing uses it any more.',
  },
  WORKER_CLOSED: {
    summary: 'The worker was used after it was closed.',
    remedy: 'Create a new worker. A closed one cannot start again.',
  },
  WORKER_RUNNING: {
    summary: 'A worker has one run at a time: `worker.run` was called while the worker was running already.',
    remedy: 'Await the run in progress. For runs that end, create the worker with `autorun: false`.',
  },
  SHUTDOWN_TIMEOUT: {
    summary:
      'Handlers or webhook deliveries were still running, or the store had not responded, when the time to shut down was over.',
    remedy:
      'Allow more time, or make handlers obey `ctx.signal`. Jobs whose handlers ended were settled or released; the others run again when their leases expire.',
  },
  EVENTS_MISSED: {
    summary:
      'A stream of events has a gap: the process read so slowly, or was suspended so long, that the store no longer has the events; or it subscribed during a long commit.',
    remedy:
      'Read the jobs with `list` and `get`. Keep the event loop free, or raise `ring` and `ringBytes` of the store.',
  },
  LISTENER_FAILED: {
    summary: 'An event listener threw or rejected. The queue or worker continues.',
    remedy: 'Fix the listener. Its error is in `cause`.',
  },
  CALLBACK_FAILED: {
    summary:
      'A function given to Millrace (middleware, logger, retry rule, retention callback) threw or returned an invalid value.',
    remedy: 'Fix that function. Its error is in `cause`.',
  },

  // Helpers for tests.
  TEST_ENDLESS: {
    summary:
      'The `drain` of a test queue ran as many jobs as it may, and more were waiting. Jobs may add one another for ever.',
    remedy: "Advance the clock by a limited time, as in `drain({ advance: '1h' })`, or raise `maxRuns`.",
  },
  TEST_UNSUPPORTED: {
    summary: 'A handler called something that the context of `testContext` cannot imitate without a queue.',
    remedy:
      'Give `testContext` what the message names, or run the job by `testQueue(jobs, { handlers })` and `runOne`.',
  },
} as const satisfies Record<string, ErrorEntry>
