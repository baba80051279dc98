// features/monitored.ts: what metrics show of each queue: read in a few calls for all of them, whatever the number of jobs.
import { isReserved } from '../job/values/names.js'
import { boundsOf } from '../job/limits.js'
import type { CountsByName } from '../job/series.js'
import { workersOf } from '../queue/health/health.js'
import type { Connection } from '../store/connection.js'
import { runSteps } from '../store/maybe-sync.js'
import { readCells } from '../store/read-pages.js'
import { readTotal } from '../store/series/series-cells.js'
import { sessionFor } from '../store/session.js'
import { WORKERS, cellKey } from '../store/settings.js'
import type { QueueTally } from '../store/tally.js'

/** What metrics show of a queue. Ages are in seconds; absent where there is nothing of that kind. */
export interface Monitored {
  readonly tally: QueueTally
  /** By name: how long the oldest waiting job has waited. */
  readonly oldestWaiting: Readonly<Record<string, number>>
  readonly overdue: number | undefined
  readonly scheduleLag: number | undefined
  readonly upkeepLag: number | undefined
  readonly longestRunning: number | undefined
  readonly workers: number
  readonly slots: number
  readonly paused: boolean
  /** Everything that was ever counted, by name. */
  readonly total: CountsByName
}

/** Reads what metrics show of a queue, or of all that are wanted. Default: each is. */
export async function readMonitored(
  connection: Connection,
  queue: string | undefined,
  wanted: (queue: string) => boolean = () => true,
): Promise<readonly Monitored[]> {
  const session = sessionFor(connection)()
  const tallies = (await session.tally(queue, { heads: true })).filter((tally) => {
    return !isReserved(tally.queue) && wanted(tally.queue)
  })
  const pauses = tallies.map((tally) => cellKey.pause(tally.queue))
  const cells = await runSteps(readCells(session, WORKERS, { cells: pauses }))
  const found: Monitored[] = []
  for (const tally of tallies) {
    const { heads } = tally
    const now = heads?.now ?? connection.runtime.now()
    const age = (since: number | undefined): number | undefined =>
      since === undefined ? undefined : Math.max(0, now - since) / 1000
    const live = workersOf(cells, tally.queue, now).filter(({ state }) => state === 'running')
    const pause = cells.find(({ key }) => key === cellKey.pause(tally.queue))?.value
    found.push({
      tally,
      oldestWaiting: Object.fromEntries(
        Object.entries(heads?.waiting ?? {}).map(([name, since]) => [name, age(since) ?? 0]),
      ),
      overdue: age(heads?.delayed),
      scheduleLag: age(heads?.schedule),
      upkeepLag: age(first([heads?.overdue, heads?.lease])),
      longestRunning: age(first(Object.values(heads?.running ?? {}))),
      workers: live.length,
      slots: live.reduce((sum, { slots }) => sum + slots, 0),
      paused: boundsOf(pause, undefined).paused,
      total: await readTotal(session, tally.queue),
    })
  }
  return found
}

function first(times: readonly (number | undefined)[]): number | undefined {
  const known = times.filter((at) => at !== undefined)
  return known.length === 0 ? undefined : Math.min(...known)
}
