// job/errors/errors.ts: errors with a stable code, all of which the catalogue explains, and quoting of rejected values.
import type { errorCatalogue } from './catalogue.js'

/** The stable code of an error; its meaning and remedy are in the catalogue. */
export type ErrorCode = keyof typeof errorCatalogue

/** What may accompany the message of a MillraceError. */
export type MillraceErrorOptions = {
  /** The error that caused this one. */
  readonly cause?: unknown
  /** Facts for programs: ids, fields, limits. */
  readonly details?: Readonly<Record<string, unknown>>
}

/** Every error that Millrace itself raises. Branch on `code`, never on the message. */
export class MillraceError extends Error {
  static {
    nameErrors(this.prototype, 'MillraceError')
  }

  /** The stable code, documented in docs/errors.md. */
  readonly code: ErrorCode
  /** Facts for programs: ids, fields, limits. */
  readonly details: Readonly<Record<string, unknown>>

  /** An error with its code and a message: what happened, to which job, and what to do. */
  constructor(code: ErrorCode, message: string, options: MillraceErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.details = options.details ?? {}
  }
}

/** Thrown by a handler to fail its job for good, whatever attempts are left. */
export class UnrecoverableError extends Error {
  static {
    nameErrors(this.prototype, 'UnrecoverableError')
  }
}

/**
 * Whether a caught value is an error of Millrace, and of one code if that is given. Checks the shape, so that it also
 * works across realms and across two copies of the package.
 */
export function isMillraceError<Code extends ErrorCode = ErrorCode>(
  error: unknown,
  code?: Code,
): error is MillraceError & { readonly code: Code } {
  if (typeof error !== 'object' || error === null) return false
  try {
    const { name, code: actual } = error as { name?: unknown; code?: unknown }
    return name === 'MillraceError' && (code === undefined ? typeof actual === 'string' : actual === code)
  } catch {
    return false // a revoked proxy, or a getter that throws
  }
}

/** `instanceof` for a thrown value: false for a revoked proxy, where `instanceof` throws. */
export function isInstance<T>(value: unknown, type: abstract new (...args: never[]) => T): value is T {
  try {
    return value instanceof type
  } catch {
    return false
  }
}

/** Sets the name on the prototype, as the built-in errors do: stacks then begin with it, and it is not an own field. */
function nameErrors(prototype: Error, name: string): void {
  Object.defineProperty(prototype, 'name', { value: name, writable: true, configurable: true })
}

/** The most characters quoted of a text. */
const MAX_QUOTED = 60

/** Quotes a value for an error message, on one line and short: 'text', 42, null, an array, an instance of Date. Never throws. */
export function quote(value: unknown): string {
  if (typeof value === 'string') {
    const shown = value.length > MAX_QUOTED ? `${value.slice(0, MAX_QUOTED)}…` : value
    return `'${JSON.stringify(shown).slice(1, -1).replaceAll('\\"', '"')}'`
  }
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'symbol') return 'a symbol'
  if (isArray(value)) return (value as readonly unknown[]).length === 0 ? 'an empty array' : 'an array'
  if (typeof value === 'object' && value !== null) return quoteObject(value)
  return Object.is(value, -0) ? '-0' : String(value)
}

/** `Array.isArray`, which throws for a revoked proxy. */
function isArray(value: unknown): boolean {
  try {
    return Array.isArray(value)
  } catch {
    return false
  }
}

function quoteObject(value: object): string {
  const name = className(value)
  if (name === 'Date' && value instanceof Date && Number.isNaN(value.getTime())) return 'an invalid Date'
  return name === undefined || name === 'Object' ? 'an object' : `an instance of ${name}`
}

/** The name of the class of an object, or undefined where it has none. Safe on hostile objects. */
export function className(value: object): string | undefined {
  try {
    const name: unknown = (value.constructor as { name?: unknown } | undefined)?.name
    return typeof name === 'string' && name !== '' ? name : undefined
  } catch {
    return undefined
  }
}
