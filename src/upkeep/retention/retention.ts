// upkeep/retention/retention.ts: carries out what is said about finished jobs: marks them, removes them, and calls who is to be told.
import { isFinished } from '../../job/job.js'
import type { JobHeader, JobRecord, KeepByState, Millis, Time } from '../../job/job.js'
import { due } from '../../job/lifecycle.js'
import {
  DEFAULT_KEEP,
  expired,
  isByQueue,
  isPlain,
  isRetired,
  putOff,
  putOffEnd,
  retired,
  waitFor,
} from '../../job/retention.js'
import type { PlainJob } from '../../job/retention.js'
import { headerOf } from '../../job/record.js'
import { endsChain } from '../../queue/flows/chain-ends.js'
import type { Callbacks } from '../../queue/settings/retention.js'
import { cellKey, readCell } from '../../store/settings.js'
import type { RetentionCell } from '../../store/settings.js'
import type { Connection } from '../../store/connection.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { Group } from '../../store/store.js'
import { familyOf, kinOf, topOf } from './families.js'
import type { Family } from './families.js'
import { dueRecords } from '../due-records.js'

/** Callbacks under way at a time: jobs are not marked or removed faster than somebody is told. */
const MOST_CALLS = 100
/** Jobs of one family removed in one commit. */
const MOST_TOGETHER = 1000
/** How long those who know whom to call are left to it, if they are few; and for how long the rest are put off. */
const PATIENCE: Millis = 60_000
const FEW = 100
const LEFT_ALONE: Millis = 600_000
/** How long it is waited for calls to end, and how long not again; what has no room is then put off, by turns. */
const CALLS_END: Millis = 250
const CALLS_ARE_SLOW: Millis = 1_000
const TURN: Millis = 60_000
const IN_A_TURN = 2_000
/** How long a job is put off that somebody waits for. */
const AWAITED: Millis = 3_600_000

/** Who is to be called in this process, by connection and queue: a family may lie in several queues. */
const registers = new WeakMap<Connection, Map<string, readonly Callbacks[]>>()

type Whom = ReadonlyMap<string, Callbacks>

/** A finished job with as much of it as the rules need: all of it, where somebody is to be called with it. */
type Known = JobRecord | PlainJob

/** What came of due jobs. */
export interface Retired {
  readonly landed: number
  /** Not dealt with here for now. */
  readonly held: readonly string[]
  /** A user's transaction holds what they need. */
  readonly busy: readonly string[]
}

/** Carries out the retention of a worker's queues. */
export class Retention {
  readonly #connection: Connection
  readonly #register: Map<string, readonly Callbacks[]>
  readonly #calling = new Set<Promise<void>>()
  /** Until then, calls are known to take their time, by the runtime's own clock. */
  #slowUntil: Millis = 0
  /** How many were put off since there was room for all. */
  #putOff = 0

