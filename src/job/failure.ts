// job/failure.ts: an error as it is stored: plain, bounded, and always JSON.
import { UnrecoverableError, isInstance } from './errors.js'
import type { ErrorInfo } from './job.js'
import { className } from './quote.js'

/** Characters that are kept of the message and of the stack: of the error itself, and of each of its causes. */
const OWN: Longest = { message: 10_000, stack: 20_000 }
const OF_CAUSE: Longest = { message: 2_000, stack: 1_500 }

/** How deep causes are followed. */
const DEEPEST = 5

/** Causes and summed up errors that are kept of one error, in all. With the bounds above, at most 33,000 characters. */
const MOST_CAUSES = 8

interface Longest {
  readonly message: number
  readonly stack: number
}

/** Makes a storable description of anything that can be thrown, and of its causes. Never throws itself. */
export function describeError(thrown: unknown): ErrorInfo {
  return describe(thrown, OWN, { seen: new Set(), left: MOST_CAUSES }, 0)
}

/** `seen`: what stands above it, or beside it, since causes may be cycles. */
function describe(
  thrown: unknown,
  longest: Longest,
  among: { seen: Set<unknown>; left: number },
  depth: number,
): ErrorInfo {
  if (!wasError(thrown)) return { name: 'Error', message: clean(describeValue(thrown), longest.message) }
  among.seen.add(thrown)
  const [code, stack] = [fieldOf(thrown, 'code'), fieldOf(thrown, 'stack')]
  const info: ErrorInfo = {
    name: clean(textOf(fieldOf(thrown, 'name') || className(thrown) || 'Error'), 255),
    message: clean(textOf(fieldOf(thrown, 'message')), longest.message),
    ...(typeof code === 'string' && { code: clean(code, 255) }),
    ...(typeof stack === 'string' && { stack: clean(stack, longest.stack) }),
  }
  if (depth === DEEPEST) return info
  const below = (each: unknown): readonly ErrorInfo[] => {
    if (each === undefined || each === null || among.seen.has(each) || among.left === 0) return []
    among.left--
    return [describe(each, OF_CAUSE, among, depth + 1)]
  }
  const [cause] = below(fieldOf(thrown, 'cause'))
  const errors = summedUp(thrown).flatMap(below)
  return cause === undefined && errors.length === 0
    ? info
    : { ...info, ...(cause !== undefined && { cause }), ...(errors.length > 0 && { errors }) }
}

/** What an AggregateError stands for, whatever was thrown; and the errors of one that looks like it. */
function summedUp(error: Error): readonly unknown[] {
  try {
    const errors = fieldOf(error, 'errors')
    if (!Array.isArray(errors)) return []
    const first = (errors as readonly unknown[]).slice(0, MOST_CAUSES)
    return fieldOf(error, 'name') === 'AggregateError' ? first : first.filter(wasError)
  } catch {
    return []
  }
}

/** A description without stacks, for those outside of the program; of its causes as well. */
export function withoutStack({ stack: _stack, cause, errors, ...rest }: ErrorInfo): ErrorInfo {
  return {
    ...rest,
    ...(cause !== undefined && { cause: withoutStack(cause) }),
    ...(errors !== undefined && { errors: errors.map(withoutStack) }),
  }
}

/** Whether something is an error, of this realm or another (vm contexts, Jest). Never throws. */
export function isError(value: unknown): value is Error {
  if (typeof value !== 'object' || value === null) return false
  try {
    return value instanceof Error || Object.prototype.toString.call(value) === '[object Error]'
  } catch {
    return false
  }
}

/** Whether something that was thrown is one, by its shape too: in another realm, nothing else tells an `AbortError` of the system. */
function wasError(thrown: unknown): thrown is Error {
  if (isError(thrown)) return true
  if (typeof thrown !== 'object' || thrown === null) return false
  return typeof fieldOf(thrown, 'message') === 'string' && typeof fieldOf(thrown, 'stack') === 'string'
}

/** Whether a handler's error fails its job for good. By name too, since programs may hold two copies of a package. */
export function isUnrecoverable(thrown: unknown): boolean {
  return (
    isInstance(thrown, UnrecoverableError) || (wasError(thrown) && fieldOf(thrown, 'name') === 'UnrecoverableError')
  )
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
function fieldOf(error: object, field: string): unknown {
  try {
    return Reflect.get(error, field)
  } catch {
    return undefined
  }
}

function textOf(value: unknown): string {
  return value === undefined ? INDESCRIBABLE : describeValue(value)
}

/** Clean text, cut to a length. */
function clean(text: string, longest: number): string {
  return cleanText(text.length > longest ? `${text.slice(0, longest)}…` : text)
}

/** Text that every store takes: with U+FFFD in the place of NUL characters and of lone surrogates. */
export function cleanText(text: string): string {
  return text.replaceAll('\0', '\u{fffd}').replaceAll(/\p{Surrogate}/gu, '\u{fffd}')
}
