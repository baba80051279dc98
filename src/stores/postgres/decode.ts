// stores/postgres/decode.ts: decodes the answer of `commit` and of the fast paths into a receipt.
import type { Insert } from '../../job/change.js'
import type { EdgeState, JobRecord } from '../../job/job.js'
import type { Batch, Cell, Notice, Receipt, Refused, Verdict, Why } from '../../store/store.js'
import { movedJob } from '../../job/record.js'
import { createRecord, givenOrder } from '../../job/apply.js'
import type { Orders } from '../../job/apply.js'
import type { SettingsCache } from '../job-settings.js'
import { LANDED, refusedAt } from '../../engine/verdicts.js'
import { UNPLACED } from './functions/job-columns.js'
import { claimedOf, claimsOf, recordOf, splitAnswer } from './rows.js'
import type { Lane, RecordRow } from './rows.js'

/** The verdict of groups that did more than land. */
type GroupAnswer =
  /** What unplaced order numbers are counted from (see functions/job-columns.ts). */
  | readonly ['b', number]
  /** Groups that inserted one job each: the indexes of the groups, the orders of the jobs, and their first fence. */
  | readonly ['i', readonly number[], readonly number[], number]
  /** All groups inserted one job each: count, first number of each block of orders, 1 for lifo, fence. */
  | readonly ['I', number, readonly number[], 0 | 1, number]
  /** All groups inserted one job each, in a shared lane: the orders of the jobs, and the fence. */
  | readonly ['S', readonly number[], number]
  /** The index of one group, and order, fence and edge states of each job that it inserted. */
  | readonly ['g', number, readonly (readonly [number, number, string])[]]
  /** The index of one group, and the jobs that it inserted; their ids, if the answer is a replay. */
  | readonly ['R', number, readonly RecordRow[] | readonly string[]]
  /**
   * The index of a refused group, the reason, the id or key that refused it, and what exists under it: a row, or 1 for the
   * job of that id, or a text for the id of another job, both of which are read again. Then the index of the refused
   * change in its group; absent for groups of one change.
   */
  | readonly ['x', number, Why, string, RecordRow | Cell | string | 1 | null, number?]

/** The answer to a batch. */
export interface CommitAnswer {
  /** The batch was applied before: this is a replay. */
  readonly again?: true
  readonly now: number
  readonly groups: readonly GroupAnswer[]
  readonly renewals: readonly (readonly [number, Why, string, RecordRow | 1 | null])[]
  readonly asks: readonly (readonly RecordRow[])[]
  /** In a replay: the number of the commit that claimed the jobs. */
  readonly claim?: number | null
  /** What order numbers are counted from that were decided without a working set. */
  readonly base?: number
  /** When to claim again, because of a rate or a hold. */
  readonly later?: number
  /** When the jobs of each ask were claimed, if later than `now`: the claim waited for the lock on a queue's row. */
  readonly begun?: readonly number[]
  /** Lanes in which the claim skipped groups that are at their limit. */
  readonly gated?: readonly number[]
  /** The number of recorded events. */
  readonly events: number
  readonly work: Notice['work']
  readonly due: Notice['due']
  readonly revoked: Notice['revoked']
  readonly held?: Notice['held']
  /** Where jobs were placed in lanes: lane, priority, order. */
  readonly orders: readonly (readonly [number, number, number])[]
}

/** Parses the text of an answer. */
export function answerOf(text: string): CommitAnswer {
  const [json, rows] = splitAnswer(text)
  const answer = JSON.parse(json) as CommitAnswer
  if (rows === undefined) return answer.asks === undefined ? { ...answer, asks: [] } : answer
  const [claims] = answer.asks as unknown as [Parameters<typeof claimsOf>[0]]
  return { ...answer, asks: [claimsOf(claims, rows)] }
}

/** What decoding an answer needs. */
export interface DecodeContext {
  readonly settings: SettingsCache
  lane(id: number): Lane
}

/** Order numbers in a block: the increment of the sequence that they come from. */
const BLOCK = 1_024

const edgeStates: Readonly<Record<string, EdgeState>> = { o: 'open', e: 'ended', b: 'broken' }

/** An order number, with what it is counted from if it was decided without a working set. */
export function placedAt(ord: number, base: number | undefined): number {
  if (base === undefined || (ord < UNPLACED && ord >= -UNPLACED)) return ord
  return ord > 0 ? ord - UNPLACED + base : ord + UNPLACED - base
}

