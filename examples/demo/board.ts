// examples/demo/board.ts: collects the events of the queue, and turns them into lines of text.
import type { QueueEvent } from 'millrace'

/** A job as its events show it. */
export interface Seen {
  readonly id: string
  readonly kind: string
  state: string
  /** The name of its worker. */
  worker: string
  attempt: number
  percent: number
  /** The workers that died while they ran it. */
  readonly lostBy: string[]
  /** The errors of its failed attempts. */
  readonly failures: string[]
  /** How many `completed` events it had: one, if all is well. */
  completions: number
}

/** One line of text. */
export interface Line {
  readonly tone: 'plain' | 'good' | 'bad' | 'note'
  readonly text: string
}

/** The events that are shown. */
export const watched = [
  'waiting',
  'waiting-children',
  'delayed',
  'active',
  'progress',
  'completed',
  'failed',
  'retrying',
  'stalled',
] as const

/** The known state of all jobs. */
export class Board {
  readonly jobs = new Map<string, Seen>()
  /** The worker that was killed. */
  killed: string | undefined
  readonly #nameOf: (worker: string) => string

  constructor(nameOf: (worker: string) => string) {
    this.#nameOf = nameOf
  }

  /** What a worker is doing. */
  jobOf(worker: string): Seen | undefined {
    return [...this.jobs.values()].find((job) => job.state === 'active' && job.worker === worker)
  }

  /** Records an event; returns the line to print, if there is one. */
  see(event: QueueEvent): Line | undefined {
    const job = this.#job(event)
    switch (event.type) {
      case 'waiting':
      case 'waiting-children':
      case 'delayed':
        job.state = event.type
        return undefined
      case 'active': {
        const lost = job.worker !== '' && job.lostBy.includes(job.worker)
        Object.assign(job, { state: 'active', attempt: event.attempt, worker: this.#nameOf(event.worker) })
        const { id, worker, attempt, percent } = job
        if (lost) return { tone: 'good', text: `${worker} takes over ${id} from ${percent} %, attempt ${attempt}` }
        return { tone: 'plain', text: `${worker} starts ${id}${attempt > 1 ? `, attempt ${attempt}` : ''}` }
      }
      case 'progress':
        job.percent = Number(event.progress)
        return job.percent % 25 === 0 && job.percent < 100
          ? { tone: 'plain', text: `${job.id} is at ${job.percent} %` }
          : undefined
      case 'completed':
        job.state = event.type
        job.completions++
        return { tone: 'plain', text: `${job.id} is completed` }
      case 'failed':
        job.state = event.type
        return { tone: 'bad', text: `${job.id} has failed for good: ${event.error.message}` }
      case 'retrying':
        job.failures.push(event.error.message)
        return { tone: 'bad', text: `${job.id} failed (${event.error.message}) and will be retried` }
      case 'stalled':
        job.lostBy.push(job.worker)
        return { tone: 'note', text: `the lease of ${job.worker} on ${job.id} has run out` }
      default:
        return undefined
    }
  }

  #job({ id, name: kind }: QueueEvent): Seen {
    const known = this.jobs.get(id)
    if (known !== undefined) return known
    const job: Seen = {
      id,
      kind,
      state: '',
      worker: '',
      attempt: 0,
      percent: 0,
      lostBy: [],
      failures: [],
      completions: 0,
    }
    this.jobs.set(id, job)
    return job
  }
}
