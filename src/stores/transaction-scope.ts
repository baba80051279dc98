// stores/transaction-scope.ts: guards the handle that a user gets, so that it works only while its transaction is open.
import { MillraceError } from '../job/errors/errors.js'

/** A transaction that was given to a user, or a savepoint in one. */
export class Scope {
  readonly #outer: Scope | undefined
  /** State that a transaction shares with its savepoints. */
  readonly #transaction: { savepoints: number; unknown: { readonly error: unknown } | undefined }
  #ended = false

  constructor(outer?: Scope) {
    this.#outer = outer
    this.#transaction = outer === undefined ? { savepoints: 0, unknown: undefined } : outer.#transaction
  }

  /** Whether it has ended, an outer one has ended, or the connection was lost. */
  get isOver(): boolean {
    return this.#ended || this.#transaction.unknown !== undefined || this.#outer?.isOver === true
  }

  /** Savepoints of the whole transaction that are open, or may be open. */
  get savepoints(): number {
    return this.#transaction.savepoints
  }

  /** Why the state of the connection is unknown. Such a connection must never be used again. */
  get unknown(): { readonly error: unknown } | undefined {
    return this.#transaction.unknown
  }

  /**
   * Counts a savepoint that is about to be opened. Call it before the statement is sent. Returns a function that undoes
   * this.
   */
  opening(): () => void {
    this.#transaction.savepoints++
    return () => void this.#transaction.savepoints--
  }

  /** Records that a statement got no answer, so that the state of the connection is unknown. */
  lose(error: unknown): void {
    this.#transaction.unknown ??= { error }
  }

  /** Ends it. Call this before the statement that ends it is sent. */
  end(): void {
    this.#ended = true
  }

  /** Throws if it has ended. */
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
  /** Replaces what a method returns. Default: no replacement. */
  readonly returned?: (value: unknown, scope: Scope) => unknown
  /** Methods that replace the handle's own. Default: none. */
  readonly methods?: Readonly<Record<string, (...args: readonly unknown[]) => unknown>>
  /** What a method returns once the transaction has ended. Default: it throws. */
  readonly refuse?: (method: string | symbol, args: readonly unknown[], error: MillraceError) => unknown
}

/** The handle and scope behind a guarded handle. */
interface GuardedHandle {
  readonly target: object
  readonly scope: Scope
}

/** Keyed by identity, so that a guarded handle is recognised when a caller passes it back. */
const guardedHandles = new WeakMap<object, GuardedHandle>()

/** The handle and scope behind a handle that `guarded` returned; undefined for anything else. */
export function unguarded<T extends object>(tx: T): { readonly target: T; readonly scope: Scope } | undefined {
  return guardedHandles.get(tx) as { readonly target: T; readonly scope: Scope } | undefined
}

/**
 * Wraps a handle so that it refuses every call once its scope has ended: by then the next transaction may be open on
 * the same connection.
 */
export function guarded<T extends object>(target: T, scope: Scope, options: Guarding = {}): T {
  const returned = (value: unknown): unknown =>
    options.returned === undefined ? value : options.returned(value, scope)
  const refuse = (method: string | symbol, args: readonly unknown[]): unknown => {
    if (options.refuse === undefined) throw transactionOver()
    return options.refuse(method, args, transactionOver())
  }
  const own = new Map<string | symbol, unknown>(Object.entries(options.methods ?? {}))
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
        const result: unknown = Reflect.apply(value, object, args)
        return result === object ? proxy : returned(result)
      }
    },
    set: (object, key, value) => Reflect.set(object, key, value),
  })
  guardedHandles.set(proxy, { target, scope })
  return proxy
}

/** Whether a proxy must return a property unchanged. */
function isFixed(object: object, key: string | symbol): boolean {
  const own = Object.getOwnPropertyDescriptor(object, key)
  return own !== undefined && own.configurable !== true && own.writable !== true && 'value' in own
}

/**
 * Also guards results that can run statements themselves, such as prepared statements and iterators. For synchronous
 * drivers.
 */
export const guardResults: Guarding = {
  returned: (value, scope) => (isLive(value) ? guarded(value, scope, guardResults) : value),
}

/** Whether a value is neither plain data nor a promise. */
function isLive(value: unknown): value is object {
  if (typeof value === 'function') return true
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  if (ArrayBuffer.isView(value) || value instanceof Promise || value instanceof Date) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype !== null && prototype !== Object.prototype
}
