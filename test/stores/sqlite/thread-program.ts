// A thread that opens a store on a file and reports whether it was refused. It then blocks, so that it answers no messages,
// until it is to close the store.
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { isMillraceError } from '../../../src/job/errors/errors.js'
import { sqlite } from '../../../src/sqlite.js'
import type { DatabaseClass } from '../../../src/stores/sqlite/file/driver.js'

/** The options of a thread. */
export interface ThreadOptions {
  readonly path: string
  /** A folder with another installation of `@photostructure/sqlite`; undefined: the driver is chosen by the store. */
  readonly folder: string | undefined
  /** Becomes 1 when the thread is to close its store. */
  readonly close: Int32Array
}

/** What it reports: the code of the error, if it was refused. */
export interface ThreadReport {
  readonly code: string | undefined
}

const { path, folder, close } = workerData as ThreadOptions

function copyIn(from: string): DatabaseClass {
  const load = createRequire(join(from, 'index.js'))
  return (load('@photostructure/sqlite') as { DatabaseSync: DatabaseClass }).DatabaseSync
}

const handle = folder === undefined ? undefined : new (copyIn(folder))(path)
const store = handle === undefined ? sqlite(path) : sqlite(handle)
let code: string | undefined
try {
  await store.open()
} catch (error) {
  code = isMillraceError(error) ? error.code : String(error)
}
parentPort!.postMessage({ code } satisfies ThreadReport)
Atomics.wait(close, 0, 0)
await store.close()
handle?.close()
