// queue/explain.ts: explains to people and programs why a job is not running.
import { isFinished } from '../job/job.js'
import { isFor } from '../job/holds.js'
import type { JobRecord, JobState, Millis, Time } from '../job/job.js'
import { decodeJson } from '../job/values/json.js'
import { hasExpired, isCancelReason } from '../job/lifecycle.js'
import { isSignalId, readSignal } from '../job/signals.js'
import { DELIVERIES, deliveryPending } from '../job/webhooks.js'
import { WORKERS, cellKey } from '../store/settings.js'
import type { WorkerCell } from '../store/settings.js'
import type { LimitCell, PauseCell } from '../job/limits.js'
import { pages, readCells } from '../store/read-pages.js'
import { runSteps } from '../store/maybe-sync.js'
import type { Cell } from '../store/store.js'
import { readHolds } from './settings/holds.js'
import { describeCycle, findCycle } from './flows/cycles.js'
import type { Session } from '../store/session.js'

/** One reason why a job is not running. */
export type Reason =
  /** It finished in this state at this time; `reason`: why it was cancelled, if given. */
  | { readonly why: 'finished'; readonly state: JobState; readonly at: Time | undefined; readonly reason?: string }
  /** Its webhook delivery is pending; `sent`: whether a live worker, made on a queue with `webhook`, delivers it. */
  | { readonly why: 'delivery'; readonly url: string; readonly queue: string; readonly sent: boolean }
  /** It is running: the worker's lease expires at `until` unless the worker renews it. */
  | { readonly why: 'running'; readonly worker: string; readonly until: Time }
  /** It was not started in time and will never run: upkeep is about to cancel it. */
  | { readonly why: 'expired'; readonly at: Time }
  /** It is delayed until this time. */
  | { readonly why: 'delayed'; readonly until: Time | undefined }
  /** It is a schedule, not a job; its `next` run is at this time. */
  | { readonly why: 'schedule'; readonly next: Time | undefined }
  /** It waits for these chains. `broken`: these failed, and upkeep is about to decide what that means for the job. */
  | { readonly why: 'dependencies'; readonly waitsFor: readonly string[]; readonly broken: readonly string[] }
  /** It waits in a cycle, for ever: each of these jobs waits for the next, from the job back to itself. */
  | { readonly why: 'cycle'; readonly jobs: readonly string[] }
  /** It waits for the signal of this name, at most until `until`; undefined: without a timeout. */
  | { readonly why: 'signal'; readonly name: string; readonly until: Time | undefined }
  /** The queue is paused; with a `name`, only jobs of that name are. */
  | { readonly why: 'paused'; readonly queue: string; readonly name?: string }
  /**
   * Its queue, name or group is held until this time; `by`: the worker that holds it, or what the caller of `queue.hold`
   * gave; `job`: the job whose handler called `ctx.hold`.
   */
  | {
      readonly why: 'held'
      readonly of: 'queue' | 'name' | 'group'
      readonly until: Time
      readonly by?: string
      readonly job?: string
    }
  /** The concurrency limit of its queue, name or group is reached. */
  | { readonly why: 'limit'; readonly of: 'queue' | 'name' | 'group'; readonly concurrency: number }
  /** A rate limit applies to its queue, name or group: at most `max` jobs start in `per` milliseconds. */
  | { readonly why: 'rate'; readonly of: 'queue' | 'name' | 'group'; readonly max: number; readonly per: Millis }
  /**
   * No live worker handles this version of its name. `known`: the versions of the name that live workers handle, if
   * any.
   */
  | {
      readonly why: 'no-worker'
      readonly queue: string
      readonly name: string
      readonly version: number
      readonly known: readonly number[]
    }
  /** Nothing blocks it: it runs when a worker has a free slot and it is next in claim order. */
  | { readonly why: 'next' }

/** Why a job is not running: reasons for programs, and a text for people. */
export interface Explanation {
  /** The job's id. */
  readonly id: string
  /** Its state when it was read. */
  readonly state: JobState
  /** All reasons, for programs. */
  readonly reasons: readonly Reason[]
  /** The same as a sentence, for people. */
  readonly text: string
}

/** Maximum number of jobs that the text names. */
const MAX_NAMED = 10

/** A worker counts as dead after this many of its own heartbeat intervals without a heartbeat. */
const MISSED_HEARTBEATS = 3

/** The registered workers with a recent heartbeat. */
export function liveWorkers(cells: readonly Cell[], now: Time): readonly WorkerCell[] {
  return liveEntries(cells, now).map(({ worker }) => worker)
}

/** The same, each with the time of its last heartbeat. */
export function liveEntries(
  cells: readonly Cell[],
  now: Time,
): readonly { readonly worker: WorkerCell; readonly at: Time }[] {
  return cells
    .map(({ value, at }) => ({ at, worker: decodeJson(value) as unknown as WorkerCell }))
    .filter(({ at, worker }) => now - at <= MISSED_HEARTBEATS * worker.every)
}

