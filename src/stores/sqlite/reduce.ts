// stores/sqlite/reduce.ts: applies one batch inside a transaction: groups in order, then renewals, then claims.
import type { Change, Move, NewJob } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import type { Batch, Group, Receipt, Refused, Verdict } from '../../store/store.js'
import { mayRollBack } from '../../job/apply.js'
import { LANDED, refusedAt } from '../../engine/verdicts.js'
import { claim } from './claim.js'
import { complete, completionsFrom } from './fast-complete.js'
import { insert, insertEqual, canWriteTogether, isPlain } from './insert.js'
import { sweepKeys } from './dedup.js'
import { isPlainCompletion, move } from './move.js'
import { note } from './note.js'
import { put } from './put.js'
import * as receipts from './receipts.js'
import { release, releaseEnded } from './release.js'
import { expireOrphans, renew } from './renew.js'
import type { Transaction } from './transaction.js'
import { writeReceipt } from './writers.js'

/** The number of equal jobs from which writing them in one statement pays off. */
const MIN_TOGETHER = 8

/** Maximum number of groups to apply one by one after they could not be written together. */
const MAX_ONE_BY_ONE = 50

/** Applies a batch. The caller begins and ends the transaction. */
export function reduce(tx: Transaction, batch: Batch): Receipt {
  const { fence } = tx.numbers
  expireOrphans(tx)
  sweepKeys(tx)
  const groups = applyGroups(tx, batch.groups)
  const renewals = batch.renewals.map((renewal) => renew(tx, renewal))
  const claims = batch.asks.map((ask) => claim(tx, ask))
  const asks = claims.map(({ jobs }) => jobs)
  const again = Math.min(...claims.map((each) => each.again ?? Infinity))
  const { writer, seq } = batch
  const receipt: Receipt = {
    ...{ writer, seq, now: tx.now, groups, renewals, asks },
    ...(again !== Infinity && { again }),
  }
  tx.finish()
  const numbers = claims.map(({ seqs }) => seqs)
  writeReceipt(tx, batch, receipts.encode(batch, receipt, numbers, fence))
  return receipt
}

/**
 * Applies groups inside a user transaction, which is never replayed and so writes no receipt. The caller begins and
 * ends it.
 */
export function reduceWithin(tx: Transaction, { writer, seq, groups }: Batch): Receipt {
  expireOrphans(tx)
  sweepKeys(tx)
  const verdicts = applyGroups(tx, groups)
  tx.finish()
  return { writer, seq, now: tx.now, groups: verdicts, renewals: [], asks: [] }
}

function applyGroups(tx: Transaction, groups: readonly Group[]): Verdict[] {
  const verdicts: Verdict[] = []
  while (verdicts.length < groups.length) {
    const completions = completionsFrom(tx, groups, verdicts.length)
    if (completions.length >= MIN_TOGETHER && complete(tx, completions)) {
      for (const _ of completions) verdicts.push(LANDED)
      continue
    }
    const first = groups[verdicts.length]!
    if (isOwnChainCompletion(first)) {
      verdicts.push(completeOwnChain(tx, first))
      continue
    }
    releaseEnded(tx)
    const newJobs = equalNewJobs(groups.length - verdicts.length, (at) => soleInsert(groups[verdicts.length + at]!))
    const records = newJobs.length >= MIN_TOGETHER ? insertEqual(tx, newJobs) : []
    for (const record of records) verdicts.push({ ok: true, inserted: [record] })
    // The rest is applied one by one: it is of another kind, too few, or starts with a group that must be checked by itself.
    const rest = Math.max(1, Math.min(newJobs.length - records.length, MAX_ONE_BY_ONE))
    for (const group of groups.slice(verdicts.length, verdicts.length + rest)) verdicts.push(applyGroup(tx, group))
  }
  releaseEnded(tx)
  return verdicts
}

/** Whether a group only completes a job that is a chain by itself: the dependents of many such jobs are released at once. */
function isOwnChainCompletion([move, release, ...more]: Group): boolean {
  if (move?.kind !== 'move' || release?.kind !== 'release' || more.length > 0) return false
  return isPlainCompletion(move) && release.chain === move.id && release.outcome === 'completed'
}

function completeOwnChain(tx: Transaction, [change]: Group): Verdict {
  const completion = change as Move
  const refused = move(tx, completion)
  if (refused !== undefined) return refused
  if (tx.cache.openEdges) tx.endedChains.push(completion.id)
  return LANDED
}

function soleInsert(group: Group): Change | undefined {
  return group.length === 1 ? group[0] : undefined
}

/** The plain and equal new jobs from the first on. */
function equalNewJobs(count: number, change: (at: number) => Change | undefined): readonly NewJob[] {
  const jobs: NewJob[] = []
  for (let at = 0; at < count; at++) {
    const next = change(at)
    if (next?.kind !== 'insert' || !isPlain(next)) break
    if (jobs.length > 0 && !canWriteTogether(jobs[0]!, next.job)) break
    jobs.push(next.job)
  }
  return jobs
}

function applyGroup(tx: Transaction, group: Group): Verdict {
  if (!mayRollBack(group)) return applyChanges(tx, group)
  const { sql } = tx
  const restoreCounts = tx.counts.mark()
  const restoreNotices = tx.notices.mark()
  sql.beginGroup.run()
  const verdict = applyChanges(tx, group)
  if (!verdict.ok) {
    sql.rollbackGroup.run()
    restoreCounts()
    restoreNotices()
    tx.cache.forgetCreated()
  }
  sql.keepGroup.run()
  return verdict
}

function applyChanges(tx: Transaction, group: Group): Verdict {
  let inserted: JobRecord[] | undefined
  let touched = false
  for (let at = 0; at < group.length;) {
    const change = group[at]!
    if (change.kind === 'insert') {
      inserted ??= []
      const newJobs = equalNewJobs(group.length - at, (ahead) => group[at + ahead])
      const records = newJobs.length >= MIN_TOGETHER ? insertEqual(tx, newJobs) : []
      if (records.length > 0) {
        for (const record of records) inserted.push(record)
        at += records.length
        continue
      }
      const record = insert(tx, change)
      if ('why' in record) return refusedAt(at, record)
      inserted.push(record)
    } else {
      const refused = apply(tx, change)
      if (refused !== undefined) return refusedAt(at, refused)
      if (inserted !== undefined) touched = true
    }
    at++
  }
  if (inserted === undefined) return LANDED
  if (touched) inserted = inserted.map((record) => tx.cache.byId(record.id)?.job ?? record)
  return { ok: true, inserted }
}

function apply(tx: Transaction, change: Exclude<Change, { kind: 'insert' }>): Refused | undefined {
  switch (change.kind) {
    case 'move':
      return move(tx, change)
    case 'note':
      return note(tx, change)
    case 'release':
      release(tx, change)
      return undefined
    case 'put':
      return put(tx, change)
  }
}