  constructor(connection: Connection) {
    this.#connection = connection
    this.#register = registers.get(connection) ?? new Map()
    registers.set(connection, this.#register)
  }

  /** Says whom to call for a queue from here; answers how to take it back. */
  register(queue: string, callbacks: Callbacks): () => void {
    this.#register.set(queue, [...(this.#register.get(queue) ?? []), callbacks])
    return () => {
      const left = this.#register.get(queue)!.filter((each) => each !== callbacks)
      if (left.length > 0) this.#register.set(queue, left)
      else this.#register.delete(queue)
    }
  }

  /** Whom to call now; whoever goes meanwhile is still called for what was begun. */
  #whom(): Whom {
    return new Map([...this.#register].map(([queue, all]) => [queue, all.at(-1)!]))
  }

  /** Resolves when no call is under way. */
  async idle(): Promise<void> {
    while (this.#calling.size > 0) await Promise.all(this.#calling)
  }

  /** Resolves when there is room for another call. */
  async #room(): Promise<void> {
    while (this.#calling.size >= MOST_CALLS) await Promise.race(this.#calling)
  }

  /** What holds for unstamped jobs of a queue; undefined where others carry it out. */
  async rule(queue: string): Promise<KeepByState | undefined> {
    const cell = (await this.#cells([queue])).get(queue)!
    return isOurs({ queue }, cell, this.#whom()) ? (cell.keep ?? DEFAULT_KEEP) : undefined
  }

  /** Deals with finished jobs that are due. */
  async carryOut(jobs: readonly JobHeader[], now: Time): Promise<Retired> {
    if (jobs.length === 0) return NOTHING
    const whom = this.#whom()
    const isOwn = (job: JobHeader): boolean => job.deleteAt !== undefined && job.deleteAt <= now && !isByQueue(job)
    const own = jobs.filter(isOwn)
    const byQueue = own.length === 0 ? jobs : jobs.filter((job) => !isOwn(job))
    const cells: Cells = byQueue.length === 0 ? new Map() : await this.#cells(byQueue.map(({ queue }) => queue))
    const ours = byQueue.filter((job) => isOurs(job, cells.get(job.queue)!, whom))
    const others = ours.length === byQueue.length ? [] : byQueue.filter((job) => !ours.includes(job))
    const held = others.length <= FEW ? others.filter((job) => now - job.dueAt! < PATIENCE) : []
    const left = held.length === 0 ? others : others.filter((job) => !held.includes(job))
    const busy = new Set<string>()
    const removal: Removal = { cells, whom, stamped: true, busy }
    const { store } = this.#connection
    const later = own.filter(({ chainIndex }) => chainIndex > 0)
    const kin = later.length === 0 ? NO_KIN : (await kinOf(store, later)).kin
    const goes = async (job: Known): Promise<number> => {
      const stays = kin.has(job.id) && (await stepwise(endsChain(store, job)))
      return (await this.#try(job, stays ? [putOffEnd(job, now)] : due(job, now), busy)) ? 1 : 0
    }
    const landed = await Promise.all([
      this.#each(own, async (some) => sum(await Promise.all(some.map(goes)))),
      ...left.map(async (job) => ((await this.#try(job, [putOff(job, LEFT_ALONE, now)], busy)) ? 1 : 0)),
      this.#each(
        ours.filter(({ queue }) => !whom.has(queue)),
        (some) => this.#retire(some, now, removal),
      ),
      this.#retireCalling(
        ours.filter(({ queue }) => whom.has(queue)),
        now,
        removal,
      ),
    ])
    return { landed: sum(landed), held: held.map(({ id }) => id), busy: [...busy] }
  }

  /** Whether a group of a job landed; where a user's transaction holds what it needs, the job is left for later. */
  async #try(job: JobHeader, group: Group, busy: Set<string>): Promise<boolean> {
    const verdict = await this.#connection.main.tryCommit(group)
    if (!verdict.ok && verdict.why === 'busy') busy.add(job.id)
    return verdict.ok
  }

  /** Works on all jobs of which the header is enough, then on the others, as they are read; answers the sum. */
  async #each(jobs: readonly JobHeader[], work: (some: readonly Known[]) => Promise<number>): Promise<number> {
    const plain = jobs.filter(isPlain)
    let landed = plain.length === 0 ? 0 : await work(plain)
    if (plain.length === jobs.length) return landed
    const others = jobs.filter((job) => !isPlain(job))
    for await (const records of dueRecords(this.#connection.store, others)) landed += await work(records)
    return landed
  }

  /** Marks or removes jobs that are due. */
  async #retire(jobs: readonly Known[], now: Time, removal: Removal): Promise<number> {
    const marked = jobs
      .filter((job) => !isRetired(job, now))
      .map(async (job) => {
        const ok = await this.#try(job, due(job, now), removal.busy)
        return this.#told(ok, removal.whom, 'onStale', [{ ...job, stale: true, fence: job.fence + 1 }])
      })
    const going = jobs.filter((job) => isRetired(job, now))
    const [removed, told] = await Promise.all([this.#remove(going, now, removal), Promise.all(marked)])
    return removed + told.filter(Boolean).length
  }

  /** As many as there is room for; the rest come again by turns, so that they are not in the way of all else that is due. */
  async #retireCalling(jobs: readonly JobHeader[], now: Time, removal: Removal): Promise<number> {
    let landed = 0
    let at = 0
    while (at < jobs.length && (this.#calling.size < MOST_CALLS || (await this.#roomSoon()))) {
      const portion = jobs.slice(at, at + MOST_CALLS - this.#calling.size)
      at += portion.length
      for await (const records of dueRecords(this.#connection.store, portion)) {
        landed += await this.#retire(records, now, removal)
      }
    }
    if (at === jobs.length) this.#putOff = 0
    const late = jobs.slice(at).map(async (job) => {
      const turn = 1 + Math.floor(this.#putOff++ / IN_A_TURN)
      return this.#try(job, [putOff(job, turn * TURN, now)], removal.busy)
    })
    return landed + (await Promise.all(late)).filter(Boolean).length
  }

  /** Whether calls end within a moment. */
  async #roomSoon(): Promise<boolean> {
    const { runtime } = this.#connection
    if (runtime.elapsed() < this.#slowUntil) return false
    let stop = (): void => {}
    const late = new Promise<void>((resolve) => (stop = runtime.timer(CALLS_END, resolve)))
    await Promise.race([late, this.#room()])
    stop()
    if (this.#calling.size < MOST_CALLS) return true
    this.#slowUntil = runtime.elapsed() + CALLS_ARE_SLOW
    return false
  }

  /** Removes jobs that nobody stamped and that are past their age, no faster than somebody is told. */
  async take(jobs: readonly JobRecord[], now: Time, stopped: () => boolean): Promise<void> {
    for (let from = 0; from < jobs.length && !stopped();) {
      const whom = this.#whom()
      const called = whom.has(jobs[from]!.queue)
      if (called) await this.#room()
      const portion = jobs.slice(from, called ? from + MOST_CALLS - this.#calling.size : undefined)
      from += portion.length
      const cells = await this.#cells(portion.map(({ queue }) => queue))
      await this.#remove(portion, now, { cells, whom, stamped: false, busy: new Set() })
    }
  }

  /** Removes jobs, each with its family; those that have to wait for others are put off if they are due. */
  async #remove(jobs: readonly Known[], now: Time, { cells, whom, stamped, busy }: Removal): Promise<number> {
    if (jobs.length === 0) return 0
    const { store } = this.#connection
    const { kin, awaited } = await kinOf(store, jobs)
    const families = new Map<string, Family>()
    const tops = new Map<string, JobHeader>()
    const keep = (job: JobRecord): JobHeader | JobRecord => (whom.has(job.queue) ? job : headerOf(job))
    const mayGo = async (job: JobRecord): Promise<boolean> => {
      if (!cells.has(job.queue)) for (const [queue, cell] of await this.#cells([job.queue])) cells.set(queue, cell)
      const cell = cells.get(job.queue)!
      // What is no job, such as a signal, goes with those it was for.
      return isOurs(job, cell, whom) && (job.kind !== 'job' || expired(job, ruleOf(cell), now))
    }
    const delay = async (job: JobHeader, by: Millis): Promise<boolean> =>
      stamped && (await this.#try(job, [putOff(job, by, now)], busy))
    const alone: Promise<boolean>[] = []
    const under = (way: Promise<boolean>): void => {
      way.catch(() => {}) // it is waited for at the end, and may fail before
      alone.push(way)
    }
    let landed = 0
    for (const job of jobs) {
      if (awaited.has(job.id)) under(delay(job, AWAITED))
      else if (!kin.has(job.id)) {
        const group = stamped ? due(job, now) : retired([job])
        const goes = group.some((each) => each.kind === 'move' && each.to === 'removed')
        under(this.#try(job, group, busy).then((ok) => (goes ? this.#told(ok, whom, 'onDelete', [job]) : ok)))
      } else {
        const top = tops.get(job.parentId ?? '') ?? (await topOf(store, job))
        if (job.parentId !== undefined && top.id !== job.id) tops.set(job.parentId, top) // runs of a schedule are their own
        const family = families.get(top.chainId) ?? (await familyOf(store, top, mayGo, keep))
        const known = families.has(top.chainId)
        families.set(top.chainId, family)
        if ('stays' in family) under(delay(job, waitFor(family.stays, job, ruleOf(cells.get(job.queue)!), now)))
        else if (known || (await this.#removeFamily(job, family.members, whom, busy))) landed++
      }
    }
    return landed + (await Promise.all(alone)).filter(Boolean).length
  }

  /** Children before parents, so that whoever dies in between leaves nothing that is not found again. */
  async #removeFamily(
    of: JobHeader,
    members: readonly (JobHeader | JobRecord)[],
    whom: Whom,
    busy: Set<string>,
  ): Promise<boolean> {
    for (let to = members.length; to > 0; to -= MOST_TOGETHER) {
      const together = members.slice(Math.max(0, to - MOST_TOGETHER), to).toReversed()
      const ok = await this.#try(of, retired(together), busy)
      if (!this.#told(ok, whom, 'onDelete', together)) return false // one of them began anew
    }
    return true
  }

  /** Calls whoever is to be told, if what there is to tell has landed. */
  #told(landed: boolean, whom: Whom, which: keyof Callbacks, jobs: readonly (JobHeader | JobRecord)[]): boolean {
    if (!landed) return false
    for (const job of jobs) {
      // Of a queue with callbacks, whole records were read.
      if (job.kind !== 'job' || !isFinished(job.state) || !('data' in job)) continue
      const called = whom.get(job.queue)?.[which]?.(job)
      if (called === undefined) continue
      const over = called.then(() => void this.#calling.delete(over))
      this.#calling.add(over)
    }
    return true
  }

  async #cells(queues: readonly string[]): Promise<Cells> {
    const names = [...new Set(queues)]
    const { cells } = await this.#connection.store.details({ cells: names.map((name) => cellKey.retention(name)) })
    const values = new Map(cells.map(({ key, value }) => [key, value]))
    return new Map(names.map((name) => [name, readCell<RetentionCell>(values.get(cellKey.retention(name)))]))
  }
}

type Cells = Map<string, Partial<RetentionCell>>

interface Removal {
  readonly cells: Cells
  readonly whom: Whom
  /** They are due by a stamp of their own. */
  readonly stamped: boolean
  /** Those of them that are held by a user's transaction. */
  readonly busy: Set<string>
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0)
}

const NO_KIN: ReadonlySet<string> = new Set()
const NOTHING: Retired = { landed: 0, held: [], busy: [] }

/** Where somebody is to be called, only those who know whom carry it out. */
function isOurs({ queue }: { readonly queue: string }, cell: Partial<RetentionCell>, whom: Whom): boolean {
  return cell.callbacks !== true || whom.has(queue)
}

function ruleOf(cell: Partial<RetentionCell>): KeepByState {
  return cell.keep ?? DEFAULT_KEEP
}
