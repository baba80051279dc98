// stores/sqlite/thread/messages.ts: what passes between a store in a thread and its thread. Bodies are texts of store/wire/wire.ts.
import type { SqliteOptions } from '../options.js'
import type { wire } from '../../../store/wire/wire.js'

/** What the thread is given when it starts. */
export interface ThreadData {
  readonly path: string
  readonly options: Omit<SqliteOptions, 'runtime' | 'thread'>
}

/** A call of the port. */
export type Method = keyof typeof wire

/** To the thread. */
export type Request =
  | { readonly kind: 'call'; readonly id: number; readonly method: Method; readonly body: string }
  | { readonly kind: 'watch'; readonly id: number; readonly body: string }
  | { readonly kind: 'stop'; readonly id: number }

/** From the thread. */
export type Response =
  | { readonly kind: 'ready' }
  | { readonly kind: 'answer' | 'failure' | 'notice'; readonly id: number; readonly body: string }

/** One end of the channel between them. */
export interface Port<Received, Sent> {
  on(event: 'message', listener: (message: Received) => void): unknown
  postMessage(message: Sent): void
}
