// queue/queue.ts: the producer's side: adding jobs, and looking after those added.
import { MillraceError } from '../job/errors.js'
import { jobStates } from '../job/job.js'
import type { JobRecord, JobState } from '../job/job.js'
import { cancel, promote, remove, retry, update } from '../job/lifecycle.js'
import type { Decision, Edit } from '../job/lifecycle.js'
import { checkName, refuseUnknown } from '../job/names.js'
import { connect } from '../store/connection.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Store } from '../store/store.js'
import { Adder, NO_OPTIONS } from './adding.js'
import type { Prepared } from './adding.js'
import type { InputOf, JobDefinition, JobDefinitions, NameOf, ResultOf } from './define.js'
import { Desk } from './desk.js'
import { Emitter, checkListener, publicEvent, safeLogger } from './events.js'
import type { EventType, Listener, Logger } from './events.js'
import { explain } from './explain.js'
import type { Explanation } from './explain.js'
import { eachPage, listQuery } from './filter.js'
import type { JobFilter, ListOptions } from './filter.js'
import { Job } from './job.js'
import type { UpdateOptions } from './job.js'
import { checkDefaults, defaultOptionNames, parseRetention } from './options.js'
import type { AddOptions, JobDefaults, RetentionOptions } from './options.js'
import { setPause } from './pauses.js'

/** Jobs of any name, with any data. */
export type AnyJobs = Readonly<Record<string, JobDefinition>>

/** How a queue is made. */
export interface QueueOptions<Jobs extends JobDefinitions = AnyJobs> {
  /** Where its jobs live. */
  readonly store: Store
  /** The jobs it takes, made by `defineJobs`. Default: any. */
  readonly jobs?: Jobs
  /** Defaults for all its jobs; what `job()` and `add` say goes before. Default: those of `JobDefaults`. */
  readonly defaults?: JobDefaults
  /** How long its finished jobs are kept. Default: until removed by hand. */
  readonly retention?: RetentionOptions
  /** Where warnings and errors go that nobody listens for; `false` for nowhere. Default: the console. */
  readonly logger?: Logger | false
  /** The most bytes that a job's data may take as JSON. Default 1 MiB. */
  readonly maxDataBytes?: number
}

/** A page of jobs; no `cursor` on the last. */
export interface JobPage<AJob> {
  /** The jobs, in the order asked for. */
  readonly jobs: readonly AJob[]
  /** Give it to `list` for the next page. */
  readonly cursor?: string
}

/** What `add` takes after the name. Data may be left out where undefined is data. */
export type AddArguments<Input> = undefined extends Input
  ? [data?: Input, options?: AddOptions]
  : [data: Input, options?: AddOptions]

/** What `add` takes for a name; of a name that may be one of several, what fits all of them. */
type InputFor<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = (
  Name extends unknown ? (input: InputOf<Jobs[Name]>) => void : never
) extends (input: infer Input) => void
  ? Input
  : never

/** The handle on a job of one declared name, or of any, told apart by `name`: `JobOf<typeof jobs, 'send-email'>`. */
export type JobOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = Name extends unknown
  ? Job<InputOf<Jobs[Name]>, ResultOf<Jobs[Name]>, Name>
  : never

/** One job for `addBulk`. */
export type BulkItem<Jobs extends JobDefinitions> = {
  [Name in NameOf<Jobs>]: undefined extends InputOf<Jobs[Name]>
    ? { readonly name: Name; readonly data?: InputOf<Jobs[Name]>; readonly options?: AddOptions }
    : { readonly name: Name; readonly data: InputOf<Jobs[Name]>; readonly options?: AddOptions }
}[NameOf<Jobs>]

/** A named queue in a store. Making one costs nothing; several on one store share their writes. */
export class Queue<Jobs extends JobDefinitions = AnyJobs> {
  /** Its name in the store. */
  readonly name: string
  /** Where its jobs live. */
  readonly store: Store
  /** The jobs it takes, if declared. */
  readonly jobs: Jobs | undefined
  readonly #connection: Connection
  readonly #desk: Desk
  readonly #adder: Adder
  readonly #emitter: Emitter
  #watching: Stop | undefined
  #closed = false
  #closing: Promise<void> | undefined
  readonly #waiting = new Set<Promise<void>>()

