// worker/attempt/settlement.ts: the group of changes that settles an attempt.
import type { Outcome } from '../../job/lifecycle.js'
import { leftOpen } from '../../job/phases.js'
import type { Group } from '../../store/store.js'
import type { Attempt } from './attempt.js'
import { mergeEntries, noteOf } from './pending-notes.js'
import type { NoteEntry } from './pending-notes.js'

/** The changes of an outcome, preceded by the handler's last note and by how its last phase ended, if there are any. */
export function settlementGroup(attempt: Attempt, outcome: Outcome, changes: Group): Group {
  const { record, lastNote, phases } = attempt
  const entry = lastNote?.entry
  const final = phases === undefined ? unfinishedPhases(attempt, outcome) : phases.finalEntry(outcome)
  const last = entry === undefined || final === undefined ? (entry ?? final) : mergeEntries(entry, final)
  return last === undefined ? changes : [noteOf(record, last), ...changes]
}

/** The note for a job that completed without its phases: by middleware, or by a plain handler. */
function unfinishedPhases({ record }: Attempt, outcome: Outcome): NoteEntry | undefined {
  if (record.memo === undefined || outcome.kind !== 'returned') return undefined
  const memo = leftOpen(record)
  return memo === undefined ? undefined : { memo: () => memo }
}
