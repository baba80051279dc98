// engine/receipts.ts: what a store records in order to answer a batch again. It holds no data of jobs, which would outlive
// them: new jobs are recreated from the batch, which is sent again, and other jobs are read from the store.
import { createRecord, givenOrder } from '../job/apply.js'
import type { Insert } from '../job/change.js'
import { historyBefore } from '../job/history.js'
import type { JobRecord, Time } from '../job/job.js'
import { claimed } from '../job/lifecycle.js'
import { copyOf } from '../job/record.js'
import type { Ask, Batch, Group, Receipt, Refused, RefusedAsMoved, RefusedOtherwise, Verdict } from '../store/store.js'
import { handlerFor, handlersOf } from './handler-index.js'
import { fenced, LANDED, refusedAt } from './verdicts.js'

/** What a store calls a job in a receipt: its id, or a number that no other job ever has. */
export type JobKey = string | number

/**
 * Reads jobs as they are now; undefined: there is no such job. What is read depends on the text and the batch alone. So
 * an asynchronous store decodes twice: first with a reader that collects what it is asked for and finds nothing, then
 * with one that returns what was loaded.
 */
export interface ReceiptReader {
  /** The record of a job. */
  record(id: string): JobRecord | undefined
  /** The same; its payload, apart from its last error, may be missing. */
  header(id: string): JobRecord | undefined
  /** The record of a claimed job, by the key that it was encoded with. */
  claimed(key: JobKey): JobRecord | undefined
}

/** Consecutive orders: the first, how many, and the step from each to the next. */
type OrderRange = [first: number, count: number, step: number]

/**
 * A new job that is not exactly what its insert creates: its order, and the fields that differ (null: absent). Those of
 * them that contain user data are read from the job again.
 */
interface EncodedDifference {
  readonly ord: number
  readonly set: Readonly<Record<string, unknown>>
  readonly read?: readonly string[]
}

/** Fields that contain user data. */
const userFields: ReadonlySet<string> = new Set<keyof JobRecord>([
  'data',
  'extras',
  'memo',
  'progress',
  'result',
  'error',
  'errors',
])

/** A refusal without its job, which is read again: many groups may be refused because of one large job. */
type EncodedRefusal = (Omit<RefusedAsMoved, 'job'> | Omit<RefusedOtherwise, 'job'>) & {
  /** The refusal has a job: the one that it names (true), or another one. */
  readonly stands?: true | string
}

/** A number of renewals that were applied, or a refusal. */
type EncodedRenewals = number | EncodedRefusal

/** A number of groups that inserted nothing, a range of groups that inserted one job each, or a single group. */
type EncodedGroups =
  | number
  | OrderRange
  | { readonly inserted: readonly (OrderRange | EncodedDifference)[] }
  | EncodedRefusal

/** Claimed jobs with consecutive keys, if these are numbers, or one job. The other values are equal. */
type EncodedClaims = [key: JobKey, count: number, fence: number, attempt: number, ahead: 0 | 1]

interface EncodedReceipt {
  readonly now: Time
  /** The fence at which new jobs started. */
  readonly fence: number
  readonly groups: readonly EncodedGroups[]
  readonly renewals: readonly EncodedRenewals[]
  readonly asks: readonly (readonly EncodedClaims[])[]
  readonly again?: Time
}

/**
 * Encodes a receipt. `fence` is the highest fence of any removed job before the batch was applied, and `keys` are the
 * keys of the claimed jobs (default: their ids).
 */
export function encodeReceipt(
  batch: Batch,
  { now, groups, renewals, asks, again }: Receipt,
  fence: number,
  keys?: readonly (readonly JobKey[])[],
): string {
  return JSON.stringify({
    now,
    fence,
    groups: encodeGroups(batch.groups, groups, fence, now),
    renewals: encodeRenewals(renewals),
    asks: asks.map((jobs, at) => encodeClaims(jobs, keys?.[at])),
    ...(again !== undefined && { again }),
  } satisfies EncodedReceipt)
}

