// worker/shutdown.ts: how a program ends: workers first, then queues, then stores.
import { MillraceError } from '../job/errors.js'
import { refuseUnknown } from '../job/names.js'
import { Queue } from '../queue/queue.js'
import type { CloseOptions } from './closing.js'
import { Worker } from './worker.js'

/** Whatever can be closed: workers, queues, stores. */
export interface Closable {
  /** Lets go of everything it holds. */
  close(options?: CloseOptions): Promise<void>
}

/**
 * Closes workers, then queues, then everything else (stores), each kind in the order given. All are closed even if one
 * of them fails, and the first error is thrown when they are.
 *
 * ```ts
 * process.once('SIGTERM', () => void shutdown([worker, queue, store], { timeout: '30s' }))
 * ```
 */
export async function shutdown(parts: readonly Closable[], options: CloseOptions = {}): Promise<void> {
  refuseUnknown(options, ['timeout', 'grace'], 'shutdown')
  if (!Array.isArray(parts) || parts.some((part) => typeof (part as Partial<Closable> | null)?.close !== 'function')) {
    throw new MillraceError('INVALID_OPTION', 'shutdown takes an array of workers, queues and stores.')
  }
  let first: { readonly error: unknown } | undefined
  for (const part of (parts as readonly Closable[]).toSorted((a, b) => rank(a) - rank(b))) {
    try {
      await part.close(options)
    } catch (error) {
      first ??= { error }
    }
  }
  if (first !== undefined) throw first.error
}

function rank(part: Closable): number {
  return part instanceof Worker ? 0 : part instanceof Queue ? 1 : 2
}
