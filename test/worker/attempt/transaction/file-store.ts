// What the tests of transactions share: a store in a file, a table of the user's beside it, and who writes to it.
import { Queue, Worker } from 'millrace'
import type { AnyJobs, GivenBy, Handler, Handlers, JobContext, QueueOptions, WorkerOptions } from 'millrace'
import type { Job } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import type { SqliteOptions } from 'millrace/sqlite'
import { closing } from '../../../setup.js'
import { drivers, freshFolder } from '../../../stores/sqlite/folder.js'

/** A store in a file. */
export type FileStore = ReturnType<typeof sqlite<string>>

/** What a callback is given to write with. */
export type FileTx = GivenBy<FileStore>

/** The context of a handler on such a store. */
export type FileContext = JobContext<FileStore>

/** A handler on such a store. */
type FileHandler = Handler<Job, unknown, unknown, FileContext>

/** A database with a table of the user's. */
export interface Scene {
  readonly path: string
  readonly store: FileStore
  readonly queue: Queue<AnyJobs, FileStore>
  worker(
    handlers: FileHandler | Handlers<AnyJobs, unknown, FileStore>,
    options?: WorkerOptions<AnyJobs, readonly [], FileStore>,
  ): Worker<AnyJobs, readonly [], FileStore>
  /** A second handle on the same file, as another process has. */
  elsewhere(): Queue<AnyJobs, FileStore>
  /** What was written to the user's table, in order. */
  effects(): readonly string[]
}

/** Makes scenes, each in a folder of its own. */
export function scenes(): (options?: {
  readonly store?: SqliteOptions
  readonly queue?: Partial<QueueOptions>
}) => Promise<Scene> {
  const file = freshFolder()
  let made = 0
  return async (options = {}) => {
    const path = file(`jobs-${++made}.db`)
    const store = closing(sqlite(path, options.store))
    await store.open()
    const { Driver } = drivers[0]!
    const own = new Driver(path)
    closing({ close: async () => void own.close() })
    own.exec('CREATE TABLE effects (id INTEGER PRIMARY KEY, what TEXT NOT NULL UNIQUE)')
    const queueOn = (on: FileStore): Queue<AnyJobs, FileStore> =>
      closing(new Queue('work', { logger: false, ...options.queue, store: on }))
    const queue = queueOn(store)
    return {
      path,
      store,
      queue,
      worker: (handlers, settings = {}) =>
        closing(
          new Worker<AnyJobs, readonly [], FileStore>(queue, handlers, { logger: false, reconnect: 5, ...settings }),
        ),
      elsewhere: () => queueOn(closing(sqlite(path))),
      effects: () => {
        const rows = own.prepare('SELECT what FROM effects ORDER BY id').all() as { what: string }[]
        return rows.map(({ what }) => what)
      },
    }
  }
}

/** Writes to the user's table within a transaction; a second time with the same words, SQLite refuses. */
export function write(tx: FileTx, what: string): void {
  tx.prepare('INSERT INTO effects (what) VALUES (?)').run(what)
}
