// stores/sqlite/complete.ts: settlements that only complete their job, many in one statement.
import type { Move } from '../../job/change.js'
import type { Group } from '../../store/store.js'
import { moved } from '../apply.js'
import { follow, isPlainEnd } from './move.js'
import type { Found } from './rows.js'
import { writeTo } from './runs.js'
import type { Transaction } from './transaction.js'

/** A job that is completed without a result, and the change that does it. */
interface Completion {
  readonly held: Found
  readonly change: Move
}

/**
 * The completions, from a group on, that can be written together: of jobs claimed through this connection, with the same
 * fence, without a result or a dedup key. While anybody waits for anything, only those that are a chain by themselves.
 */
export function completionsFrom(tx: Transaction, groups: readonly Group[], from: number): readonly Completion[] {
  const completions: Completion[] = []
  const { openEdges } = tx.ground
  for (let at = from; at < groups.length; at++) {
    const [change, release, ...more] = groups[at]!
    if (change?.kind !== 'move' || !isPlainEnd(change) || change.set.result !== undefined) break
    if (more.length > 0 || (release !== undefined && release.kind !== 'release')) break
    if (openEdges && release?.chain !== change.id) break
    const held = tx.held.get(change.id)
    if (held === undefined || held.job.fence !== change.fence || held.job.dedup !== undefined) break
    if (completions.length > 0 && completions[0]!.held.job.fence !== change.fence) break
    completions.push({ held, change })
  }
  return completions
}

/** Completes jobs together. If one of them is no longer held, none is, and each has to be asked by itself. */
export function complete(tx: Transaction, completions: readonly Completion[]): boolean {
  const { sql, now, held, news, counts } = tx
  const seqs = completions.map(({ held: { seq } }) => seq)
  const statements = { run: sql.completeRun, many: sql.completeMany }
  sql.beginGroup.run()
  const whole = writeTo(seqs, statements, now, completions[0]!.change.fence) === completions.length
  if (!whole) sql.rollbackGroup.run()
  sql.keepGroup.run()
  if (!whole) return false
  if (tx.ground.openEdges) for (const { change } of completions) tx.ended.push(change.id)
  for (const { held: found, change } of completions) {
    const { job, lane } = found
    held.delete(job.id)
    if (news.recording) follow(tx, found, moved(job, 'completed', change, 0, tx, now), change)
    else {
      counts.moved(lane.id, 'active', 'completed')
      counts.happened(lane.queue, 'completed')
      tx.credited(lane)
    }
  }
  return true
}
