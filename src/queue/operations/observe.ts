// queue/operations/observe.ts: a job as it changes, from now until it has finished.
import { isDeepStrictEqual } from 'node:util'
import { isFinished } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { refuseInside } from '../../store/transaction-context.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent } from '../../store/store.js'
import { checkAbortSignal } from './abort-signal.js'
import { notFound } from './result.js'
import type { EventSubscription } from '../events/subscription.js'
import { Job } from '../job.js'
import type { JobActions, ObserveOptions } from '../job.js'
import type { Rereader } from './reread.js'

/** Where one observes. */
interface Observing extends JobActions {
  readonly connection: Connection
  readonly feed: EventSubscription
  readonly rereading: Rereader
  /** Calls back when it closes, at once if it has; answers how to stop. */
  onClose(closed: () => void): Stop
}

/** The job now and after each change. Changes that come faster than they are read are seen as one. */
export function observe(desk: Observing, id: string, options: ObserveOptions): AsyncGenerator<Job, void, void> {
  const look: Look = { over: false, changed: true, last: undefined, ended: undefined, wake: () => {} }
  const seen = observing(desk, id, options, look)
  const end = seen.return.bind(seen)
  // Whoever leaves while it waits for a change must not have to wait for that change.
  seen.return = (value) => {
    look.over = true
    look.wake()
    return end(value)
  }
  return seen
}

/** What is known between two looks at a job. */
interface Look {
  /** Nobody wants to know any more. */
  over: boolean
  /** Something has happened since the last look. */
  changed: boolean
  /** The job as it was seen last. */
  last: JobRecord | undefined
  /** The event that ended it. */
  ended: StoreEvent | undefined
  /** Ends the wait for a change. */
  wake: () => void
}

async function* observing(
  desk: Observing,
  id: string,
  options: ObserveOptions,
  look: Look,
): AsyncGenerator<Job, void, void> {
  refuseUnknown(options, ['signal'], 'observe')
  const signal = checkAbortSignal(options.signal, 'observe')
  const { store } = desk.connection
  refuseInside(store, `observe() of job ${id}`)
  await desk.connection.ready()
  const leave = (): void => {
    look.over = true
    look.wake()
  }
  // The ear is open before the first look, so nothing falls between.
  const stops = [
    desk.feed.job(id, (event) => {
      if (event !== undefined && isEnd(event)) look.ended ??= event
      look.changed = true
      look.wake()
    }),
    desk.rereading.add({
      jobs: () => [id],
      see: (record) => {
        if (isDeepStrictEqual(record, look.last)) return
        look.changed = true
        look.wake()
      },
    }),
    desk.onClose(leave),
  ]
  if (signal?.aborted === true) leave()
  signal?.addEventListener('abort', leave)
  stops.push(() => signal?.removeEventListener('abort', leave))
  try {
    while (!look.over) {
      if (!look.changed) {
        await new Promise<void>((resolve) => (look.wake = resolve))
        continue
      }
      look.changed = false
      const record: JobRecord | undefined = await desk.connection.looks.look(id)
      if (record === undefined) {
        if (look.last === undefined) throw notFound(id)
        yield gone(desk, look.last, look.ended)
        return
      }
      if (record !== look.last) yield new Job(desk, (look.last = record))
      if (isFinished(record.state)) return
    }
  } finally {
    for (const stop of stops) stop()
  }
}

function isEnd({ type }: StoreEvent): boolean {
  return type === 'removed' || isFinished(type as never)
}

/** A job that is no longer there: as it ended, if that was told, or as one that was removed. */
function gone(desk: Observing, last: JobRecord, ended: StoreEvent | undefined): Job {
  if (ended === undefined || ended.type === 'removed') return new Job(desk, last, { removed: true })
  const { result = last.result, error = last.error, at } = ended
  return new Job(desk, { ...last, state: ended.type as JobRecord['state'], result, error, finishedAt: at })
}
