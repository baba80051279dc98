// worker/worker-events.ts: the events that a worker emits, and their types: those of a queue, with the job.
import type { JobDefinitions, NameOf } from '../queue/define.js'
import type { EventOf } from '../queue/events/events.js'
import type { JobOf } from '../queue/queue-types.js'

/** The events that a worker emits: its own, and those of the jobs it runs. `queue.on` has all the others. */
export const workerEvents = [
  'active',
  'progress',
  'phase',
  'completed',
  'failed',
  'retrying',
  'lease-lost',
  'error',
  'worker-started',
  'worker-stopping',
  'worker-stopped',
] as const

/** The events of a worker. */
export type WorkerEventType = (typeof workerEvents)[number]

/** The events of the worker itself, which are about no job. */
type WithoutJob = 'worker-started' | 'worker-stopping' | 'worker-stopped'

/** An event with the job that it is about; of one name, if the event is. */
type WithJob<Event, Jobs extends JobDefinitions> = Event extends { readonly name: infer Name }
  ? Event & {
      /** The job, as the worker knows it, with what the event reports; `refresh()` reads it. */
      readonly job: JobOf<Jobs, Name & NameOf<Jobs>>
    }
  : never

/** An error that may be about a job. */
type WithOptionalJob<Event, Jobs extends JobDefinitions> = Event & {
  /** The job, if the error is about one. */
  readonly job?: JobOf<Jobs>
}

/** Events by type. A mapped type, so that a worker of declared jobs is assignable to a worker of any jobs. */
type WorkerEvents<Jobs extends JobDefinitions> = {
  readonly [Type in WorkerEventType]: Type extends WithoutJob
    ? EventOf<Type, Jobs>
    : Type extends 'error'
      ? WithOptionalJob<EventOf<Type, Jobs>, Jobs>
      : WithJob<EventOf<Type, Jobs>, Jobs>
}

/**
 * One event of a worker by its type: that of a queue, with the `job`. For declared jobs, discriminated by `name`:
 * `WorkerEventOf<'completed', typeof jobs>`.
 */
export type WorkerEventOf<
  Type extends WorkerEventType,
  Jobs extends JobDefinitions = JobDefinitions,
> = WorkerEvents<Jobs>[Type]
