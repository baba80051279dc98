// queue/signals.ts: what is sent to a job that waits, or will: `queue.signal`, `job.signal`.
import { createHash } from 'node:crypto'
import { MillraceError } from '../job/errors.js'
import { isFinished } from '../job/job.js'
import type { Edge, JobRecord, Millis } from '../job/job.js'
import type { JsonText } from '../job/json.js'
import type { Insert } from '../job/change.js'
import { create } from '../job/lifecycle.js'
import { checkName } from '../job/names.js'
import { SIGNAL_IDS, isSignalId, signalSpec, signalled } from '../job/signals.js'
import { step } from '../store/maybe-sync.js'
import type { Steps } from '../store/maybe-sync.js'
import type { Verdict } from '../store/store.js'
import type { Session } from '../store/session.js'

/** Whose signal it is. */
type Owner = Pick<JobRecord, 'id' | 'queue' | 'createdAt'>

/** How often a signal is sent again because somebody else moved its row first. */
const RACES = 100

/** The id of a signal's row: of its job and its name, so that one job has one signal of a name. */
export function signalId({ id, createdAt }: Owner, name: string): string {
  const told = createHash('sha256').update(JSON.stringify([id, createdAt, name]))
  return `${SIGNAL_IDS}${told.digest('hex')}`
}

/** Refuses what cannot be the name of a signal. */
export function checkSignal(name: unknown): string {
  return checkName(name, 'signal name')
}

/** The row of a signal that nobody has sent yet. */
export function signalRow(owner: Owner, name: string, timeout?: Millis): Insert {
  return create(signalSpec(owner, signalId(owner, name), name, timeout))
}

/** Whether a job waits, or has waited, for a signal by an edge, and not for a job. */
export function isOfSignal({ chain }: Edge): boolean {
  return isSignalId(chain)
}

/** Sends a signal to a job; answers whether it was taken: the first of its name is, unless its wait was over. */
export function* sending(way: Session, job: JobRecord, name: string, data: JsonText | undefined): Steps<boolean> {
  const id = signalId(job, checkSignal(name))
  let row = yield* step(way.get(id))
  if (row === undefined || !isFinished(row.state)) refuseFinished(job, name)
  for (let races = 0; races < RACES; races++) {
    if (row === undefined) {
      const opened: Verdict = yield* step(way.commit([signalRow(job, name)]))
      if (opened.ok) row = opened.inserted[0]
      else if (opened.why !== 'fence') row = opened.job
      continue
    }
    const changes = signalled(row, data)
    if (changes.length === 0) return false
    const verdict: Verdict = yield* step(way.commit(changes))
    if (verdict.ok) return true
    row = verdict.why === 'fence' ? yield* step(way.get(id)) : undefined
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
