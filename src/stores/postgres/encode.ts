// stores/postgres/encode.ts: encodes a batch for `commit`: similar groups as runs, the others one by one.
import type { Change, Insert, MoveFields, NewJob, When } from '../../job/change.js'
import type { Time } from '../../job/job.js'
import type { Ask, Batch, Group, Renewal } from '../../store/store.js'
import { mayRollBack } from '../../job/apply.js'
import { hasEqualSettings, settingsOf } from '../job-settings.js'
import { addMove, addNote, moveRun, noteRun, packed, plainMove, plainNote } from './encode-runs.js'
import type { MoveRun, NoteRun } from './encode-runs.js'

/** The ids of a lane and of its queue. */
export interface LaneRef {
  readonly lane: number
  readonly queue: number
}

/** The fields of a job that decide its lane. */
export type LaneFields = Pick<NewJob, 'queue' | 'name' | 'version' | 'group'>

/** Whether two jobs belong to the same lane. */
export function isSameLane(a: LaneFields, b: LaneFields): boolean {
  return (
    a.name === b.name &&
    a.queue === b.queue &&
    a.version === b.version &&
    (a.group === undefined) === (b.group === undefined)
  )
}

/** Finds the ids of a job's lane; `undefined` while an open transaction is creating the lane. */
export type LaneFinder = (job: LaneFields) => LaneRef | undefined

/** New jobs that differ only in id, data, run time and group; a run of kind `d` holds jobs with dedup keys. */
interface NewRun {
  readonly k: 'i' | 'd'
  readonly q: number
  readonly qn: string
  readonly l: number
  readonly p: number
  readonly lifo: boolean
  readonly at: number | null
  readonly s: string | null
  readonly n: number[]
  readonly id: string[]
  readonly d: (string | null)[]
  readonly ra?: number[]
  readonly ri?: number[]
  readonly g?: string[]
  /** The dedup options of each job, and 1 for a job whose key an earlier job of the run has. */
  readonly dd?: string[]
  readonly u?: (0 | 1)[]
  guard?: true
}

interface OneGroup {
  readonly k: 'g'
  readonly n: number
  readonly x: readonly object[]
  /** It may be refused after some of its changes were written. */
  readonly t?: true
  /** Its other changes may touch the jobs that it inserts. */
  readonly w?: true
  /** It is a flow: jobs that depend only on each other. */
  readonly f?: true
  /** Another process may be inserting some of its ids. */
  readonly guard?: true
}

/** A group whose lane has no id yet: it is refused as `busy`. */
interface BusyGroup {
  readonly k: 'b'
  readonly n: number
  readonly id: string
}

export type Step = NewRun | MoveRun | NoteRun | OneGroup | BusyGroup

/** Whether this process generated an id, so that no other process can be inserting it at the same time. */
type IsOwnId = (id: string) => boolean

/** Encodes groups as steps, in order. */
export function encodeGroups(groups: readonly Group[], lanes: LaneFinder, isOwnId: IsOwnId): readonly Step[] {
  const steps: Step[] = []
  let ids = new Set<string>()
  let keys = new Set<string>()
  let first: NewJob | undefined
  for (const [n, group] of groups.entries()) {
    const withoutLane = group.find((change) => change.kind === 'insert' && lanes(change.job) === undefined)
    if (withoutLane?.kind === 'insert') {
      steps.push({ k: 'b', n, id: withoutLane.job.id })
      continue
    }
    const last = steps.at(-1)
    const job = plainInsert(group)
    if (job !== undefined) {
      let run = last
      if (
        (run?.k !== 'i' && run?.k !== 'd') ||
        first === undefined ||
        !hasEqualSettings(first, job) ||
        runKindOf(first.run) !== runKindOf(job.run) ||
        (first.group === undefined) !== (job.group === undefined) ||
        (first.dedup === undefined) !== (job.dedup === undefined) ||
        ids.has(job.id)
      ) {
        steps.push((run = newRun(job, lanes(job)!)))
        ids = new Set()
        keys = new Set()
        first = job
      }
      addInsert(run, job, n, isOwnId)
      ids.add(job.id)
      if (job.dedup !== undefined) {
        run.dd!.push(JSON.stringify(job.dedup))
        run.u!.push(keys.has(job.dedup.key) ? 1 : 0)
        keys.add(job.dedup.key)
      }
      continue
    }
    first = undefined
    const move = plainMove(group)
    if (move !== undefined) {
      const { id } = move.move
      let run = last
      if (run?.k !== 'm' || run.by !== move.by || ids.has(id)) {
        steps.push((run = moveRun(move.by)))
        ids = new Set()
      }
      ids.add(id)
      addMove(run, move, n)
      continue
    }
    const note = plainNote(group)
    if (note === undefined) {
      steps.push(oneGroup(group, n, lanes, isOwnId))
      continue
    }
    let run = last
    if (run?.k !== 'n' || ids.has(note.id)) {
      steps.push((run = noteRun()))
      ids = new Set()
    }
    ids.add(note.id)
    addNote(run, note, n)
  }
  return steps
}

