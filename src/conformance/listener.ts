// conformance/listener.ts: gathers what a watcher is told, and waits for it without sleeping.
import { put } from './changes.js'
import { must, within } from './check.js'
import type { Driver } from './driver.js'
import type { Notice, Revoked, Store, StoreEvent, WatchOptions } from '../store/store.js'
import type { Stop } from '../store/runtime.js'

/** The queue of the marks that tell a listener how far it has heard; its events are not gathered. */
const MARKS = 'marks'

/** A watcher that remembers. */
export class Listener {
  /** Every notice, as it came. */
  readonly notices: Notice[] = []
  readonly stop: Stop
  #waiting: (() => void)[] = []

  constructor(store: Store, options: WatchOptions = {}, also: (notice: Notice) => void = () => {}) {
    this.stop = store.watch(options, (notice) => {
      this.notices.push(notice)
      const waiting = this.#waiting
      this.#waiting = []
      for (const wake of waiting) wake()
      also(notice)
    })
  }

  /** All events so far, but for marks and `drained`. */
  get events(): readonly StoreEvent[] {
    return this.all.filter(({ queue, type }) => queue !== MARKS && type !== 'drained')
  }

  /** All events so far. */
  get all(): readonly StoreEvent[] {
    return this.notices.flatMap(({ events }) => events)
  }

  /** All leases known to be taken away, each once. */
  get revoked(): readonly Revoked[] {
    const known = new Map<string, Revoked>()
    for (const revoked of this.notices.flatMap((notice) => notice.revoked)) {
      known.set(`${revoked.id} ${revoked.fence}`, revoked)
    }
    return [...known.values()]
  }

  /** All queues in which work was announced. */
  get work(): ReadonlySet<string> {
    return new Set(this.notices.flatMap((notice) => notice.work))
  }

  /** Waits until the condition holds, looking again at each notice. */
  async until(condition: () => boolean, duty: string): Promise<void> {
    const wait = async (): Promise<void> => {
      while (!condition()) {
        await new Promise<void>((wake) => {
          this.#waiting.push(wake)
        })
      }
    }
    await within(wait(), duty)
  }

  /** Waits until every event of the commits before this call has come. */
  async heard(by: Driver): Promise<readonly StoreEvent[]> {
    const worker = by.mark()
    await by.land(put(worker, 1, 0, [{ type: 'worker-started', queue: MARKS, worker }]))
    await this.until(
      () => this.all.some((event) => event.queue === MARKS && event.worker === worker),
      'an event of a cell reaches whoever watches events',
    )
    return this.events
  }
}

/** Runs a story with a listener, and stops it whatever happens. */
export async function listening(
  store: Store,
  options: WatchOptions,
  story: (listener: Listener) => Promise<void>,
): Promise<void> {
  const listener = new Listener(store, options)
  try {
    await story(listener)
  } finally {
    listener.stop()
  }
}

/** The types of the events of one job, in their order. */
export function typesOf(events: readonly StoreEvent[], id: string): readonly string[] {
  return events.filter((event) => event.id === id).map(({ type }) => type)
}

/** Fails unless every event came once. */
export function onceEach(events: readonly StoreEvent[]): void {
  const cursors = events.map(({ cursor }) => cursor)
  must(new Set(cursors).size === cursors.length, 'every event is told once, with a cursor of its own')
}
