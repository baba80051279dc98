// stores/transaction-scope.ts: what a user is given of a connection. It works while its transaction is open, and never again.
import { MillraceError } from '../job/errors.js'

/** A transaction, or a savepoint in one, that was given to a user. */
export class Scope {
  readonly #outer: Scope | undefined
  /** Shared by a transaction and its savepoints. */
  readonly #whole: { savepoints: number; unknown: { readonly error: unknown } | undefined }
  #ended = false

  constructor(outer?: Scope) {
    this.#outer = outer
    this.#whole = outer === undefined ? { savepoints: 0, unknown: undefined } : outer.#whole
  }

  /** Whether it has ended, or one around it has, or the connection was lost. */
  get isOver(): boolean {
    return this.#ended || this.#whole.unknown !== undefined || this.#outer?.isOver === true
  }

  /** Savepoints that are open in the whole transaction, or may be. */
  get savepoints(): number {
    return this.#whole.savepoints
  }

  /** Why the state of the connection is not known: such a connection must never be used again. */
  get unknown(): { readonly error: unknown } | undefined {
    return this.#whole.unknown
  }

  /** A savepoint is about to be made; to be called before the statement is sent. Returns what undoes it. */
  opening(): () => void {
    this.#whole.savepoints++
    return () => void this.#whole.savepoints--
  }

  /** A statement got no answer, so that the state of the connection is not known. */
  lose(error: unknown): void {
    this.#whole.unknown ??= { error }
  }

  /** Ends it; to be called before the statement is sent that does. */
  end(): void {
    this.#ended = true
  }

  /** Refuses what comes when it is over. */
  check(): void {
    if (this.isOver) throw transactionOver()
  }
}

/** The error for a statement that comes too late. */
export function transactionOver(): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    'This transaction has ended. Nothing was written; await every call made with it.',
  )
}

/** How a handle is guarded. */
export interface Guarding {
  /** What is given instead of what a method returns. Default: that. */
  readonly returned?: (value: unknown, scope: Scope) => unknown
  /** Methods that take the place of the handle's own. Default: none. */
  readonly methods?: Readonly<Record<string, (...args: readonly unknown[]) => unknown>>
  /** What a method returns once the transaction is over. Default: it throws. */
  readonly refuse?: (method: string | symbol, args: readonly unknown[], error: MillraceError) => unknown
}

/** What stands behind a guarded handle. */
interface Given {
  readonly target: object
  readonly scope: Scope
}

/** A memo keyed by identity: a handle that was given out is recognised when it comes back. */
const givens = new WeakMap<object, Given>()

/** The handle and scope behind what `guarded` returned; undefined for anything else. */
export function givenOf<T extends object>(tx: T): { readonly target: T; readonly scope: Scope } | undefined {
  return givens.get(tx) as { readonly target: T; readonly scope: Scope } | undefined
}

/** A handle that refuses every call once its scope is over: on the same connection, the next transaction may be open by then. */
export function guarded<T extends object>(target: T, scope: Scope, how: Guarding = {}): T {
  const returned = (value: unknown): unknown => (how.returned === undefined ? value : how.returned(value, scope))
  const refuse = (method: string | symbol, args: readonly unknown[]): unknown => {
    if (how.refuse === undefined) throw transactionOver()
    return how.refuse(method, args, transactionOver())
  }
  const own = new Map<string | symbol, unknown>(Object.entries(how.methods ?? {}))
  const proxy: T = new Proxy(target, {
    apply: (called, self: unknown, args: unknown[]) => {
      scope.check()
      return returned(Reflect.apply(called as () => unknown, self, args))
    },
    get: (object, key) => {
      const value: unknown = own.get(key) ?? Reflect.get(object, key)
      if (typeof value !== 'function' || key === 'constructor' || isFixed(object, key)) return value
      return (...args: unknown[]) => {
        if (scope.isOver) return refuse(key, args)
        const answer: unknown = Reflect.apply(value, object, args)
        return answer === object ? proxy : returned(answer)
      }
    },
    set: (object, key, value) => Reflect.set(object, key, value),
  })
  givens.set(proxy, { target, scope })
  return proxy
}

/** Whether a proxy must return a property as it is. */
function isFixed(object: object, key: string | symbol): boolean {
  const own = Object.getOwnPropertyDescriptor(object, key)
  return own !== undefined && own.configurable !== true && own.writable !== true && 'value' in own
}

/** Guards what can run statements by itself: a prepared statement, an iterator. For drivers that are synchronous. */
export const guardingAll: Guarding = {
  returned: (value, scope) => (isLive(value) ? guarded(value, scope, guardingAll) : value),
}

/** Whether a value is no plain data, and no promise. */
function isLive(value: unknown): value is object {
  if (typeof value === 'function') return true
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  if (ArrayBuffer.isView(value) || value instanceof Promise || value instanceof Date) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype !== null && prototype !== Object.prototype
}