/** Checks everything that can prevent a job from running. */
export async function explain(session: Session, record: JobRecord, now: Time): Promise<Explanation> {
  const reasons = await reasonsFor(session, record, now)
  const text = `Job ${record.id} (${record.name} in ${record.queue}) ${reasons.map(describe).join('; and ')}.`
  return { id: record.id, state: record.state, reasons, text }
}

async function reasonsFor(session: Session, record: JobRecord, now: Time): Promise<readonly Reason[]> {
  if (record.kind === 'schedule') {
    return [{ why: 'schedule', next: isFinished(record.state) ? undefined : record.runAt }]
  }
  if (record.state !== 'active' && !isFinished(record.state) && hasExpired(record, now)) {
    return [{ why: 'expired', at: record.expiresAt! }]
  }
  switch (record.state) {
    case 'completed':
    case 'failed':
    case 'cancelled': {
      const isReason = record.state === 'cancelled' && isCancelReason(record.error)
      const reason = isReason ? record.error?.message : undefined
      const finished: Reason = { why: 'finished', state: record.state, at: record.finishedAt }
      return [
        reason === undefined ? finished : { ...finished, reason },
        ...(await deliveryReasons(session, record, now)),
      ]
    }
    case 'active':
      return [{ why: 'running', worker: record.worker ?? '', until: record.leaseUntil ?? now }]
    case 'delayed':
      return [{ why: 'delayed', until: record.runAt }]
    case 'waiting-children': {
      const { jobs } = await session.details({ jobs: [record.id], parts: ['edges', 'dependents', 'related'] })
      const edges = jobs[0]?.edges ?? []
      const chains = (state: string): string[] => edges.filter((edge) => edge.state === state).map((edge) => edge.chain)
      const broken = chains('broken')
      const signals = broken.length > 0 ? [] : await signalReasons(session, chains('open'))
      if (signals.length > 0) return signals
      const waits: Reason = { why: 'dependencies', waitsFor: chains('open'), broken }
      const cycle = broken.length > 0 ? undefined : await findCycle(session, record, waits.waitsFor, [], jobs[0])
      return cycle === undefined ? [waits] : [waits, { why: 'cycle', jobs: cycle }]
    }
    case 'waiting':
      return waitingReasons(session, record, now)
  }
}

/** The pending webhook delivery of a finished job, and whether a live worker delivers it. */
async function deliveryReasons(session: Session, record: JobRecord, now: Time): Promise<readonly Reason[]> {
  if (!deliveryPending(record)) return []
  const { queue } = record
  const cells = await runSteps(readCells(session, WORKERS))
  const sent = liveWorkers(cells, now).some(
    ({ state, queues, names }) => state === 'running' && queues.includes(DELIVERIES) && names?.includes(queue) === true,
  )
  return [{ why: 'delivery', url: record.extras!.webhook!.url, queue, sent }]
}

/** The signals among the chains that a job waits for. A job that waits for a signal waits for nothing else. */
async function signalReasons(session: Session, chains: readonly string[]): Promise<readonly Reason[]> {
  const rows = await session.getAll(chains.filter(isSignalId))
  return rows.flatMap((row): Reason[] => {
    if (row === undefined) return []
    const { name, timeout } = readSignal(row)
    return [{ why: 'signal', name, until: timeout === undefined ? undefined : row.runAt }]
  })
}

async function waitingReasons(session: Session, record: JobRecord, now: Time): Promise<readonly Reason[]> {
  const { queue, name } = record
  const cells = await runSteps(readCells(session, WORKERS, { cells: [cellKey.pause(queue), cellKey.limit(queue)] }))
  const read = (key: string): unknown => {
    const cell = cells.find((each) => each.key === key)
    return cell === undefined ? undefined : decodeJson(cell.value)
  }
  const reasons: Reason[] = []
  const pause = read(cellKey.pause(queue)) as PauseCell | undefined
  if (pause?.all === true) reasons.push({ why: 'paused', queue })
  if (pause?.names.includes(name) === true) reasons.push({ why: 'paused', queue, name })
  for (const hold of readHolds(pause ?? {}, now)) {
    if (!isFor(hold, record)) continue
    const of = hold.name !== undefined ? 'name' : hold.group !== undefined ? 'group' : 'queue'
    const { until, by, job } = hold
    reasons.push({ why: 'held', of, until, ...(by !== undefined && { by }), ...(job !== undefined && { job }) })
  }
  const limit = read(cellKey.limit(queue)) as LimitCell | undefined
  if (limit !== undefined) reasons.push(...(await limitReasons(session, limit, record)))
  const workers = liveWorkers(
    cells.filter((cell) => cell.key.startsWith(WORKERS)),
    now,
  )
  const versions = workers
    .filter(
      ({ state, queues, names }) => state === 'running' && queues.includes(queue) && (names?.includes(name) ?? true),
    )
    .map((worker) => worker.versions[name])
  if (!versions.some((known) => known?.includes(record.version) ?? true)) {
    const known = [...new Set(versions.flatMap((each) => each ?? []))].toSorted((a, b) => a - b)
    reasons.push({ why: 'no-worker', queue, name, version: record.version, known })
  }
  return reasons.length > 0 ? reasons : [{ why: 'next' }]
}

