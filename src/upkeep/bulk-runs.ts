// upkeep/bulk-runs.ts: works on due bulk operations beside the passes of upkeep, without a slot of the worker.
import { isBulk } from '../job/bulk.js'
import { isFinished } from '../job/job.js'
import type { JobHeader, Millis } from '../job/job.js'
import { runBulk } from '../queue/operations/bulk/run.js'
import type { EndedOperation } from '../queue/operations/bulk/run.js'
import type { Connection } from '../store/connection.js'
import type { StoreClock } from './store-clock.js'

/** The most operations that one worker works on at a time. The others wait, or other workers take them. */
const MAX_RUNS = 4

/** What the runs use of the worker that they are part of. */
export interface BulkRunsParts {
  readonly connection: Connection
  /** How long a run that is silent keeps its operation. */
  readonly lease: Millis
  readonly errors: { report(error: unknown): void }
  /** Receives the operations that were ended here. Default: none does. */
  readonly operationEnded?: (operation: EndedOperation) => void
}

/** Whether a due row is an operation to work on, rather than one to remove. */
export function isDueBulk(job: JobHeader): boolean {
  return isBulk(job) && !isFinished(job.state)
}

/** The operations that this worker works on. Any number of workers may try: the operation's fence lets one of them. */
export class BulkRuns {
  readonly #parts: BulkRunsParts
  readonly #clock: StoreClock
  readonly #runs = new Map<string, Promise<void>>()
  #stopped = false

  constructor(parts: BulkRunsParts, clock: StoreClock) {
    this.#parts = parts
    this.#clock = clock
  }

  /** Works on an operation that is due, unless this worker does so already or has enough of them. */
  begin({ id }: JobHeader): void {
    if (this.#stopped || this.#runs.has(id) || this.#runs.size >= MAX_RUNS) return
    const run = this.#run(id)
      .catch((error: unknown) => void (this.#stopped || this.#parts.errors.report(error)))
      .finally(() => this.#runs.delete(id))
    this.#runs.set(id, run)
  }

  /** Ends all runs after the page that each of them works on; other workers continue them at once. */
  async stop(): Promise<void> {
    this.#stopped = true
    await this.idle()
  }

  /** Resolves when no run is in progress. */
  async idle(): Promise<void> {
    await Promise.all(this.#runs.values())
  }

  async #run(id: string): Promise<void> {
    const { connection, lease, operationEnded: ended } = this.#parts
    const [row] = await connection.store.get([id])
    if (row === undefined) return
    await runBulk({ connection, lease, now: () => this.#clock.now(), stopped: () => this.#stopped, ended }, row)
  }
}
