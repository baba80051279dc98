// server/queues.ts: the queues of a server: those it was given, and others by name where it serves any.
import { checkOwnName } from '../job/values/names.js'
import type { Logger } from '../queue/events/events.js'
import type { Queue as Producer } from '../queue/queue.js'
import type { Telemetry } from '../queue/instrumentation.js'
import { Queue } from '../worker/claims/queue.js'
import type { Store } from '../store/store.js'
import { forbidden } from './problem.js'

/** The most queues, of those that the server was not given, whose objects are kept. */
const MAX_KEPT = 1_000

/** The queues that a server serves. */
export class ServedQueues {
  readonly #store: Store
  readonly #logger: Logger
  readonly #telemetry: Telemetry | undefined
  /** Those given as objects: their schemas, defaults, retention and webhooks hold. */
  readonly #given = new Map<string, Queue>()
  /** The names that are served; undefined: any. */
  readonly #names: ReadonlySet<string> | undefined
  /** Made here, the one used longest ago first. */
  readonly #made = new Map<string, Queue>()

  constructor(store: Store, queues: readonly (Producer | string)[] | undefined, logger: Logger, telemetry?: Telemetry) {
    this.#store = store
    this.#logger = logger
    this.#telemetry = telemetry
    for (const queue of queues ?? []) if (typeof queue !== 'string') this.#given.set(queue.name, queue as Queue)
    const names = queues?.map((queue) => (typeof queue === 'string' ? checkOwnName(queue, 'queue name') : queue.name))
    this.#names = names && new Set(names)
  }

  /** The queues that were given as objects. */
  get given(): readonly Queue[] {
    return [...this.#given.values()]
  }

  /** The names that are served; undefined: any. */
  get names(): readonly string[] | undefined {
    return this.#names && [...this.#names]
  }

  /** Whether a queue is served. */
  serves(name: string): boolean {
    return this.#names === undefined || this.#names.has(name)
  }

  /** The queue with that name. Throws FORBIDDEN if the server does not serve it. */
  get(name: string): Queue {
    const given = this.#given.get(name)
    if (given !== undefined) return given
    if (!this.serves(name)) throw forbidden(`This server does not serve the queue '${name}'.`)
    const made = this.#made.get(name) ?? this.#make(name)
    this.#made.delete(name)
    this.#made.set(name, made)
    if (this.#made.size > MAX_KEPT) this.#forget(this.#made.keys().next().value!)
    return made
  }

  /** Closes the queues that were made here. Those that were given belong to who gave them. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#made.values()].map((queue) => queue.close()))
  }

  #make(name: string): Queue {
    const telemetry = this.#telemetry
    return new Queue(name, { store: this.#store, logger: this.#logger, ...(telemetry !== undefined && { telemetry }) })
  }

  #forget(name: string): void {
    const queue = this.#made.get(name)!
    this.#made.delete(name)
    queue.close().catch((error: unknown) => this.#logger.error({ error, queue: name }, 'A queue did not close.'))
  }
}
