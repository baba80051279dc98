// conformance/listener.ts: collects the notices of a watcher, and waits for them without sleeping.
import { put } from './changes.js'
import { must, within } from './check.js'
import type { Driver } from './driver.js'
import type { Notice, Revoked, Store, WatchOptions } from '../store/store.js'
import type { StoreEvent } from '../job/events.js'
import type { HoldEnd } from '../job/holds.js'
import type { Stop } from '../store/runtime.js'

/** The queue of markers, which show a listener that it has received everything before them; `events` omits them. */
const MARKS = 'marks'

/** A watcher that keeps every notice. */
export class Listener {
  /** Every notice, in the order of arrival. */
  readonly notices: Notice[] = []
  readonly stop: Stop
  #wakers: (() => void)[] = []

  constructor(store: Store, options: WatchOptions = {}, callback: (notice: Notice) => void = () => {}) {
    this.stop = store.watch(options, (notice) => {
      this.notices.push(notice)
      const wakers = this.#wakers
      this.#wakers = []
      for (const wake of wakers) wake()
      callback(notice)
    })
  }

  /** All events so far, except markers and `drained`. */
  get events(): readonly StoreEvent[] {
    return this.all.filter(({ queue, type }) => queue !== MARKS && type !== 'drained')
  }

  /** All events so far. */
  get all(): readonly StoreEvent[] {
    return this.notices.flatMap(({ events }) => events)
  }

  /** All revoked leases so far, each once. */
  get revoked(): readonly Revoked[] {
    const known = new Map<string, Revoked>()
    for (const revoked of this.notices.flatMap((notice) => notice.revoked)) {
      known.set(`${revoked.id} ${revoked.fence}`, revoked)
    }
    return [...known.values()]
  }

  /** All holds so far. */
  get held(): readonly HoldEnd[] {
    return this.notices.flatMap((notice) => notice.held ?? [])
  }

  /** All queues with a work hint so far. */
  get work(): ReadonlySet<string> {
    return new Set(this.notices.flatMap((notice) => notice.work))
  }

  /** Waits until the condition holds; checks it again at each notice. */
  async until(condition: () => boolean, duty: string): Promise<void> {
    const wait = async (): Promise<void> => {
      while (!condition()) {
        await new Promise<void>((wake) => {
          this.#wakers.push(wake)
        })
      }
    }
    await within(wait(), duty)
  }

  /** Waits until all events of commits before this call have arrived, and returns them. */
  async received(by: Driver): Promise<readonly StoreEvent[]> {
    const worker = by.mark()
    await by.land(put(worker, 1, 0, [{ type: 'worker-started', queue: MARKS, worker }]))
    await this.until(
      () => this.all.some((event) => event.queue === MARKS && event.worker === worker),
      'an event of a cell reaches every watcher of events',
    )
    return this.events
  }
}

/** Runs `work` with a listener, and stops the listener in any case. */
export async function withListener(
  store: Store,
  options: WatchOptions,
  work: (listener: Listener) => Promise<void>,
): Promise<void> {
  const listener = new Listener(store, options)
  try {
    await work(listener)
  } finally {
    listener.stop()
  }
}

/** The types of the events of one job, in order. */
export function typesOf(events: readonly StoreEvent[], id: string): readonly string[] {
  return events.filter((event) => event.id === id).map(({ type }) => type)
}

/** Fails unless every event arrived once. */
export function onceEach(events: readonly StoreEvent[]): void {
  const cursors = events.map(({ cursor }) => cursor)
  must(new Set(cursors).size === cursors.length, 'every event is published once, with its own cursor')
}
