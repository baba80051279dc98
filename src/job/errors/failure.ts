// job/errors/failure.ts: errors as they are stored: plain data, limited in size, and always valid JSON.
import { UnrecoverableError, isInstance, className } from './errors.js'
import type { ErrorInfo } from '../job.js'

/** The most characters kept of the message and of the stack: of the error itself, and of each of its causes. */
const ERROR_LENGTHS: MaxLengths = { message: 10_000, stack: 20_000 }
const CAUSE_LENGTHS: MaxLengths = { message: 2_000, stack: 1_500 }

/** The deepest level of causes that is kept. */
const MAX_DEPTH = 5

/** The most causes and aggregated errors kept of one error, in all. With the limits above, at most 33,000 characters. */
const MAX_CAUSES = 8

interface MaxLengths {
  readonly message: number
  readonly stack: number
}

/** Makes a storable description of anything that can be thrown, and of its causes. Never throws itself. */
export function describeError(thrown: unknown): ErrorInfo {
  return describe(thrown, ERROR_LENGTHS, { seen: new Set(), left: MAX_CAUSES }, 0)
}

/** `seen` holds the errors already described, because causes may form cycles. */
function describe(
  thrown: unknown,
  max: MaxLengths,
  visited: { seen: Set<unknown>; left: number },
  depth: number,
): ErrorInfo {
  if (!isErrorLike(thrown)) return { name: 'Error', message: clean(describeValue(thrown), max.message) }
  visited.seen.add(thrown)
  const [code, stack] = [fieldOf(thrown, 'code'), fieldOf(thrown, 'stack')]
  const info: ErrorInfo = {
    name: clean(textOf(fieldOf(thrown, 'name') || className(thrown) || 'Error'), 255),
    message: clean(textOf(fieldOf(thrown, 'message')), max.message),
    ...(typeof code === 'string' && { code: clean(code, 255) }),
    ...(typeof stack === 'string' && { stack: clean(stack, max.stack) }),
  }
  if (depth === MAX_DEPTH) return info
  const below = (each: unknown): readonly ErrorInfo[] => {
    if (each === undefined || each === null || visited.seen.has(each) || visited.left === 0) return []
    visited.left--
    return [describe(each, CAUSE_LENGTHS, visited, depth + 1)]
  }
  const [cause] = below(fieldOf(thrown, 'cause'))
  const errors = aggregatedErrors(thrown).flatMap(below)
  return cause === undefined && errors.length === 0
    ? info
    : { ...info, ...(cause !== undefined && { cause }), ...(errors.length > 0 && { errors }) }
}

/** The errors of an AggregateError, whatever was thrown; of an error shaped like one, those that are errors. */
function aggregatedErrors(error: Error): readonly unknown[] {
  try {
    const errors = fieldOf(error, 'errors')
    if (!Array.isArray(errors)) return []
    const first = (errors as readonly unknown[]).slice(0, MAX_CAUSES)
    return fieldOf(error, 'name') === 'AggregateError' ? first : first.filter(isErrorLike)
  } catch {
    return []
  }
}

/** A description without stacks and fingerprint, for readers outside of the program; its causes have none either. */
export function withoutStack({
  stack: _stack,
  fingerprint: _fingerprint,
  cause,
  errors,
  ...rest
}: ErrorInfo): ErrorInfo {
  return {
    ...rest,
    ...(cause !== undefined && { cause: withoutStack(cause) }),
    ...(errors !== undefined && { errors: errors.map(withoutStack) }),
  }
}

/** Longer lines of a stack are no frames: they belong to a message. */
const MAX_FRAME_LENGTH = 1_000

/** A stack frame in a file: "at name (file:///folder/file.js:1:2)", or without the name. */
const frameInFile = /^\s*at (?:async )?(?:.*? \()?((?:file:\/\/|\/|[a-z]:[\\/]).*:\d+:\d+)\)?$/i

/** The folder of Millrace's own files; undefined in a bundle, where they cannot be distinguished from the program's. */
const ownFolder = folderOf(import.meta.url)

/**
 * Where in the program's own code an error was made, as `file:line:column`: the first stack frame of the error, or else
 * of its causes, that is neither Node's, nor of a package in `node_modules`, nor Millrace's. Undefined if there is none.
 */
export function placeOf({ message, stack = '', cause, errors = [] }: ErrorInfo): string | undefined {
  // The message comes first, and may itself contain lines that look like frames.
  const start = stack.indexOf(message)
  for (const line of stack.slice(start === -1 ? 0 : start + message.length).split('\n')) {
    const file = line.length > MAX_FRAME_LENGTH ? undefined : frameInFile.exec(line)?.[1]
    if (file === undefined || file.includes('<anonymous>')) continue // code of `eval`
    const path = pathOf(file)
    if (!isOfPackage(path)) return path
  }
  for (const each of cause === undefined ? errors : [cause, ...errors]) {
    const place = placeOf(each)
    if (place !== undefined) return place
  }
  return undefined
}

/** Whether a file belongs to an installed package, or to Millrace. */
function isOfPackage(path: string): boolean {
  const file = path.replaceAll('\\', '/')
  return file.includes('/node_modules/') || (ownFolder !== undefined && file.startsWith(ownFolder))
}

function folderOf(url: string | undefined): string | undefined {
  const found = /^(.*\/)job\/errors\/failure\.[jt]s$/.exec(url ?? '')?.[1]
  return found === undefined ? undefined : pathOf(found).replaceAll('\\', '/')
}

/** The path in a `file:` URL; a path is returned as it is. */
function pathOf(file: string): string {
  if (!file.startsWith('file://')) return file
  const path = file.slice('file://'.length).replace(/^\/(?=[a-z]:)/i, '')
  try {
    return decodeURIComponent(path)
  } catch {
    return path
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

/** Whether a thrown value is an error, or has the shape of one, as an `AbortError` of another realm has. */
function isErrorLike(thrown: unknown): thrown is Error {
  if (isError(thrown)) return true
  if (typeof thrown !== 'object' || thrown === null) return false
  return typeof fieldOf(thrown, 'message') === 'string' && typeof fieldOf(thrown, 'stack') === 'string'
}

/**
 * Whether a handler's error fails its job for good. Checks the name too, because programs may load two copies of the
 * package.
 */
export function isUnrecoverable(thrown: unknown): boolean {
  return (
    isInstance(thrown, UnrecoverableError) || (isErrorLike(thrown) && fieldOf(thrown, 'name') === 'UnrecoverableError')
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
function clean(text: string, max: number): string {
  return cleanText(text.length > max ? `${text.slice(0, max)}…` : text)
}

/** Text that every store accepts: with U+FFFD in place of NUL characters and of lone surrogates. */
export function cleanText(text: string): string {
  return text.replaceAll('\0', '\u{fffd}').replaceAll(/\p{Surrogate}/gu, '\u{fffd}')
}
