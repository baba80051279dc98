// stores/postgres/encode.ts: a batch as the function `commit_v1` takes it: groups alike in runs, the rest one by one.
import type { Change, Insert, MoveFields, NewJob, When } from '../../job/change.js'
import type { Time } from '../../job/job.js'
import type { Ask, Batch, Group, Renewal } from '../../store/store.js'
import { mayRollBack } from '../apply.js'
import { isAlike, settingsOf } from '../job-settings.js'
import { addMove, addNote, moveRun, noteRun, packed, plainMove, plainNote } from './encode-runs.js'
import type { MoveRun, NoteRun } from './encode-runs.js'

/** The numbers of a lane and of its queue. */
export interface LaneNumbers {
  readonly lane: number
  readonly queue: number
}

/** What says in which lane a job stands. */
export type Named = Pick<NewJob, 'queue' | 'name' | 'version' | 'group'>

/** Whether two jobs stand in one lane. */
export function isSameLane(a: Named, b: Named): boolean {
  return (
    a.name === b.name &&
    a.queue === b.queue &&
    a.version === b.version &&
    (a.group === undefined) === (b.group === undefined)
  )
}

/** Finds the numbers of lanes; one that somebody's open transaction is making has none yet. */
export type LaneFinder = (job: Named) => LaneNumbers | undefined

/** New jobs that differ in no more than id, data and time; in their groups and dedup keys (`d`), if they have any. */
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
  /** What they say of their keys, and which have the key of one before them in the run (1). */
  readonly dd?: string[]
  readonly u?: (0 | 1)[]
  guard?: true
}

interface OneGroup {
  readonly k: 'g'
  readonly n: number
  readonly x: readonly object[]
  /** It may be refused after some of it was written. */
  readonly t?: true
  /** What it inserts may be touched by the rest of it. */
  readonly w?: true
  /** It is a flow: jobs that wait for nothing but each other. */
  readonly f?: true
  /** Some of its ids may be somebody else's. */
  readonly guard?: true
}

/** A group whose lane has no number yet: it is told to try again. */
interface Busy {
  readonly k: 'b'
  readonly n: number
  readonly id: string
}

export type Step = NewRun | MoveRun | NoteRun | OneGroup | Busy

/** Whether an id is one that nobody else can be adding at the same time. */
type Own = (id: string) => boolean

