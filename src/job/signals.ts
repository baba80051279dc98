// job/signals.ts: the row of a signal, which a job waits for: what it holds, and what happens when it is sent or due.
// Pure.
import { create, move, NOTHING, OWN_ROW } from './change.js'
import type { Change, Insert } from './change.js'
import { isFinished } from './job.js'
import type { ErrorInfo, JobRecord, Millis, Time } from './job.js'
import type { JsonText } from './values/json.js'
import { end, removeAndRelease } from './moves.js'

/**
 * The kind and the name of signal rows. The signal's own name is in their data, otherwise names would pile up in the
 * store.
 */
export const SIGNAL = 'signal'

/** The prefix of the ids of signal rows. */
export const SIGNAL_IDS = 'millrace:signal:'

/**
 * How often upkeep checks a row without a timeout: it stays while its job is in the store, and is removed when the job
 * is gone.
 */
const REVIEW_INTERVAL: Millis = 24 * 60 * 60 * 1000

/** The data of a signal's row. */
export interface SignalSpec {
  readonly name: string
  /** When its job was added: a later job with the id of a removed one is another job. */
  readonly jobCreatedAt: Time
  /** How long the job waits for it; absent: for ever. */
  readonly timeout?: Millis
}

/** Whether an id is that of a signal's row. */
export function isSignalId(id: string): boolean {
  return id.startsWith(SIGNAL_IDS)
}

/** Parses the data of a signal's row. */
export function readSignal({ data }: Pick<JobRecord, 'data'>): SignalSpec {
  return JSON.parse(data!) as SignalSpec
}

/** The row of a job's signal that has not been sent yet. */
export function newSignal(
  job: Pick<JobRecord, 'id' | 'queue' | 'createdAt'>,
  id: string,
  name: string,
  timeout: Millis | undefined,
): Insert {
  const reviewed = { deleteAfter: REVIEW_INTERVAL }
  return create({
    ...OWN_ROW,
    id,
    kind: SIGNAL,
    queue: job.queue,
    name: SIGNAL,
    data: writeSignal({ name, jobCreatedAt: job.createdAt }, timeout),
    run: { in: timeout ?? REVIEW_INTERVAL },
    parentId: job.id,
    keep: { completed: reviewed, failed: reviewed, cancelled: reviewed },
  })
}

function writeSignal({ name, jobCreatedAt }: SignalSpec, timeout: Millis | undefined): JsonText {
  return JSON.stringify({ name, jobCreatedAt, ...(timeout !== undefined && { timeout }) })
}

/** Sets the timeout of an open signal, counted from now. */
export function expectSignal(row: JobRecord, timeout: Millis): Change[] {
  const data = writeSignal(readSignal(row), timeout)
  return [move(row, 'delayed', { set: { data, run: { in: timeout } } })]
}

/** Sends a signal; changes nothing if it was sent before, or its timeout has passed. */
export function deliverSignal(row: JobRecord, data: JsonText | undefined): Change[] {
  return isFinished(row.state) ? [] : end(row, 'completed', data === undefined ? NOTHING : { result: data })
}

/** Decides about a due signal; `owned`: its job is in the store. */
export function signalDue(row: JobRecord, owned: boolean): Change[] {
  if (isFinished(row.state)) {
    return owned ? [move(row, row.state, { set: { deleteIn: REVIEW_INTERVAL } })] : [move(row, 'removed')]
  }
  if (!owned) return removeAndRelease(row)
  const { name, timeout } = readSignal(row)
  if (timeout === undefined) return [move(row, 'delayed', { set: { run: { in: REVIEW_INTERVAL } } })]
  const error: ErrorInfo = {
    name: 'MillraceError',
    code: 'SIGNAL_TIMEOUT',
    message: `Signal '${name}' did not come within ${timeout} ms.`,
  }
  return end(row, 'failed', { error })
}