/** Makes the receipt of a batch; `current` are the jobs that the answer names without their records. */
export function receiptOf(
  batch: Batch,
  answer: CommitAnswer,
  context: DecodeContext,
  current?: ReadonlyMap<string, JobRecord>,
): Receipt {
  const { now } = answer
  const groups: Verdict[] = Array.from(batch.groups, () => LANDED)
  // A batch that is replayed for its claims alone has no groups, while its stored answer has.
  const base = answer.groups.find((each) => each[0] === 'b')?.[1]
  const placed = (ord: number): Orders => givenOrder(placedAt(ord, base))
  for (const each of groups.length === 0 ? [] : answer.groups) {
    if (each[0] === 'b') continue
    if (each[0] === 'i') {
      const [, indexes, ords, fence] = each
      for (const [at, n] of indexes.entries()) {
        const { job } = batch.groups[n]![0] as Insert
        groups[n] = { ok: true, inserted: [createRecord(job, undefined, placed(ords[at]!), fence, now)] }
      }
    } else if (each[0] === 'I') {
      const [, count, blocks, lifo, fence] = each
      for (let n = 0; n < count; n++) {
        const { job } = batch.groups[n]![0] as Insert
        const number = blocks[Math.floor(n / BLOCK)]! + (n % BLOCK)
        const ord = lifo === 1 ? -1 - number : number
        groups[n] = { ok: true, inserted: [createRecord(job, undefined, givenOrder(ord), fence, now)] }
      }
    } else if (each[0] === 'S') {
      for (const [n, ord] of each[1].entries()) {
        const { job } = batch.groups[n]![0] as Insert
        groups[n] = { ok: true, inserted: [createRecord(job, undefined, givenOrder(ord), each[2], now)] }
      }
    } else if (each[0] === 'x')
      groups[each[1]] = refusedAt(each[5] ?? 0, refused(each[2], each[3], each[4], context, current))
    else groups[each[1]] = { ok: true, inserted: insertedOf(batch, each, placed, now, context, current) }
  }
  const renewals: Verdict[] = batch.renewals.map(() => LANDED)
  const notRenewed = renewals.length === 0 ? [] : answer.renewals
  for (const [n, why, id, job] of notRenewed) renewals[n] = refused(why, id, job, context, current)
  const asks = answer.asks.map((rows, at) =>
    rows.map((row) => {
      if (typeof row[0] === 'string') return recordOf(row, context.settings)
      const claimedAt = answer.begun?.[at] ?? now
      return claimedOf(row, context.lane(row[0] as number), batch.asks[at]!.worker, claimedAt, context.settings)
    }),
  )
  const { later } = answer
  return {
    writer: batch.writer,
    seq: batch.seq,
    now,
    groups,
    renewals,
    asks,
    ...(later !== undefined && { again: later }),
  }
}

function insertedOf(
  batch: Batch,
  each: Extract<GroupAnswer, readonly ['g' | 'R', ...unknown[]]>,
  placed: (ord: number) => Orders,
  now: number,
  { settings }: DecodeContext,
  current: ReadonlyMap<string, JobRecord> | undefined,
): readonly JobRecord[] {
  const inserts = batch.groups[each[1]]!.filter((change) => change.kind === 'insert')
  if (each[0] === 'g') {
    return each[2].map(([ord, fence, edges], at) => {
      const { job, edges: wanted } = inserts[at]!
      const states = wanted.length === 0 ? undefined : Array.from(edges, (letter) => edgeStates[letter]!)
      return createRecord(job, states, placed(ord), fence, now)
    })
  }
  return each[2].flatMap((row) => {
    if (typeof row !== 'string') return [recordOf(row, settings)]
    const job = current?.get(row)
    return job === undefined ? [] : [job]
  })
}

function refused(
  why: Why,
  id: string,
  existing: RecordRow | Cell | string | 1 | null,
  { settings }: DecodeContext,
  current: ReadonlyMap<string, JobRecord> | undefined,
): Refused {
  if (existing === null) return { ok: false, change: 0, why, id }
  if (why === 'version') return { ok: false, change: 0, why, id, cell: existing as Cell }
  const jobId = existing === 1 ? id : typeof existing === 'string' ? existing : undefined
  const job = jobId === undefined ? recordOf(existing as RecordRow, settings) : current?.get(jobId)
  if (job === undefined) return { ok: false, change: 0, why, id }
  return why === 'fence'
    ? { ok: false, change: 0, why, id, job: movedJob(job) }
    : { ok: false, change: 0, why, id, job }
}

