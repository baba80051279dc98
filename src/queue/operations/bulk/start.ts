// queue/operations/bulk/start.ts: begins bulk operations: left to the workers of the queue, or worked on by the caller.
import { bulkId, newBulk, readBulkProgress } from '../../../job/bulk.js'
import { MillraceError } from '../../../job/errors/errors.js'
import { isFinished } from '../../../job/job.js'
import type { JobRecord, Millis } from '../../../job/job.js'
import type { Connection } from '../../../store/connection.js'
import { step } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import { sleep } from '../../../store/runtime.js'
import type { Session } from '../../../store/session.js'
import { continueBulk, runBulk } from './run.js'
import type { BulkRunner } from './run.js'
import type { BulkSpec } from './spec.js'

/** How long a caller that is silent keeps its operation to itself. */
const LEASE: Millis = 10_000

/** How often a caller looks at an operation that another process works on, or that is paused. */
const LOOK_EVERY: Millis = 1000

/** Where an operation begins. */
export interface StartScope {
  readonly queue: string
  readonly session: Session
  readonly connection: Connection
}

/** Adds the row of an operation; workers of the queue begin at once, or after `startsIn`. */
export function* addBulk({ queue, session, connection }: StartScope, spec: BulkSpec, startsIn = 0): Steps<JobRecord> {
  const insert = newBulk(bulkId(connection.runtime.id()), queue, JSON.stringify(spec), startsIn)
  const verdict = yield* step(session.commit([insert]))
  if (verdict.ok) return verdict.inserted[0]!
  throw new MillraceError('STORE_UNAVAILABLE', `The store refused the operation: ${verdict.why}.`)
}

/**
 * Changes all jobs that a spec finds, and returns how many. The caller does the work, because the queue may have no
 * worker; if its process dies, a worker continues.
 */
export function* operateHere(scope: StartScope, spec: BulkSpec): Steps<number> {
  const row = yield* addBulk(scope, spec, LEASE)
  return yield* step(driveToEnd(scope.connection, row))
}

async function driveToEnd(connection: Connection, row: JobRecord): Promise<number> {
  const { runtime, store } = connection
  const skew = row.createdAt - runtime.now()
  const runner: BulkRunner = { connection, lease: LEASE, now: () => runtime.now() + skew, stopped: () => false }
  await continueBulk(runner, row)
  for (let last = row; ; await sleep(runtime, LOOK_EVERY)) {
    const [current] = await store.get([row.id])
    if (current === undefined || isFinished(current.state)) return readBulkProgress(current ?? last).done
    last = current
    await runBulk(runner, current)
  }
}
