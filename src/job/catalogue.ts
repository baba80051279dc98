// job/catalogue.ts: every error code with its meaning and remedy; docs/errors.md is generated from it.

/** The catalogue's entry for one code. */
export type ErrorEntry = {
  /** What the error means, in one sentence. */
  readonly summary: string
  /** What the reader can do about it. */
  readonly remedy: string
}

/** Errors of stores, by their codes. */
export const storeErrors = {
  // The store.
  STORE_BUSY: {
    summary: "The store could not apply a write because somebody's open transaction holds what it needs.",
    remedy: 'Try again, and keep transactions that touch jobs short.',
  },
  STORE_CLOSED: {
    summary: 'The store was used after it was closed.',
    remedy: 'Close workers and queues before their store; `shutdown([...])` does so whatever the order it is given.',
  },
  STORE_UNAVAILABLE: {
    summary: 'The store cannot be reached or does not answer.',
    remedy: "Check that the database is up and reachable; the driver's own error is in `cause`.",
  },
  DATABASE_UNREACHABLE: {
    summary: 'No connection to the database server could be made, so that nothing was sent.',
    remedy:
      "Check the address in the message, the network, and that PostgreSQL listens there and has connections left; the driver's own error is in `cause`.",
  },
  POOL_EXHAUSTED: {
    summary: 'All connections of the pool were in use for too long, so that nothing was sent.',
    remedy: 'Give connections back sooner, or make the pool larger: a transaction keeps one until it ends.',
  },
  POOL_TOO_SMALL: {
    summary: 'The pool holds fewer than two connections: a transaction keeps one, and would wait for itself.',
    remedy: 'Give the pool at least two: `max` of `pg` and `postgres`, `connections` of the store.',
  },
  WRITER_BEHIND: {
    summary: 'A batch carries a number below the last one the store applied for its writer.',
    remedy: 'Give each process a writer of its own; never share or copy one.',
  },

  // Transactions.
  INVALID_TRANSACTION: {
    summary: 'What was given as `tx` is no transaction that this store can write to, or the store has no transactions.',
    remedy: "Pass what the message lists: the driver's own handle or client, or an object with `execute(sql, params)`.",
  },
  TRANSACTION_ENDED: {
    summary:
      'A call came for a transaction that is not open: what was given as `tx` was committed, rolled back or never begun, or the code that made the call was begun inside one that has ended.',
    remedy: 'Begin it first, and await every call made in it before it ends; begin outside what is to outlive it.',
  },
  OTHER_DATABASE: {
    summary: 'What was given as `tx` is a transaction on another database than the one this store is in.',
    remedy: "Pass a transaction on the store's own database, or give the queue a store on the other one.",
  },
  SECOND_SQLITE: {
    summary:
      "A file was to be used through two copies of SQLite in one process: two drivers, or one driver installed twice. They do not see each other's locks, and each overwrites what the other commits. Nothing was written.",
    remedy:
      'Use one driver for the file. With a handle of your own, open the store with it: `sqlite(db)`. Close the store that has the file open first.',
  },
  TRANSACTION_STALE: {
    summary:
      'A transaction works from an older state of the database than others have written since, and cannot write any more.',
    remedy:
      'Roll it back and run it again. On SQLite, begin it with `BEGIN IMMEDIATE`; on PostgreSQL, at read committed.',
  },
  IN_TRANSACTION: {
    summary: 'A call that waits for other work was made inside a transaction which that work itself would wait for.',
    remedy: 'Make the call after the transaction has ended.',
  },
  TRANSACTION_TOO_LONG: {
    summary: "A handler's transaction came so near the end of a lease that it was rolled back; the attempt failed.",
    remedy:
      'Keep slow work out of `ctx.prepare` and `ctx.complete` and after the latter, end the handler soon after it, or lengthen `lease`.',
  },
  TRANSACTION_TOO_LARGE: {
    summary:
      "A transaction needs more locks than the server has room for: every id and every deduplication key of a user's own takes one until its end.",
    remedy:
      'Roll it back and add fewer such jobs in one transaction, leave ids to Millrace, or raise `max_locks_per_transaction` of the server.',
  },
  OWN_JOB: {
    summary:
      'Inside the transaction in which a handler settles its job, that same job was to be cancelled, removed or completed.',
    remedy:
      'Throw an `UnrecoverableError` to fail the job for good, return to complete it, or cancel it outside of `ctx.prepare` and `ctx.complete`.',
  },
  WRONG_CONTINUATION: {
    summary: 'A chain was to go on with a job that the declaration of its last one does not name.',
    remedy: 'Continue with a job named in `next` of `job({ … })`, or add it there.',
  },
  WRONG_DEPENDENCIES: {
    summary: 'A job was to wait for others than `after` of its declaration says.',
    remedy: 'Give as many dependencies as are declared, in that order, or declare what is given.',
  },
  CALLED_OUT_OF_ORDER: {
    summary:
      'One of `prepare`, `complete`, `add`, `continueWith` and `waitFor` was called twice, too late, or before what must come first.',
    remedy: 'Call `ctx.prepare` first if at all, then `ctx.complete` once, and the others inside its callback.',
  },
  ASYNC_SCHEMA: {
    summary: 'A job was added with a `tx` that may end at once, and the schema of its data is asynchronous.',
    remedy: 'Use `queue.transaction`, which waits, or a schema that answers at once.',
  },
  STORE_NOT_OPEN: {
    summary: 'A transaction was given to a store that has not been opened yet, so that its tables may not be there.',
    remedy: 'Call `await store.open()` before the transaction begins.',
  },

  // Databases: a SQLite file, or a server.
  MISSING_DRIVER: {
    summary:
      'An optional package (a driver of the database, or of telemetry) is not installed, or is and cannot be loaded; `details.installed` tells which.',
    remedy:
      'Install the one that the message names: `pg` for PostgreSQL; for SQLite `@photostructure/sqlite@1`, or use Node 22.13 or later, which has its own. In a bundle, leave it out of the bundle.',
  },
  DATABASE_PATH_MISSING: {
    summary: 'The folder that the database file of SQLite should be in does not exist.',
    remedy: 'Create the folder, or correct the path; only the file itself is created.',
  },
  DATABASE_IS_DIRECTORY: {
    summary: 'The path of the database file of SQLite leads to a folder.',
    remedy: "Give the path of a file, such as that folder's path with `jobs.db` added.",
  },
  DATABASE_NOT_WRITABLE: {
    summary:
      'The database takes no writes: its file, folder or handle is read-only, or its server is, as a standby. Nothing was written.',
    remedy:
      'Give this process write access to the file and to its folder, where the log lies beside it; or connect to the primary server.',
  },
  DATABASE_INVALID: {
    summary: 'The file is not an SQLite database, or is encrypted, or does not hold what Millrace keeps in one.',
    remedy: 'Correct the path, or move that file away; Millrace has not touched it.',
  },
  DATABASE_FULL: {
    summary:
      'The disk of the database is full, or the database has reached the size it is allowed; what was being written was not.',
    remedy:
      'Make room where the file or the server is; nothing was half-written, and the same call succeeds once there is space.',
  },
  DATABASE_LOCKED: {
    summary:
      'Others kept what a write needs locked for longer than it could wait: the file of SQLite, or rows and tables on a server. Nothing was written.',
    remedy: 'Find the program that holds a transaction open, let it end, and try again; keep transactions short.',
  },
  DATABASE_CORRUPT: {
    summary: 'The database file of SQLite is damaged.',
    remedy:
      'Stop what uses the file, keep a copy of it, and restore a backup; docs/backup.md says what else can be tried.',
  },
  DATABASE_OVERWRITTEN: {
    summary:
      'Commits of this process are missing in the database file of SQLite: another copy of SQLite in the same process wrote over them, or the file was restored in place. The store writes nothing more.',
    remedy:
      'Stop the process, check the file as docs/backup.md says, and use one driver for it: open the store with your own handle, `sqlite(db)`.',
  },
  DATABASE_FORBIDDEN: {
    summary:
      'The database server does not let this user in, or does not let it do what the store needs. Nothing was written.',
    remedy: 'Check the user, its password and its rights on the schema of the store; work goes on once they are right.',
  },
  DATABASE_MISSING: {
    summary: 'There is no database of that name on the server.',
    remedy: 'Create it first; the store makes only its own schema in it.',
  },
  SCHEMA_MISSING: {
    summary:
      'The schema of the store is not in the database, or is older than this version needs, and may not be made here.',
    remedy: 'Run the SQL that `migrationSql()` gives as the owner of the schema, or leave `migrate` on.',
  },
  DATABASE_GONE: {
    summary: 'The database file of SQLite was deleted or replaced while it was open.',
    remedy: 'Put the file back and restart what uses it; stop it first before moving or restoring a database.',
  },
  DATABASE_FAILED: {
    summary: 'SQLite could not read or write its database file for a reason that has no code of its own.',
    remedy: "Look at the driver's own error in `cause`; check the disk, and that the file is on a local one.",
  },
  SCHEMA_TOO_NEW: {
    summary:
      'A later version of Millrace, which does not support this one, has migrated the tables. Nothing was written.',
    remedy: 'Update `millrace` here to the version that the other processes use; tables are never taken back.',
  },
} as const satisfies Record<string, ErrorEntry>

