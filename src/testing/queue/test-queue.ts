// testing/queue/test-queue.ts: a queue for tests: a real one, in memory and in virtual time, whose jobs the test runs.
import { AsyncLocalStorage } from 'node:async_hooks'
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { JobRecord } from '../../job/job.js'
import { DEFAULT_JSON_LIMIT } from '../../job/values/json.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { invalid } from '../../job/values/options.js'
import type { InputOf, JobDefinitions, NameOf } from '../../queue/define.js'
import { Job } from '../../queue/job.js'
import { JobOperations } from '../../queue/operations/job-operations.js'
import { Queue } from '../../worker/claims/queue.js'
import type { AddArguments, AnyJobs, BulkItem, InputFor, JobOf, QueueOptions } from '../../queue/queue-types.js'
import { connect } from '../../store/connection.js'
import type { ExtrasOf, Middleware } from '../../worker/attempt/context.js'
import { Worker } from '../../worker/worker.js'
import { virtualClock } from '../world/clock.js'
import type { VirtualClock } from '../world/clock.js'
import { wanted } from './added.js'
import type { AddedOf, AddedOptions } from './added.js'
import { Journal } from './journal.js'
import type { MemoryStore } from './journal.js'
import type { Match } from './match.js'
import { nextTime } from './next-time.js'
import { checkTestQueue, parseDrain, queueOptionsOf, withoutWaits } from './options.js'
import type { AnyTestQueueOptions, DrainOptions, RunOneOptions, TestQueueOptions } from './options.js'
import { outcomes } from './runs.js'
import type { EndedRun, RunEnd, TestRun } from './runs.js'

/** What `drain` did. */
export type Drained<Jobs extends JobDefinitions> = {
  /** How many runs ended in each way. */
  readonly [Outcome in (typeof outcomes)[number]]: number
} & {
  /** All runs, in the order in which they ended. */
  readonly runs: readonly TestRun<Jobs>[]
}

/** What the test queues on one store share. */
interface World {
  readonly clock: VirtualClock
  readonly journal: Journal
}

/** A handler that waits for jobs which it has added. */
interface InlineWait {
  /** The job of the handler. */
  readonly within: string
  /** Whether the jobs have ended. */
  isOver(): boolean
}

/** The worlds of test queues, by store: a memo keyed by identity. */
const worlds = new WeakMap<object, World>()

/** So urgent that it is next. */
const MOST_URGENT = -(2 ** 31 - 1)

/** A queue in memory and in virtual time, with the calls that tests need; made by `testQueue`. */
export class TestQueue<Jobs extends JobDefinitions = AnyJobs, Extra = unknown> extends Queue<Jobs, MemoryStore> {
  /** Its clock: time stands still until `clock.advance`, or `drain` with `advance`. */
  readonly clock: VirtualClock
  readonly #journal: Journal
  readonly #options: AnyTestQueueOptions
  readonly #operations: JobOperations
  /** Runs jobs as they are added, in inline mode. */
  #inlineWorker: Promise<Worker> | undefined
  /** The job whose handler is running, in inline mode. */
  readonly #current = new AsyncLocalStorage<string>()
  /** Handlers that wait for jobs which they have added, in inline mode. */
  readonly #waits = new Set<InlineWait>()

  /** @internal Use `testQueue`. */
  constructor(jobs: Jobs | undefined, options: AnyTestQueueOptions) {
    checkTestQueue(options)
    const { clock, journal } = worldOf(options)
    const given = { ...queueOptionsOf(options), store: journal.store, ...(jobs !== undefined && { jobs }) }
    super(options.name ?? 'test', given as unknown as QueueOptions<Jobs, MemoryStore> & { readonly jobs: Jobs })
    this.clock = clock
    this.#journal = journal
    this.#options = options
    this.#operations = new JobOperations(connect(journal.store), jobs, options.maxDataBytes ?? DEFAULT_JSON_LIMIT)
  }

