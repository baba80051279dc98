// testing/world/stage.ts: the processes of a simulation, the one store that they use and the virtual time that they share.
import type { JobDefinitions } from '../../queue/define.js'
import { Queue } from '../../queue/queue.js'
import type { JobRecord, Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Store } from '../../store/store.js'
import { memory } from '../../stores/memory/store.js'
import type { WorkerOptions } from '../../worker/options.js'
import { Worker } from '../../worker/worker.js'
import { faultyConnection } from './faults.js'
import { History } from '../check/simulated-history.js'
import { observed, phasesObserved } from './observed.js'
import type { AnyHandlers } from './observed.js'
import { EPOCH, Process } from './process.js'
import type { SimulatedProcess } from './process.js'
import { Random } from './random.js'
import { Recorder } from './recorder.js'
import type { Fault, SimulationSettings } from '../script/script.js'
import { Timeline, drain } from './virtual-timers.js'

/** Options of a stage, shared by all its processes. */
export interface StageOptions {
  readonly seed: number
  readonly settings: SimulationSettings
  readonly faults: readonly Fault[]
  readonly jobs?: JobDefinitions
  readonly worker?: WorkerOptions
  /** Creates the handlers of a worker, once for each process: their state is lost with it. */
  handlers(process: SimulatedProcess, history: History): AnyHandlers
  /** Creates the store. Default: one in memory. */
  store?(runtime: Runtime): Store
  /** Wraps the store for all processes. */
  wrap?(store: Store): Store
  /** Wraps the connection of each process to the store. */
  wrapConnection?(store: Store): Store
}

/** A process with its queues and its worker. */
export interface Actor {
  readonly process: Process
  readonly queues: ReadonlyMap<string, Queue<JobDefinitions>>
  readonly worker: Worker<JobDefinitions> | undefined
}

/** More timers fired within a second than this means a busy loop: something retries without waiting. */
const MAX_STEPS_PER_SECOND = 50_000

/** Runs the processes of a simulation. */
export class Stage {
  readonly timeline = new Timeline()
  readonly history = new History(() => this.timeline.time)
  readonly recorder: Recorder
  readonly actors = new Map<string, Actor>()
  /** No more faults are injected. */
  quiet = false
  /** A busy loop was detected, and the simulation stopped. */
  spinning = false
  readonly #options: StageOptions
  readonly #store: Store
  readonly #random: Random
  #second = 0
  #stepsInSecond = 0

  constructor(options: StageOptions) {
    this.#options = options
    this.#random = new Random(`simulation/${options.seed}`)
    const storeProcess = new Process('store', this.timeline, this.#random.fork('store'), 0)
    const inner = options.store?.(storeProcess.runtime) ?? memory({ runtime: storeProcess.runtime, ring: 100_000 })
    this.#store = options.wrap?.(inner) ?? inner
    this.recorder = new Recorder(this.#store, this.history, () => this.timeline.time)
  }

  /** Opens the store in real time, before virtual time starts. */
  open(): Promise<void> {
    return this.#store.open()
  }

  /** Closes the store, after the simulation. */
  tearDown(): Promise<void> {
    return this.#store.close()
  }

  /** The time of day by the store's clock. */
  get now(): number {
    return EPOCH + Math.floor(this.timeline.time)
  }

  /** Starts a process, with a worker unless it is a producer. */
  spawn(name: string, role: 'producer' | 'worker', skew: Millis): Actor {
    const { settings, faults, jobs, handlers, worker: workerOptions } = this.#options
    const random = this.#random.fork(name)
    const process = new Process(name, this.timeline, random, skew, (lasts) => this.history.disturb(name, lasts))
    const connection = faultyConnection({
      process,
      store: this.#store,
      recorder: this.recorder,
      timeline: this.timeline,
      history: this.history,
      random: random.fork('line'),
      latency: settings.latency,
      faults: faults.filter((fault) => fault.process === name),
      quiet: () => this.quiet,
    })
    const store = this.#options.wrapConnection?.(connection) ?? connection
    const { retention } = settings
    const queueOptions = { store, logger: false, ...(jobs && { jobs }), ...(retention && { retention }) } as const
    const queues = new Map(settings.queues.map((queue) => [queue, new Queue(queue, queueOptions)]))
    let worker: Worker<JobDefinitions> | undefined
    if (role === 'worker') {
      const ownHandlers = handlers(process, this.history)
      const middleware = [...phasesObserved(process, this.history, ownHandlers), ...(workerOptions?.middleware ?? [])]
      worker = new Worker<JobDefinitions>(settings.queues, observed(process, this.history, ownHandlers), {
        store,
        logger: false,
        ...(jobs && { jobs }),
        concurrency: settings.concurrency,
        lease: settings.lease,
        pollEvery: settings.pollEvery,
        abandonAfter: settings.abandonAfter,
        ...(settings.limit !== undefined && { maxGlobalConcurrency: settings.limit }),
        ...workerOptions,
        ...(middleware.length > 0 && { middleware }),
      })
    }
    const actor: Actor = { process, queues, worker }
    this.actors.set(name, actor)
    this.history.writeTrace(name, `starts as a ${role}${skew === 0 ? '' : `, its clock off by ${skew} ms`}`)
    return actor
  }

  /** A process, if it is alive. */
  living(name: string): Actor | undefined {
    const actor = this.actors.get(name)
    return actor?.process.alive === true ? actor : undefined
  }

  /** Kills a process, whatever it is doing. */
  end(actor: Actor, how: string): void {
    const { process } = actor
    process.kill()
    this.history.writeTrace(process.name, how)
    this.history.add({ kind: 'gone', time: this.timeline.time, process: process.name })
  }

  /** Closes the worker and the queues of a process, then ends it. The promise settles in virtual time. */
  async close(actor: Actor, timeout: Millis): Promise<void> {
    try {
      await actor.worker?.close({ timeout })
    } catch (error) {
      this.history.writeTrace(actor.process.name, `close: ${(error as { code?: string }).code ?? 'error'}`)
    }
    for (const queue of actor.queues.values()) await queue.close()
    this.end(actor, 'closed')
  }

  /** Advances virtual time to `until`, or until `enough` returns true. */
  async run(until: Millis, enough: () => boolean = () => false): Promise<void> {
    while (!enough() && !this.spinning && this.timeline.step(until)) {
      await drain()
      const second = Math.floor(this.timeline.time / 1000)
      this.#stepsInSecond = second === this.#second ? this.#stepsInSecond + 1 : 0
      this.#second = second
      if (this.#stepsInSecond > MAX_STEPS_PER_SECOND) this.spinning = true
    }
    if (!enough() && !this.spinning) this.timeline.time = Math.max(this.timeline.time, until)
  }

  /** Every job in the store. */
  async jobs(): Promise<readonly JobRecord[]> {
    const jobs: JobRecord[] = []
    let cursor: string | undefined
    do {
      const page = await this.#store.find({ limit: 1000, ...(cursor !== undefined && { cursor }) })
      jobs.push(...page.items)
      cursor = page.cursor
    } while (cursor !== undefined)
    return jobs
  }
}
