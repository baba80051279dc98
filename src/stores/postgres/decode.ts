// stores/postgres/decode.ts: what the function `commit_v1` answers, as a receipt.
import type { Insert } from '../../job/change.js'
import type { EdgeState, JobRecord } from '../../job/job.js'
import type { Batch, Cell, Notice, Receipt, Refused, Verdict, Why } from '../../store/store.js'
import { movedJob } from '../../job/record.js'
import { createRecord, givenOrder } from '../apply.js'
import type { Settings } from '../job-settings.js'
import { LANDED } from '../verdicts.js'
import { claimedOf, claimsOf, parted, recordOf } from './rows.js'
import type { Lane, RecordRow } from './rows.js'

/** Groups that have more to say than that they landed. */
type GroupAnswer =
  /** Each inserted one job: their groups, places, and the fence they began at. */
  | readonly ['i', readonly number[], readonly number[], number]
  /** All of them inserted one job each: how many, where each block of places begins, whether the newest goes first, and the fence. */
  | readonly ['I', number, readonly number[], 0 | 1, number]
  /** All of them inserted one job each, with a group: their places, and the fence. */
  | readonly ['S', readonly number[], number]
  /** One group, and place, fence and edges of each job that it inserted. */
  | readonly ['g', number, readonly (readonly [number, number, string])[]]
  /** One group, and the jobs that it inserted; or, where the answer is givenOrder again, their ids. */
  | readonly ['R', number, readonly RecordRow[] | readonly string[]]
  /** One group that was refused: why, over what, and what stands there (1: that job, to be read; or another, by its id). */
  | readonly ['x', number, Why, string, RecordRow | Cell | string | 1 | null]

/** An answer. */
export interface Answer {
  /** It was givenOrder before. */
  readonly again?: true
  readonly now: number
  readonly groups: readonly GroupAnswer[]
  readonly renewals: readonly (readonly [number, Why, string, RecordRow | 1 | null])[]
  readonly asks: readonly (readonly RecordRow[])[]
  /** Which commit claimed the jobs, where the answer is givenOrder again. */
  readonly claim?: number | null
  /** When to ask again, because of a rate. */
  readonly later?: number
  /** When the jobs of each ask were claimed, where that was later: a queue's row was waited for. */
  readonly begun?: readonly number[]
  /** Lanes of which some was passed over, because groups are bounded. */
  readonly gated?: readonly number[]
  /** How many events were recorded. */
  readonly events: number
  readonly work: Notice['work']
  readonly due: Notice['due']
  readonly revoked: Notice['revoked']
  /** Where jobs were placed in lanes: lane, priority, place. */
  readonly places: readonly (readonly [number, number, number])[]
}

/** The answer in a text. */
export function answerOf(text: string): Answer {
  const [json, rows] = parted(text)
  const answer = JSON.parse(json) as Answer
  if (rows === undefined) return answer.asks === undefined ? { ...answer, asks: [] } : answer
  const [claims] = answer.asks as unknown as [Parameters<typeof claimsOf>[0]]
  return { ...answer, asks: [claimsOf(claims, rows)] }
}

/** What reading an answer needs to know. */
export interface Reader {
  readonly settings: Settings
  lane(id: number): Lane
}

/** Places in a block: the step of the sequence that they come from. */
const BLOCK = 1_024

const edgeStates: Readonly<Record<string, EdgeState>> = { o: 'open', e: 'ended', b: 'broken' }

