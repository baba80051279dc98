// store/batcher-options.ts: the settings of a batcher.
import type { Outage } from './outage.js'

/** Options of a batcher. */
export interface BatcherOptions {
  /** Changes that a batch holds at most; a single larger group is sent alone. Default 500. */
  readonly size?: number
  /** Send a full batch at once, without a turn of the event loop: for stores outside of this process. Default false. */
  readonly eager?: boolean
  /** Bytes of text that a batch holds at most, about; a single larger group is sent alone. Default 8 MiB. */
  readonly bytes?: number
  /** Batches after which the writer changes its name. Default: never. */
  readonly tenure?: number
  /** How often a batch without an answer is sent again before its callers get the error. Default 5. */
  readonly replays?: number
  /** The store sends a batch again by itself: once it fails with `STORE_UNAVAILABLE`, its callers do. Default false. */
  readonly patient?: boolean
  /** How often a group refused as busy is sent again before its caller gets the error. Default 40, about 10 s. */
  readonly busyTries?: number
  /** Called when a caller's callback throws, which none may. Default: throws the error again as an uncaught one. */
  readonly broken?: (error: unknown) => void
  /** Gets the failures of batches that are sent again; batchers of one store share it. Default: one of its own. */
  readonly outage?: Outage
}