/** Every error Millrace raises or reports, by its stable code. A code is never renamed and never reused. */
export const errorCatalogue = {
  // The request is malformed: nothing was sent to the store.
  INVALID_NAME: {
    summary: 'A name is not a string, is empty, is too long, or holds control characters or lone surrogates.',
    remedy: 'Use a name of 1 to 255 printable characters.',
  },
  INVALID_ID: {
    summary: 'A job id is not a string, is empty, is too long, or holds control characters or lone surrogates.',
    remedy: 'Use an id of 1 to 255 printable characters, or leave it out and let Millrace mint one.',
  },
  RESERVED_NAME: {
    summary:
      "A queue name or the id of a new job begins with 'millrace:', or such an id with 'run:' or 'schedule:': these are Millrace's own queues, jobs and schedules.",
    remedy: 'Choose another name or id.',
  },
  INVALID_DATA: {
    summary: 'A value would not survive the trip through JSON unchanged; the message names the place inside it.',
    remedy: 'Convert that place to plain JSON before sending it, for example a Date to its ISO text.',
  },
  DATA_TOO_LARGE: {
    summary:
      'A value takes more bytes as JSON than the limit allows, or what has to be written together (a job with its result and children, a flow) is more than the store takes at once. Nothing was written; a job whose settlement is too large fails for good with this code.',
    remedy:
      'Keep the bulk elsewhere and send a reference to it; raise `maxDataBytes` of the queue; or add fewer jobs in one call of `ctx.add` or in one flow.',
  },
  INVALID_DURATION: {
    summary: 'A duration cannot be read, is negative, or is over 100 years.',
    remedy: "Write milliseconds as a number, or text with units such as '30s', '1h 30m' or '5 minutes'.",
  },
  INVALID_DATE: {
    summary: 'A date cannot be read or is out of range.',
    remedy: 'Pass a valid Date, or milliseconds since 1970.',
  },
  INVALID_PRIORITY: {
    summary: 'A priority is not an integer within the allowed range.',
    remedy: 'Use a whole number; lower runs first and 0 is the default.',
  },
  INVALID_ATTEMPTS: {
    summary: 'A number of attempts is neither a whole number from 1 up nor Infinity.',
    remedy: 'Use 1 for no retries, a larger whole number, or Infinity to retry for ever.',
  },
  INVALID_BACKOFF: {
    summary: 'A backoff is of an unknown type, or one of its settings is out of range.',
    remedy: "Use a duration, or one of the types 'fixed', 'linear', 'exponential' and 'custom' with its own settings.",
  },
  INVALID_SCHEDULE: {
    summary:
      'The times of a schedule cannot be read, contradict each other or never come; `details.field` says which of its options is wrong.',
    remedy: 'Correct what the message points at: a field of the cron expression, the time zone, or another option.',
  },
  INVALID_OPTION: {
    summary: 'An option has a value it cannot take.',
    remedy: 'Correct the option that the message names.',
  },
  UNKNOWN_OPTION: {
    summary: 'An option is not one that this call knows.',
    remedy:
      'Check the spelling; the message suggests the nearest known name, or ours for an option of another job queue.',
  },
  UNKNOWN_FIELD: {
    summary: 'A field of a job was read, or a method called, by the name that another job queue has for it.',
    remedy: 'Use the name in the message.',
  },
  INVALID_HANDLER: {
    summary:
      'A handler is neither a function, nor made by `phases()`, nor an object with a `run` function; or its phases are not those declared.',
    remedy:
      'Pass one handler, or an object of handlers by job name, each with exactly the phases that its job declares.',
  },
  INVALID_SCHEMA: {
    summary: 'A declared schema does not follow the Standard Schema interface.',
    remedy: 'Use a schema from a library that implements Standard Schema, such as Zod, Valibot or ArkType.',
  },
  INVALID_PAYLOAD: {
    summary: 'The data of a job was refused by the input schema declared for its name.',
    remedy: 'Correct the data; the issues found by the schema are in `details.issues`.',
  },
  BATCH_RESULTS: {
    summary:
      'A handler of batches did not answer one result for each of its jobs; all of them failed, each by its own rules.',
    remedy: 'Return an array as long as `jobs`, in their order, with an `Error` in the place of each that failed.',
  },
  NOT_IN_BATCH: {
    summary: 'A handler of batches asked for `ctx.prepare` or `ctx.complete`, which belong to one job alone.',
    remedy: 'Use a handler of one job, or write in `queue.transaction` before the results are returned.',
  },
  OTHER_VERSION: {
    summary: 'The data of a job was to be changed that was added under another version than the one declared here.',
    remedy: 'Change it from a program that declares that version, or remove the job and add it anew.',
  },
  INVALID_RESULT: {
    summary: 'The value a handler returned was refused by the output schema declared for its name.',
    remedy: 'Correct the handler or the schema; the issues found are in `details.issues`.',
  },
  UNKNOWN_JOB: {
    summary: 'A job name was not declared in the `jobs` given to this queue or worker.',
    remedy: 'Declare it with `defineJobs`, or correct its spelling.',
  },
  UNKNOWN_BACKOFF: {
    summary: 'A job asks for a custom backoff that is not registered on the worker that ran it.',
    remedy: "Register a function under that name in the worker's `backoff` option.",
  },

  // The request is well formed, but conflicts with the current state of the store.
  DUPLICATE_JOB: {
    summary: "A standing job holds the same deduplication key, and the mode is 'reject'.",
    remedy: 'Wait for the standing job, or use another deduplication mode to be given it instead.',
  },
  DUPLICATE_ID: {
    summary: 'A job of another name, or in another queue, has this id: ids are unique in a store.',
    remedy: 'Choose another id, or leave it out and let Millrace mint one.',
  },
  DEDUP_TAKEN: {
    summary: 'A job cannot be retried because another job has taken its deduplication key since.',
    remedy: 'Let the other job finish or cancel it, then retry.',
  },
  DEPENDENCY_MISSING: {
    summary: 'A job was to run after one that does not exist.',
    remedy: 'Add the dependency first, and await that.',
  },
  DEPENDENCY_FAILED: {
    summary: 'A job failed, or cannot be retried, because one it depends on failed, was cancelled or was removed.',
    remedy: "Retry the dependency and then this job, or use the policy 'ignore' for that dependency.",
  },
  JOB_NOT_FOUND: {
    summary: 'No job with this id exists in the store.',
    remedy: 'Check the id; finished jobs are removed once their retention is over.',
  },
  JOB_REMOVED: {
    summary: 'The job was removed while it was being waited for or worked on.',
    remedy: 'Nothing to repair if the removal was meant; otherwise keep finished jobs longer.',
  },
  WAIT_CYCLE: {
    summary:
      'A job was to wait for one that waits for it, directly or through others: all of them would wait for ever.',
    remedy: 'Wait for something else: `details.cycle` lists who waits for whom, from the job back to itself.',
  },
  JOB_HAS_DEPENDENTS: {
    summary: 'A job cannot be removed while others wait for it.',
    remedy:
      'Cancel it instead, or cancel or remove first those that wait: `details.dependents` lists up to 1000 of them, `details.count` says how many there are.',
  },
  JOB_ENDS_CHAIN: {
    summary: 'A job cannot be removed alone: it is the last of a chain whose earlier jobs are still there.',
    remedy: 'Remove the chain, `queue.chain(id).remove()`, or the earlier jobs first.',
  },
  INVALID_STATE: {
    summary: 'The operation is not possible in the state the job is in.',
    remedy: 'Look at the state in `details.state`; the message says which states allow it.',
  },
  QUEUE_FULL: {
    summary: 'The queue, or the group of the job, has reached its limit of jobs that have not begun.',
    remedy: 'Add again later, add workers, or raise `maxBacklog` by `queue.limit`.',
  },

  // How jobs and attempts end.
  JOB_DROPPED: {
    summary: 'The job was cancelled for a newer one, because its group was at the bound of its backlog.',
    remedy: "Raise the group's `maxBacklog`, or choose `onFull: 'reject'` to be told when adding.",
  },
  JOB_FAILED: {
    summary: 'The job that was waited for failed for good.',
    remedy: "Look at `cause` and the job's errors; retry it once the reason is gone.",
  },
  JOB_CANCELLED: {
    summary: 'The job that was waited for, or that was running, was cancelled.',
    remedy: 'Nothing to repair if the cancellation was meant; a cancelled job can be retried.',
  },
  JOB_EXHAUSTED: {
    summary: 'The lease of a job ran out on its last attempt, so its worker probably died or froze while running it.',
    remedy: 'Look for crashes, exhausted memory or blocked event loops in the workers, then retry the job.',
  },
  SIGNAL_TIMEOUT: {
    summary: 'A signal that a handler waited for did not come in time, or was taken away.',
    remedy: 'Catch it where the handler goes on without the signal, or raise `timeout` of `ctx.waitForSignal`.',
  },
  NOT_AWAITED: {
    summary:
      'A handler, or a phase, returned without having waited for `ctx.sleep`, `ctx.waitForSignal` or `ctx.complete({ tx })`; the job failed for good.',
    remedy: 'Await it; then retry the job. Steps that were taken are remembered.',
  },
  WORKER_DIED: {
    summary: "The process of the worker that ran a job was found dead by a worker that starts with `recovery: 'fail'`.",
    remedy: "Look for what killed it, see how far the job had come, then retry the job; or use `recovery: 'retry'`.",
  },
  JOB_TIMEOUT: {
    summary: 'A handler ran longer than the timeout of its job.',
    remedy: 'Raise `timeout`, or make the handler faster; pass `ctx.signal` on to what it waits for.',
  },
  RESULT_TIMEOUT: {
    summary: 'The job did not finish within the time given to wait for its result.',
    remedy: 'Wait longer, or check that a worker handles this name; the job itself goes on.',
  },
  HANDLER_STUCK: {
    summary: 'A handler went on running after its signal was aborted.',
    remedy: 'Pass `ctx.signal` on to what the handler waits for, or check it in loops.',
  },
  LOG_OVERFLOW: {
    summary:
      'A log line was dropped: more than 4 MiB of lines of the same job were waiting to be written, because its handler does not wait for them.',
    remedy: 'Await `ctx.log`, at least now and then, or log less.',
  },
  LEASE_LOST: {
    summary:
      'The worker no longer holds the lease of a job, or its handler had ended, so what it said was not written.',
    remedy:
      'Await what a handler says. If leases are lost often, lengthen `lease`; the job itself runs elsewhere or was cancelled.',
  },
  EVENT_LOOP_BLOCKED: {
    summary: 'The event loop was blocked for so long that leases could not be renewed in time.',
    remedy: 'Move long synchronous work off the main thread, or lengthen `lease`.',
  },

  // Webhooks.
  WEBHOOK_FAILED: {
    summary: 'The end of a job could not be told to its webhook; the job itself is as it was.',
    remedy: 'Look at `job.webhook.deliveries`, mend the receiver, and call `queue.redeliver(id)`.',
  },
  WEBHOOK_REFUSED: {
    summary:
      'A webhook leads to an address that is not public (private, loopback, link-local, metadata), or to a URL that may not be used.',
    remedy: 'Use a public https URL; in development, `webhooks({ allowPrivate: true })`.',
  },
  WEBHOOK_UNVERIFIED: {
    summary: 'What was received has no signature by any of the secrets given, or was signed too long ago.',
    remedy: 'Answer 400 and do nothing; check the secret, that the raw body is verified, and the clock.',
  },

  ...storeErrors,

  // Queues, workers and the code they call.
  QUEUE_CLOSED: {
    summary: 'The queue was used after it was closed.',
    remedy: 'Close a queue only when nothing adds to it any more.',
  },
  WORKER_CLOSED: {
    summary: 'The worker was used after it was closed.',
    remedy: 'Create a new worker; a closed one cannot be started again.',
  },
  SHUTDOWN_TIMEOUT: {
    summary:
      'Handlers or deliveries were still running, or the store did not answer, when the time given to shut down was over.',
    remedy:
      'Give more time, or make handlers obey `ctx.signal`. Jobs whose handlers ended were settled or handed back; those of the others run again once their leases are over.',
  },
  EVENTS_MISSED: {
    summary:
      'Events are missing in a stream: the process fell so far behind, or slept so long, that they are no longer held; or it subscribed while a long commit was under way.',
    remedy:
      'Look at the jobs themselves, with `list` and `get`; keep the event loop free, or raise `ring` and `ringBytes` of the store.',
  },
  LISTENER_FAILED: {
    summary: 'An event listener threw or rejected; the queue or worker goes on.',
    remedy: 'Correct the listener; what it threw is in `cause`.',
  },
  CALLBACK_FAILED: {
    summary:
      'A function given to Millrace (middleware, logger, retry rule, callback of retention) threw or answered nonsense.',
    remedy: 'Correct that function; what it threw is in `cause`.',
  },

  // Conformance of a store.
} as const satisfies Record<string, ErrorEntry>
