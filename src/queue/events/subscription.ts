// queue/events/subscription.ts: one watch on a store's events, shared by all who listen, and held only while somebody does.
import { isScheduleId } from '../../job/schedule.js'
import { isSignalId } from '../../job/signals.js'
import type { Stop } from '../../store/runtime.js'
import type { Store, StoreEvent } from '../../store/store.js'

/** Whether an event is of a row that is no job, and of which nobody is told: that of a schedule, or of a signal. */
export function isOwnRow({ id }: Pick<StoreEvent, 'id'>): boolean {
  return isScheduleId(id) || isSignalId(id)
}

/** Hears events. `undefined`: some were missed, look for yourself. */
export type JobListener = (event: StoreEvent | undefined) => void

/** A process's ear on a store. */
export class EventSubscription {
  readonly #store: Store
  readonly #jobs = new Map<string, Set<JobListener>>()
  readonly #all = new Set<JobListener>()
  #stop: Stop | undefined

  constructor(store: Store) {
    this.#store = store
  }

  /** How many listen. */
  get size(): number {
    let size = this.#all.size
    for (const listeners of this.#jobs.values()) size += listeners.size
    return size
  }

  /** Hears every event, those of rows that are no jobs as well: they say how far the stream is. `undefined`: some were missed. */
  all(listener: JobListener): Stop {
    this.#all.add(listener)
    this.#start()
    return () => {
      this.#all.delete(listener)
      this.#rest()
    }
  }

  /** Hears the events of one job. */
  job(id: string, listener: JobListener): Stop {
    const listeners = this.#jobs.get(id) ?? new Set()
    this.#jobs.set(id, listeners)
    listeners.add(listener)
    this.#start()
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0 && this.#jobs.get(id) === listeners) this.#jobs.delete(id)
      this.#rest()
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

  #rest(): void {
    if (this.#all.size > 0 || this.#jobs.size > 0) return
    this.#stop?.()
    this.#stop = undefined
  }
}
