// conformance/resolve.ts: turns a step of a walk into the batch that it means for what stands there now.
import type { Change, Insert, NewEdge } from '../job/change.js'
import type { JobRecord, Time } from '../job/job.js'
import { isFinished } from '../job/job.js'
import * as lifecycle from '../job/lifecycle.js'
import type { Ask, Cell, Group, Renewal } from '../store/store.js'
import type { Parts } from './driver.js'
import * as making from './changes.js'
import type { JobVerb, Pick, WalkAct, WalkAsk, WalkEdge, WalkRenewal, WalkStep } from './walk.js'

/** All durations of walks are whole minutes, so that a clock that ticks in between makes no difference. */
export const MINUTE = 60_000

/** What a walk finds where it stands. */
export interface Scene {
  readonly jobs: readonly JobRecord[]
  readonly cells: readonly Cell[]
  /** When the walk began, by the clock of the store that is to get the batch. */
  readonly began: Time
}

/** The batch that a step means in this scene. */
export function resolve(step: WalkStep & { step: 'batch' }, scene: Scene): Parts {
  return {
    groups: step.groups.map((acts) => resolveGroup(acts, scene)),
    renewals: step.renewals.flatMap((renewal) => resolveRenewal(renewal, scene)),
    asks: step.asks.map(resolveAsk),
  }
}

function resolveGroup(acts: readonly WalkAct[], scene: Scene): Group {
  const group: Change[] = []
  // Each job once a group: a second change of it is made for a fence that the first has taken up.
  const met = new Set<string>()
  for (const act of acts) {
    for (const change of resolveAct(act, scene, met)) group.push(change)
  }
  return group
}

function resolveAct(act: WalkAct, scene: Scene, met: Set<string>): readonly Change[] {
  if (act.act === 'doom') return [making.doom()]
  if (act.act === 'add') return [resolveAdd(act, scene)]
  if (act.act === 'put') {
    const version = scene.cells.find(({ key }) => key === act.key)?.version ?? 0
    return [making.put(act.key, act.value, act.old ? version + 1 : version)]
  }
  const found = picked(
    scene.jobs.filter((job) => suits(act.act, job) && (job.kind === 'job' || act.act === 'remove')),
    act.on,
  )
  if (found === undefined || met.has(found.id)) return []
  met.add(found.id)
  const job = act.old ? { ...found, fence: found.fence - 1 } : found
  if (act.act === 'wait') {
    const children = act.children.map((id) => making.insert(id, job.name, { queue: job.queue, parent: job.id }))
    const edges = act.children.map((on): NewEdge => ({ on, policy: act.policy }))
    return making.waits(job, [...resolveEdges(act.after, scene), ...edges], children)
  }
  if (act.act !== 'complete') return decide(act.act, job, act.value, scene)
  const continuation = act.next === undefined ? undefined : successor(act.next, job, true)
  const also = act.also === undefined ? [] : [successor(act.also, job, false)]
  return making.complete(job, { result: { by: job.worker ?? null }, also, ...(continuation && { continuation }) })
}

function successor(id: string, of: JobRecord, inChain: boolean): Insert {
  const chain = inChain ? { chain: { id: of.chainId, index: of.chainIndex + 1 } } : {}
  return making.insert(id, of.name, { queue: of.queue, parent: of.id, ...chain })
}

