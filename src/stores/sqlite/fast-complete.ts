// stores/sqlite/fast-complete.ts: the fast path for settlements that only complete their job: many in one statement.
import type { Change, Move, Note } from '../../job/change.js'
import type { Group } from '../../store/store.js'
import { isPlainCompletion } from './move.js'
import { isPlainNote, noteBeforeCompletion } from './note.js'
import type { Found } from './rows.js'
import { writeTo } from './ranges.js'
import type { Transaction } from './transaction.js'

/** A job that is completed without a result, and the change that completes it. */
interface Completion {
  readonly leased: Found
  readonly change: Move
  /** The last note of its lease holder. */
  readonly note: Note | undefined
}

/**
 * The completions, from a group on, that can be written together: of jobs claimed through this connection, with the
 * same fence, without a result or a dedup key, each with at most a note before it. While any edge is open, only jobs
 * that are a chain by themselves.
 */
export function completionsFrom(tx: Transaction, groups: readonly Group[], from: number): readonly Completion[] {
  const completions: Completion[] = []
  const { openEdges } = tx.cache
  for (let at = from; at < groups.length; at++) {
    const group = groups[at]!
    const note = plainNote(group)
    const [change, release, ...more] = note === undefined ? group : group.slice(1)
    if (change?.kind !== 'move' || !isPlainCompletion(change) || change.set.result !== undefined) break
    if (more.length > 0 || (release !== undefined && release.kind !== 'release')) break
    if (openEdges && release?.chain !== change.id) break
    const leased = tx.leased.get(change.id)
    if (leased === undefined || leased.job.fence !== change.fence || leased.job.dedup !== undefined) break
    if (completions.length > 0 && completions[0]!.leased.job.fence !== change.fence) break
    if (note !== undefined && (note.id !== change.id || note.fence !== change.fence)) break
    completions.push({ leased, change, note })
  }
  return completions
}

function plainNote([first]: Group): Note | undefined {
  return isNote(first) && isPlainNote(first) ? first : undefined
}

function isNote(change: Change | undefined): change is Note {
  return change?.kind === 'note'
}

/** Completes jobs together. If one of them has lost its lease, none is completed, and each must be applied by itself. */
export function complete(tx: Transaction, completions: readonly Completion[]): boolean {
  const { sql, now, leased, notices, counts } = tx
  const seqs = completions.map(({ leased: { seq } }) => seq)
  const statements = { range: sql.completeRange, many: sql.completeMany }
  const restoreNotices = notices.mark()
  sql.beginGroup.run()
  const noted = completions.every(
    ({ note, leased: { job } }) => note === undefined || noteBeforeCompletion(tx, job, note),
  )
  const allWritten = noted && writeTo(seqs, statements, now, completions[0]!.change.fence) === completions.length
  if (!allWritten) {
    sql.rollbackGroup.run()
    restoreNotices()
  }
  sql.keepGroup.run()
  if (!allWritten) return false
  if (tx.cache.openEdges) for (const { change } of completions) tx.endedChains.push(change.id)
  for (const { leased: found } of completions) {
    const { job, lane } = found
    leased.delete(job.id)
    counts.moved(lane.id, 'active', 'completed')
    counts.lifetime(lane.queue, 'completed')
    tx.leaseEnded(lane)
    notices.addCompleted(job)
  }
  return true
}
