// worker/shutdown.ts: closes the parts of a program in order: workers first, then queues, then stores.
import { MillraceError } from '../job/errors/errors.js'
import { Queue } from '../queue/queue.js'
import { parseClose } from './close.js'
import type { CloseOptions } from './close.js'
import { Worker } from './worker.js'

/** Anything that can be closed: workers, queues, stores. */
export interface Closable {
  /** Releases everything it holds. */
  close(options?: CloseOptions): Promise<void>
}

/**
 * Closes workers, then queues, then everything else (stores), all of a kind at once. Closes all of them even if one
 * fails, then throws the first error.
 *
 * ```ts
 * process.once('SIGTERM', () => void shutdown([worker, queue, store], { timeout: '30s' }))
 * ```
 */
export async function shutdown(parts: readonly Closable[], options: CloseOptions = {}): Promise<void> {
  parseClose(options, 'shutdown')
  if (!Array.isArray(parts) || parts.some((part) => typeof (part as Partial<Closable> | null)?.close !== 'function')) {
    throw new MillraceError('INVALID_OPTION', 'shutdown takes an array of workers, queues and stores.')
  }
  const errors: unknown[] = []
  for (const kind of [0, 1, 2]) {
    // All of a kind at once, so that no worker claims jobs while another waits for its own.
    const closing = (parts as readonly Closable[])
      .filter((part) => rank(part) === kind)
      .map((part) => part.close(options))
    for (const end of await Promise.allSettled(closing)) if (end.status === 'rejected') errors.push(end.reason)
  }
  if (errors.length > 0) throw errors[0]
}

function rank(part: Closable): number {
  return part instanceof Worker ? 0 : part instanceof Queue ? 1 : 2
}
