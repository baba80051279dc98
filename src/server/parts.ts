// server/parts.ts: what a server is made of, as its routes use it.
import type { Logger } from '../queue/events/events.js'
import type { Connection } from '../store/connection.js'
import type { Store } from '../store/store.js'
import type { KeepLast } from '../upkeep/retention/keep-last.js'
import type { Limits } from './options.js'
import type { ServedQueues } from './queues.js'

/** The parts of a server that its routes use. */
export interface ServerParts {
  readonly store: Store
  readonly connection: Connection
  /** The queues that it serves. */
  readonly queues: ServedQueues
  /** Notes which jobs have ended, for retention by count. */
  readonly keepLast: Pick<KeepLast, 'ended'>
  readonly limits: Limits
  readonly logger: Logger
  /** Refuses changes. */
  readonly readOnly: boolean
  /** Aborts when the server begins to shut down. */
  readonly closing: AbortSignal
}
