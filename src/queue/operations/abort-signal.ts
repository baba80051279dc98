// queue/operations/abort-signal.ts: signals that end a wait.
import { MillraceError } from '../../job/errors.js'
import { quote } from '../../job/quote.js'

/** Refuses what is not a signal; one of another realm, or of a polyfill, is. */
export function checkAbortSignal(signal: AbortSignal | undefined, where: string): AbortSignal | undefined {
  const given: Partial<AbortSignal> | null | undefined = signal
  if (given === undefined) return undefined
  if (typeof given?.aborted === 'boolean' && typeof given.addEventListener === 'function') return signal
  throw new MillraceError('INVALID_OPTION', `${where}: signal must be an AbortSignal, not ${quote(signal)}.`)
}

/** A wait that its caller may end. */
export interface Abortable {
  /**
   * Ends the wait with the signal's reason. What has not been sent by then is not sent any more; what has been may still land.
   * Default: none.
   */
  readonly signal?: AbortSignal
}

/** The signal that options name, and the options without it. */
export function splitSignal<Options extends object>(
  options: Options & Abortable,
  where: string,
): { readonly signal: AbortSignal | undefined; readonly rest: Options } {
  if (!('signal' in options)) return { signal: undefined, rest: options }
  const { signal, ...rest } = options
  return { signal: checkAbortSignal(signal, where), rest: rest as unknown as Options }
}

/** Throws the reason of a signal that has aborted. */
export function refuseAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason
}

/** What a promise comes to, or the signal's reason as soon as it aborts. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    const left = (): void => signal.removeEventListener('abort', abort)
    work.then(resolve, reject).finally(left)
    if (signal.aborted) abort()
  })
}
