// examples/demo/board.ts: what the events of the queue have told so far, and the story they make.
import type { QueueEvent } from 'millrace'

/** A job as its events show it. */
export interface Seen {
  readonly id: string
  readonly kind: string
  state: string
  /** The name of the worker that has or had it. */
  worker: string
  attempt: number
  percent: number
  /** The workers that died with it. */
  readonly lostBy: string[]
  /** Why attempts of it failed. */
  readonly failures: string[]
  /** How often it was announced as completed: once, if all is well. */
  completions: number
}

/** One line of the story. */
export interface Line {
  readonly tone: 'plain' | 'good' | 'bad' | 'note'
  readonly text: string
}

/** The events that make up the picture. */
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

/** Everything that is known of the jobs. */
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

  /** Takes an event in; answers what there is to tell. */
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
