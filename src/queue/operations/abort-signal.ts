// queue/operations/abort-signal.ts: abort signals that end a wait.
import { mustBe } from '../../job/values/options.js'

/** Throws if the value is not an AbortSignal; accepts those of other realms and polyfills. */
export function checkAbortSignal(signal: AbortSignal | undefined, where: string): AbortSignal | undefined {
  const given: Partial<AbortSignal> | null | undefined = signal
  if (given === undefined) return undefined
  if (typeof given?.aborted === 'boolean' && typeof given.addEventListener === 'function') return signal
  throw mustBe(`${where}: signal`, 'an AbortSignal', signal)
}

/** A call whose wait the caller can end. */
export interface Abortable {
  /**
   * Ends the wait with the signal's reason. Writes that have not left by then are not sent; those that have may still
   * be applied. Default: none.
   */
  readonly signal?: AbortSignal
}

/** Separates the signal from the other options. */
export function splitSignal<Options extends object>(
  options: Options & Abortable,
  where: string,
): { readonly signal: AbortSignal | undefined; readonly rest: Options } {
  if (!('signal' in options)) return { signal: undefined, rest: options }
  const { signal, ...rest } = options
  return { signal: checkAbortSignal(signal, where), rest: rest as unknown as Options }
}

/** Throws the reason of an aborted signal. */
export function refuseAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason
}

/** The promise's outcome, or the signal's reason as soon as it aborts. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    const cleanUp = (): void => signal.removeEventListener('abort', abort)
    work.then(resolve, reject).finally(cleanUp)
    if (signal.aborted) abort()
  })
}
