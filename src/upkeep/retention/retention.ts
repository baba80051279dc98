// upkeep/retention/retention.ts: marks finished jobs stale, removes them, and runs the callbacks for that.
import { isFinished } from '../../job/job.js'
import type { JobHeader, JobRecord, KeepByState, Millis, Time } from '../../job/job.js'
import { due } from '../../job/lifecycle.js'
import { isContinuation } from '../../job/moves.js'
import {
  DEFAULT_KEEP,
  expired,
  isByQueue,
  isPlain,
  isRetired,
  postpone,
  postponeLast,
  removeFamily,
  keepFor,
} from '../../job/retention.js'
import type { PlainJob } from '../../job/retention.js'
import { endsChain } from '../../queue/flows/chain-ends.js'
import type { Callbacks } from '../../queue/settings/retention.js'
import { cellKey } from '../../store/settings.js'
import { readCell } from '../../job/limits.js'
import type { RetentionCell } from '../../store/settings.js'
import type { Connection } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import { bytesOfRecord } from '../../store/read-pages.js'
import { within } from '../../store/runtime.js'
import type { Group } from '../../store/store.js'
import { familyOf, linksOf, topOf } from './families.js'
import type { Family } from './families.js'
import { dueRecords, recordsOf } from '../due-records.js'

/** The most callbacks in progress at a time. Jobs are not marked or removed faster than callbacks end. */
const MAX_CALLBACKS = 100
/** No more records are read for callbacks while those in progress hold this many bytes. */
const MAX_CALLBACK_BYTES = 32 * 2 ** 20
/** The most jobs of one family that are removed in one commit. */
const MAX_REMOVED_TOGETHER = 1000
/** How long a few due jobs are left to the processes that have their callbacks; and how long the rest are postponed. */
const LEAVE_TO_OTHERS: Millis = 60_000
const FEW_JOBS = 100
const POSTPONE_OTHERS: Millis = 600_000
/**
 * How long to wait for callbacks to end, and how long not to wait again after that was in vain. Jobs that find no free
 * callback are then postponed in turns.
 */
const CALLBACK_WAIT: Millis = 250
const SLOW_CALLBACKS: Millis = 1_000
const TURN_LENGTH: Millis = 60_000
const JOBS_PER_TURN = 2_000
/** How long a job is postponed that another job waits for. */
const POSTPONE_AWAITED: Millis = 3_600_000
/** How long the rest of a family is postponed that found no free callback. */
const POSTPONE_FAMILY: Millis = 5_000

/** The callbacks of this process, by connection and queue: the jobs of a family may be in several queues. */
const callbackRegistry = new WeakMap<Connection, Map<string, readonly Callbacks[]>>()

type CallbacksByQueue = ReadonlyMap<string, Callbacks>

/** A finished job with as much of it as the rules need: all of it, if a callback gets it. */
type FinishedJob = JobRecord | PlainJob

/** The result of handling due jobs. */
export interface Retired {
  readonly landed: number
  /** Not handled here for now. */
  readonly held: readonly string[]
  /** A user transaction has a row locked that they need. */
  readonly busy: readonly string[]
}

/** Carries out the retention of a worker's queues. */
export class Retention {
  readonly #connection: Connection
  readonly #registry: Map<string, readonly Callbacks[]>
  /** Callbacks in progress, and those that wait for others to end: two portions may have found the same one free. */
  readonly #running = new Set<Promise<void>>()
  #calling = 0
  readonly #waiting: (() => void)[] = []
  /** About how many bytes their jobs hold. */
  #bytes = 0
  /** Until then, callbacks are known to be slow, by the runtime's own clock. */
  #slowUntil: Millis = 0
  /** How many jobs were postponed since all of them last found a free callback. */
  #postponed = 0

  constructor(connection: Connection) {
    this.#connection = connection
    this.#registry = callbackRegistry.get(connection) ?? new Map()
    callbackRegistry.set(connection, this.#registry)
  }

  /** Registers the callbacks of a queue in this process; returns a function that removes them. */
  register(queue: string, callbacks: Callbacks): () => void {
    this.#registry.set(queue, [...(this.#registry.get(queue) ?? []), callbacks])
    return () => {
      const left = this.#registry.get(queue)!.filter((each) => each !== callbacks)
      if (left.length > 0) this.#registry.set(queue, left)
      else this.#registry.delete(queue)
    }
  }

  /** The current callbacks. A snapshot: callbacks removed meanwhile still get the jobs that were begun. */
  #currentCallbacks(): CallbacksByQueue {
    return new Map([...this.#registry].map(([queue, all]) => [queue, all.at(-1)!]))
  }

  /** Resolves when no callback is in progress. */
  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running)
  }

