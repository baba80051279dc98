// job/catalogue-stores.ts: the part of the catalogue that is about stores, transactions and databases.

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
    summary: 'The tables in the database were made by a later version of Millrace.',
    remedy: 'Update `millrace` here to the version that the other processes use; tables are never taken back.',
  },
} as const satisfies Record<string, ErrorEntry>
