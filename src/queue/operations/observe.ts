// queue/operations/observe.ts: yields a job as it changes, from now until it has finished.
import { isDeepStrictEqual } from 'node:util'
import { isFinished } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { refuseInside } from '../../store/transaction-context.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent } from '../../job/events.js'
import { checkAbortSignal } from './abort-signal.js'
import { jobNotFound } from './decide.js'
import type { EventSubscription } from '../events/subscription.js'
import { Job } from '../job.js'
import type { JobActions, ObserveFieldsOptions, ObserveOptions } from '../job.js'
import { checkFields, pickFields } from './fields.js'
import type { Rereader } from './reread.js'

/** What observing uses of `JobOperations`. */
interface ObserveHost extends JobActions {
  readonly connection: Connection
  readonly subscription: EventSubscription
  readonly rereader: Rereader
  /** Calls back on close, at once if already closed; returns a function that stops that. */
  onClose(closed: () => void): Stop
}

/**
 * Yields the job now and after each change. Changes that come faster than they are read are combined. With `fields`,
 * yields objects of these fields instead of handles.
 */
export function observe(
  operations: ObserveHost,
  id: string,
  options: ObserveOptions | ObserveFieldsOptions,
): AsyncGenerator<object, void, void> {
  const observation: Observation = { stopped: false, changed: true, last: undefined, ended: undefined, wake: () => {} }
  const handles = observed(operations, id, options, observation)
  const end = handles.return.bind(handles)
  // A consumer that stops must not have to wait for the next change.
  handles.return = (value) => {
    observation.stopped = true
    observation.wake()
    return end(value)
  }
  return handles
}

/** The state between two reads of a job. */
interface Observation {
  /** The consumer has stopped. */
  stopped: boolean
  /** The job may have changed since the last read. */
  changed: boolean
  /** The record as last read. */
  last: JobRecord | undefined
  /** The event that ended it. */
  ended: StoreEvent | undefined
  /** Ends the wait for a change. */
  wake: () => void
}

async function* observed(
  operations: ObserveHost,
  id: string,
  options: ObserveOptions & Partial<ObserveFieldsOptions>,
  observation: Observation,
): AsyncGenerator<object, void, void> {
  refuseUnknown(options, ['signal', 'fields'], 'observe')
  if (options.fields === undefined) return yield* observeChanges(operations, id, options, observation)
  const fields = checkFields(options.fields, 'observe')
  let last: object | undefined
  for await (const job of observeChanges(operations, id, options, observation)) {
    const picked = pickFields(job, fields)
    if (isDeepStrictEqual(picked, last)) continue
    yield (last = picked)
  }
}

async function* observeChanges(
  operations: ObserveHost,
  id: string,
  options: ObserveOptions,
  observation: Observation,
): AsyncGenerator<Job, void, void> {
  const signal = checkAbortSignal(options.signal, 'observe')
  const { store } = operations.connection
  refuseInside(store, `observe() of job ${id}`)
  await operations.connection.ready()
  const leave = (): void => {
    observation.stopped = true
    observation.wake()
  }
  // Subscribe before the first read, so that no event is missed in between.
  const stops = [
    operations.subscription.job(id, (event) => {
      if (event !== undefined && isEnd(event)) observation.ended ??= event
      observation.changed = true
      observation.wake()
    }),
    operations.rereader.add({
      jobs: () => [id],
      receive: (record) => {
        if (isDeepStrictEqual(record, observation.last)) return
        observation.changed = true
        observation.wake()
      },
    }),
    operations.onClose(leave),
  ]
  if (signal?.aborted === true) leave()
  signal?.addEventListener('abort', leave)
  stops.push(() => signal?.removeEventListener('abort', leave))
  try {
    while (!observation.stopped) {
      if (!observation.changed) {
        await new Promise<void>((resolve) => (observation.wake = resolve))
        continue
      }
      observation.changed = false
      const record: JobRecord | undefined = await operations.connection.sharedReads.read(id)
      if (record === undefined) {
        if (observation.last === undefined) throw jobNotFound(id)
        yield goneJob(operations, observation.last, observation.ended)
        return
      }
      if (record !== observation.last) yield new Job(operations, (observation.last = record))
      if (isFinished(record.state)) return
    }
  } finally {
    for (const stop of stops) stop()
  }
}

function isEnd({ type }: StoreEvent): boolean {
  return type === 'removed' || isFinished(type as never)
}

/** The handle of a job that is gone: in its end state, if an event contained it, or as removed. */
function goneJob(operations: ObserveHost, last: JobRecord, ended: StoreEvent | undefined): Job {
  if (ended === undefined || ended.type === 'removed') return new Job(operations, last, { removed: true })
  const { result = last.result, error = last.error, at } = ended
  return new Job(operations, { ...last, state: ended.type as JobRecord['state'], result, error, finishedAt: at })
}
