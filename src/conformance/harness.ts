// conformance/harness.ts: what a store's author provides, and what a case of the suite is.
import type { Millis } from '../job/job.js'
import type { Store } from '../store/store.js'

/** A fresh, empty store for one case, a second handle on the same data, and a way to move its clock. */
export interface Harness {
  /** Open and empty. */
  readonly store: Store
  /** Another open handle on the same data; for stores shared by `process` it may be the same object. */
  peer(): Promise<Store>
  /** Moves the store's clock ahead, for every handle. */
  advance(ms: Millis): Promise<void>
  /** Throws the store and its data away; must bear that a case has closed the store already. */
  dispose(): Promise<void>
  /** How many events the ring holds; where it is absent, the case that overruns the ring does nothing. */
  readonly ring?: number
  /** How many bytes the events in it may have; where it is absent, the case that overruns that does nothing. */
  readonly ringBytes?: number
  /** The clock also runs by itself between calls of `advance`; comparisons then read times to the minute. */
  readonly ticks?: boolean
  /** An open transaction locks rows only: commits of others are answered while it is open. */
  readonly rowLocks?: boolean
  /** An open transaction makes even reads of others wait for its end, as where a database has one connection only. */
  readonly readsWait?: boolean
}

/** Makes a harness; called once for each case. */
export type MakeHarness = () => Promise<Harness>

/** One duty of a store, as a short story that rejects where the duty is broken. */
export interface ConformanceCase {
  /** The part of the port it belongs to. */
  readonly area: string
  /** The duty, as a sentence. */
  readonly title: string
  /** What a store must be able to do for the case to apply. */
  readonly needs?: 'transactions'
  /** Tries the duty on a fresh store; rejects where it is broken. */
  run(harness: Harness): Promise<void>
}

/** The cases of one area, by their titles. */
export function area(
  name: string,
  stories: Readonly<Record<string, (harness: Harness) => Promise<void>>>,
  needs?: 'transactions',
): readonly ConformanceCase[] {
  return Object.entries(stories).map(([title, run]) => {
    return needs === undefined ? { area: name, title, run } : { area: name, title, needs, run }
  })
}
