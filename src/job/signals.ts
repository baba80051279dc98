// job/signals.ts: the row of a signal, which a job waits for: what it holds, and what it comes to. Pure.
import type { Change, NewJob } from './change.js'
import { isFinished } from './job.js'
import type { ErrorInfo, JobRecord, Millis, Time } from './job.js'
import type { JsonText } from './json.js'
import { end, leave, move, NOTHING } from './moves.js'

/** The kind and the name of the rows of signals. What they are called is in what they hold, or names would pile up in the store. */
export const SIGNAL = 'signal'

/** What the ids of such rows begin with. */
export const SIGNAL_IDS = 'millrace:signal:'

/**
 * How often a row without a date of its own is looked at: it stays for as long as its job is in the store, and is removed
 * when that is found to be gone.
 */
const REVIEWED: Millis = 24 * 60 * 60 * 1000

/** What the data of a signal's row says. */
export interface SignalSpec {
  readonly name: string
  /** When its job was added: one that has the id of a removed job is another job. */
  readonly born: Time
  /** How long it is waited for; absent: for ever. */
  readonly timeout?: Millis
}

/** Whether an id is that of a signal's row. */
export function isSignalId(id: string): boolean {
  return id.startsWith(SIGNAL_IDS)
}

/** What a signal's row says. */
export function readSignal({ data }: Pick<JobRecord, 'data'>): SignalSpec {
  return JSON.parse(data!) as SignalSpec
}

/** The row of a signal of a job, which nobody has sent yet. */
export function signalSpec(
  job: Pick<JobRecord, 'id' | 'queue' | 'createdAt'>,
  id: string,
  name: string,
  timeout: Millis | undefined,
): Omit<NewJob, 'state' | 'chainId' | 'chainIndex'> & { readonly edges: readonly never[] } {
  const reviewed = { deleteAfter: REVIEWED }
  return {
    id,
    kind: SIGNAL,
    queue: job.queue,
    name: SIGNAL,
    version: 1,
    data: writeSignal({ name, born: job.createdAt }, timeout),
    priority: 0,
    lifo: false,
    attempts: 1,
    backoff: undefined,
    timeout: undefined,
    run: { in: timeout ?? REVIEWED },
    parentId: job.id,
    group: undefined,
    dedup: undefined,
    keep: { completed: reviewed, failed: reviewed, cancelled: reviewed },
    extras: undefined,
    edges: [],
  }
}

function writeSignal({ name, born }: SignalSpec, timeout: Millis | undefined): JsonText {
  return JSON.stringify({ name, born, ...(timeout !== undefined && { timeout }) })
}

/** Gives an open signal the time for which it is waited for from now on. */
export function expected(row: JobRecord, timeout: Millis): Change[] {
  const data = writeSignal(readSignal(row), timeout)
  return [move(row, 'delayed', { set: { data, run: { in: timeout } } })]
}

/** What was sent; nothing changes where it was sent before, or its time was over. */
export function signalled(row: JobRecord, data: JsonText | undefined): Change[] {
  return isFinished(row.state) ? [] : end(row, 'completed', data === undefined ? NOTHING : { result: data })
}

/** What time does to a signal; `owned`: its job is in the store. */
export function signalDue(row: JobRecord, owned: boolean): Change[] {
  if (isFinished(row.state)) {
    return owned ? [move(row, row.state, { set: { deleteIn: REVIEWED } })] : [move(row, 'removed')]
  }
  if (!owned) return leave(row)
  const { name, timeout } = readSignal(row)
  if (timeout === undefined) return [move(row, 'delayed', { set: { run: { in: REVIEWED } } })]
  const error: ErrorInfo = {
    name: 'MillraceError',
    code: 'SIGNAL_TIMEOUT',
    message: `Signal '${name}' did not come within ${timeout} ms.`,
  }
  return end(row, 'failed', { error })
}
