// conformance/resolve.ts: turns a step of a walk into a batch for the jobs and cells that are stored now.
import type { Change, Insert, NewEdge } from '../job/change.js'
import type { JobRecord, Time } from '../job/job.js'
import { isFinished } from '../job/job.js'
import * as lifecycle from '../job/lifecycle.js'
import type { Ask, Cell, Group, Renewal } from '../store/store.js'
import type { Parts } from './driver.js'
import * as changes from './changes.js'
import type { JobVerb, Pick, WalkAct, WalkAsk, WalkEdge, WalkRenewal, WalkStep } from './walk.js'

/** All durations of walks are whole minutes, so that a clock that runs by itself makes no difference. */
export const MINUTE = 60_000

/** What is stored when a step is taken. */
export interface StoredState {
  readonly jobs: readonly JobRecord[]
  readonly cells: readonly Cell[]
  /** When the walk began, by the clock of the store that receives the batch. */
  readonly began: Time
}

/** The batch of a step, given what is stored. */
export function resolve(step: WalkStep & { step: 'batch' }, stored: StoredState): Parts {
  return {
    groups: step.groups.map((acts) => resolveGroup(acts, stored)),
    renewals: step.renewals.flatMap((renewal) => resolveRenewal(renewal, stored)),
    asks: step.asks.map(resolveAsk),
  }
}

function resolveGroup(acts: readonly WalkAct[], stored: StoredState): Group {
  const group: Change[] = []
  // Each job at most once a group: a second change would carry a fence that the first one has raised.
  const touched = new Set<string>()
  for (const act of acts) {
    for (const change of resolveAct(act, stored, touched)) group.push(change)
  }
  return group
}

function resolveAct(act: WalkAct, stored: StoredState, touched: Set<string>): readonly Change[] {
  if (act.act === 'doom') return [changes.refusedChange()]
  if (act.act === 'add') return [resolveAdd(act, stored)]
  if (act.act === 'put') {
    const version = stored.cells.find(({ key }) => key === act.key)?.version ?? 0
    return [changes.put(act.key, act.value, act.old ? version + 1 : version)]
  }
  if (act.act === 'hold') return [changes.hold({ ...act.of, for: act.minutes * MINUTE }, act.queue)]
  const found = pickFrom(
    stored.jobs.filter((job) => applies(act.act, job) && (job.kind === 'job' || act.act === 'remove')),
    act.on,
  )
  if (found === undefined || touched.has(found.id)) return []
  touched.add(found.id)
  const job = act.old ? { ...found, fence: found.fence - 1 } : found
  if (act.act === 'wait') {
    const children = act.children.map((id) => changes.insert(id, job.name, { queue: job.queue, parent: job.id }))
    const edges = act.children.map((on): NewEdge => ({ on, policy: act.policy }))
    return changes.waits(job, [...resolveEdges(act.after, stored), ...edges], children)
  }
  if (act.act !== 'complete') return decide(act.act, job, act.value, stored)
  const continuation = act.next === undefined ? undefined : followUp(act.next, job, true)
  const also = act.also === undefined ? [] : [followUp(act.also, job, false)]
  return changes.complete(job, { result: { by: job.worker ?? null }, also, ...(continuation && { continuation }) })
}

function followUp(id: string, job: JobRecord, inChain: boolean): Insert {
  const chain = inChain ? { chain: { id: job.chainId, index: job.chainIndex + 1 } } : {}
  return changes.insert(id, job.name, { queue: job.queue, parent: job.id, ...chain })
}

function applies(verb: JobVerb | 'complete' | 'wait', job: JobRecord): boolean {
  switch (verb) {
    case 'retry':
      return job.state === 'failed' || job.state === 'cancelled'
    case 'promote':
      return job.state === 'delayed'
    case 'update':
      return job.state !== 'completed'
    case 'cancel':
      return !isFinished(job.state)
    case 'remove':
      return true
    case 'complete':
    case 'wait':
    case 'finish':
    case 'fail':
    case 'stumble':
    case 'snooze':
    case 'handBack':
    case 'note':
      return job.state === 'active'
  }
}

/** The other fields of a note. */
function annotation({ attempt, fence }: JobRecord): lifecycle.NoteFields {
  return {
    memo: `{"at":${attempt}}`,
    steps: [{ name: `step ${fence % 3}`, result: fence % 2 === 0 ? undefined : `[${attempt}]` }],
    events: [{ type: 'phase', about: `{"of":${attempt}}` }],
    about: '{"ž":1}',
  }
}

