// queue/operations/result.ts: waiting for the end of a job or of a chain: how long, until when, and what it comes to.
import { parseDuration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import { decodeJson } from '../../job/json.js'
import { cancelReason } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/names.js'
import { refuseInside } from '../../store/transaction-context.js'
import type { Connection } from '../../store/connection.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent } from '../../store/store.js'
import { checkAbortSignal } from './abort-signal.js'
import type { ResultOptions } from '../job.js'

/** The last that is known of a job. */
type LastSeen = Pick<StoreEvent | JobRecord, 'id' | 'name' | 'queue' | 'result' | 'error'>

/** How a wait ends. */
export interface Ending {
  /** It has ended in a state, with a result or an error. */
  conclude(state: string, end: LastSeen): void
  fail(error: unknown): void
}

/** Where one waits. */
interface Waiting {
  readonly connection: Connection
  /** Calls back when it closes, at once if it has; answers how to stop. */
  onClose(closed: () => void): Stop
}

/** Waits for an end that `begin` listens for, but no longer than is asked for. */
export async function awaitEnd(
  desk: Waiting,
  what: string,
  id: string,
  options: ResultOptions,
  begin: (end: Ending) => Stop,
): Promise<unknown> {
  refuseUnknown(options, ['timeout', 'signal'], 'result')
  const { store, runtime } = desk.connection
  refuseInside(store, `result() of ${what}`)
  const timeout = options.timeout === undefined ? undefined : parseDuration(options.timeout, 'result timeout')
  const signal = checkAbortSignal(options.signal, 'result')
  await desk.connection.ready()
  return new Promise<unknown>((resolve, reject) => {
    const undo: (() => void)[] = []
    let over = false
    const settle = (end: () => void): void => {
      over = true
      for (const each of undo.splice(0)) each()
      end()
    }
    const fail = (error: unknown): void => settle(() => reject(error))
    const later = (stop: () => void): void => void (over ? stop() : undo.push(stop))
    later(desk.onClose(() => fail(closed())))
    if (timeout !== undefined && !over) later(runtime.timer(timeout, () => fail(late(what, id, timeout))))
    if (signal !== undefined && !over) {
      const abort = (): void => fail(signal.reason)
      if (signal.aborted) return abort()
      signal.addEventListener('abort', abort)
      later(() => signal.removeEventListener('abort', abort))
    }
    if (!over) later(begin({ fail, conclude: (state, end) => settle(() => conclude(state, end, resolve, reject)) }))
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
  if (state === 'cancelled') {
    const reason = cancelReason(end.error)
    const why = reason === undefined ? '' : ` (${reason})`
    const details = { id, ...(reason !== undefined && { reason }) }
    return reject(
      new MillraceError('JOB_CANCELLED', `${which} was cancelled${why}; job.retry() starts it over.`, { details }),
    )
  }
  const said = (end.error?.message ?? 'no reason given').replace(/\.$/, '')
  reject(
    new MillraceError(
      'JOB_FAILED',
      `${which} failed: ${said}. Its errors tell of each attempt; job.retry() starts it over.`,
      {
        cause: end.error,
        details: { id, error: end.error },
      },
    ),
  )
}

function late(what: string, id: string, timeout: number): MillraceError {
  return new MillraceError(
    'RESULT_TIMEOUT',
    `${what[0]!.toUpperCase()}${what.slice(1)} did not finish within ${timeout} ms; it goes on. queue.explain(id) says why it is not running.`,
    { details: { id } },
  )
}

/** The error for a job that is gone before its end. */
export function removed(id: string): MillraceError {
  return new MillraceError('JOB_REMOVED', `Job ${id} was removed before it finished.`, { details: { id } })
}

/** The error for a job that is not there. */
export function notFound(id: string): MillraceError {
  return new MillraceError('JOB_NOT_FOUND', `There is no job ${id}: it was never added, or has been removed.`, {
    details: { id },
  })
}

function closed(): MillraceError {
  return new MillraceError('QUEUE_CLOSED', 'The queue was closed while waiting; the job itself goes on.')
}
