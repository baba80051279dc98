// queue/explain.ts: why a job is not running, for people.
import type { JobRecord, JobState, Time } from '../job/job.js'
import { decodeJson } from '../job/json.js'
import { WORKERS, cellKey } from '../store/cells.js'
import type { LimitCell, PauseCell, WorkerCell } from '../store/cells.js'
import type { Cell } from '../store/store.js'
import type { Way } from './way.js'

/** One reason why a job is not running. */
export type Reason =
  | { readonly why: 'finished'; readonly state: JobState; readonly at: Time | undefined }
  | { readonly why: 'running'; readonly worker: string; readonly until: Time }
  | { readonly why: 'delayed'; readonly until: Time | undefined }
  | { readonly why: 'dependencies'; readonly waitsFor: readonly string[]; readonly broken: readonly string[] }
  | { readonly why: 'paused'; readonly queue: string; readonly name?: string }
  | { readonly why: 'limit'; readonly of: 'queue' | 'name'; readonly concurrency: number }
  | { readonly why: 'no-worker'; readonly queue: string; readonly name: string; readonly version: number }
  | { readonly why: 'next' }

/** Why a job is not running: the reasons for programs, and a text for people. */
export interface Explanation {
  /** The job. */
  readonly id: string
  /** Its state when it was looked at. */
  readonly state: JobState
  /** All reasons there are, for programs. */
  readonly reasons: readonly Reason[]
  /** The same as a sentence, for people. */
  readonly text: string
}

/** A worker that was not seen for this many of its own intervals is taken for dead. */
const MISSED = 3

/** Workers seen lately, of those that were registered. */
export function liveWorkers(cells: readonly Cell[], now: Time): readonly WorkerCell[] {
  return cells
    .map((cell) => ({ cell, worker: decodeJson(cell.value) as unknown as WorkerCell }))
    .filter(({ cell, worker }) => now - cell.at <= MISSED * worker.every)
    .map(({ worker }) => worker)
}

/** Looks at everything that can hold a job back. */
export async function explain(way: Way, record: JobRecord, now: Time): Promise<Explanation> {
  const reasons = await reasonsFor(way, record, now)
  const text = `Job ${record.id} (${record.name} in ${record.queue}) ${reasons.map(describe).join('; and ')}.`
  return { id: record.id, state: record.state, reasons, text }
}

async function reasonsFor(way: Way, record: JobRecord, now: Time): Promise<readonly Reason[]> {
  switch (record.state) {
    case 'completed':
    case 'failed':
    case 'cancelled':
      return [{ why: 'finished', state: record.state, at: record.finishedAt }]
    case 'active':
      return [{ why: 'running', worker: record.worker ?? '', until: record.leaseUntil ?? now }]
    case 'delayed':
      return [{ why: 'delayed', until: record.runAt }]
    case 'waiting-children': {
      const { jobs } = await way.details({ jobs: [record.id] })
      const edges = jobs[0]?.edges ?? []
      const chains = (state: string): string[] => edges.filter((edge) => edge.state === state).map((edge) => edge.chain)
      return [{ why: 'dependencies', waitsFor: chains('open'), broken: chains('broken') }]
    }
    case 'waiting':
      return held(way, record, now)
  }
}

async function held(way: Way, record: JobRecord, now: Time): Promise<readonly Reason[]> {
  const { queue, name } = record
  const { cells } = await way.details({ cells: [cellKey.pause(queue), cellKey.limit(queue)], cellsUnder: WORKERS })
  const read = (key: string): unknown => {
    const cell = cells.find((each) => each.key === key)
    return cell === undefined ? undefined : decodeJson(cell.value)
  }
  const reasons: Reason[] = []
  const pause = read(cellKey.pause(queue)) as PauseCell | undefined
  if (pause?.all === true) reasons.push({ why: 'paused', queue })
  if (pause?.names.includes(name) === true) reasons.push({ why: 'paused', queue, name })
  const limit = read(cellKey.limit(queue)) as LimitCell | undefined
  if (limit !== undefined) reasons.push(...(await reached(way, limit, queue, name)))
  const workers = liveWorkers(
    cells.filter((cell) => cell.key.startsWith(WORKERS)),
    now,
  )
  const handled = workers.some(
    (worker) =>
      worker.state === 'running' &&
      worker.queues.includes(queue) &&
      (worker.names?.includes(name) ?? true) &&
      (worker.versions[name]?.includes(record.version) ?? true),
  )
  if (!handled) reasons.push({ why: 'no-worker', queue, name, version: record.version })
  return reasons.length > 0 ? reasons : [{ why: 'next' }]
}

async function reached(way: Way, limit: LimitCell, queue: string, name: string): Promise<readonly Reason[]> {
  const [tally] = await way.tally(queue)
  const leases = tally?.leases ?? {}
  const active = Object.values(leases).reduce((sum, count) => sum + count, 0)
  const ofName = leases[name] ?? 0
  const bound = limit.names?.[name]?.concurrency
  return [
    ...(limit.concurrency !== undefined && active >= limit.concurrency
      ? [{ why: 'limit', of: 'queue', concurrency: limit.concurrency } as const]
      : []),
    ...(bound !== undefined && ofName >= bound ? [{ why: 'limit', of: 'name', concurrency: bound } as const] : []),
  ]
}

function describe(reason: Reason): string {
  switch (reason.why) {
    case 'finished':
      return `has finished: ${reason.state}`
    case 'running':
      return `is running: worker ${reason.worker} holds its lease until ${date(reason.until)}`
    case 'delayed':
      return `is delayed until ${date(reason.until)}`
    case 'dependencies':
      return reason.broken.length > 0
        ? `waits for a decision, because ${reason.broken.join(', ')} failed or was cancelled`
        : `waits for ${reason.waitsFor.join(', ')}`
    case 'paused':
      return reason.name === undefined
        ? `is held back: queue ${reason.queue} is paused`
        : `is held back: '${reason.name}' is paused in queue ${reason.queue}`
    case 'limit':
      return `is held back: the ${reason.of} is at its limit of ${reason.concurrency} at a time`
    case 'no-worker':
      return `is waiting, but no live worker handles version ${reason.version} of '${reason.name}' in queue ${reason.queue}`
    case 'next':
      return 'is waiting for its turn: live workers handle it, and those before it go first'
  }
}

function date(time: Time | undefined): string {
  return time === undefined ? 'no date' : new Date(time).toISOString()
}