/** The job of a group that inserts one plain job: no edges, parent or chain; it may have a dedup key. */
function plainInsert(group: Group): NewJob | undefined {
  const [change] = group
  if (group.length !== 1 || change?.kind !== 'insert') return undefined
  const { job, edges } = change
  const plain =
    edges.length === 0 &&
    job.kind === 'job' &&
    (job.state === 'waiting' ? job.run === undefined : job.state === 'delayed' && job.run !== undefined) &&
    job.parentId === undefined &&
    job.chainId === job.id &&
    job.chainIndex === 0
  return plain ? job : undefined
}

function runKindOf(when: When | undefined): 'at' | 'in' | undefined {
  return when === undefined ? undefined : 'at' in when ? 'at' : 'in'
}

function newRun(job: NewJob, { lane, queue }: LaneRef): NewRun {
  const { priority: p, lifo, run, dedup } = job
  return {
    k: dedup === undefined ? 'i' : 'd',
    q: queue,
    qn: job.queue,
    l: lane,
    p,
    lifo,
    at: attemptsOf(job),
    s: settingsOf(job),
    n: [],
    id: [],
    d: [],
    ...(run !== undefined && ('at' in run ? { ra: [] } : { ri: [] })),
    ...(job.group !== undefined && { g: [] }),
    ...(dedup !== undefined && { dd: [], u: [] }),
  }
}

function addInsert(run: NewRun, { id, data, run: when, group }: NewJob, n: number, isOwnId: IsOwnId): void {
  run.n.push(n)
  run.id.push(id)
  run.d.push(data ?? null)
  if (group !== undefined) run.g!.push(group)
  if (when !== undefined && 'at' in when) run.ra!.push(Math.floor(when.at))
  else if (when !== undefined) run.ri!.push(Math.floor(when.in))
  if (!isOwnId(id)) run.guard = true
}

function oneGroup(group: Group, n: number, lanes: LaneFinder, isOwnId: IsOwnId): OneGroup {
  const inserts = group.filter((change) => change.kind === 'insert').length
  const names = flowNames(group)
  return {
    k: 'g',
    n,
    x: group.map((change) => changeOf(change, lanes, names)),
    ...(names !== undefined && { f: true as const }),
    ...(names !== undefined && [...names.keys()].some((id) => !isOwnId(id)) && { guard: true as const }),
    ...(mayRollBack(group) && { t: true as const }),
    ...(inserts > 0 && inserts < group.length && { w: true as const }),
  }
}

/** For a flow: the names of its jobs by id. A flow inserts plain jobs, each once, that depend only on jobs before them. */
function flowNames(group: Group): ReadonlyMap<string, string> | undefined {
  if (group.length < 2) return undefined
  const names = new Map<string, string>()
  for (const change of group) {
    if (change.kind !== 'insert') return undefined
    const { job, edges } = change
    const startsChain = job.chainId === job.id && job.chainIndex === 0
    const plain = job.kind === 'job' && job.dedup === undefined && job.group === undefined && startsChain
    if (!plain || names.has(job.id) || (edges.length === 0 && job.state === 'waiting-children')) return undefined
    const waitsFor = new Set(edges.map(({ on }) => on))
    if (waitsFor.size < edges.length || edges.some(({ on }) => !names.has(on))) return undefined
    names.set(job.id, job.name)
  }
  return names
}

function changeOf(change: Change, lanes: LaneFinder, names?: ReadonlyMap<string, string>): object {
  switch (change.kind) {
    case 'insert':
      return insertOf(change, lanes, names)
    case 'move':
      return {
        k: 'm',
        id: change.id,
        f: change.fence,
        to: change.to,
        ...(change.held && { held: true }),
        ...(change.reaps && { reaps: true }),
        ...(change.place === 'new' && { new: true }),
        ...(change.why !== undefined && { why: change.why }),
        ...(change.closesBroken && { cb: true }),
        ...(change.reopens && { ro: true }),
        ...(change.waitsFor !== undefined && { edges: change.waitsFor.map(({ on, policy }) => [on, policy]) }),
        set: fieldsOf(change.set),
      }
    case 'note':
      return {
        k: 'n',
        id: change.id,
        f: change.fence,
        ...(change.held && { held: true }),
        progress: change.progress,
        d: change.data,
        ...(change.logs !== undefined && change.logs.length > 0 && { logs: change.logs }),
        memo: change.memo,
        about: change.about,
        ...(change.steps !== undefined && { steps: change.steps.map(({ name, result }) => [name, result ?? null]) }),
        ...(change.events !== undefined && { events: change.events.map(({ type, about }) => [type, about]) }),
      }
    case 'release':
      return { k: 'r', chain: change.chain, outcome: change.outcome }
    case 'put':
      return { k: 'p', key: change.key, value: change.value, v: change.version, events: change.events }
  }
}

