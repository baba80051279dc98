// job/failure.ts: an error as it is stored: plain, bounded, and always JSON.
import { UnrecoverableError, isInstance } from './errors.js'
import type { ErrorInfo } from './job.js'
import { className } from './show.js'

const LONGEST_MESSAGE = 10_000
const LONGEST_STACK = 20_000

/** Makes a storable description of anything that can be thrown. Never throws itself. */
export function describeError(thrown: unknown): ErrorInfo {
  if (!isError(thrown)) return { name: 'Error', message: clean(describeValue(thrown), LONGEST_MESSAGE) }
  const [code, stack] = [fieldOf(thrown, 'code'), fieldOf(thrown, 'stack')]
  return {
    name: clean(textOf(fieldOf(thrown, 'name') || className(thrown) || 'Error'), 255),
    message: clean(textOf(fieldOf(thrown, 'message')), LONGEST_MESSAGE),
    ...(typeof code === 'string' && { code: clean(code, 255) }),
    ...(typeof stack === 'string' && { stack: clean(stack, LONGEST_STACK) }),
  }
}

/** Whether something that was thrown is an error, of this realm or another (vm contexts, Jest). Never throws. */
export function isError(value: unknown): value is Error {
  if (typeof value !== 'object' || value === null) return false
  try {
    return value instanceof Error || Object.prototype.toString.call(value) === '[object Error]'
  } catch {
    return false
  }
}

/** Whether a handler's error fails its job for good. By name too, since programs may hold two copies of a package. */
export function isUnrecoverable(thrown: unknown): boolean {
  return isInstance(thrown, UnrecoverableError) || (isError(thrown) && fieldOf(thrown, 'name') === 'UnrecoverableError')
}

const INDESCRIBABLE = 'an error that could not be described'

function describeValue(value: unknown): string {
  try {
    return typeof value === 'object' && value !== null ? String(JSON.stringify(value)) : String(value)
  } catch {
    return INDESCRIBABLE
  }
}

/** A field of an error; undefined where it cannot be read. */
function fieldOf(error: Error, field: string): unknown {
  try {
    return Reflect.get(error, field)
  } catch {
    return undefined
  }
}

function textOf(value: unknown): string {
  return value === undefined ? INDESCRIBABLE : describeValue(value)
}

/** Text without what JSON stores refuse: NUL characters and lone surrogates. */
function clean(text: string, longest: number): string {
  const short = text.length > longest ? `${text.slice(0, longest)}…` : text
  return short.replaceAll('\0', '\u{fffd}').replaceAll(/\p{Surrogate}/gu, '\u{fffd}')
}