/** Counting the active jobs of a group ends here. */
const MAX_COUNTED = 1000

async function countActive(session: Session, queue: string, group: string): Promise<number> {
  let count = 0
  for (const page of pages(session, { queue, group, states: ['active'] })) {
    count += (await runSteps(page)).length
    if (count >= MAX_COUNTED) break
  }
  return count
}

async function limitReasons(
  session: Session,
  limit: LimitCell,
  { queue, name, group }: JobRecord,
): Promise<readonly Reason[]> {
  const [tally] = await session.tally(queue)
  const leases = tally?.leases ?? {}
  const active = Object.values(leases).reduce((sum, count) => sum + count, 0)
  const ofName = leases[name] ?? 0
  const groupLimits = group === undefined ? {} : { ...limit.group, ...limit.groups?.[group] }
  const running = (): Promise<number> => countActive(session, queue, group!)
  const bounds = [
    { of: 'queue', ...limit, count: async () => active },
    { of: 'name', ...limit.names?.[name], count: async () => ofName },
    { of: 'group', ...groupLimits, count: running },
  ] as const
  const reasons: Reason[] = []
  for (const { of, concurrency, rate, count } of bounds) {
    if (concurrency !== undefined && (await count()) >= concurrency) reasons.push({ why: 'limit', of, concurrency })
    if (rate !== undefined) reasons.push({ why: 'rate', of, max: rate.max, per: rate.per })
  }
  return reasons
}

function describe(reason: Reason): string {
  switch (reason.why) {
    case 'finished':
      return `has finished: ${reason.state}${reason.reason === undefined ? '' : ` (${reason.reason})`}`
    case 'delivery':
      return (
        `its end is still to be delivered to ${reason.url}` +
        (reason.sent
          ? ''
          : `, but no live worker sends the deliveries of queue ${reason.queue}: one made on a Queue with \`webhook\` does`)
      )
    case 'running':
      return `is running: worker ${reason.worker} holds its lease until ${formatTime(reason.until)}`
    case 'expired':
      return `was not started by ${formatTime(reason.at)}, when it expired: upkeep cancels it, which every running worker of its queue does`
    case 'delayed':
      return `is delayed until ${formatTime(reason.until)}`
    case 'schedule':
      return reason.next === undefined
        ? 'is a schedule that has ended'
        : `is a schedule, which makes its next run at ${formatTime(reason.next)}; queue.list({ schedule }) shows its runs`
    case 'dependencies':
      return reason.broken.length > 0
        ? `waits for a decision, because ${listIds(reason.broken)} failed or was cancelled`
        : `waits for ${listIds(reason.waitsFor)}`
    case 'cycle':
      return `will do so for ever: ${describeCycle(reason.jobs)}; cancel one of them`
    case 'signal':
      return `waits for signal '${reason.name}'${reason.until === undefined ? '' : `, until ${formatTime(reason.until)}`}`
    case 'paused':
      return reason.name === undefined
        ? `is held back: queue ${reason.queue} is paused`
        : `is held back: '${reason.name}' is paused in queue ${reason.queue}`
    case 'held': {
      const by = reason.by === undefined ? '' : ` by ${reason.by}`
      const job = reason.job === undefined ? '' : ` for job ${reason.job}`
      return `is held back: its ${reason.of} is held${by}${job} until ${formatTime(reason.until)}`
    }
    case 'limit':
      return `is held back: the ${reason.of} is at its limit of ${reason.concurrency} at a time`
    case 'rate':
      return `may be held back: of the ${reason.of}, no more than ${reason.max} begin in ${reason.per} ms`
    case 'no-worker':
      return (
        `is waiting, but no live worker handles version ${reason.version} of '${reason.name}' in queue ${reason.queue}` +
        (reason.known.length === 0 ? '' : `; those that handle it know version ${reason.known.join(', ')}`)
      )
    case 'next':
      return 'is waiting for its turn: live workers handle it, and those before it go first'
  }
}

/** The first ids of a long list, for people. */
function listIds(ids: readonly string[]): string {
  return ids.slice(0, MAX_NAMED).join(', ') + (ids.length > MAX_NAMED ? ` and ${ids.length - MAX_NAMED} more` : '')
}

function formatTime(time: Time | undefined): string {
  return time === undefined ? 'no date' : new Date(time).toISOString()
}
