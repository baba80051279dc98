// conformance/harness.ts: what the author of a store provides, and the shape of a case.
import type { Millis } from '../job/job.js'
import type { Store } from '../store/store.js'

/** A new, empty store for one case, a second handle on the same data, and a way to advance its clock. */
export interface Harness {
  /** The store, open and empty. */
  readonly store: Store
  /** Another open handle on the same data; for stores shared by `process` it may be the same object. */
  peer(): Promise<Store>
  /** Advances the store's clock, for every handle. */
  advance(ms: Millis): Promise<void>
  /** Closes the store and deletes its data. The case may have closed the store already. */
  dispose(): Promise<void>
  /** How many events the ring holds. Default: unknown, and the case that overflows the ring does nothing. */
  readonly ring?: number
  /** How many bytes of events the ring holds. Default: unknown, and the case that overflows them does nothing. */
  readonly ringBytes?: number
  /** Whether the clock also runs between calls of `advance`. Comparisons then round times to minutes. Default false. */
  readonly ticks?: boolean
  /** Whether an open transaction locks rows only, so that other commits return while it is open. Default false. */
  readonly rowLocks?: boolean
  /** Whether even reads wait for the end of an open transaction, as on a single connection. Default false. */
  readonly readsWait?: boolean
}

/** Creates a harness; called once for each case. */
export type MakeHarness = () => Promise<Harness>

/** One duty of a store, as a test that rejects if the store breaks it. */
export interface ConformanceCase {
  /** The part of the port it belongs to. */
  readonly area: string
  /** The duty, as a sentence. */
  readonly title: string
  /** What a store must support for the case to apply. Default: nothing. */
  readonly needs?: 'transactions'
  /** Tests the duty on a new store; rejects if the store breaks it. */
  run(harness: Harness): Promise<void>
}

/** The cases of one area, by their titles. */
export function area(
  name: string,
  cases: Readonly<Record<string, (harness: Harness) => Promise<void>>>,
  needs?: 'transactions',
): readonly ConformanceCase[] {
  return Object.entries(cases).map(([title, run]) => {
    return needs === undefined ? { area: name, title, run } : { area: name, title, needs, run }
  })
}