function insertOf({ job, edges }: Insert, lanes: LaneFinder, names?: ReadonlyMap<string, string>): object {
  const { lane, queue } = lanes(job)!
  return {
    k: 'i',
    id: job.id,
    kind: job.kind,
    q: queue,
    qn: job.queue,
    l: lane,
    state: job.state,
    p: job.priority,
    lifo: job.lifo,
    at: attemptsOf(job),
    s: settingsOf(job),
    ...whenOf(job.run),
    chain: job.chainId === job.id ? null : job.chainId,
    ci: job.chainIndex,
    parent: job.parentId,
    g: job.group,
    d: job.data,
    ...(job.dedup !== undefined && { dedup: JSON.stringify(job.dedup), key: job.dedup.key, win: job.dedup.window }),
    ...(edges.length > 0 && { edges: edges.map(({ on, policy }) => [on, policy, names?.get(on)]) }),
  }
}

/** The fields that a move writes; `null` clears a field. */
function fieldsOf(set: MoveFields): object {
  return {
    attempt: set.attempt,
    stalls: set.stalls,
    d: set.data,
    p: set.priority,
    ...(set.run === null ? { ra: null } : whenOf(set.run)),
    ...(set.error !== undefined && { error: set.error === null ? null : JSON.stringify(set.error) }),
    result: set.result,
    memo: set.memo,
    si: set.staleIn,
    di: set.deleteIn,
    ...(set.stale && { stale: true }),
  }
}

function whenOf(when: When | undefined): { ra?: number; ri?: number } {
  if (when === undefined) return {}
  return 'at' in when ? { ra: Math.floor(when.at) } : { ri: Math.floor(when.in) }
}

function attemptsOf({ attempts }: NewJob): number | null {
  return attempts === Infinity ? null : attempts
}

/** Renewals with their indexes, split into rounds that contain each job at most once. */
function renewalsOf(renewals: readonly Renewal[]): readonly (readonly unknown[])[] {
  const rounds: unknown[][] = []
  const roundsOf = new Map<string, number>()
  for (const [n, { id, fence, lease, started }] of renewals.entries()) {
    const round = roundsOf.get(id) ?? 0
    roundsOf.set(id, round + 1)
    ;(rounds[round] ??= []).push([n, id, fence, Math.floor(lease), started])
  }
  return rounds
}

/** Encodes a claim with its cursors (see claim-cursors.ts). */
function askOf({ worker, queues, handles, want, ahead }: Ask, cursors: object | undefined): object {
  return {
    worker,
    queues,
    handles: handles.map(({ name, versions, lease }) => [name ?? null, versions ?? null, lease]),
    want,
    ahead,
    ...(cursors !== undefined && { cursors }),
  }
}

/** Jobs of a batch that name the lanes it adds to; a lane may appear more than once. */
export function newLanes(batch: Pick<Batch, 'groups'>): readonly NewJob[] {
  const jobs: NewJob[] = []
  let recent: NewJob | undefined
  for (const group of batch.groups) {
    for (const change of group) {
      if (change.kind !== 'insert') continue
      const { job } = change
      if (recent === undefined || !isSameLane(recent, job)) jobs.push((recent = job))
    }
  }
  return jobs
}

/** The ids of the lanes that a batch adds jobs to and of their queues, each lane once; lanes without an id are left out. */
export function lanesUsed(batch: Pick<Batch, 'groups'>, find: LaneFinder): readonly (readonly [number, number])[] {
  const used = new Map<number, number>()
  for (const job of newLanes(batch)) {
    const ref = find(job)
    if (ref !== undefined) used.set(ref.lane, ref.queue)
  }
  return [...used]
}

/** The encoded groups of a batch. */
export interface Body {
  readonly s: readonly Step[]
  /** The lanes that the batch adds to. */
  readonly lanes: readonly (readonly [lane: number, queue: number])[]
  /** The time, if it is not the server's. */
  readonly now?: Time
}

/** Encodes a body for `commit`. */
export function encodeBody({ s, ...rest }: Body): object {
  return { ...rest, s: s.map((step) => (step.k === 'm' || step.k === 'n' ? packed(step) : step)) }
}

/** Encodes a batch for `commit`. */
export function textOf(
  batch: Batch,
  body: Body,
  origin: string,
  cursors: { of(ask: Ask): object | undefined },
): string {
  return JSON.stringify({
    ...encodeBody(body),
    w: batch.writer,
    q: batch.seq,
    o: origin,
    r: renewalsOf(batch.renewals),
    a: batch.asks.map((ask) => askOf(ask, cursors.of(ask))),
  })
}