/** Decodes the receipt of a batch that is sent again, whole or for its claims alone. Throws if the text is not one. */
export function decodeReceipt(text: string, batch: Batch, reader: ReceiptReader): Receipt {
  const { writer, seq } = batch
  const { now, fence, groups, renewals, asks, again } = JSON.parse(text) as EncodedReceipt
  return {
    writer,
    seq,
    now,
    groups: batch.groups.length === 0 ? [] : decodeGroups(groups, batch.groups, fence, now, reader),
    renewals: batch.renewals.length === 0 ? [] : decodeRenewals(renewals, reader),
    asks: asks.map((claims, at) => decodeClaims(claims, batch.asks[at]!, now, reader)),
    ...(again !== undefined && { again }),
  }
}

function encodeGroups(
  groups: readonly Group[],
  verdicts: readonly Verdict[],
  fence: number,
  now: Time,
): readonly EncodedGroups[] {
  const encoded: EncodedGroups[] = []
  for (const [at, verdict] of verdicts.entries()) {
    if (!verdict.ok) {
      encoded.push(encodeRefusal(verdict))
      continue
    }
    const { inserted } = verdict
    if (inserted.length === 0) {
      countOne(encoded)
      continue
    }
    const group = groups[at]!
    // The other jobs depend on more than their insert, the store's clock and its numbers.
    const plain = group.every((change) => change.kind === 'insert' && change.edges.length === 0)
    if (plain && group.length === 1 && inserted[0]!.fence === fence) addOrder(encoded, inserted[0]!.ord)
    else {
      const inserts = insertsIn(group)
      const jobs: (OrderRange | EncodedDifference)[] = []
      for (const [n, job] of inserted.entries()) {
        if (plain && job.fence === fence) addOrder(jobs, job.ord)
        else jobs.push(differenceOf(inserts[n]!, job, fence, now))
      }
      encoded.push({ inserted: jobs })
    }
  }
  return encoded
}

function decodeGroups(
  encoded: readonly EncodedGroups[],
  groups: readonly Group[],
  fence: number,
  now: Time,
  reader: ReceiptReader,
): readonly Verdict[] {
  const verdicts: Verdict[] = []
  for (const entry of encoded) {
    if (typeof entry === 'number') addLanded(verdicts, entry)
    else if (isRange(entry)) {
      for (const ord of ordersIn(entry)) {
        const insert = groups[verdicts.length]![0] as Insert
        verdicts.push({ ok: true, inserted: [recreate(insert, ord, fence, now)] })
      }
    } else if ('inserted' in entry) {
      const inserts = insertsIn(groups[verdicts.length]!)
      const inserted: JobRecord[] = []
      for (const job of entry.inserted) {
        if (isRange(job)) {
          for (const ord of ordersIn(job)) inserted.push(recreate(inserts[inserted.length]!, ord, fence, now))
        } else inserted.push(applyDifference(inserts[inserted.length]!, job, fence, now, reader))
      }
      verdicts.push({ ok: true, inserted })
    } else verdicts.push(decodeRefusal(entry, reader))
  }
  return verdicts
}

function insertsIn(group: Group): readonly Insert[] {
  return group.filter((change) => change.kind === 'insert')
}

const isRange = (entry: unknown): entry is OrderRange => Array.isArray(entry)

/** Adds an order to the last range, if it continues it, or begins another one. Jobs that wait in line follow by 1. */
function addOrder(entries: unknown[], ord: number): void {
  const last = entries.at(-1)
  if (isRange(last)) {
    const [first, count] = last
    const step = count === 1 ? ord - first : last[2]
    if (first + count * step === ord) {
      last[1]++
      last[2] = step
      return
    }
  }
  entries.push([ord, 1, 0] satisfies OrderRange)
}

function ordersIn([first, count, step]: OrderRange): readonly number[] {
  return Array.from({ length: count }, (_, at) => first + at * step)
}

/** Counts one more entry that is equal to the previous ones. */
function countOne(entries: unknown[]): void {
  if (typeof entries.at(-1) === 'number') (entries[entries.length - 1] as number)++
  else entries.push(1)
}

function addLanded(verdicts: Verdict[], count: number): void {
  for (let left = count; left > 0; left--) verdicts.push(LANDED)
}

/** What an insert creates where nothing but the store's clock and numbers matters. */
function recreate({ job }: Insert, ord: number, fence: number, now: Time): JobRecord {
  return createRecord(job, undefined, givenOrder(ord), fence, now)
}