function suits(verb: JobVerb | 'complete' | 'wait', job: JobRecord): boolean {
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

/** What else a note can say. */
function annotation({ attempt, fence }: JobRecord): lifecycle.NoteFields {
  return {
    memo: `{"at":${attempt}}`,
    steps: [{ name: `step ${fence % 3}`, result: fence % 2 === 0 ? undefined : `[${attempt}]` }],
    tells: [{ type: 'phase', about: `{"of":${attempt}}` }],
    about: '{"ž":1}',
  }
}

function decide(verb: JobVerb, job: JobRecord, value: number, { began }: Scene): readonly Change[] {
  switch (verb) {
    case 'finish':
      return making.complete(job)
    case 'fail':
      return making.fail(job)
    case 'stumble':
      return making.stumble(job, value * MINUTE)
    case 'snooze':
      return making.snooze(job, value * MINUTE)
    case 'handBack':
      return making.handBack(job)
    case 'note':
      if (value >= 2) return [lifecycle.note(job, { progress: String(value), ...annotation(job) })]
      return making.note(job, value % 2 === 0 ? { progress: value } : { progress: [value], logs: [`at ${value}`, 'ž'] })
    case 'cancel':
      return making.cancel(job)
    case 'retry':
      return making.retry(job)
    case 'promote':
      return making.promote(job)
    case 'remove':
      return making.remove(job)
    case 'update': {
      const unstarted = job.state !== 'active' && !isFinished(job.state)
      const run = [{}, {}, { run: { at: began + 5 * MINUTE } }, { run: { in: 2 * MINUTE } }][value]
      return making.update(job, {
        data: `{"edit":${value}}`,
        ...(unstarted && { priority: value - 1, ...run }),
      })
    }
  }
}

/** Which policy counts among several edges to one chain is not a duty: each chain is waited for once. */
function resolveEdges(edges: readonly WalkEdge[], scene: Scene): readonly NewEdge[] {
  const after = new Map<string, NewEdge>()
  for (const { on, policy } of edges) {
    const job = on === 'nobody' ? undefined : picked(scene.jobs, on)
    if (on === 'nobody') after.set(on, { on, policy })
    else if (job !== undefined && !after.has(job.chainId)) after.set(job.chainId, { on: job.id, policy })
  }
  return [...after.values()]
}

function resolveAdd(act: WalkAct & { act: 'add' }, scene: Scene): Change {
  const { run } = act
  return making.insert(act.id, act.name, {
    ...(act.schedule && { kind: 'schedule' }),
    queue: act.queue,
    version: act.version,
    data: { from: act.id },
    priority: act.priority,
    lifo: act.lifo,
    ...(act.group !== undefined && { group: act.group }),
    attempts: act.attempts === 'endless' ? Infinity : act.attempts,
    after: resolveEdges(act.after, scene),
    ...(run && { run: 'in' in run ? { in: run.in * MINUTE } : { at: scene.began + run.at * MINUTE } }),
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

function resolveRenewal(renewal: WalkRenewal, scene: Scene): readonly Renewal[] {
  const taken = scene.jobs.filter(({ state, worker }) => state === 'active' || worker !== undefined)
  const job = picked(taken, renewal.on)
  if (job === undefined) return []
  // A lease of zero speaks of a job that was taken away: its holder knows the fence before.
  const old = renewal.old || renewal.lease === 0
  return [
    { id: job.id, fence: old ? job.fence - 1 : job.fence, lease: renewal.lease * MINUTE, started: renewal.started },
  ]
}

function resolveAsk(wish: WalkAsk): Ask {
  const { worker, queues, want, ahead, versions } = wish
  const handles = wish.names.map((name, index) => ({
    name,
    lease: (wish.lease + index) * MINUTE,
    ...(versions && { versions }),
  }))
  return { worker, queues, handles, want, ahead }
}

/** What upkeep decides about these jobs. */
export function decideDue(
  jobs: readonly JobRecord[],
  now: Time,
  edges: Parameters<typeof lifecycle.due>[2][],
): readonly Group[] {
  return jobs.map((job, index) => (job.kind === 'job' ? lifecycle.due(job, now, edges[index]) : roundOf(job)))
}

/** What a due schedule does; some of them do not let their runs overlap. */
function roundOf(row: JobRecord): Group {
  const { id, fence, queue, name } = row
  const run = making.insert(`${id}/${fence}`, name, {
    queue,
    parent: id,
    ...(name === 'a' && { dedup: { key: `run of ${id}` } }),
  })
  return making.round(row, run, (1 + (fence % 4)) * MINUTE)
}

function picked<T>(choices: readonly T[], pick: Pick): T | undefined {
  return choices[Math.floor(pick * choices.length)]
}
