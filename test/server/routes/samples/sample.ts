// A valid request to an operation, made for a world.
import type { Parts, World } from '../world.js'

/** A valid request to one operation; made anew for each call, because some can be made only once. */
export interface Sample {
  /** Sees to what the request needs, and returns it. Default: a request without any parts. */
  readonly parts?: (world: World) => Parts | Promise<Parts>
  /** The operation takes any body, or none, of any shape: what is wrong with its fields is tested elsewhere. */
  readonly loose?: true
}

/** Samples by operation: its method and its path. */
export type Samples = Readonly<Record<string, Sample>>
