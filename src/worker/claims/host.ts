// worker/claims/host.ts: what claimed jobs use of the queue object that claimed them.
import type { Adder } from '../../queue/add.js'
import type { JobDefinitions } from '../../queue/define.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import type { Connection } from '../../store/connection.js'
import type { KeepLast } from '../../upkeep/retention/keep-last.js'

/** The part of a queue object that its claimed jobs use. */
export interface ClaimHost {
  readonly connection: Connection
  readonly operations: JobOperations
  readonly adder: Adder
  readonly jobs: JobDefinitions | undefined
  readonly keepLast: KeepLast
  /** Throws if the queue object is closed. */
  refuseClosed(): void
  /** The claimer is alive: its entry in the registry may want to be written again. */
  seen(): void
}
