// store/wire/protocol.ts: the store protocol over HTTP: its numbers, its paths, and the frames of its stream.
import type { Time } from '../../job/job.js'
import type { wire } from './wire.js'

/** The number of the protocol that this version speaks. It goes up with each change that an older peer would misread. */
export const PROTOCOL = 1

/** The oldest protocol that this version still serves: the one before its own. */
export const OLDEST_PROTOCOL = 1

/** The header that says which protocol a request speaks. */
export const PROTOCOL_HEADER = 'millrace-protocol'

/** The calls of the port that travel. */
export type Call = Exclude<keyof typeof wire, 'open' | 'close'>

/** Where the store is served, below the base of the server. */
export const STORE_PATH = '/v1/store'

/** What `GET /v1/store` answers. */
export interface Handshake {
  /** The oldest and the newest protocol that the server speaks. */
  readonly protocol: { readonly oldest: number; readonly newest: number }
  /** The version of the server. */
  readonly millrace: string
  /** The name of its store. */
  readonly store: string
  /** The time of its store. */
  readonly now: Time
  /** Whether it refuses changes. */
  readonly readOnly: boolean
  /** Who the caller is. */
  readonly you: { readonly name: string; readonly roles: readonly string[]; readonly queues: readonly string[] }
}

/** How often the server sends something on a stream at least, so that a connection that died is noticed. */
export const PING_EVERY = 8_000

/** After how long without anything on a stream its reader takes the connection for dead. */
export const SILENCE = 20_000

/** The answers and requests below this many bytes are sent as they are. */
export const COMPRESS_FROM = 8_192