  /** A queue by that name, 1 to 255 printable characters; `options.store` says where. */
  constructor(name: string, options: QueueOptions<Jobs>) {
    this.name = checkName(name, 'queue name')
    if (typeof options !== 'object' || options === null || typeof options.store?.commit !== 'function') {
      throw new MillraceError(
        'INVALID_OPTION',
        `new Queue('${name}'): give it a store, as in { store: sqlite('jobs.db') }.`,
      )
    }
    refuseUnknown(options, ['store', 'jobs', 'defaults', 'retention', 'logger', 'maxDataBytes'], 'new Queue')
    const { defaults = {}, maxDataBytes = 1_048_576 } = options
    if (!Number.isSafeInteger(maxDataBytes) || maxDataBytes < 1) {
      throw new MillraceError('INVALID_OPTION', 'new Queue: maxDataBytes must be a whole number from 1 up.')
    }
    refuseUnknown(defaults, defaultOptionNames, 'new Queue: defaults')
    checkDefaults(defaults, 'new Queue: defaults')
    if (options.jobs !== undefined && (typeof options.jobs !== 'object' || Array.isArray(options.jobs))) {
      throw new MillraceError('INVALID_OPTION', 'new Queue: jobs must be made by defineJobs.')
    }
    this.store = options.store
    this.jobs = options.jobs
    this.#connection = connect(options.store)
    this.#desk = new Desk(this.#connection, options.jobs, maxDataBytes)
    this.#adder = new Adder(name, this.#desk, options.jobs, defaults, parseRetention(options.retention))
    this.#emitter = new Emitter(safeLogger(options.logger), () => ({ queue: name, at: this.#connection.runtime.now() }))
  }

  /** Adds a job; resolves when it is durable. A duplicate (by id or dedup key) resolves to the standing job. */
  add<Name extends NameOf<Jobs>>(name: Name, ...args: AddArguments<InputFor<Jobs, Name>>): Promise<JobOf<Jobs, Name>> {
    return this.#add(name, args[0], args[1] ?? NO_OPTIONS) as Promise<JobOf<Jobs, Name>>
  }

  /** Not an async function: for most adds, one promise is enough. */
  #add(name: string, data: unknown, options: AddOptions): Promise<Job> {
    try {
      this.#refuseClosed()
      const prepared = this.#adder.prepare(name, data, options)
      return prepared instanceof Promise
        ? this.#underWay(prepared.then((each) => this.#adder.send(each)))
        : this.#adder.send(prepared)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Closing waits for adds whose schema is still at work. */
  #underWay<T>(work: Promise<T>): Promise<T> {
    const done = (): void => void this.#waiting.delete(settled)
    const settled: Promise<void> = work.then(done, done)
    this.#waiting.add(settled)
    return work
  }

  /** Adds many, in order, each landing by itself; if one of them is malformed, none is written. */
  addBulk(items: readonly BulkItem<Jobs>[]): Promise<JobOf<Jobs>[]> {
    return this.#underWay(this.#addBulk(items))
  }

  async #addBulk(items: readonly BulkItem<Jobs>[]): Promise<JobOf<Jobs>[]> {
    this.#refuseClosed()
    if (!Array.isArray(items)) throw new MillraceError('INVALID_OPTION', 'queue.addBulk takes an array of jobs.')
    const prepared = (items as readonly BulkItem<AnyJobs>[]).map((item) => {
      refuseUnknown(item, ['name', 'data', 'options'], 'queue.addBulk')
      return this.#adder.prepare(item.name, item.data, item.options ?? NO_OPTIONS)
    })
    const waits = prepared.some((each) => each instanceof Promise)
    const ready = waits ? await Promise.all(prepared.map(async (each) => each)) : (prepared as Prepared[])
    const added = ready.map((each) => this.#adder.send(each))
    return Promise.all(added) as Promise<JobOf<Jobs>[]>
  }