function differenceOf(insert: Insert, job: JobRecord, fence: number, now: Time): EncodedDifference {
  const plain = recreate(insert, job.ord, fence, now)
  const set: Record<string, unknown> = {}
  const read: string[] = []
  for (const [field, value] of Object.entries(job) as [keyof JobRecord, unknown][]) {
    if (isEqual(plain[field], value)) continue
    if (userFields.has(field)) read.push(field)
    else set[field] = value ?? null
  }
  return { ord: job.ord, set, ...(read.length > 0 && { read }) }
}

function isEqual(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === 'object' && typeof b === 'object' && JSON.stringify(a) === JSON.stringify(b))
}

function applyDifference(
  insert: Insert,
  { ord, set, read = [] }: EncodedDifference,
  fence: number,
  now: Time,
  reader: ReceiptReader,
): JobRecord {
  const job: Record<string, unknown> = { ...recreate(insert, ord, fence, now) }
  for (const [field, value] of Object.entries(set)) job[field] = value ?? undefined
  const existing = read.length > 0 ? reader.record(insert.job.id) : undefined
  if (existing !== undefined) for (const field of read) job[field] = existing[field as keyof JobRecord]
  return copyOf(job as unknown as JobRecord)
}

function encodeRenewals(verdicts: readonly Verdict[]): readonly EncodedRenewals[] {
  const encoded: EncodedRenewals[] = []
  for (const verdict of verdicts) {
    if (verdict.ok) countOne(encoded)
    else encoded.push(encodeRefusal(verdict))
  }
  return encoded
}

function decodeRenewals(encoded: readonly EncodedRenewals[], reader: ReceiptReader): readonly Verdict[] {
  const verdicts: Verdict[] = []
  for (const entry of encoded) {
    if (typeof entry === 'number') addLanded(verdicts, entry)
    else verdicts.push(decodeRefusal(entry, reader))
  }
  return verdicts
}

function encodeRefusal({ job, ...rest }: Refused): EncodedRefusal {
  return job === undefined ? rest : { ...rest, stands: job.id === rest.id || job.id }
}

function decodeRefusal({ stands, ...rest }: EncodedRefusal, reader: ReceiptReader): Refused {
  if (stands === undefined) return rest
  const id = stands === true ? rest.id : stands
  if (rest.why === 'fence') {
    const moved = reader.header(id)
    return moved === undefined ? rest : refusedAt(rest.change, fenced(moved))
  }
  const job = reader.record(id)
  return job === undefined ? rest : { ...rest, job }
}

function encodeClaims(jobs: readonly JobRecord[], keys: readonly JobKey[] | undefined): readonly EncodedClaims[] {
  const encoded: EncodedClaims[] = []
  for (const [at, { id, fence, attempt, ahead }] of jobs.entries()) {
    const key = keys === undefined ? id : keys[at]!
    const last = encoded.at(-1)
    const follows = last !== undefined && typeof last[0] === 'number' && key === last[0] + last[1]
    if (follows && last[2] === fence && last[3] === attempt && last[4] === Number(ahead)) last[1]++
    else encoded.push([key, 1, fence, attempt, ahead ? 1 : 0])
  }
  return encoded
}

/** The jobs as they were claimed, without those that were removed since: they could not be settled. */
function decodeClaims(
  encoded: readonly EncodedClaims[],
  { worker, handles }: Ask,
  now: Time,
  reader: ReceiptReader,
): readonly JobRecord[] {
  const handlers = handlersOf(handles)
  const jobs: JobRecord[] = []
  for (const [first, count, fence, attempt, ahead] of encoded) {
    for (let at = 0; at < count; at++) {
      const job = reader.claimed(typeof first === 'number' ? first + at : first)
      if (job === undefined) continue
      const before = copyOf(job)
      if (before.fence !== fence) {
        // The job has moved since: undo what the move changed.
        before.runAt = before.staleAt = before.deleteAt = before.finishedAt = before.result = undefined
        before.stale = false
        before.errors = before.errors.filter((error) => error.fence < fence)
        before.history = historyBefore(before.history, fence)
      }
      before.fence = fence - 1
      before.attempt = attempt - 1
      const lease = handlerFor(handlers, before.name, before.version)?.lease ?? 0
      jobs.push(claimed(before, { worker, lease, ahead: ahead === 1, now }))
    }
  }
  return jobs
}
