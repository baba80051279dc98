// testing/world/stage.ts: the processes of a simulation on their one store, and the time that they share.
import type { JobDefinitions } from '../../queue/define.js'
import { Queue } from '../../queue/queue.js'
import type { JobRecord, Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Store } from '../../store/store.js'
import { memory } from '../../stores/memory/store.js'
import type { WorkerOptions } from '../../worker/options.js'
import { Worker } from '../../worker/worker.js'
import { badLine } from './faults.js'
import { History } from '../check/history.js'
import { observed, phasesObserved } from './observed.js'
import type { AnyHandlers } from './observed.js'
import { EPOCH, Process } from './process.js'
import type { SimulatedProcess } from './process.js'
import { Random } from './random.js'
import { Recorder } from './recorder.js'
import type { Fault, SimulationSettings } from '../script/script.js'
import { Timeline, drain } from './timeline.js'

/** What all processes are made of. */
export interface StageOptions {
  readonly seed: number
  readonly settings: SimulationSettings
  readonly faults: readonly Fault[]
  readonly jobs?: JobDefinitions
  readonly worker?: WorkerOptions
  /** The handlers of a worker, made anew for each process: what they remember dies with it. */
  handlers(process: SimulatedProcess, history: History): AnyHandlers
  /** Makes the store that all of it happens on. Default: one in memory. */
  store?(runtime: Runtime): Store
  /** Comes between the store and everything else. */
  wrap?(store: Store): Store
  /** Comes between a process and its line to the store. */
  wrapLine?(store: Store): Store
}

/** A process with what lives in it. */
export interface Actor {
  readonly process: Process
  readonly queues: ReadonlyMap<string, Queue<JobDefinitions>>
  readonly worker: Worker<JobDefinitions> | undefined
}

/** More moments within a second than any healthy simulation has: something asks again and again without waiting. */
const TOO_MANY = 50_000

/** Where a simulation takes place. */
export class Stage {
  readonly timeline = new Timeline()
  readonly history = new History(() => this.timeline.time)
  readonly recorder: Recorder
  readonly actors = new Map<string, Actor>()
  /** Nothing goes wrong any more. */
  quiet = false
  /** It went on without end and was cut off. */
  spinning = false
  readonly #options: StageOptions
  readonly #store: Store
  readonly #random: Random
  #second = 0
  #moments = 0

  constructor(options: StageOptions) {
    this.#options = options
    this.#random = new Random(`simulation/${options.seed}`)
    const home = new Process('store', this.timeline, this.#random.fork('store'), 0)
    const inner = options.store?.(home.runtime) ?? memory({ runtime: home.runtime, ring: 100_000 })
    this.#store = options.wrap?.(inner) ?? inner
    this.recorder = new Recorder(this.#store, this.history, () => this.timeline.time)
  }

  /** Opens the store in real time, before anything happens in simulated time. */
  open(): Promise<void> {
    return this.#store.open()
  }

  /** Closes the store, after all is over. */
  tearDown(): Promise<void> {
    return this.#store.close()
  }

  /** The time of day by the store's clock. */
  get now(): number {
    return EPOCH + Math.floor(this.timeline.time)
  }

  /** Starts a process; one with a worker, unless it only produces. */
  spawn(name: string, role: 'producer' | 'worker', skew: Millis): Actor {
    const { settings, faults, jobs, handlers, worker: extra } = this.#options
    const random = this.#random.fork(name)
    const process = new Process(name, this.timeline, random, skew, (lasts) => this.history.disturb(name, lasts))
    const line = badLine({
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
    const store = this.#options.wrapLine?.(line) ?? line
    const { retention } = settings
    const queueOptions = { store, logger: false, ...(jobs && { jobs }), ...(retention && { retention }) } as const
    const queues = new Map(settings.queues.map((queue) => [queue, new Queue(queue, queueOptions)]))
    let worker: Worker<JobDefinitions> | undefined
    if (role === 'worker') {
      const own = handlers(process, this.history)
      const middleware = [...phasesObserved(process, this.history, own), ...(extra?.middleware ?? [])]
      worker = new Worker<JobDefinitions>(settings.queues, observed(process, this.history, own), {
        store,
        logger: false,
        ...(jobs && { jobs }),
        concurrency: settings.concurrency,
        lease: settings.lease,
        pollEvery: settings.pollEvery,
        abandonAfter: settings.abandonAfter,
        ...(settings.limit !== undefined && { maxGlobalConcurrency: settings.limit }),
        ...extra,
        ...(middleware.length > 0 && { middleware }),
      })
    }
    const actor: Actor = { process, queues, worker }
    this.actors.set(name, actor)
    this.history.say(name, `starts as a ${role}${skew === 0 ? '' : `, its clock off by ${skew} ms`}`)
    return actor
  }

  /** A process, if it lives. */
  living(name: string): Actor | undefined {
    const actor = this.actors.get(name)
    return actor?.process.alive === true ? actor : undefined
  }

  /** The process is gone, whatever it was doing. */
  end(actor: Actor, how: string): void {
    const { process } = actor
    process.kill()
    this.history.say(process.name, how)
    this.history.add({ kind: 'gone', time: this.timeline.time, process: process.name })
  }

  /** Closes the worker and the queues of a process, which then ends. Settles in virtual time. */
  async close(actor: Actor, timeout: Millis): Promise<void> {
    try {
      await actor.worker?.close({ timeout })
    } catch (error) {
      this.history.say(actor.process.name, `close: ${(error as { code?: string }).code ?? 'error'}`)
    }
    for (const queue of actor.queues.values()) await queue.close()
    this.end(actor, 'closed')
  }

  /** Lets time pass until then, or until it is enough. */
  async run(until: Millis, enough: () => boolean = () => false): Promise<void> {
    while (!enough() && !this.spinning && this.timeline.step(until)) {
      await drain()
      const second = Math.floor(this.timeline.time / 1000)
      this.#moments = second === this.#second ? this.#moments + 1 : 0
      this.#second = second
      if (this.#moments > TOO_MANY) this.spinning = true
    }
    if (!enough() && !this.spinning) this.timeline.time = Math.max(this.timeline.time, until)
  }

  /** Every job as it stands. */
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
