// engine/handler-index.ts: looks up the handlers of a worker by name and version.
import type { Handled } from '../store/store.js'

/** The handlers of a claim by name; those under `undefined` handle all names that are not listed. */
export type Handlers = ReadonlyMap<string | undefined, readonly Handled[]>

/** Workers claim with the same list again and again. */
const indexed = new WeakMap<readonly Handled[], Handlers>()

/** Indexes the handlers of a claim by name; a name may occur more than once, with different versions. */
export function handlersOf(handles: readonly Handled[]): Handlers {
  const known = indexed.get(handles)
  if (known !== undefined) return known
  const handlers = new Map<string | undefined, Handled[]>()
  for (const handled of handles) {
    const same = handlers.get(handled.name)
    if (same === undefined) handlers.set(handled.name, [handled])
    else same.push(handled)
  }
  indexed.set(handles, handlers)
  return handlers
}

/** The handler for jobs of a name and version, if there is one. */
export function handlerFor(handlers: Handlers, name: string, version: number): Handled | undefined {
  const named = handlers.get(name) ?? handlers.get(undefined)
  return named?.find(({ versions }) => versions === undefined || versions.includes(version))
}