  /** The jobs that were added to this queue, by any code, oldest first. Duplicates were not added. */
  added(): readonly AddedOf<Jobs>[]
  /**
   * The same, of one name: those whose data and options match. Both are written as for `add`, and what is left out may
   * be anything. Data may also be a function that decides.
   */
  added<Name extends NameOf<Jobs>>(
    name: Name,
    data?: Match<InputOf<Jobs[Name]>>,
    options?: AddedOptions,
  ): readonly AddedOf<Jobs, Name>[]
  added(name?: NameOf<Jobs>, data?: unknown, options?: AddedOptions): readonly AddedOf<Jobs>[] {
    if (name !== undefined) this.adder.definition(name)
    const isWanted = wanted(data, options, 'queue.added')
    return this.#journal.added
      .filter(({ queue, job }) => queue === this.name && (name === undefined || job.name === name) && isWanted(job))
      .map(({ job }) => job as AddedOf<Jobs>)
  }

  /**
   * Runs everything that waits, and what that adds, by a real worker. Resolves when nothing is left to run: what is
   * delayed, held, paused or without a handler stays. Time stands still while handlers run, unless `advance` is given.
   */
  async drain(options: DrainOptions<Jobs, Extra> = {}): Promise<Drained<Jobs>> {
    const { advance, schedules, maxRuns } = parseDrain(options as DrainOptions<JobDefinitions>)
    const from = this.#journal.ended.length
    this.#journal.maxEnded = from + maxRuns
    try {
      await this.#working(options.handlers, 'drain', async () => {
        const end = this.clock.runtime.now() + advance
        for (;;) {
          await this.#rest()
          const now = this.clock.runtime.now()
          const next =
            advance === 0 || this.#journal.isFull ? undefined : await nextTime(this as unknown as Queue, now, schedules)
          if (next === undefined || next > end) break
          await this.clock.advance(next - now)
        }
      })
      if (this.#journal.isFull) {
        const { waiting, delayed } = await this.counts()
        if (waiting > 0 || (advance > 0 && delayed > 0)) throw endless(this.name, maxRuns)
      }
    } finally {
      this.#journal.maxEnded = Infinity
    }
    const runs = await this.#runs(this.#journal.ended.slice(from))
    const count = (outcome: string): number => runs.filter((run) => run.outcome === outcome).length
    return {
      ...(Object.fromEntries(outcomes.map((outcome) => [outcome, count(outcome)])) as Record<
        (typeof outcomes)[number],
        number
      >),
      runs,
    }
  }

  /**
   * Runs one job, by its handle or its id, before all others and whatever its delay, by a real worker. Resolves with
   * what the run came to, also if it failed.
   */
  async runOne<Name extends NameOf<Jobs> = NameOf<Jobs>>(
    of: string | { readonly id: string; readonly name: Name },
    options: RunOneOptions<Jobs, Extra> = {},
  ): Promise<TestRun<Jobs, Name>> {
    refuseUnknown(options, ['handlers'], 'runOne')
    const id = checkName(typeof of === 'string' ? of : of?.id, 'job id')
    const from = this.#journal.ended.length
    const record = await this.#ready(id)
    await this.#working(options.handlers, 'runOne', async () => this.#rest(), record)
    const ended = this.#journal.ended.slice(from).find((each) => each.record.id === id)
    if (ended === undefined) throw await this.#notRun(id)
    return (await this.#runs([ended]))[0] as unknown as TestRun<Jobs, Name>
  }

  /** Adds a job. In inline mode, it resolves when the job has run; its handle then has the result or the error. */
  override async add<Name extends NameOf<Jobs>>(
    name: Name,
    ...args: AddArguments<InputFor<Jobs, Name>, MemoryStore>
  ): Promise<JobOf<Jobs, NoInfer<Name>>> {
    const job = await super.add(name, ...args)
    await this.#runInline([job])
    return job
  }

  /** Adds many jobs, in order. In inline mode, it resolves when all of them have run. */
  override async addBulk(items: readonly BulkItem<Jobs>[], ...rest: [options?: object]): Promise<JobOf<Jobs>[]> {
    const jobs = await super.addBulk(items, ...rest)
    await this.#runInline(jobs)
    return jobs
  }

  /** Closes the queue, and its store unless it is beside another queue. */
  override close(): Promise<void> {
    return this.#closeAll()
  }

  async #closeAll(): Promise<void> {
    const worker = await this.#inlineWorker
    if (worker !== undefined) await this.clock.until(worker.close())
    this.#operations.close()
    await super.close()
    if (this.#options.beside === undefined) await this.store.close()
  }

  /** Runs `work` while a worker runs: one job alone, or all of them. */
  async #working(
    handlers: unknown,
    call: string,
    work: () => Promise<void>,
    only?: Pick<JobRecord, 'id' | 'name' | 'priority'>,
  ): Promise<void> {
    if (this.#options.inline === true) {
      if (handlers !== undefined) throw invalid(`${call}: a queue in inline mode runs its jobs with its own handlers.`)
      await this.#startInline()
      if (only !== undefined) await this.promote(only.id)
      return work()
    }
    const worker = this.#worker(handlers ?? this.#options.handlers, call, only?.name)
    const run = async (): Promise<void> => {
      await worker.run()
      try {
        await work()
      } finally {
        await this.clock.until(worker.close())
      }
    }
    if (only === undefined) return run()
    await this.update(only.id, { priority: MOST_URGENT })
    await this.#journal.only(only, run)
    if ((await this.get(only.id))?.priority === MOST_URGENT) await this.update(only.id, { priority: only.priority })
  }

  #worker(handlers: unknown, call: string, name?: string): Worker {
    if (handlers === undefined) {
      throw invalid(`${call}: there are no handlers; give them to testQueue(jobs, { handlers }) or to ${call}.`)
    }
    if (name !== undefined && typeof handlers === 'object' && !Object.hasOwn(handlers as object, name)) {
      throw invalid(`${call}: there is no handler for ${quote(name)}.`)
    }
    const { worker = {}, inline = false, logger } = this.#options
    const current: Middleware = (job, _ctx, next) => this.#current.run(job.id, () => next())
    return new Worker(this as unknown as Queue, withoutWaits(handlers) as () => unknown, {
      ...(inline && { concurrency: 100 }),
      ...(worker as object),
      ...(logger !== undefined && { logger }),
      ...(inline && { middleware: [current, ...(worker.middleware ?? [])] }),
      autorun: false,
    })
  }

  /** Resolves when no handler runs and no job can be claimed, or when `enough` returns true. */
  async #rest(enough: () => boolean = () => false): Promise<void> {
    for (;;) {
      await this.clock.advance(0)
      if (enough() || this.#running().length === 0) return
      await this.#journal.changed()
    }
  }

  /** The jobs of this queue that run. */
  #running(): readonly string[] {
    return [...this.#journal.running.values()].filter(({ queue }) => queue === this.name).map(({ id }) => id)
  }

  /** A job that can run now; a delayed one is promoted. */
  async #ready(id: string): Promise<Pick<JobRecord, 'id' | 'name' | 'priority'>> {
    const job = await this.get(id)
    if (job === undefined) throw new MillraceError('JOB_NOT_FOUND', `runOne: there is no job ${id} in '${this.name}'.`)
    const { name, priority, state } = job
    if (this.#options.inline === true && state === 'delayed') return { id, name, priority }
    if (state === 'delayed') await this.promote(id)
    const { reasons } = await this.explain(id)
    if (reasons.some(({ why }) => why !== 'next' && why !== 'no-worker')) throw await this.#notRun(id)
    return { id, name, priority }
  }

  async #notRun(id: string): Promise<MillraceError> {
    const { text } = await this.explain(id)
    return new MillraceError('INVALID_STATE', `runOne: the job cannot run now. ${text}`, { details: { id } })
  }

  async #runs(ended: readonly EndedRun[]): Promise<readonly TestRun<Jobs>[]> {
    const found = await this.store.get(ended.map(({ record }) => record.id))
    return ended.map(({ record, end }, at) => {
      const now = found[at]
      const state = end.outcome === 'retrying' ? 'delayed' : end.outcome
      const job = new Job(this.#operations, now ?? { ...record, state }, { removed: now === undefined })
      return { id: record.id, name: record.name, attempt: record.attempt, job, ...end } as unknown as TestRun<Jobs>
    })
  }

  #startInline(): Promise<Worker> {
    this.#inlineWorker ??= (async () => {
      const worker = this.#worker(this.#options.handlers, 'add')
      await worker.run()
      return worker
    })()
    return this.#inlineWorker
  }

  /** In inline mode, waits until jobs have run, and those that they added; in a handler, for these jobs alone. */
  async #runInline(jobs: readonly Job[]): Promise<void> {
    if (this.#options.inline !== true || jobs.length === 0) return
    await this.#startInline()
    const within = this.#current.getStore()
    if (within === undefined) await this.#rest()
    else await this.#waitWithin(within, jobs)
    await Promise.all(jobs.map((job) => job.refresh().catch(() => {}))) // it may have been removed
  }

  /**
   * A handler waits for jobs that it has added. Gives up on jobs that cannot run for now, such as delayed ones: when none
   * of them runs, and all handlers that run wait like this one.
   */
  async #waitWithin(within: string, jobs: readonly Job[]): Promise<void> {
    const left = (): readonly Job[] => {
      const ended = this.#journal.ended.filter(({ end }) => isFinished(end.outcome))
      return jobs.filter(({ id, duplicate }) => !duplicate && !ended.some(({ record }) => record.id === id))
    }
    const wait: InlineWait = { within, isOver: () => left().length === 0 }
    const givesUp = (): boolean => {
      const waiting = new Set([...this.#waits].filter(({ isOver }) => !isOver()).map((each) => each.within))
      const running = this.#running()
      return running.every((id) => waiting.has(id)) && !left().some(({ id }) => running.includes(id))
    }
    this.#waits.add(wait)
    try {
      await this.#rest(() => wait.isOver() || givesUp())
    } finally {
      this.#waits.delete(wait)
    }
  }
}