  /** The job with this id, or undefined. */
  async get(id: string): Promise<JobOf<Jobs> | undefined> {
    this.#refuseClosed()
    checkName(id, 'job id')
    await this.#connection.ready()
    const [record] = await this.store.get([id])
    return record?.queue === this.name ? this.#handle(record) : undefined
  }

  /** Jobs in the order in which they were added, by page. */
  async list(options: ListOptions<NameOf<Jobs>> = {}): Promise<JobPage<JobOf<Jobs>>> {
    this.#refuseClosed()
    const query = listQuery(this.name, options)
    await this.#connection.ready()
    const { items, cursor } = await this.store.find(query)
    const jobs = items.map((record) => this.#handle(record))
    return cursor === undefined ? { jobs } : { jobs, cursor }
  }

  /** How many jobs there are in each state. */
  async counts(): Promise<Record<JobState, number>> {
    this.#refuseClosed()
    await this.#connection.ready()
    const [tally] = await this.store.tally([this.name])
    const counts = Object.fromEntries(jobStates.map((state) => [state, 0])) as Record<JobState, number>
    for (const states of Object.values(tally?.names ?? {})) {
      for (const state of jobStates) counts[state] += states[state] ?? 0
    }
    return counts
  }

  /** Stops claims from the whole queue or of one name; what runs goes on. */
  async pause(name?: NameOf<Jobs>): Promise<void> {
    this.#refuseClosed()
    if (name !== undefined) this.#adder.definition(name)
    await setPause(this.#connection, this.name, name, true)
  }

  /** Undoes `pause` for the whole queue or for one name. */
  async resume(name?: NameOf<Jobs>): Promise<void> {
    this.#refuseClosed()
    if (name !== undefined) this.#adder.definition(name)
    await setPause(this.#connection, this.name, name, false)
  }

  /** Cancels a job; false if it had finished. A running handler's signal aborts. */
  cancel(id: string): Promise<boolean>
  /** Cancels all unfinished jobs that match; answers how many. */
  cancel(filter: JobFilter<NameOf<Jobs>>): Promise<number>
  cancel(which: string | JobFilter): Promise<boolean | number> {
    return this.#each(which, ['waiting', 'delayed', 'waiting-children', 'active'], cancel)
  }

  /** Starts a failed or cancelled job over, with all its attempts. */
  retry(id: string): Promise<boolean>
  /** Starts all failed or cancelled jobs over that match; answers how many. */
  retry(filter: JobFilter<NameOf<Jobs>>): Promise<number>
  retry(which: string | JobFilter): Promise<boolean | number> {
    return this.#each(which, ['failed', 'cancelled'], retry)
  }

  /** Lets a delayed job run now; false if it was waiting already. */
  promote(id: string): Promise<boolean>
  /** Lets all delayed jobs run now that match; answers how many. */
  promote(filter: JobFilter<NameOf<Jobs>>): Promise<number>
  promote(which: string | JobFilter): Promise<boolean | number> {
    return this.#each(which, ['delayed'], promote)
  }

  /** Removes a job; false if there was none. Refused while others wait for it. */
  remove(id: string): Promise<boolean>
  /** Removes all jobs that match; answers how many. Refused while others wait for one of them. */
  remove(filter: JobFilter<NameOf<Jobs>>): Promise<number>
  async remove(which: string | JobFilter): Promise<boolean | number> {
    if (typeof which === 'string') {
      const found = await this.get(which)
      return found === undefined ? false : (await this.#desk.remove(which)).done
    }
    return this.#pages(which, jobStates, async (page) => {
      return this.#desk.actAll(await this.#desk.notAwaited(page), remove)
    })
  }

  /** Changes data, priority or delay of a job; false if that changed nothing. */
  update(id: string, changes: UpdateOptions<InputOf<Jobs[NameOf<Jobs>]>>): Promise<boolean>
  /** Changes data, priority or delay of all jobs that match and have not started; answers how many. */
  update<Name extends NameOf<Jobs>>(
    filter: JobFilter<Name>,
    changes: UpdateOptions<InputOf<Jobs[Name]>>,
  ): Promise<number>
  async update(which: string | JobFilter, changes: UpdateOptions): Promise<boolean | number> {
    if (typeof which === 'string') {
      await this.#own(which)
      return (await this.#desk.update(which, changes)).done
    }
    const { data: _data, ...rest } = changes
    await this.#desk.edit(rest, '') // a bad option is refused even if nothing matches
    return this.#pages(which, ['waiting', 'delayed', 'waiting-children'], async (page) => {
      const edits = new Map<string, Edit>()
      for (const name of new Set(page.map((record) => record.name)))
        edits.set(name, await this.#desk.edit(changes, name))
      return this.#desk.actAll(page, (job) => update(job, edits.get(job.name)!))
    })
  }

  /** Why a job is not running. */
  async explain(id: string): Promise<Explanation> {
    return explain(this.store, await this.#own(id), this.#connection.runtime.now())
  }

  /**
   * Hears events of this queue, from every process that shares the store. An event is announced once, after the commit
   * that made it true. Answers how to stop.
   */
  on<Type extends EventType>(type: Type, listener: Listener<Type>): Stop {
    this.#refuseClosed()
    checkListener(type, listener)
    const stop = this.#emitter.on(type, listener)
    this.#watching ??= this.#desk.feed.all((event) => {
      if (event === undefined) this.#emitter.error(eventsMissed(this.name))
      else if (event.queue === this.name && this.#emitter.has(event.type)) this.#emitter.emit(publicEvent(event))
    })
    return () => {
      stop()
      if (this.#emitter.size > 0) return
      this.#watching?.()
      this.#watching = undefined
    }
  }

  /** @internal Lets a worker in this process tell what only it knows. */
  get emitter(): Emitter {
    return this.#emitter
  }

  /** Whether it has been closed. */
  get closed(): boolean {
    return this.#closed
  }

  /** Waits for what was asked for to be durable, lets go of those who wait for results, and refuses further calls. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#closed = true
    this.#desk.close()
    await Promise.all(this.#waiting)
    await this.#connection.main.flushed()
    this.#watching?.()
    this.#watching = undefined
    this.#emitter.clear()
  }

  #handle(record: JobRecord): JobOf<Jobs> {
    return new Job(this.#desk, record) as JobOf<Jobs>
  }

  /** The job, if it is one of this queue. */
  async #own(id: string): Promise<JobRecord> {
    this.#refuseClosed()
    const record = await this.#desk.read(checkName(id, 'job id'))
    if (record.queue === this.name) return record
    throw new MillraceError('JOB_NOT_FOUND', `Job ${id} is not in queue '${this.name}' but in '${record.queue}'.`, {
      details: { id, queue: record.queue },
    })
  }

  async #each(
    which: string | JobFilter,
    states: readonly JobState[],
    decide: (job: JobRecord) => Decision,
  ): Promise<boolean | number> {
    if (typeof which !== 'string') return this.#pages(which, states, (page) => this.#desk.actAll(page, decide))
    return (await this.#desk.act(which, decide, await this.#own(which))).done
  }

  async #pages(
    filter: JobFilter,
    states: readonly JobState[],
    work: (page: readonly JobRecord[]) => Promise<number>,
  ): Promise<number> {
    this.#refuseClosed()
    return eachPage(this.#connection, this.name, filter, states, work)
  }

  #refuseClosed(): void {
    if (this.#closed) throw new MillraceError('QUEUE_CLOSED', `Queue '${this.name}' has been closed; make a new one.`)
  }
}

function eventsMissed(queue: string): MillraceError {
  return new MillraceError(
    'EVENTS_MISSED',
    `Listeners of queue '${queue}' missed events: this process was too slow to read them, or asleep. Look at the jobs themselves.`,
    { details: { queue } },
  )
}
