// stores/sqlite/receipts.ts: encodes receipts compactly. A receipt is decoded together with the batch that it answers.
import type { Insert } from '../../job/change.js'
import type { JobRecord, Time } from '../../job/job.js'
import { claimed } from '../../job/lifecycle.js'
import { copyOf } from '../../job/record.js'
import type {
  Ask,
  Batch,
  Group,
  Receipt,
  Refused,
  RefusedAsMoved,
  RefusedOtherwise,
  Verdict,
} from '../../store/store.js'
import { createRecord, givenOrder } from '../../job/apply.js'
import { handlerFor, handlersOf } from '../../engine/handlers.js'
import { fenced, LANDED, refusedAt } from '../../engine/verdicts.js'
import type { Cache } from './cache.js'

/** Consecutive jobs: the order of the first, how many, and, for fair orders, the step from each to the next. */
type OrderRange = [first: number, count: number, step?: number]

/**
 * A job that is not exactly what its insert creates: its order, and the fields that differ (null: absent). It contains
 * no user data, which would outlive the job; user fields that differ are read from the job again.
 */
interface StoredDifference {
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

/**
 * Consecutive groups: a number of groups that inserted nothing, a number of groups that inserted one job each, or a
 * single group.
 */
type StoredGroups =
  | number
  | OrderRange
  | { readonly inserted: readonly (OrderRange | StoredDifference)[] }
  | StoredRefusal

/** Consecutive claimed jobs: by number, with the other values equal. */
type StoredClaims = [seq: number, count: number, fence: number, attempt: number, ahead: 0 | 1]

/** An encoded receipt. */
interface StoredReceipt {
  readonly now: Time
  /** The fence at which new jobs started. */
  readonly fence: number
  readonly groups: readonly StoredGroups[]
  readonly renewals: readonly (number | StoredRefusal)[]
  readonly asks: readonly (readonly StoredClaims[])[]
  readonly again?: Time
}

/** Adds the order of a job to the ranges, extending the last one if the order follows it. */
function extendRanges(ranges: unknown[], { ord, group }: JobRecord): void {
  const last = ranges.at(-1)
  if (group !== undefined) extendTurnRanges(ranges, ord, last)
  else if (isRange(last) && last.length === 2 && ord === last[0] + (ord < 0 ? -last[1] : last[1])) last[1]++
  else ranges.push([ord, 1] satisfies OrderRange)
}

function extendTurnRanges(ranges: unknown[], turn: number, last: unknown): void {
  if (!isRange(last) || last[2] === undefined) ranges.push([turn, 1, 0] satisfies OrderRange)
  else if (last[1] === 1) {
    last[1] = 2
    last[2] = turn - last[0]
  } else if (turn === last[0] + last[1] * last[2]) last[1]++
  else ranges.push([turn, 1, 0] satisfies OrderRange)
}

const isRange = (entry: unknown): entry is OrderRange => Array.isArray(entry)

/** Counts one more entry that is equal to the previous ones. */
function countOne(list: unknown[]): void {
  if (typeof list.at(-1) === 'number') (list[list.length - 1] as number)++
  else list.push(1)
}

/** Whether a new job can be recreated from its insert: it depends only on the store's clock and numbers. */
function isReproducible(group: Group, job: JobRecord, fence: number): boolean {
  return job.fence === fence && group.every((change) => change.kind === 'insert' && change.edges.length === 0)
}

/** Encodes a receipt. `seqs` are the numbers of the claimed jobs; `fence` is where new jobs started. */
export function encode(batch: Batch, receipt: Receipt, seqs: readonly (readonly number[])[], fence: number): string {
  const groups: StoredGroups[] = []
  for (const [at, verdict] of receipt.groups.entries()) {
    const group = batch.groups[at]!
    if (!verdict.ok) groups.push(encodeRefusal(verdict))
    else if (verdict.inserted.length === 0) countOne(groups)
    else if (group.length === 1 && isReproducible(group, verdict.inserted[0]!, fence))
      extendRanges(groups, verdict.inserted[0]!)
    else {
      const inserts = group.filter((change) => change.kind === 'insert')
      const inserted: (OrderRange | StoredDifference)[] = []
      for (const [n, job] of verdict.inserted.entries()) {
        if (isReproducible(group, job, fence)) extendRanges(inserted, job)
        else inserted.push(differenceOf(inserts[n]!, job, fence, receipt.now))
      }
      groups.push({ inserted })
    }
  }
  const renewals: (number | StoredRefusal)[] = []
  for (const verdict of receipt.renewals) {
    if (verdict.ok) countOne(renewals)
    else renewals.push(encodeRefusal(verdict))
  }
  const asks = receipt.asks.map((jobs, at) => encodeClaims(jobs, seqs[at]!))
  const { now, again } = receipt
  return JSON.stringify({
    now,
    fence,
    groups,
    renewals,
    asks,
    ...(again !== undefined && { again }),
  } satisfies StoredReceipt)
}

/** How a job differs from what its insert creates. */
function differenceOf(insert: Insert, job: JobRecord, fence: number, now: Time): StoredDifference {
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

/** Recreates a job that differs from what its insert creates. */
function applyDifference(
  cache: Cache,
  insert: Insert,
  { ord, set, read = [] }: StoredDifference,
  fence: number,
  now: Time,
): JobRecord {
  const job: Record<string, unknown> = { ...recreate(insert, ord, fence, now) }
  for (const [field, value] of Object.entries(set)) job[field] = value ?? undefined
  const existing = read.length > 0 ? cache.byId(insert.job.id)?.job : undefined
  if (existing !== undefined) for (const field of read) job[field] = existing[field as keyof JobRecord]
  return copyOf(job as unknown as JobRecord)
}

function recreate({ job }: Insert, ord: number, fence: number, now: Time): JobRecord {
  return createRecord(job, undefined, givenOrder(ord), fence, now)
}

/** A refusal without its job, which is read again: many groups may be refused because of one large job. */
type StoredRefusal = (Omit<RefusedAsMoved, 'job'> | Omit<RefusedOtherwise, 'job'>) & { readonly stands?: true | string }

function encodeRefusal({ job, ...rest }: Refused): StoredRefusal {
  return job === undefined ? rest : { ...rest, stands: job.id === rest.id || job.id }
}

function decodeRefusal(cache: Cache, { stands, ...rest }: StoredRefusal): Refused {
  if (!stands) return rest
  const id = stands === true ? rest.id : stands
  if (rest.why === 'fence') {
    const moved = cache.lightById(id)?.job
    return moved === undefined ? rest : refusedAt(rest.change, fenced(moved))
  }
  const job = cache.byId(id)?.job
  return job === undefined ? rest : { ...rest, job }
}

function encodeClaims(jobs: readonly JobRecord[], seqs: readonly number[]): readonly StoredClaims[] {
  const ranges: StoredClaims[] = []
  for (const [at, { fence, attempt, ahead }] of jobs.entries()) {
    const seq = seqs[at]!
    const last = ranges.at(-1)
    const follows = last !== undefined && seq === last[0] + last[1]
    if (follows && last[2] === fence && last[3] === attempt && last[4] === Number(ahead)) last[1]++
    else ranges.push([seq, 1, fence, attempt, ahead ? 1 : 0])
  }
  return ranges
}

/** Decodes a receipt. */
export function decode(cache: Cache, batch: Batch, text: string): Receipt {
  const { now, fence, groups, renewals, asks, again } = JSON.parse(text, revive) as StoredReceipt
  return {
    writer: batch.writer,
    seq: batch.seq,
    now,
    // A batch that is sent again only for its claims has none of its groups and renewals.
    groups: batch.groups.length === 0 ? [] : decodeGroups(cache, batch, groups, fence, now),
    renewals: (batch.renewals.length === 0 ? [] : renewals).flatMap((entry) =>
      typeof entry === 'number' ? Array<Verdict>(entry).fill(LANDED) : [decodeRefusal(cache, entry)],
    ),
    asks: asks.map((ranges, at) => ranges.flatMap((range) => decodeClaims(cache, range, batch.asks[at]!, now))),
    ...(again !== undefined && { again }),
  }
}

/** Infinity, which means no limit of attempts, becomes null in JSON. */
function revive(key: string, value: unknown): unknown {
  return key === 'attempts' && value === null ? Infinity : value
}

function decodeGroups(
  cache: Cache,
  batch: Batch,
  groups: readonly StoredGroups[],
  fence: number,
  now: Time,
): readonly Verdict[] {
  const found: Verdict[] = []
  const recreateAt = (insert: Insert, ord: number): JobRecord => recreate(insert, ord, fence, now)
  for (const entry of groups) {
    if (typeof entry === 'number') for (let left = entry; left > 0; left--) found.push(LANDED)
    else if (isRange(entry)) {
      for (const ord of ordsOf(entry)) {
        found.push({ ok: true, inserted: [recreateAt(batch.groups[found.length]![0] as Insert, ord)] })
      }
    } else if ('inserted' in entry) {
      const inserts = batch.groups[found.length]!.filter((change) => change.kind === 'insert')
      const inserted: JobRecord[] = []
      for (const each of entry.inserted) {
        if (isRange(each)) for (const ord of ordsOf(each)) inserted.push(recreateAt(inserts[inserted.length]!, ord))
        else inserted.push(applyDifference(cache, inserts[inserted.length]!, each, fence, now))
      }
      found.push({ ok: true, inserted })
    } else found.push(decodeRefusal(cache, entry))
  }
  return found
}

function ordsOf([first, count, step = first < 0 ? -1 : 1]: OrderRange): readonly number[] {
  return Array.from({ length: count }, (_, at) => first + at * step)
}

/** The jobs of a range as they were claimed, without jobs that were removed since: they could not be settled. */
function decodeClaims(cache: Cache, range: StoredClaims, ask: Ask, now: Time): readonly JobRecord[] {
  const [first, count, fence, attempt, ahead] = range
  const jobs: JobRecord[] = []
  for (let seq = first; seq < first + count; seq++) {
    const row = cache.sql.jobBySeq.get(seq)
    if (row === undefined) continue
    const before = copyOf(cache.found(row).job)
    if (before.fence !== fence) {
      // The job has moved since: undo what the move changed.
      before.runAt = before.staleAt = before.deleteAt = before.finishedAt = before.result = undefined
      before.stale = false
      before.errors = before.errors.filter((error) => error.fence < fence)
    }
    before.fence = fence - 1
    before.attempt = attempt - 1
    const lease = handlerFor(handlersOf(ask.handles), before.name, before.version)?.lease ?? 0
    jobs.push(claimed(before, { worker: ask.worker, lease, ahead: ahead === 1, now }))
  }
  return jobs
}