  get #isFull(): boolean {
    return this.#running.size >= MAX_CALLBACKS || this.#bytes >= MAX_CALLBACK_BYTES
  }

  /** How many jobs may be read for callbacks, unless there are too many of them. */
  get #room(): number {
    return Math.max(1, MAX_CALLBACKS - this.#running.size)
  }

  /** Resolves when another callback may start. */
  async #callbackFree(): Promise<void> {
    while (this.#isFull) await Promise.race(this.#running)
  }

  /** The rule for jobs of a queue that carry none; undefined if other processes carry it out. */
  async rule(queue: string): Promise<KeepByState | undefined> {
    const cell = (await this.#cells([queue])).get(queue)!
    return isOurs({ queue }, cell, this.#currentCallbacks()) ? (cell.keep ?? DEFAULT_KEEP) : undefined
  }

  /** Handles finished jobs that are due. */
  async carryOut(jobs: readonly JobHeader[], now: Time): Promise<Retired> {
    if (jobs.length === 0) return NOTHING
    const callbacks = this.#currentCallbacks()
    const isOwn = (job: JobHeader): boolean => job.deleteAt !== undefined && job.deleteAt <= now && !isByQueue(job)
    const own = jobs.filter(isOwn)
    const byQueue = own.length === 0 ? jobs : jobs.filter((job) => !isOwn(job))
    const cells: Cells = byQueue.length === 0 ? new Map() : await this.#cells(byQueue.map(({ queue }) => queue))
    const ours = byQueue.filter((job) => isOurs(job, cells.get(job.queue)!, callbacks))
    const others = ours.length === byQueue.length ? [] : byQueue.filter((job) => !ours.includes(job))
    const held = others.length <= FEW_JOBS ? others.filter((job) => now - job.dueAt! < LEAVE_TO_OTHERS) : []
    const left = held.length === 0 ? others : others.filter((job) => !held.includes(job))
    const busy = new Set<string>()
    const removal: Removal = { cells, callbacks, stamped: true, busy }
    const { store } = this.#connection
    const later = own.filter(isContinuation)
    const linked = later.length === 0 ? NONE_LINKED : (await linksOf(store, later)).linked
    const removeOwn = async (job: FinishedJob): Promise<number> => {
      const stays = linked.has(job.id) && (await runSteps(endsChain(store, job)))
      return (await this.#try(job, stays ? [postponeLast(job, now)] : due(job, now), busy)) ? 1 : 0
    }
    const landed = await Promise.all([
      this.#each(own, async (some) => sum(await Promise.all(some.map(removeOwn)))),
      ...left.map(async (job) => ((await this.#try(job, [postpone(job, POSTPONE_OTHERS, now)], busy)) ? 1 : 0)),
      this.#each(
        ours.filter(({ queue }) => !callbacks.has(queue)),
        (some) => this.#retire(some, now, removal),
      ),
      this.#retireCalling(
        ours.filter(({ queue }) => callbacks.has(queue)),
        now,
        removal,
      ),
    ])
    return { landed: sum(landed), held: held.map(({ id }) => id), busy: [...busy] }
  }

  /**
   * Commits a group for a job; returns whether it was applied. If a user transaction has a row locked that it needs,
   * the job is left for later.
   */
  async #try(job: JobHeader, group: Group, busy: Set<string>): Promise<boolean> {
    const verdict = await this.#connection.main.tryCommit(group)
    if (!verdict.ok && verdict.why === 'busy') busy.add(job.id)
    return verdict.ok
  }

  /** Handles first all jobs of which the header is enough, then the others as they are read. Returns the sum. */
  async #each(jobs: readonly JobHeader[], work: (some: readonly FinishedJob[]) => Promise<number>): Promise<number> {
    const plain = jobs.filter(isPlain)
    let landed = plain.length === 0 ? 0 : await work(plain)
    if (plain.length === jobs.length) return landed
    const others = jobs.filter((job) => !isPlain(job))
    for await (const records of dueRecords(this.#connection.store, others)) landed += await work(records)
    return landed
  }

  /** Marks or removes jobs that are due. */
  async #retire(jobs: readonly FinishedJob[], now: Time, removal: Removal): Promise<number> {
    const marked = jobs
      .filter((job) => !isRetired(job, now))
      .map(async (job) => {
        const ok = await this.#try(job, due(job, now), removal.busy)
        return this.#runCallbacks(ok, removal.callbacks, 'onStale', [{ ...job, stale: true, fence: job.fence + 1 }])
      })
    const going = jobs.filter((job) => isRetired(job, now))
    const [removed, wasMarked] = await Promise.all([this.#remove(going, now, removal), Promise.all(marked)])
    return removed + wasMarked.filter(Boolean).length
  }

  /** Handles as many jobs as callbacks may run for. Postpones the rest in turns, so that other due jobs get theirs. */
  async #retireCalling(jobs: readonly JobHeader[], now: Time, removal: Removal): Promise<number> {
    let landed = 0
    let isLate = false
    const handled = new Set<string>()
    const room = async (): Promise<number> => {
      isLate = this.#isFull && !(await this.#callbackFreeSoon())
      return isLate ? 0 : this.#room
    }
    for await (const records of dueRecords(this.#connection.store, jobs, room)) {
      for (const { id } of records) handled.add(id)
      landed += await this.#retire(records, now, removal)
    }
    if (!isLate) {
      this.#postponed = 0
      return landed
    }
    const late = jobs
      .filter(({ id }) => !handled.has(id))
      .map(async (job) => {
        const turn = 1 + Math.floor(this.#postponed++ / JOBS_PER_TURN)
        return this.#try(job, [postpone(job, turn * TURN_LENGTH, now)], removal.busy)
      })
    return landed + (await Promise.all(late)).filter(Boolean).length
  }

  /** Whether callbacks end within a moment. */
  async #callbackFreeSoon(): Promise<boolean> {
    const { runtime } = this.#connection
    if (runtime.elapsed() < this.#slowUntil) return false
    await within(runtime, CALLBACK_WAIT, this.#callbackFree())
    if (!this.#isFull) return true
    this.#slowUntil = runtime.elapsed() + SLOW_CALLBACKS
    return false
  }

  /** Removes jobs that carry no retention rule and are past their age, no faster than callbacks end. */
  async removeUnstamped(jobs: readonly JobRecord[], now: Time, stopped: () => boolean): Promise<void> {
    for (let from = 0; from < jobs.length && !stopped();) {
      const callbacks = this.#currentCallbacks()
      const called = callbacks.has(jobs[from]!.queue)
      if (called) await this.#callbackFree()
      const portion = jobs.slice(from, called ? from + this.#room : undefined)
      from += portion.length
      const cells = await this.#cells(portion.map(({ queue }) => queue))
      await this.#remove(portion, now, { cells, callbacks, stamped: false, busy: new Set() })
    }
  }

  /** Removes jobs, each with its family. Due jobs that have to wait for others are postponed. */
  async #remove(
    jobs: readonly FinishedJob[],
    now: Time,
    { cells, callbacks, stamped, busy }: Removal,
  ): Promise<number> {
    if (jobs.length === 0) return 0
    const { store } = this.#connection
    const { linked, awaited } = await linksOf(store, jobs)
    const families = new Map<string, Family>()
    const postponed = new Set<string>()
    const tops = new Map<string, JobHeader>()
    const mayGo = async (job: JobRecord): Promise<boolean> => {
      if (!cells.has(job.queue)) for (const [queue, cell] of await this.#cells([job.queue])) cells.set(queue, cell)
      const cell = cells.get(job.queue)!
      // Rows that are not jobs, such as signals, are removed with the jobs they belong to.
      return isOurs(job, cell, callbacks) && (job.kind !== 'job' || expired(job, ruleOf(cell), now))
    }
    const delay = async (job: JobHeader, by: Millis): Promise<boolean> =>
      stamped && (await this.#try(job, [postpone(job, by, now)], busy))
    const alone: Promise<boolean>[] = []
    const track = (work: Promise<boolean>): void => {
      work.catch(() => {}) // it is awaited at the end, and may fail before that
      alone.push(work)
    }
    let landed = 0
    for (const job of jobs) {
      if (awaited.has(job.id)) track(delay(job, POSTPONE_AWAITED))
      else if (!linked.has(job.id)) {
        const group = stamped ? due(job, now) : removeFamily([job])
        const isRemoved = group.some((each) => each.kind === 'move' && each.to === 'removed')
        track(
          this.#try(job, group, busy).then((ok) =>
            isRemoved ? this.#runCallbacks(ok, callbacks, 'onDelete', [job]) : ok,
          ),
        )
      } else {
        const top = tops.get(job.parentId ?? '') ?? (await topOf(store, job))
        if (job.parentId !== undefined && top.id !== job.id) tops.set(job.parentId, top) // runs of a schedule are no family
        const family = families.get(top.chainId) ?? (await familyOf(store, top, mayGo))
        const known = families.has(top.chainId)
        families.set(top.chainId, family)
        if ('stays' in family) track(delay(job, keepFor(family.stays, job, ruleOf(cells.get(job.queue)!), now)))
        else {
          const removed = known || (await this.#removeFamily(job, family.members, stamped, callbacks, busy))
          if (removed === 'in part') postponed.add(top.chainId)
          if (postponed.has(top.chainId)) track(delay(job, POSTPONE_FAMILY))
          else if (removed) landed++
        }
      }
    }
    return landed + (await Promise.all(alone)).filter(Boolean).length
  }

  /** Children before parents, so that a crash in between leaves nothing that is not found again. */
  async #removeFamily(
    of: JobHeader,
    members: readonly JobHeader[],
    stamped: boolean,
    callbacks: CallbacksByQueue,
    busy: Set<string>,
  ): Promise<boolean | 'in part'> {
    if (members.some(({ queue }) => callbacks.has(queue))) {
      return this.#removeCalling(of, members.toReversed(), stamped, callbacks, busy)
    }
    for (let to = members.length; to > 0; to -= MAX_REMOVED_TOGETHER) {
      const together = members.slice(Math.max(0, to - MAX_REMOVED_TOGETHER), to).toReversed()
      if (!(await this.#try(of, removeFamily(together), busy))) return false // one of them has started again
    }
    return true
  }

  /** Removes a family with callbacks: as many jobs at a time as callbacks may run for, read just before that. */
  async #removeCalling(
    of: JobHeader,
    members: readonly JobHeader[],
    stamped: boolean,
    callbacks: CallbacksByQueue,
    busy: Set<string>,
  ): Promise<boolean | 'in part'> {
    const fences = new Map(members.map(({ id, fence }) => [id, fence]))
    let isLate = false
    const room = async (): Promise<number> => {
      if (!stamped) await this.#callbackFree()
      isLate = this.#isFull && !(await this.#callbackFreeSoon())
      return isLate ? 0 : this.#room
    }
    for await (const records of recordsOf(this.#connection.store, [...fences.keys()], room)) {
      if (records.some(({ id, fence }) => fences.get(id) !== fence)) return false
      const ok = await this.#try(of, removeFamily(records), busy)
      if (!this.#runCallbacks(ok, callbacks, 'onDelete', records)) return false
    }
    return isLate ? 'in part' : true
  }

  /** Runs the callbacks for jobs whose change was applied; returns whether it was. */
  #runCallbacks(
    landed: boolean,
    callbacks: CallbacksByQueue,
    which: keyof Callbacks,
    jobs: readonly FinishedJob[],
  ): boolean {
    if (!landed) return false
    for (const job of jobs) {
      // Whole records were read for a queue with callbacks.
      if (job.kind !== 'job' || !isFinished(job.state) || !('data' in job)) continue
      const callback = callbacks.get(job.queue)?.[which]
      if (callback === undefined) continue
      const bytes = bytesOfRecord(job)
      this.#bytes += bytes
      const over = this.#call(() => callback(job)).then(() => {
        this.#running.delete(over)
        this.#bytes -= bytes
      })
      this.#running.add(over)
    }
    return true
  }

  /** Calls a callback, once fewer than the most are in progress. */
  async #call(callback: () => Promise<void>): Promise<void> {
    if (this.#calling < MAX_CALLBACKS) this.#calling++
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    await callback()
    const next = this.#waiting.shift()
    if (next === undefined) this.#calling--
    else next()
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
  readonly callbacks: CallbacksByQueue
  /** They carry a retention rule, and so are due by themselves. */
  readonly stamped: boolean
  /** Those that need a row that a user transaction has locked. */
  readonly busy: Set<string>
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0)
}

const NONE_LINKED: ReadonlySet<string> = new Set()
const NOTHING: Retired = { landed: 0, held: [], busy: [] }

/** If a queue has callbacks, only the processes that have them carry out its retention. */
function isOurs(
  { queue }: { readonly queue: string },
  cell: Partial<RetentionCell>,
  callbacks: CallbacksByQueue,
): boolean {
  return cell.callbacks !== true || callbacks.has(queue)
}

function ruleOf(cell: Partial<RetentionCell>): KeepByState {
  return cell.keep ?? DEFAULT_KEEP
}
