// server/parts.ts: what a server is made of, as its routes use it.
import type { Logger } from '../queue/events/events.js'
import type { Connection } from '../store/connection.js'
import type { Store } from '../store/store.js'
import type { Audit } from './audit.js'
import type { JobSampler } from './live/job-sampler.js'
import type { LiveSampler } from './live/sampler.js'
import type { Limits } from './options.js'
import type { ServedQueues } from './queues.js'
import type { Working } from './working/working.js'
import type { Redactor } from './redact.js'
import type { Logins } from './sessions/login.js'
import type { OpenStreams } from './live/open-streams.js'

/** The parts of a server that its routes use. */
export interface ServerParts {
  readonly store: Store
  readonly connection: Connection
  /** The queues that it serves. */
  readonly queues: ServedQueues
  /** What workers over HTTP claim and settle through. */
  readonly working: Working
  readonly limits: Limits
  readonly logger: Logger
  /** Refuses changes. */
  readonly readOnly: boolean
  /** Hides secrets in what read routes answer. */
  readonly redactor: Redactor
  /** Records changes by admins, and who saw what is hidden. */
  readonly audit: Audit
  /** Opens and ends sessions of browsers. */
  readonly logins: Logins
  /** Counts the streams of each caller, and ends those of callers that are no longer known. */
  readonly streams: OpenStreams
  /** What `/v1/live` sends to all of its readers. */
  readonly live: LiveSampler
  /** What streams of single jobs send. */
  readonly jobs: JobSampler
  /** Aborts when the server begins to shut down. */
  readonly closing: AbortSignal
}
