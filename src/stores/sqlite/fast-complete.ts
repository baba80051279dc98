// stores/sqlite/fast-complete.ts: the fast path for settlements that only complete their job: many in one statement, and
// the dependents of many chains at once.
import type { Change, Move, Note } from '../../job/change.js'
import type { EdgeState, JobState } from '../../job/job.js'
import { move } from '../../engine/move.js'
import { announceNote, isPlainNote } from '../../engine/note.js'
import { release, releaseDependent } from '../../engine/release.js'
import { LANDED } from '../../engine/verdicts.js'
import type { Commit } from '../../engine/workspace.js'
import type { Group, Verdict } from '../../store/store.js'
import { isPlainCompletion } from './fast-settle.js'
import { writeTo } from './ranges.js'
import type { Found } from './rows.js'
import { MIN_TOGETHER } from './statement-texts.js'
import type { SqliteWorkspace } from './workspace.js'

/** A job that is completed without a result, and the change that completes it. */
interface Completion {
  readonly leased: Found
  readonly change: Move
  /** The last note of its lease holder. */
  readonly note: Note | undefined
}

/** Completes jobs from a group on, as long as groups do nothing else. Returns the verdicts. */
export function completeTogether(
  workspace: SqliteWorkspace,
  commit: Commit,
  groups: readonly Group[],
  from: number,
): readonly Verdict[] {
  const verdicts: Verdict[] = []
  /** Chains of one job that have ended, whose dependents have not been released yet. */
  const ended: string[] = []
  for (;;) {
    const at = from + verdicts.length
    const completions = completionsFrom(workspace, groups, at)
    if (completions.length >= MIN_TOGETHER && complete(workspace, commit, completions)) {
      for (const { change } of completions) {
        verdicts.push(LANDED)
        ended.push(change.id)
      }
      continue
    }
    const group = groups[at]
    if (group === undefined || !isOwnChainCompletion(group)) break
    const completion = group[0] as Move
    const refused = move(commit, completion)
    verdicts.push(refused ?? LANDED)
    if (refused === undefined) ended.push(completion.id)
  }
  if (ended.length > 0) releaseEnded(workspace, commit, ended)
  return verdicts
}

/**
 * The completions, from a group on, that can be written together: of jobs claimed through this connection, with the
 * same fence, without a result or a dedup key, each with at most a note before it. While any edge is open, only jobs
 * that are a chain by themselves.
 */
function completionsFrom(
  { cache, leased: leasedJobs }: SqliteWorkspace,
  groups: readonly Group[],
  from: number,
): readonly Completion[] {
  const completions: Completion[] = []
  const { openEdges } = cache
  for (let at = from; at < groups.length; at++) {
    const group = groups[at]!
    const note = plainNote(group)
    const [change, next, ...more] = note === undefined ? group : group.slice(1)
    if (change?.kind !== 'move' || !isPlainCompletion(change) || change.set.result !== undefined) break
    if (more.length > 0 || (next !== undefined && next.kind !== 'release')) break
    if (openEdges && next?.chain !== change.id) break
    const leased = leasedJobs.find(change.id, change.fence)
    if (leased === undefined || leased.job.dedup !== undefined) break
    if (completions.length > 0 && completions[0]!.change.fence !== change.fence) break
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
function complete(workspace: SqliteWorkspace, { notices }: Commit, completions: readonly Completion[]): boolean {
  const { sql, now, leased: leasedJobs, counts } = workspace
  const seqs = completions.map(({ leased: { seq } }) => seq)
  const statements = { range: sql.completeRange, many: sql.completeMany }
  const restoreNotices = notices.mark()
  sql.beginGroup.run()
  const noted = completions.every(({ note, leased }) => {
    if (note === undefined) return true
    if ((note.memo ?? note.progress) !== undefined && !leasedJobs.note(leased, note)) return false
    announceNote(notices, leased.job, note)
    return true
  })
  const allWritten = noted && writeTo(seqs, statements, now, completions[0]!.change.fence) === completions.length
  if (!allWritten) {
    sql.rollbackGroup.run()
    restoreNotices()
  }
  sql.keepGroup.run()
  if (!allWritten) return false
  for (const { leased: found } of completions) {
    const { job, lane } = found
    leasedJobs.forget(job.id)
    counts.moved(lane.id, 'active', 'completed')
    workspace.count(found, 'completed')
    notices.leaseEnded(lane.queueName)
    notices.addCompleted(job)
  }
  return true
}

/** Whether a group only completes a job that is a chain by itself. */
function isOwnChainCompletion([change, next, ...more]: Group): boolean {
  if (change?.kind !== 'move' || next?.kind !== 'release' || more.length > 0) return false
  return isPlainCompletion(change) && next.chain === change.id && next.outcome === 'completed'
}

/** Releases the dependents of chains that have just ended, each with its only job. */
function releaseEnded(workspace: SqliteWorkspace, commit: Commit, chains: readonly string[]): void {
  const { sql, cache } = workspace
  if (!cache.openEdges) return
  const ids = JSON.stringify(chains)
  const affected = sql.openEdgesOnAll.all(ids) as [
    dependent: number,
    edge: EdgeState,
    pending: number,
    state: JobState,
  ][]
  if (affected.length === 0) return
  if (affected.some(([, edge]) => edge !== 'open') || sql.anyContinued.get(ids) !== undefined) {
    for (const chain of chains) release(commit, { kind: 'release', chain, outcome: 'completed' })
    return
  }
  sql.endEdges.run(ids)
  cache.openEdges = undefined
  // Edges per dependent, in the order in which each dependent reached its last one.
  const counts = new Map<number, { count: number; pending: number; state: JobState }>()
  for (const [dependent, , pending, state] of affected) {
    const count = (counts.get(dependent)?.count ?? 0) + 1
    counts.delete(dependent)
    counts.set(dependent, { count, pending, state })
  }
  for (const [dependent, { count, pending, state }] of counts) {
    const isReleased = pending === count && state === 'waiting-children'
    if (!isReleased) sql.countDown.run(dependent, count)
    else {
      if (count > 1) sql.countDown.run(dependent, count - 1)
      releaseDependent(commit, cache.lightBySeq(dependent), 'completed', 'open')
    }
  }
}
