// queue/aborting.ts: what may be given as a signal that ends a wait.
import { MillraceError } from '../job/errors.js'
import { show } from '../job/show.js'

/** Refuses what is not a signal; one of another realm, or of a polyfill, is. */
export function checkAbortSignal(signal: AbortSignal | undefined, where: string): AbortSignal | undefined {
  const given: Partial<AbortSignal> | null | undefined = signal
  if (given === undefined) return undefined
  if (typeof given?.aborted === 'boolean' && typeof given.addEventListener === 'function') return signal
  throw new MillraceError('INVALID_OPTION', `${where}: signal must be an AbortSignal, not ${show(signal)}.`)
}
