// queue/send-signal.ts: sends signals to jobs that wait for one, or will: `queue.signal`, `job.signal`.
import { createHash } from 'node:crypto'
import { MillraceError } from '../job/errors/errors.js'
import { isFinished } from '../job/job.js'
import type { Edge, JobRecord, Millis } from '../job/job.js'
import { encodeJson } from '../job/values/json.js'
import type { Insert } from '../job/change.js'
import { checkName } from '../job/values/names.js'
import { SIGNAL_IDS, deliverSignal, isSignalId, newSignal } from '../job/signals.js'
import { step } from '../store/maybe-sync.js'
import type { Steps } from '../store/maybe-sync.js'
import type { Verdict } from '../store/store.js'
import type { Session } from '../store/session.js'
import { decideAndCommit, MAX_RACES } from './operations/decide.js'

/** The job that a signal belongs to. */
type Owner = Pick<JobRecord, 'id' | 'queue' | 'createdAt'>

/** The id of a signal's row, from its job and its name, so that a job has one signal per name. */
export function signalId({ id, createdAt }: Owner, name: string): string {
  const hash = createHash('sha256').update(JSON.stringify([id, createdAt, name]))
  return `${SIGNAL_IDS}${hash.digest('hex')}`
}

/** Throws if this is not a valid signal name. */
export function checkSignal(name: unknown): string {
  return checkName(name, 'signal name')
}

/** The row of a signal that has not been sent yet. */
export function signalRow(owner: Owner, name: string, timeout?: Millis): Insert {
  return newSignal(owner, signalId(owner, name), name, timeout)
}

/** Whether an edge leads to a signal instead of a job. */
export function isSignalEdge({ chain }: Edge): boolean {
  return isSignalId(chain)
}

/** Sends a signal to a job that has been read. Returns whether it was accepted: the first of its name is, unless the wait has ended. */
export function* sendSignal(
  session: Session,
  job: JobRecord,
  name: string,
  data: unknown,
  maxBytes: number,
): Steps<boolean> {
  const text = encodeJson(data, 'signal data', maxBytes)
  const id = signalId(job, checkSignal(name))
  let row = yield* step(session.get(id))
  if (row === undefined || !isFinished(row.state)) refuseFinished(job, name)
  for (let races = 0; races < MAX_RACES; races++) {
    if (row !== undefined) {
      const decided = yield* decideAndCommit(session, row, (each) => deliverSignal(each, text))
      if (decided !== undefined) return decided.done
    }
    const insertion: Verdict = yield* step(session.commit([signalRow(job, name)]))
    if (insertion.ok) row = insertion.inserted[0]
    else row = insertion.why === 'fence' ? undefined : insertion.job
  }
  throw new MillraceError(
    'STORE_BUSY',
    `Signal '${name}' of job ${job.id} was held by others all the time. Send it again.`,
  )
}

function refuseFinished({ id, state, kind }: JobRecord, name: string): void {
  if (kind === 'job' && !isFinished(state)) return
  const what = kind === 'schedule' ? 'a schedule' : state
  throw new MillraceError(
    'INVALID_STATE',
    `Signal '${name}' cannot be sent to job ${id}: it is ${what}, and only an unfinished job takes one.`,
    { details: { id, state } },
  )
}