/** Makes the receipt; `standing` are jobs that the answer names and does not hold. */
export function receiptOf(
  batch: Batch,
  answer: Answer,
  reader: Reader,
  standing?: ReadonlyMap<string, JobRecord>,
): Receipt {
  const { now } = answer
  const groups: Verdict[] = Array.from(batch.groups, () => LANDED)
  // One that is sent again for its claims alone has none of the groups that it had.
  for (const each of groups.length === 0 ? [] : answer.groups) {
    if (each[0] === 'i') {
      const [, places, ords, fence] = each
      for (const [at, n] of places.entries()) {
        const { job } = batch.groups[n]![0] as Insert
        groups[n] = { ok: true, inserted: [createRecord(job, undefined, givenOrder(ords[at]!), fence, now)] }
      }
    } else if (each[0] === 'I') {
      const [, count, blocks, newest, fence] = each
      for (let n = 0; n < count; n++) {
        const { job } = batch.groups[n]![0] as Insert
        const place = blocks[Math.floor(n / BLOCK)]! + (n % BLOCK)
        const ord = newest === 1 ? -1 - place : place
        groups[n] = { ok: true, inserted: [createRecord(job, undefined, givenOrder(ord), fence, now)] }
      }
    } else if (each[0] === 'S') {
      for (const [n, ord] of each[1].entries()) {
        const { job } = batch.groups[n]![0] as Insert
        groups[n] = { ok: true, inserted: [createRecord(job, undefined, givenOrder(ord), each[2], now)] }
      }
    } else if (each[0] === 'x') groups[each[1]] = refused(each[2], each[3], each[4], reader, standing)
    else groups[each[1]] = { ok: true, inserted: insertedOf(batch, each, now, reader, standing) }
  }
  const renewals: Verdict[] = batch.renewals.map(() => LANDED)
  const notRenewed = renewals.length === 0 ? [] : answer.renewals
  for (const [n, why, id, job] of notRenewed) renewals[n] = refused(why, id, job, reader, standing)
  const asks = answer.asks.map((rows, at) =>
    rows.map((row) => {
      if (typeof row[0] === 'string') return recordOf(row, reader.settings)
      const began = answer.begun?.[at] ?? now
      return claimedOf(row, reader.lane(row[0] as number), batch.asks[at]!.worker, began, reader.settings)
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
  now: number,
  { settings }: Reader,
  standing: ReadonlyMap<string, JobRecord> | undefined,
): readonly JobRecord[] {
  const inserts = batch.groups[each[1]]!.filter((change) => change.kind === 'insert')
  if (each[0] === 'g') {
    return each[2].map(([ord, fence, edges], at) => {
      const { job, edges: wanted } = inserts[at]!
      const states = wanted.length === 0 ? undefined : Array.from(edges, (letter) => edgeStates[letter]!)
      return createRecord(job, states, givenOrder(ord), fence, now)
    })
  }
  return each[2].flatMap((row) => {
    if (typeof row !== 'string') return [recordOf(row, settings)]
    const job = standing?.get(row)
    return job === undefined ? [] : [job]
  })
}

function refused(
  why: Why,
  id: string,
  stands: RecordRow | Cell | string | 1 | null,
  { settings }: Reader,
  standing: ReadonlyMap<string, JobRecord> | undefined,
): Refused {
  if (stands === null) return { ok: false, why, id }
  if (why === 'version') return { ok: false, why, id, cell: stands as Cell }
  const read = stands === 1 ? id : typeof stands === 'string' ? stands : undefined
  const job = read === undefined ? recordOf(stands as RecordRow, settings) : standing?.get(read)
  if (job === undefined) return { ok: false, why, id }
  return why === 'fence' ? { ok: false, why, id, job: movedJob(job) } : { ok: false, why, id, job }
}

/** The ids of jobs that an answer speaks of and does not hold: it was givenOrder before, or holds as much as it may. */
function wantedBy({ groups, renewals }: Answer): readonly string[] {
  const ids = new Set<string>()
  for (const each of groups) {
    if (each[0] === 'x' && each[4] === 1) ids.add(each[3])
    else if (each[0] === 'x' && typeof each[4] === 'string') ids.add(each[4])
    if (each[0] === 'R') for (const row of each[2]) if (typeof row === 'string') ids.add(row)
  }
  for (const [, , id, job] of renewals) if (job === 1) ids.add(id)
  return [...ids]
}

/** Those jobs, as they stand now. */
export async function standingFor(
  answer: Answer,
  get: (ids: readonly string[]) => Promise<readonly (JobRecord | undefined)[]>,
): Promise<ReadonlyMap<string, JobRecord>> {
  const ids = wantedBy(answer)
  const standing = new Map<string, JobRecord>()
  for (const job of ids.length === 0 ? [] : await get(ids)) if (job !== undefined) standing.set(job.id, job)
  return standing
}

/** What a notification tells. */
type Told = Pick<Answer, 'events' | 'work' | 'due' | 'revoked' | 'places'> & {
  /** The process that tells it; empty for a transaction. */
  readonly from: string
  /** There was more than fits. */
  readonly much?: true
}

/** What is in a notification; nothing, if it was not sent by a commit. */
export function toldIn(payload: string): Told | undefined {
  let told: Partial<Told> | null
  try {
    told = JSON.parse(payload) as Partial<Told> | null
  } catch {
    return undefined
  }
  if (typeof told?.from !== 'string' || typeof told.events !== 'number') return undefined
  const { from, events, work, due, revoked, places } = told
  const lists = [work, due, revoked, places]
  return lists.every(Array.isArray)
    ? (told as Told)
    : { from, events, much: true, work: [], due: [], revoked: [], places: [] }
}

/** What a receipt that is givenOrder again reads anew. */
interface ReplaySource {
  get(ids: readonly string[]): Promise<readonly (JobRecord | undefined)[]>
  /** The jobs that one commit claimed and that are still held, with who holds them. */
  claimed(number: number): Promise<readonly (readonly [worker: string, row: RecordRow])[]>
}

/** The answer to a batch that was applied before: what it does not hold is read again. */
export async function replayOf(batch: Batch, answer: Answer, reader: Reader, source: ReplaySource): Promise<Receipt> {
  const asksAlone = batch.groups.length + batch.renewals.length === 0
  const standing = asksAlone ? undefined : await standingFor(answer, (ids) => source.get(ids))
  const claimed = new Map<string, JobRecord[]>()
  if (typeof answer.claim === 'number') {
    for (const [worker, row] of await source.claimed(answer.claim)) {
      const jobs = claimed.get(worker) ?? []
      jobs.push(recordOf(row, reader.settings))
      claimed.set(worker, jobs)
    }
  }
  const receipt = receiptOf(batch, { ...answer, asks: [] }, reader, standing)
  const asks = batch.asks.map(({ worker }) => {
    const jobs = claimed.get(worker) ?? []
    claimed.delete(worker)
    return jobs
  })
  return { ...receipt, asks }
}
