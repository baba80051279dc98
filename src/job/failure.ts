// job/failure.ts: an error as it is stored: plain, bounded, and always JSON.
import { UnrecoverableError } from './errors.js'
import type { ErrorInfo } from './job.js'

const LONGEST_MESSAGE = 10_000
const LONGEST_STACK = 20_000

/** Makes a storable description of anything that can be thrown. Never throws itself. */
export function describeError(thrown: unknown): ErrorInfo {
  try {
    if (!(thrown instanceof Error)) return { name: 'Error', message: clean(describeValue(thrown), LONGEST_MESSAGE) }
    const { code } = thrown as { code?: unknown }
    return {
      name: clean(String(thrown.name || 'Error'), 255),
      message: clean(String(thrown.message), LONGEST_MESSAGE),
      ...(typeof code === 'string' && { code: clean(code, 255) }),
      ...(typeof thrown.stack === 'string' && { stack: clean(thrown.stack, LONGEST_STACK) }),
    }
  } catch {
    return { name: 'Error', message: 'an error that could not be described' }
  }
}

/** Whether a handler's error fails its job for good. By name too, since programs may hold two copies of a package. */
export function isUnrecoverable(thrown: unknown): boolean {
  try {
    return thrown instanceof UnrecoverableError || (thrown instanceof Error && thrown.name === 'UnrecoverableError')
  } catch {
    return false // a proxy or a getter that throws
  }
}

function describeValue(value: unknown): string {
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value)
}

/** Text without what JSON stores refuse: NUL characters and lone surrogates. */
function clean(text: string, longest: number): string {
  const short = text.length > longest ? `${text.slice(0, longest)}…` : text
  return short.replaceAll('\0', '\u{fffd}').replaceAll(/\p{Surrogate}/gu, '\u{fffd}')
}
