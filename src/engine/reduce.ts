// engine/reduce.ts: applies a batch to a workspace: groups in order, then renewals, then claims. It is the same code for
// every store, and deterministic for the same rows, batch and time.
import { mayRollBack } from '../job/apply.js'
import type { Change } from '../job/change.js'
import type { JobRecord, Time } from '../job/job.js'
import type { Batch, Group, Receipt, Refused, Verdict } from '../store/store.js'
import { claim } from './claim.js'
import { insert } from './insert.js'
import { move } from './move.js'
import { note } from './note.js'
import { put } from './put.js'
import { release } from './release.js'
import { renew } from './renew.js'
import { LANDED, refusedAt } from './verdicts.js'
import type { Commit } from './workspace.js'

/** Applies a batch that was not applied before. */
export function applyBatch(commit: Commit, batch: Batch): Receipt {
  const { workspace, now, notices } = commit
  const groups = applyGroups(commit, batch.groups)
  const renewals = batch.renewals.map((renewal) => renew(commit, renewal))
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

/** Applies the groups of a batch inside a user transaction, which has neither renewals nor claims. */
export function applyWithin(commit: Commit, { writer, seq, groups: given }: Batch): Receipt {
  const groups = applyGroups(commit, given)
  commit.notices.finish()
  return { writer, seq, now: commit.now, groups, renewals: [], asks: [] }
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
  if (!mayRollBack(group)) return applyChanges(commit, group)
  const { workspace, notices } = commit
  const restoreNotices = notices.mark()
  workspace.beginGroup()
  const verdict = applyChanges(commit, group)
  if (verdict.ok) workspace.keepGroup()
  else {
    workspace.rollbackGroup()
    restoreNotices()
  }
  return verdict
}

function applyChanges(commit: Commit, group: Group): Verdict {
  const { workspace, fast } = commit
  let inserted: JobRecord[] | undefined
  let changed = false
  for (let at = 0; at < group.length; at++) {
    const change = group[at]!
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
