// stores/sqlite/fast-complete.ts: settlements that only complete their job, many in one statement.
import type { Change, Move, Note } from '../../job/change.js'
import type { Group } from '../../store/store.js'
import { isPlainEnd } from './move.js'
import { isPlainNote, sayHeld } from './note.js'
import type { Found } from './rows.js'
import { writeTo } from './ranges.js'
import type { Transaction } from './transaction.js'

/** A job that is completed without a result, and the change that does it. */
interface Completion {
  readonly held: Found
  readonly change: Move
  /** What its holder said last. */
  readonly note: Note | undefined
}

/**
 * The completions, from a group on, that can be written together: of jobs claimed through this connection, with the same
 * fence, without a result or a dedup key, each perhaps with a note before it. While anybody waits for anything, only those that are a chain by themselves.
 */
export function completionsFrom(tx: Transaction, groups: readonly Group[], from: number): readonly Completion[] {
  const completions: Completion[] = []
  const { openEdges } = tx.ground
  for (let at = from; at < groups.length; at++) {
    const group = groups[at]!
    const note = plainNote(group)
    const [change, release, ...more] = note === undefined ? group : group.slice(1)
    if (change?.kind !== 'move' || !isPlainEnd(change) || change.set.result !== undefined) break
    if (more.length > 0 || (release !== undefined && release.kind !== 'release')) break
    if (openEdges && release?.chain !== change.id) break
    const held = tx.held.get(change.id)
    if (held === undefined || held.job.fence !== change.fence || held.job.dedup !== undefined) break
    if (completions.length > 0 && completions[0]!.held.job.fence !== change.fence) break
    if (note !== undefined && (note.id !== change.id || note.fence !== change.fence)) break
    completions.push({ held, change, note })
  }
  return completions
}

function plainNote([first]: Group): Note | undefined {
  return isNote(first) && isPlainNote(first) ? first : undefined
}

function isNote(change: Change | undefined): change is Note {
  return change?.kind === 'note'
}

/** Completes jobs together. If one of them is no longer held, none is, and each has to be asked by itself. */
export function complete(tx: Transaction, completions: readonly Completion[]): boolean {
  const { sql, now, held, news, counts } = tx
  const seqs = completions.map(({ held: { seq } }) => seq)
  const statements = { run: sql.completeRun, many: sql.completeMany }
  const forget = news.mark()
  sql.beginGroup.run()
  const noted = completions.every(({ note, held: { job } }) => note === undefined || sayHeld(tx, job, note))
  const whole = noted && writeTo(seqs, statements, now, completions[0]!.change.fence) === completions.length
  if (!whole) {
    sql.rollbackGroup.run()
    forget()
  }
  sql.keepGroup.run()
  if (!whole) return false
  if (tx.ground.openEdges) for (const { change } of completions) tx.ended.push(change.id)
  for (const { held: found } of completions) {
    const { job, lane } = found
    held.delete(job.id)
    counts.moved(lane.id, 'active', 'completed')
    counts.happened(lane.queue, 'completed')
    tx.credited(lane)
    news.tellCompleted(job)
  }
  return true
}