function isFinished(outcome: RunEnd['outcome']): boolean {
  return outcome === 'completed' || outcome === 'failed' || outcome === 'cancelled'
}

/**
 * Makes a queue for a test: a real `Queue` on a new memory store, in virtual time. Nothing runs until the test calls
 * `drain` or `runOne`, unless `inline` is set. Close it, or declare it with `await using`.
 *
 * ```ts
 * await using queue = testQueue(jobs, { handlers })
 * await signUp(queue, 'ann@example.com')
 * expect(queue.added('send-email', { to: 'ann@example.com' })).toHaveLength(1)
 * expect(await queue.drain()).toMatchObject({ completed: 1, failed: 0 })
 * ```
 */
export function testQueue<
  Jobs extends JobDefinitions = AnyJobs,
  const Wraps extends readonly Middleware[] = readonly Middleware[],
>(jobs?: Jobs, options: TestQueueOptions<Jobs, Wraps> = {}): TestQueue<Jobs, ExtrasOf<Wraps>> {
  return new TestQueue<Jobs, ExtrasOf<Wraps>>(jobs, options as unknown as AnyTestQueueOptions)
}

function worldOf({ beside, start, seed }: AnyTestQueueOptions): World {
  if (beside !== undefined) {
    const known = worlds.get(beside.store)
    if (known === undefined) throw invalid('testQueue: beside must be a queue made by testQueue.')
    return known
  }
  const clock = virtualClock({
    ...(start !== undefined && { start: Number(start) }),
    ...(seed !== undefined && { seed }),
  })
  const world = { clock, journal: new Journal(clock.runtime) }
  worlds.set(world.journal.store, world)
  return world
}

function endless(queue: string, maxRuns: number): MillraceError {
  return new MillraceError(
    'TEST_ENDLESS',
    `drain of '${queue}' ended after ${maxRuns} runs, and more would follow. Do jobs add one another? If not, raise maxRuns.`,
    { details: { queue, maxRuns } },
  )
}
