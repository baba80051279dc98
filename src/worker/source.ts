// worker/source.ts: parses a worker's queue, store and middleware.
import { MillraceError, quote } from '../job/errors/errors.js'
import { checkOwnName } from '../job/values/names.js'
import type { JobDefinitions } from '../queue/define.js'
import { Queue } from '../queue/queue.js'
import type { Store } from '../store/store.js'
import type { Middleware } from './attempt/context.js'

/** The queues that a worker claims from, and their store. */
interface Source<Jobs extends JobDefinitions, S extends Store> {
  readonly queue: Queue<Jobs, S> | undefined
  readonly queues: readonly string[]
  readonly store: Store
}

/** Parses the first argument of a worker: a queue, or names of queues in a store. */
export function sourceOf<Jobs extends JobDefinitions, S extends Store>(
  source: Queue<Jobs, S> | string | readonly string[],
  options: { readonly store?: Store | undefined; readonly maxDataBytes?: number | undefined },
): Source<Jobs, S> {
  if (typeof options !== 'object' || options === null) {
    throw new MillraceError('INVALID_OPTION', `new Worker: its options must be an object, not ${quote(options)}.`)
  }
  const given = options.store
  const queue = source instanceof Queue ? source : undefined
  const queues = source instanceof Queue ? [source.name] : namesOf(source)
  if (queue?.closed === true) {
    throw new MillraceError('QUEUE_CLOSED', `new Worker: queue '${queue.name}' has been closed.`)
  }
  if (queue !== undefined && given !== undefined && given !== queue.store) {
    throw new MillraceError('INVALID_OPTION', "new Worker: give the queue's own store, or none: its jobs are there.")
  }
  if (queue !== undefined && options.maxDataBytes !== undefined) {
    throw new MillraceError('INVALID_OPTION', 'new Worker: give maxDataBytes to the queue: its workers go by it.')
  }
  const store: Store | undefined = given ?? queue?.store
  if (store === undefined) {
    throw new MillraceError('INVALID_OPTION', 'new Worker: give it a queue, or names and { store }.')
  }
  return { queue, queues, store }
}

function namesOf(source: string | readonly string[]): readonly string[] {
  const names = (Array.isArray(source) ? source : [source]) as readonly string[]
  if (names.length === 0) throw new MillraceError('INVALID_OPTION', 'new Worker: give it at least one queue name.')
  return [...new Set(names.map((name) => checkOwnName(name, 'queue name')))]
}

/** Checks a list of middleware and copies it. */
export function parseMiddleware(given: readonly Middleware[] = []): Middleware[] {
  if (!Array.isArray(given)) {
    throw new MillraceError('INVALID_OPTION', `new Worker: middleware must be a list, not ${quote(given)}.`)
  }
  for (const wrap of given) checkMiddleware(wrap)
  return [...(given as readonly Middleware[])]
}

/** Throws unless the value is a middleware. */
export function checkMiddleware(wrap: unknown): void {
  if (typeof wrap === 'function') return
  throw new MillraceError('INVALID_OPTION', 'A middleware must be a function (job, ctx, next) => next({}).')
}
