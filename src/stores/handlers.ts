// stores/handlers.ts: the names a worker handles, ready to be looked up.
import type { Handled } from '../store/store.js'

/** The handlers of an ask by name; those under `undefined` are for all names not listed. */
export type Handlers = ReadonlyMap<string | undefined, readonly Handled[]>

/** Sorts what an ask handles by name; a name may be there more than once, with other versions. */
export function handlersOf(handles: readonly Handled[]): Handlers {
  const handlers = new Map<string | undefined, Handled[]>()
  for (const handled of handles) {
    const same = handlers.get(handled.name)
    if (same === undefined) handlers.set(handled.name, [handled])
    else same.push(handled)
  }
  return handlers
}

/** The handler that takes jobs of a name and version, if there is one. */
export function handlerFor(handlers: Handlers, name: string, version: number): Handled | undefined {
  const named = handlers.get(name) ?? handlers.get(undefined)
  return named?.find(({ versions }) => versions === undefined || versions.includes(version))
}