/** The steps that groups come to. */
export function stepsOf(groups: readonly Group[], lanes: LaneFinder, own: Own): readonly Step[] {
  const steps: Step[] = []
  let ids = new Set<string>()
  let keys = new Set<string>()
  let first: NewJob | undefined
  for (const [n, group] of groups.entries()) {
    const homeless = group.find((change) => change.kind === 'insert' && lanes(change.job) === undefined)
    if (homeless?.kind === 'insert') {
      steps.push({ k: 'b', n, id: homeless.job.id })
      continue
    }
    const last = steps.at(-1)
    const job = plainInsert(group)
    if (job !== undefined) {
      let run = last
      if (
        (run?.k !== 'i' && run?.k !== 'd') ||
        first === undefined ||
        !isAlike(first, job) ||
        kindOf(first.run) !== kindOf(job.run) ||
        (first.group === undefined) !== (job.group === undefined) ||
        (first.dedup === undefined) !== (job.dedup === undefined) ||
        ids.has(job.id)
      ) {
        steps.push((run = newRun(job, lanes(job)!)))
        ids = new Set()
        keys = new Set()
        first = job
      }
      extend(run, job, n, own)
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
      steps.push(oneGroup(group, n, lanes, own))
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

/** The one job that a group adds, if there is nothing special about it, but maybe a dedup key. */
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

function kindOf(when: When | undefined): 'at' | 'in' | undefined {
  return when === undefined ? undefined : 'at' in when ? 'at' : 'in'
}

function newRun(job: NewJob, { lane, queue }: LaneNumbers): NewRun {
  const { priority: p, lifo, run, dedup } = job
  return {
    k: dedup === undefined ? 'i' : 'd',
    q: queue,
    qn: job.queue,
    l: lane,
    p,
    lifo,
    at: bounded(job.attempts),
    s: settingsOf(job),
    n: [],
    id: [],
    d: [],
    ...(run !== undefined && ('at' in run ? { ra: [] } : { ri: [] })),
    ...(job.group !== undefined && { g: [] }),
    ...(dedup !== undefined && { dd: [], u: [] }),
  }
}

function extend(run: NewRun, { id, data, run: when, group }: NewJob, n: number, own: Own): void {
  run.n.push(n)
  run.id.push(id)
  run.d.push(data ?? null)
  if (group !== undefined) run.g!.push(group)
  if (when !== undefined && 'at' in when) run.ra!.push(Math.floor(when.at))
  else if (when !== undefined) run.ri!.push(Math.floor(when.in))
  if (!own(id)) run.guard = true
}

function oneGroup(group: Group, n: number, lanes: LaneFinder, own: Own): OneGroup {
  const inserts = group.filter((change) => change.kind === 'insert').length
  const names = flowOf(group)
  return {
    k: 'g',
    n,
    x: group.map((change) => changeOf(change, lanes, names)),
    ...(names !== undefined && { f: true as const }),
    ...(names !== undefined && [...names.keys()].some((id) => !own(id)) && { guard: true as const }),
    ...(mayRollBack(group) && { t: true as const }),
    ...(inserts > 0 && inserts < group.length && { w: true as const }),
  }
}

/** The names of new jobs by their ids, if each is new to the group, plain, and waits for none but those before it. */
function flowOf(group: Group): ReadonlyMap<string, string> | undefined {
  if (group.length < 2) return undefined
  const names = new Map<string, string>()
  for (const change of group) {
    if (change.kind !== 'insert') return undefined
    const { job, edges } = change
    const alone = job.chainId === job.id && job.chainIndex === 0
    const plain = job.kind === 'job' && job.dedup === undefined && job.group === undefined && alone
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
        ...(change.tells !== undefined && { tells: change.tells.map(({ type, about }) => [type, about]) }),
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
    at: bounded(job.attempts),
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

/** What a move writes: `null` empties a field. */
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

function bounded(attempts: number): number | null {
  return attempts === Infinity ? null : attempts
}

/** Renewals in rounds, in each of which a job is there once at most, each with its number. */
function renewalsOf(renewals: readonly Renewal[]): readonly (readonly unknown[])[] {
  const rounds: unknown[][] = []
  const seen = new Map<string, number>()
  for (const [n, { id, fence, lease, started }] of renewals.entries()) {
    const round = seen.get(id) ?? 0
    seen.set(id, round + 1)
    ;(rounds[round] ??= []).push([n, id, fence, Math.floor(lease), started])
  }
  return rounds
}

/** An ask, with the places below which nothing is known to wait. */
function askOf({ worker, queues, handles, want, ahead }: Ask, floors: object | undefined): object {
  return {
    worker,
    queues,
    handles: handles.map(({ name, versions, lease }) => [name ?? null, versions ?? null, lease]),
    want,
    ahead,
    ...(floors !== undefined && { floors }),
  }
}

/** The lanes that a batch adds jobs to. */
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

/** The numbers of the lanes that a batch adds jobs to, each once, as far as they are known. */
export function lanesUsed(batch: Pick<Batch, 'groups'>, find: LaneFinder): readonly (readonly [number, number])[] {
  const used = new Map<number, number>()
  for (const job of newLanes(batch)) {
    const numbers = find(job)
    if (numbers !== undefined) used.set(numbers.lane, numbers.queue)
  }
  return [...used]
}

/** The steps that a batch comes to, the lanes it adds to, and the time where it is not the server's. */
export interface Body {
  readonly s: readonly Step[]
  /** The lanes that it adds to. */
  readonly lanes: readonly (readonly [lane: number, queue: number])[]
  readonly now?: Time
}

/** A body as `commit_v1` takes it. */
export function written({ s, ...rest }: Body): object {
  return { ...rest, brief: true, s: s.map((step) => (step.k === 'm' || step.k === 'n' ? packed(step) : step)) }
}

/** A batch as `commit_v1` takes it. */
export function textOf(batch: Batch, body: Body, origin: string, floors: { of(ask: Ask): object | undefined }): string {
  return JSON.stringify({
    ...written(body),
    w: batch.writer,
    q: batch.seq,
    o: origin,
    r: renewalsOf(batch.renewals),
    a: batch.asks.map((ask) => askOf(ask, floors.of(ask))),
  })
}
