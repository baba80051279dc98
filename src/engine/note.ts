// engine/note.ts: writes progress, logs, steps and other data beside a job's state; fenced, but keeps the fence.
import { mayChange } from '../job/apply.js'
import type { Note } from '../job/change.js'
import type { JobRecord } from '../job/job.js'
import type { Refused } from '../store/store.js'
import type { Notices } from './notices.js'
import { fenced, missing } from './verdicts.js'
import type { Commit } from './workspace.js'

/** Writes a note, or returns why it is refused. */
export function note(commit: Commit, change: Note): Refused | undefined {
  const { workspace, notices, now } = commit
  if (noteLeased(commit, change)) return undefined
  const row = workspace.find(change.id)
  if (row === undefined) return missing(change.id)
  const { job } = row
  if (!mayChange(job, change.fence, change.held, now)) return fenced(job)
  workspace.note(row, change)
  announceNote(notices, row.job, change)
  return undefined
}

/** Writes memo and progress for the lease holder without reading the job, if the workspace can. Returns whether it did. */
function noteLeased({ workspace: { leased }, notices }: Commit, change: Note): boolean {
  if (leased === undefined || !isPlainNote(change) || (change.memo ?? change.progress) === undefined) return false
  const row = leased.find(change.id, change.fence)
  if (row === undefined || !leased.note(row, change)) return false
  announceNote(notices, row.job, change)
  return true
}

/** Whether a note of the lease holder writes only memo and progress. */
export function isPlainNote({ held, data, steps, logs }: Note): boolean {
  return held && data === undefined && steps === undefined && logs === undefined
}

/** Adds the events of a note. */
export function announceNote(notices: Notices, job: JobRecord, { progress, about, events }: Note): void {
  if (progress !== undefined) notices.addEvent('progress', job, { progress, about })
  for (const event of events ?? []) notices.addEvent(event.type, job, { about: event.about })
}