/** The ids of jobs that an answer names without their records: it is a replay, or the answer holds as much as it may. */
function idsToRead({ groups, renewals }: CommitAnswer): readonly string[] {
  const ids = new Set<string>()
  for (const each of groups) {
    if (each[0] === 'b') continue
    if (each[0] === 'x' && each[4] === 1) ids.add(each[3])
    else if (each[0] === 'x' && typeof each[4] === 'string') ids.add(each[4])
    if (each[0] === 'R') for (const row of each[2]) if (typeof row === 'string') ids.add(row)
  }
  for (const [, , id, job] of renewals) if (job === 1) ids.add(id)
  return [...ids]
}

/** The verdicts on groups, with the records that were not loaded whole: they are read now, and left out if they are gone. */
export async function withRecords(
  verdicts: readonly Verdict[],
  unread: ReadonlySet<JobRecord>,
  get: (ids: readonly string[]) => Promise<readonly (JobRecord | undefined)[]>,
): Promise<readonly Verdict[]> {
  if (unread.size === 0) return verdicts
  const ids = [...new Set([...unread].map(({ id }) => id))]
  const current = new Map((await get(ids)).map((job, at) => [ids[at]!, job]))
  return verdicts.map((verdict) => {
    if (verdict.ok || verdict.why === 'fence' || verdict.job === undefined || !unread.has(verdict.job)) return verdict
    const { job, ...rest } = verdict
    const found = current.get(job.id)
    return found === undefined ? rest : { ...rest, job: found }
  })
}

/** Reads the jobs that an answer names without their records. */
async function currentJobs(
  answer: CommitAnswer,
  get: (ids: readonly string[]) => Promise<readonly (JobRecord | undefined)[]>,
): Promise<ReadonlyMap<string, JobRecord>> {
  const ids = idsToRead(answer)
  const current = new Map<string, JobRecord>()
  for (const job of ids.length === 0 ? [] : await get(ids)) if (job !== undefined) current.set(job.id, job)
  return current
}

/** The payload of a notification. */
type Notification = Pick<CommitAnswer, 'events' | 'work' | 'due' | 'revoked' | 'held' | 'orders'> & {
  /** The process that committed; empty for a user transaction. */
  readonly from: string
  /** The notice did not fit into a notification. */
  readonly much?: true
}

/** Parses the payload of a notification; `undefined` if no commit sent it. */
export function notificationOf(payload: string): Notification | undefined {
  let parsed: Partial<Notification> | null
  try {
    parsed = JSON.parse(payload) as Partial<Notification> | null
  } catch {
    return undefined
  }
  if (typeof parsed?.from !== 'string' || typeof parsed.events !== 'number') return undefined
  const { from, events, work, due, revoked, orders } = parsed
  const lists = [work, due, revoked, orders]
  return lists.every(Array.isArray)
    ? (parsed as Notification)
    : { from, events, much: true, work: [], due: [], revoked: [], orders: [] }
}

/** What a replay reads again. */
interface ReplaySource {
  get(ids: readonly string[]): Promise<readonly (JobRecord | undefined)[]>
  /** The jobs that one commit claimed and that are still leased, with their lease holders. */
  claimed(number: number): Promise<readonly (readonly [worker: string, row: RecordRow])[]>
}

/** Makes the receipt of a batch that was applied before: reads again the jobs that the stored answer does not hold. */
export async function replayOf(
  batch: Batch,
  answer: CommitAnswer,
  context: DecodeContext,
  source: ReplaySource,
): Promise<Receipt> {
  const claimsAlone = batch.groups.length + batch.renewals.length === 0
  const current = claimsAlone ? undefined : await currentJobs(answer, (ids) => source.get(ids))
  const claimed = new Map<string, JobRecord[]>()
  if (typeof answer.claim === 'number') {
    for (const [worker, row] of await source.claimed(answer.claim)) {
      const jobs = claimed.get(worker) ?? []
      jobs.push(recordOf(row, context.settings))
      claimed.set(worker, jobs)
    }
  }
  const receipt = receiptOf(batch, { ...answer, asks: [] }, context, current)
  const asks = batch.asks.map(({ worker }) => {
    const jobs = claimed.get(worker) ?? []
    claimed.delete(worker)
    return jobs
  })
  return { ...receipt, asks }
}
