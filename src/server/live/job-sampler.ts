// server/live/job-sampler.ts: what /v1/jobs/{id}/live sends: each job is read once a second for all of its readers together.
import type { JobRecord, LogLine, Millis } from '../../job/job.js'
import { describeError } from '../../job/errors/failure.js'
import type { Logger } from '../../queue/events/events.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'

const EVERY: Millis = 1_000
/** The most log lines of one look. */
const MOST_LINES = 100

/** What was found at one look; no record: the job is gone. */
export interface JobLook {
  readonly record: JobRecord | undefined
  /** Lines of its log that were not read before; a reader that came earlier may know some of them. */
  readonly lines: readonly LogLine[]
  /** There are more lines, which the next look has. */
  readonly more: boolean
}

type Listener = (look: JobLook) => void

interface Watched {
  readonly listeners: Set<Listener>
  /** The last line that was read. */
  after: number
}

/** Looks at jobs while anybody listens. */
export class JobSampler {
  readonly #connection: Connection
  readonly #logger: Logger
  readonly #watched = new Map<string, Watched>()
  #timer: Stop | undefined
  #looking = false

  constructor(connection: Connection, logger: Logger) {
    this.#connection = connection
    this.#logger = logger
  }

  /** Calls the listener with each look at a job, with log lines after that one; until it is stopped. */
  listen(id: string, after: number, listener: Listener): Stop {
    const watched = this.#watched.get(id) ?? { listeners: new Set(), after }
    watched.after = Math.min(watched.after, after)
    watched.listeners.add(listener)
    this.#watched.set(id, watched)
    this.#arm()
    return () => {
      watched.listeners.delete(listener)
      if (watched.listeners.size === 0) this.#watched.delete(id)
      if (this.#watched.size > 0) return
      this.#timer?.()
      this.#timer = undefined
    }
  }

  #arm(): void {
    if (this.#timer !== undefined || this.#looking || this.#watched.size === 0) return
    this.#timer = this.#connection.runtime.timer(
      EVERY,
      () => {
        this.#timer = undefined
        void this.#look()
      },
      true,
    )
  }

  async #look(): Promise<void> {
    this.#looking = true
    try {
      await this.#connection.ready()
      await Promise.all([...this.#watched].map(([id, watched]) => this.#lookAt(id, watched)))
    } catch (error) {
      this.#logger.warn({ error: describeError(error) }, 'Jobs could not be read for their streams; trying again.')
    } finally {
      this.#looking = false
      this.#arm()
    }
  }

  async #lookAt(id: string, watched: Watched): Promise<void> {
    const { sharedReads, reads } = this.#connection
    const record = await sharedReads.read(id)
    const logs = { after: watched.after, limit: MOST_LINES }
    const details = record === undefined ? undefined : await reads.details({ jobs: [id], parts: ['logs'], logs })
    const lines = details?.jobs[0]?.logs ?? []
    watched.after = lines.at(-1)?.index ?? watched.after
    for (const listener of [...watched.listeners]) listener({ record, lines, more: lines.length === MOST_LINES })
  }
}