function decide(verb: JobVerb, job: JobRecord, value: number, { began }: StoredState): readonly Change[] {
  switch (verb) {
    case 'finish':
      return changes.complete(job)
    case 'fail':
      return changes.fail(job)
    case 'stumble':
      return changes.failAndRetry(job, value * MINUTE)
    case 'snooze':
      return changes.snooze(job, value * MINUTE)
    case 'handBack':
      return changes.handBack(job)
    case 'note':
      if (value >= 2) return [lifecycle.note(job, { progress: String(value), ...annotation(job) })]
      return changes.note(
        job,
        value % 2 === 0 ? { progress: value } : { progress: [value], logs: [`at ${value}`, 'ž'] },
      )
    case 'cancel':
      return changes.cancel(job)
    case 'retry':
      return changes.retry(job)
    case 'promote':
      return changes.promote(job)
    case 'remove':
      return changes.remove(job)
    case 'update': {
      const unstarted = job.state !== 'active' && !isFinished(job.state)
      const run = [{}, {}, { run: { at: began + 5 * MINUTE } }, { run: { in: 2 * MINUTE } }][value]
      return changes.update(job, {
        data: `{"edit":${value}}`,
        ...(unstarted && { priority: value - 1, ...run }),
      })
    }
  }
}

/** One edge for each chain: which of several policies applies to one chain is not a duty of stores. */
function resolveEdges(edges: readonly WalkEdge[], stored: StoredState): readonly NewEdge[] {
  const after = new Map<string, NewEdge>()
  for (const { on, policy } of edges) {
    const job = on === 'nobody' ? undefined : pickFrom(stored.jobs, on)
    if (on === 'nobody') after.set(on, { on, policy })
    else if (job !== undefined && !after.has(job.chainId)) after.set(job.chainId, { on: job.id, policy })
  }
  return [...after.values()]
}

function resolveAdd(act: WalkAct & { act: 'add' }, stored: StoredState): Change {
  const { run } = act
  return changes.insert(act.id, act.name, {
    ...(act.schedule && { kind: 'schedule' }),
    queue: act.queue,
    version: act.version,
    data: { from: act.id },
    priority: act.priority,
    lifo: act.lifo,
    ...(act.group !== undefined && { group: act.group }),
    attempts: act.attempts === 'endless' ? Infinity : act.attempts,
    after: resolveEdges(act.after, stored),
    ...(run && { run: 'in' in run ? { in: run.in * MINUTE } : { at: stored.began + run.at * MINUTE } }),
    ...(act.expires !== undefined && { expires: { in: act.expires * MINUTE } }),
    ...(act.key !== undefined && {
      dedup: { key: act.key, ...(act.window !== undefined && { window: act.window * MINUTE }) },
    }),
    ...(act.keep && {
      keep: {
        completed: { staleAfter: act.keep[0] * MINUTE, deleteAfter: act.keep[1] * MINUTE },
        failed: { staleAfter: act.keep[0] * MINUTE },
      },
    }),
  })
}

function resolveRenewal(renewal: WalkRenewal, stored: StoredState): readonly Renewal[] {
  const leased = stored.jobs.filter(({ state, worker }) => state === 'active' || worker !== undefined)
  const job = pickFrom(leased, renewal.on)
  if (job === undefined) return []
  // A lease of zero gives up a revoked lease: its holder knows the fence before the revocation.
  const old = renewal.old || renewal.lease === 0
  return [
    { id: job.id, fence: old ? job.fence - 1 : job.fence, lease: renewal.lease * MINUTE, started: renewal.started },
  ]
}

function resolveAsk(walkAsk: WalkAsk): Ask {
  const { worker, queues, want, ahead, versions } = walkAsk
  const handles = walkAsk.names.map((name, index) => ({
    name,
    lease: (walkAsk.lease + index) * MINUTE,
    ...(versions && { versions }),
  }))
  return { worker, queues, handles, want, ahead }
}

/** The changes that upkeep makes to due jobs. */
export function decideDue(
  jobs: readonly JobRecord[],
  now: Time,
  edges: Parameters<typeof lifecycle.due>[2][],
): readonly Group[] {
  return jobs.map((job, index) => (job.kind === 'job' ? lifecycle.due(job, now, edges[index]) : scheduleChanges(job)))
}

/** The changes of a due schedule. Some schedules do not let their runs overlap. */
function scheduleChanges(row: JobRecord): Group {
  const { id, fence, queue, name } = row
  const run = changes.insert(`${id}/${fence}`, name, {
    queue,
    parent: id,
    ...(name === 'a' && { dedup: { key: `run of ${id}` } }),
  })
  return changes.runSchedule(row, run, (1 + (fence % 4)) * MINUTE)
}

function pickFrom<T>(choices: readonly T[], pick: Pick): T | undefined {
  return choices[Math.floor(pick * choices.length)]
}
