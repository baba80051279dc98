// queue/events/subscription.ts: one watch on a store's events, shared by all listeners, open while there are any; and
// the listeners of a queue among them.
import { bulkQueue } from '../../job/bulk.js'
import { MillraceError } from '../../job/errors/errors.js'
import { isScheduleId } from '../../job/schedules/schedule.js'
import { isSignalId } from '../../job/signals.js'
import type { Stop } from '../../store/runtime.js'
import type { Store } from '../../store/store.js'
import type { StoreEvent } from '../../job/events.js'
import type { Connection } from '../../store/connection.js'
import { publicEvent } from './events.js'
import type { Emitter } from './events.js'

/** Whether an event is one that a queue publishes: not about a row that is no job, but for a few of schedules and operations. */
export function isPublished(
  { queue: of, id, type }: Pick<StoreEvent, 'id' | 'type' | 'queue'>,
  queue: string,
): boolean {
  if (type === 'operation-ended') return of === bulkQueue(queue)
  return of === queue && (!isScheduleId(id) || type === 'schedule-missed') && !isSignalId(id)
}

/** Receives events. `undefined`: some were missed, read the jobs instead. */
export type JobListener = (event: StoreEvent | undefined) => void

/** A process's shared subscription to a store's events. */
export class EventSubscription {
  readonly #store: Store
  readonly #jobs = new Map<string, Set<JobListener>>()
  readonly #all = new Set<JobListener>()
  #stop: Stop | undefined

  constructor(store: Store) {
    this.#store = store
  }

  /** The number of listeners. */
  get size(): number {
    let size = this.#all.size
    for (const listeners of this.#jobs.values()) size += listeners.size
    return size
  }

  /**
   * Subscribes to every event, including those of rows that are not jobs: they show the position in the stream.
   * `undefined`: some were missed.
   */
  all(listener: JobListener): Stop {
    this.#all.add(listener)
    this.#start()
    return () => {
      this.#all.delete(listener)
      this.#stopIfIdle()
    }
  }

  /** Subscribes to the events of one job. */
  job(id: string, listener: JobListener): Stop {
    const listeners = this.#jobs.get(id) ?? new Set()
    this.#jobs.set(id, listeners)
    listeners.add(listener)
    this.#start()
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0 && this.#jobs.get(id) === listeners) this.#jobs.delete(id)
      this.#stopIfIdle()
    }
  }

  #start(): void {
    this.#stop ??= this.#store.watch({ events: true }, (notice) => {
      if (notice.gap) {
        for (const each of [...this.#all]) each(undefined)
        for (const listeners of this.#jobs.values()) for (const each of [...listeners]) each(undefined)
      }
      for (const event of notice.events) {
        for (const each of [...this.#all]) each(event)
        const listeners = this.#jobs.get(event.id)
        if (listeners !== undefined) for (const each of [...listeners]) each(event)
      }
    })
  }

  #stopIfIdle(): void {
    if (this.#all.size > 0 || this.#jobs.size > 0) return
    this.#stop?.()
    this.#stop = undefined
  }
}

/** Forwards events and store errors of a queue to its emitter, until stopped. */
export function listen(queue: string, subscription: EventSubscription, { outage }: Connection, emitter: Emitter): Stop {
  const stops = [
    subscription.all((event) => {
      if (event === undefined) emitter.error(eventsMissed(queue))
      else if (emitter.has(event.type) && isPublished(event, queue)) {
        emitter.emit(publicEvent(event))
      }
    }),
    outage.on((error) => emitter.error(error)),
  ]
  return () => stops.forEach((stop) => stop())
}

function eventsMissed(queue: string): MillraceError {
  return new MillraceError(
    'EVENTS_MISSED',
    `Listeners of queue '${queue}' missed events: this process was too slow to read them, or asleep, or it subscribed while a long commit was under way. Look at the jobs themselves.`,
    { details: { queue } },
  )
}
