// upkeep/recovery.ts: recovers the jobs of dead workers before their leases expire.
import type { JobRecord } from '../job/job.js'
import { statesFor } from '../job/lifecycle.js'
import { orphaned } from '../job/moves.js'
import type { Recovery } from '../job/moves.js'
import { readCell } from '../job/limits.js'
import type { WorkerCell } from '../store/settings.js'
import type { Connection } from '../store/connection.js'
import { runSteps } from '../store/maybe-sync.js'
import { pages } from '../store/read-pages.js'
import { REVOKED_LISTED } from '../store/store.js'
import type { Cell, Group } from '../store/store.js'

/** Options of a recovery. */
export interface RecoveryOptions {
  readonly connection: Connection
  /** The queues and jobs that it may recover. */
  readonly queues: readonly string[]
  handles(job: JobRecord): boolean
  readonly recovery: Recovery
  /** Whether to stop. */
  stopped(): boolean
  /** A job was recovered by these changes. */
  applied(job: JobRecord, changes: Group): void
}

/**
 * Retries or fails the jobs of the dead workers among the entries. Any number of these may run at once: every change is
 * fenced, and a live worker is never mistaken for a dead one. Removes the entries of which nothing is left to recover.
 */
export async function recover(cells: readonly Cell[], options: RecoveryOptions): Promise<void> {
  const { connection, queues, stopped } = options
  const dead = deadAmong(cells, options)
  if (dead.size === 0) return
  /** The dead workers with jobs left that other workers have to recover. */
  const unsettled = new Set<string>()
  for (const queue of queues.filter((each) => [...dead.values()].some((worker) => worker.queues.includes(each)))) {
    for (const page of pages(connection.store, { queue, states: statesFor.recover })) {
      if (stopped()) return
      const held = (await runSteps(page)).filter((job) => job.worker !== undefined && dead.has(job.worker))
      const own = held.filter((job) => options.handles(job))
      const left = [...held.filter((job) => !own.includes(job)), ...(await takeOver(own, options))]
      for (const { worker } of left) unsettled.add(worker!)
    }
  }
  await endRevokedLeases([...dead.keys()], options)
  const settled = [...dead].filter(
    ([id, worker]) => !unsettled.has(id) && worker.queues.every((queue) => queues.includes(queue)),
  )
  await Promise.all(
    settled.map(([, { key, version }]) =>
      connection.renewals.tryCommit([{ kind: 'put', key, value: undefined, version, events: [] }]),
    ),
  )
}

/**
 * Ends the leases of dead workers whose jobs were moved meanwhile: their handlers are gone, and `recover` does not find
 * those jobs.
 */
async function endRevokedLeases(workers: readonly string[], { connection, stopped }: RecoveryOptions): Promise<void> {
  for (;;) {
    if (stopped()) return
    const { revoked = [] } = await connection.store.details({ revokedFrom: workers })
    if (revoked.length === 0) return
    const verdicts = await connection.renewals.renew(
      revoked.map(({ id, fence }) => ({ id, fence, lease: 0, started: false })),
    )
    if (revoked.length < REVOKED_LISTED || !verdicts.some(({ ok }) => ok)) return
  }
}

/** A dead worker. */
type Dead = Pick<WorkerCell, 'queues'> & Pick<Cell, 'key' | 'version'>

function deadAmong(cells: readonly Cell[], { connection, queues }: RecoveryOptions): ReadonlyMap<string, Dead> {
  const { processes } = connection.runtime
  const dead = new Map<string, Dead>()
  if (processes === undefined) return dead
  for (const { key, value, version } of cells) {
    const { id, origin, queues: theirs = [] } = readCell<WorkerCell>(value)
    if (id === undefined || origin === undefined || !theirs.some((queue) => queues.includes(queue))) continue
    if (processes.gone(origin)) dead.set(id, { key, version, queues: theirs })
  }
  return dead
}

/** Recovers jobs of dead workers; returns those that could not be moved and still belong to them. */
async function takeOver(
  jobs: readonly JobRecord[],
  { connection, recovery, applied }: RecoveryOptions,
): Promise<readonly JobRecord[]> {
  const groups = jobs.map((job) => orphaned(job, recovery))
  const verdicts = await Promise.all(groups.map((group) => connection.main.tryCommit(group)))
  for (const [at, job] of jobs.entries()) if (verdicts[at]!.ok) applied(job, groups[at]!)
  const taken = jobs.filter((_, at) => verdicts[at]!.ok)
  // Their handlers are gone, so they must not count against limits until their leases expire.
  if (taken.length > 0) {
    await connection.renewals.renew(taken.map(({ id, fence }) => ({ id, fence, lease: 0, started: false })))
  }
  return jobs.filter((_, at) => {
    const verdict = verdicts[at]!
    return !verdict.ok && verdict.why !== 'fence' && verdict.why !== 'missing'
  })
}
