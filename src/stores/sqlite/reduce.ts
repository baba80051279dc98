// stores/sqlite/reduce.ts: applies one batch inside a transaction: groups in order, then renewals, then asks.
import type { Change, Move, NewJob } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import type { Batch, Group, Receipt, Refused, Verdict } from '../../store/store.js'
import { mayRollBack } from '../apply.js'
import { LANDED } from '../verdicts.js'
import { claim } from './claim.js'
import { complete, completionsFrom } from './fast-complete.js'
import { insert, insertAlike, isSame, isPlain } from './insert.js'
import { sweepKeys } from './dedup.js'
import { isPlainEnd, move } from './move.js'
import { note } from './note.js'
import { put } from './put.js'
import * as receipts from './receipts.js'
import { release, releaseEnded } from './release.js'
import { expireOrphans, renew } from './renew.js'
import type { Transaction } from './transaction.js'
import { remember } from './writers.js'

/** Jobs alike from which on it pays to write them in one statement. */
const FEW = 8

/** Groups that are applied one by one when they could not be written together. */
const MANY = 50

/** Applies a batch; the caller begins and ends the transaction. */
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
  remember(tx, batch, receipts.write(batch, receipt, numbers, fence))
  return receipt
}

/** Applies groups within a transaction of the user's, to whom nobody answers twice; the caller begins and ends it. */
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
    const ends = completionsFrom(tx, groups, verdicts.length)
    if (ends.length >= FEW && complete(tx, ends)) {
      for (const _ of ends) verdicts.push(LANDED)
      continue
    }
    const first = groups[verdicts.length]!
    if (isOwnEnd(first)) {
      verdicts.push(end(tx, first))
      continue
    }
    releaseEnded(tx)
    const alike = newJobsAlike(groups.length - verdicts.length, (at) => soleInsert(groups[verdicts.length + at]!))
    const records = alike.length >= FEW ? insertAlike(tx, alike) : []
    for (const record of records) verdicts.push({ ok: true, inserted: [record] })
    // The rest goes one by one: it is of another kind, too few, or next to one that has to be asked by itself.
    const rest = Math.max(1, Math.min(alike.length - records.length, MANY))
    for (const group of groups.slice(verdicts.length, verdicts.length + rest)) verdicts.push(applyGroup(tx, group))
  }
  releaseEnded(tx)
  return verdicts
}

/** Whether a group completes a job that is a chain by itself, and no more: many of those are told to their dependents at once. */
function isOwnEnd([move, release, ...more]: Group): boolean {
  if (move?.kind !== 'move' || release?.kind !== 'release' || more.length > 0) return false
  return isPlainEnd(move) && release.chain === move.id && release.outcome === 'completed'
}

function end(tx: Transaction, [change]: Group): Verdict {
  const completion = change as Move
  const refused = move(tx, completion)
  if (refused !== undefined) return refused
  if (tx.ground.openEdges) tx.ended.push(completion.id)
  return LANDED
}

function soleInsert(group: Group): Change | undefined {
  return group.length === 1 ? group[0] : undefined
}

/** The new jobs, from the first on, that are plain and alike. */
function newJobsAlike(count: number, change: (at: number) => Change | undefined): readonly NewJob[] {
  const jobs: NewJob[] = []
  for (let at = 0; at < count; at++) {
    const next = change(at)
    if (next?.kind !== 'insert' || !isPlain(next)) break
    if (jobs.length > 0 && !isSame(jobs[0]!, next.job)) break
    jobs.push(next.job)
  }
  return jobs
}

function applyGroup(tx: Transaction, group: Group): Verdict {
  if (!mayRollBack(group)) return applyChanges(tx, group)
  const { sql } = tx
  const counts = tx.counts.mark()
  const news = tx.news.mark()
  sql.beginGroup.run()
  const verdict = applyChanges(tx, group)
  if (!verdict.ok) {
    sql.rollbackGroup.run()
    counts()
    news()
    tx.ground.forgetMade()
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
      const alike = newJobsAlike(group.length - at, (ahead) => group[at + ahead])
      const records = alike.length >= FEW ? insertAlike(tx, alike) : []
      if (records.length > 0) {
        for (const record of records) inserted.push(record)
        at += records.length
        continue
      }
      const record = insert(tx, change)
      if ('why' in record) return record
      inserted.push(record)
    } else {
      const refused = apply(tx, change)
      if (refused !== undefined) return refused
      if (inserted !== undefined) touched = true
    }
    at++
  }
  if (inserted === undefined) return LANDED
  if (touched) inserted = inserted.map((record) => tx.ground.byId(record.id)?.job ?? record)
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
