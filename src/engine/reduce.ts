// engine/reduce.ts: applies a batch to a workspace: groups in order, then renewals, then claims. It is the same code for
// every store, and deterministic for the same rows, batch and time.
import { mayRollBack } from '../job/apply.js'
import type { Change } from '../job/change.js'
import type { JobRecord, Time } from '../job/job.js'
import type { Batch, Group, Receipt, Refused, Renewal, Verdict } from '../store/store.js'
import { claim } from './claim.js'
import { insert } from './insert.js'
import { move } from './move.js'
import { note } from './note.js'
import { put } from './put.js'
import { release } from './release.js'
import { renew } from './renew.js'
import { busy, LANDED, refusedAt } from './verdicts.js'
import { Busy } from './workspace.js'
import type { ClaimCommit, Commit } from './workspace.js'

/** Applies a batch that was not applied before. */
export function applyBatch(commit: ClaimCommit, batch: Batch): Receipt {
  const { workspace, now, notices } = commit
  const groups = applyGroups(commit, batch.groups)
  const renewals = batch.renewals.map((renewal) => renewOrRefuse(commit, renewal))
  let again: Time = Infinity
  const asks = batch.asks.map((ask) => {
    const result = claim(commit, ask)
    workspace.endClaim(ask.worker)
    if (result.again !== undefined && result.again < again) again = result.again
    return result.jobs
  })
  notices.finish()
  const { writer, seq } = batch
  return { writer, seq, now, groups, renewals, asks, ...(again !== Infinity && { again }) }
}

/** Applies a batch without its claims: in a user transaction, or where the store claims by itself. */
export function applyChanges(commit: Commit, { writer, seq, groups: given, renewals: wanted }: Batch): Receipt {
  const groups = applyGroups(commit, given)
  const renewals = wanted.map((renewal) => renewOrRefuse(commit, renewal))
  commit.notices.finish()
  return { writer, seq, now: commit.now, groups, renewals, asks: [] }
}

function renewOrRefuse(commit: Commit, renewal: Renewal): Verdict {
  try {
    return renew(commit, renewal)
  } catch (error) {
    if (error instanceof Busy) return busy(renewal.id)
    throw error
  }
}

function applyGroups(commit: Commit, groups: readonly Group[]): readonly Verdict[] {
  const { workspace, notices, fast } = commit
  for (const queue of workspace.expireOrphans()) notices.leaseEnded(queue)
  workspace.sweepKeys()
  if (fast === undefined) return groups.map((group) => applyGroup(commit, group))
  const verdicts: Verdict[] = []
  while (verdicts.length < groups.length) {
    const together = fast.groups(commit, groups, verdicts.length)
    for (const verdict of together) verdicts.push(verdict)
    if (together.length === 0) verdicts.push(applyGroup(commit, groups[verdicts.length]!))
  }
  return verdicts
}

/** Applies a group, whole or not at all. */
function applyGroup(commit: Commit, group: Group): Verdict {
  const { workspace, notices } = commit
  if (!workspace.mayBeBusy && !mayRollBack(group)) return applyInOrder(commit, group)
  const restoreNotices = notices.mark()
  workspace.beginGroup()
  const verdict = workspace.mayBeBusy ? applyUnlessBusy(commit, group) : applyInOrder(commit, group)
  if (verdict.ok) workspace.keepGroup()
  else {
    workspace.rollbackGroup()
    restoreNotices()
  }
  return verdict
}

/** Applies a group, or refuses it if another transaction holds what it needs. */
function applyUnlessBusy(commit: Commit, group: Group): Verdict {
  const applied = { changes: 0 }
  try {
    return applyInOrder(commit, group, applied)
  } catch (error) {
    if (!(error instanceof Busy)) throw error
    return refusedAt(applied.changes, busy(subjectOf(group[applied.changes]!)))
  }
}

/** The id or key that a change is about. */
function subjectOf(change: Change): string {
  switch (change.kind) {
    case 'insert':
      return change.job.id
    case 'release':
      return change.chain
    case 'put':
      return change.key
    default:
      return change.id
  }
}

/** Applies the changes of a group until one is refused, and counts them in `applied`. */
function applyInOrder(commit: Commit, group: Group, applied?: { changes: number }): Verdict {
  const { workspace, fast } = commit
  let inserted: JobRecord[] | undefined
  let changed = false
  for (let at = 0; at < group.length; at++) {
    const change = group[at]!
    if (applied !== undefined) applied.changes = at
    if (change.kind === 'insert') {
      inserted ??= []
      const together = fast?.inserts(commit, group, at)
      if (together !== undefined && together.length > 0) {
        for (const record of together) inserted.push(record)
        at += together.length - 1
        continue
      }
      const row = insert(commit, change)
      if ('why' in row) return refusedAt(at, row)
      inserted.push(row.job)
    } else {
      const refused = apply(commit, change)
      if (refused !== undefined) return refusedAt(at, refused)
      if (inserted !== undefined) changed = true
    }
  }
  if (inserted === undefined) return LANDED
  for (let at = 0; at < inserted.length; at++) inserted[at] = workspace.inserted(inserted[at]!, changed)
  return { ok: true, inserted }
}

/** Applies one change other than an insert, or returns why it was refused. */
function apply(commit: Commit, change: Exclude<Change, { kind: 'insert' }>): Refused | undefined {
  switch (change.kind) {
    case 'move':
      return move(commit, change)
    case 'note':
      return note(commit, change)
    case 'release':
      release(commit, change)
      return undefined
    case 'put':
      return put(commit, change)
  }
}
