// worker/parts.ts: what the parts of a worker share. Built once by the worker and handed to each of them.
import { Adder } from '../queue/add.js'
import type { JobDefinitions } from '../queue/define.js'
import type { JobOperations } from '../queue/operations/job-operations.js'
import type { Telemetry } from '../queue/instrumentation.js'
import type { Connection } from '../store/connection.js'
import type { KeepLast } from '../upkeep/retention/keep-last.js'
import type { Middleware } from './attempt/context.js'
import type { Backpressure } from './backpressure.js'
import type { Settings } from './options.js'
import type { Reporter } from './reporter.js'
import type { RunTally } from './run-tally.js'
import type { StoreErrors } from './store-errors.js'

/** The shared parts of one worker. None of them knows of attempts. */
export interface WorkerParts {
  /** The worker's id. */
  readonly id: string
  readonly queues: readonly string[]
  readonly connection: Connection
  readonly settings: Settings
  readonly jobs: JobDefinitions | undefined
  readonly middleware: readonly Middleware[]
  readonly telemetry: Telemetry | undefined
  readonly operations: JobOperations
  readonly adders: Adders
  readonly reporter: Reporter
  readonly errors: StoreErrors
  readonly backpressure: Backpressure
  readonly run: RunTally
  readonly keepLast: KeepLast
}

/** Adds jobs for handlers. */
export class Adders {
  readonly #own: Adder | undefined
  readonly #operations: JobOperations
  readonly #jobs: JobDefinitions | undefined
  readonly #telemetry: Telemetry | undefined
  /** Adders for queues of which the worker knows only the name. */
  readonly #byQueue = new Map<string, Adder>()

  /** `own` is the adder of the worker's queue; undefined for a worker constructed with queue names. */
  constructor(
    own: Adder | undefined,
    operations: JobOperations,
    jobs: JobDefinitions | undefined,
    telemetry: Telemetry | undefined,
  ) {
    this.#own = own
    this.#operations = operations
    this.#jobs = jobs
    this.#telemetry = telemetry
  }

  /** The queue's own adder, with its defaults; for a worker constructed with queue names, one without defaults. */
  for(queue: string): Adder {
    if (this.#own !== undefined) return this.#own
    let adder = this.#byQueue.get(queue)
    if (adder === undefined) {
      adder = new Adder(queue, this.#operations, this.#jobs, {}, undefined)
      const telemetry = this.#telemetry
      if (telemetry !== undefined) adder.trace = () => telemetry.trace()
      this.#byQueue.set(queue, adder)
    }
    return adder
  }
}
