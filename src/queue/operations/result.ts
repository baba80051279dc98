// queue/operations/result.ts: waits for the end of a job or chain and returns its result.
import { parseDuration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { JobRecord } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import { cancelReason } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/values/names.js'
import { refuseInside } from '../../store/transaction-context.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent } from '../../job/events.js'
import { checkAbortSignal } from './abort-signal.js'
import type { ResultOptions } from '../job.js'

/** The last known data of a job. */
type LastSeen = Pick<StoreEvent | JobRecord, 'id' | 'name' | 'queue' | 'result' | 'error'>

/** The ways in which a wait ends. */
export interface EndHandler {
  /** The job ended in this state, with a result or an error. */
  conclude(state: string, end: LastSeen): void
  fail(error: unknown): void
}

/** What waiting uses of `JobOperations`. */
interface WaitHost {
  readonly connection: Connection
  /** Calls back on close, at once if already closed; returns a function that stops that. */
  onClose(closed: () => void): Stop
}

/** Waits for an end that `begin` listens for, until the timeout, the signal or the queue's close. */
export async function awaitEnd(
  operations: WaitHost,
  what: string,
  id: string,
  options: ResultOptions,
  begin: (end: EndHandler) => Stop,
): Promise<unknown> {
  refuseUnknown(options, ['timeout', 'signal'], 'result')
  const { store, runtime } = operations.connection
  refuseInside(store, `result() of ${what}`)
  const timeout = options.timeout === undefined ? undefined : parseDuration(options.timeout, 'result timeout')
  const signal = checkAbortSignal(options.signal, 'result')
  await operations.connection.ready()
  return new Promise<unknown>((resolve, reject) => {
    const cleanups: (() => void)[] = []
    let ended = false
    const settle = (end: () => void): void => {
      ended = true
      for (const each of cleanups.splice(0)) each()
      end()
    }
    const fail = (error: unknown): void => settle(() => reject(error))
    const onEnd = (stop: () => void): void => void (ended ? stop() : cleanups.push(stop))
    onEnd(operations.onClose(() => fail(closed())))
    if (timeout !== undefined && !ended) onEnd(runtime.timer(timeout, () => fail(timedOut(what, id, timeout))))
    if (signal !== undefined && !ended) {
      const abort = (): void => fail(signal.reason)
      if (signal.aborted) return abort()
      signal.addEventListener('abort', abort)
      onEnd(() => signal.removeEventListener('abort', abort))
    }
    if (!ended) onEnd(begin({ fail, conclude: (state, end) => settle(() => conclude(state, end, resolve, reject)) }))
  })
}

function conclude(
  state: string,
  end: LastSeen,
  resolve: (value: unknown) => void,
  reject: (error: Error) => void,
): void {
  if (state === 'completed') return resolve(end.result === undefined ? undefined : decodeJson(end.result))
  const { id } = end
  const which = `Job ${id} ('${end.name}' in queue '${end.queue}')`
  if (state === 'cancelled' && end.error?.code === 'JOB_EXPIRED') {
    const message = `${which} was not started in time and has expired; job.retry() runs it all the same.`
    return reject(new MillraceError('JOB_EXPIRED', message, { details: { id } }))
  }
  if (state === 'cancelled') {
    const reason = cancelReason(end.error)
    const why = reason === undefined ? '' : ` (${reason})`
    const details = { id, ...(reason !== undefined && { reason }) }
    return reject(
      new MillraceError('JOB_CANCELLED', `${which} was cancelled${why}; job.retry() starts it over.`, { details }),
    )
  }
  const message = (end.error?.message ?? 'no reason given').replace(/\.$/, '')
  reject(
    new MillraceError(
      'JOB_FAILED',
      `${which} failed: ${message}. Its errors list each attempt; job.retry() starts it over.`,
      {
        cause: end.error,
        details: { id, error: end.error },
      },
    ),
  )
}

function timedOut(what: string, id: string, timeout: number): MillraceError {
  return new MillraceError(
    'RESULT_TIMEOUT',
    `${what[0]!.toUpperCase()}${what.slice(1)} did not finish within ${timeout} ms; it goes on. queue.explain(id) says why it is not running.`,
    { details: { id } },
  )
}

/** The error for a job that was removed before its end. */
export function jobRemoved(id: string): MillraceError {
  return new MillraceError('JOB_REMOVED', `Job ${id} was removed before it finished.`, { details: { id } })
}

function closed(): MillraceError {
  return new MillraceError('QUEUE_CLOSED', 'The queue was closed while waiting; the job itself goes on.')
}
