// stores/sqlite/receipts.ts: receipts written down shortly. With the batch that it answers, a receipt can be made again.
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
import { createRecord, givenOrder } from '../apply.js'
import { handlerFor, handlersOf } from '../handlers.js'
import { fenced, LANDED } from '../verdicts.js'
import type { Cache } from './cache.js'

/** So many jobs in a row: the place of the first, how many, and, where places are turns, how far each is from the next. */
type Run = [first: number, count: number, step?: number]

/**
 * A job that is not just what its insert made of it: its place, and where it differs from that (null: it has no such field).
 * Nothing that a user has written is kept here, where it would outlive the job: what of that differs is read again.
 */
interface Differing {
  readonly ord: number
  readonly set: Readonly<Record<string, unknown>>
  readonly read?: readonly string[]
}

/** Fields that hold what users have written. */
const written: ReadonlySet<string> = new Set<keyof JobRecord>([
  'data',
  'extras',
  'memo',
  'progress',
  'result',
  'error',
  'errors',
])

/**
 * Groups one after the other: so many that inserted nothing, so many that inserted one job each, or one by itself. Receipts
 * of older versions hold whole records.
 */
type WrittenGroups = number | Run | { readonly inserted: readonly (Run | Differing | JobRecord)[] } | Short

/** Claimed jobs one after the other: by number, and alike in the rest. */
type WrittenClaims = [seq: number, count: number, fence: number, attempt: number, ahead: 0 | 1]

/** A receipt in short. */
interface Written {
  readonly now: Time
  /** The fence that new jobs began at. */
  readonly fence: number
  readonly groups: readonly WrittenGroups[]
  readonly renewals: readonly (number | Short)[]
  readonly asks: readonly (readonly WrittenClaims[])[]
  readonly again?: Time
}

/** Adds the place of a job to the runs, at the end of the last one if it follows. */
function extend(runs: unknown[], { ord: place, group }: JobRecord): void {
  const last = runs.at(-1)
  if (group !== undefined) extendTurns(runs, place, last)
  else if (isRun(last) && last.length === 2 && place === last[0] + (place < 0 ? -last[1] : last[1])) last[1]++
  else runs.push([place, 1] satisfies Run)
}

function extendTurns(runs: unknown[], turn: number, last: unknown): void {
  if (!isRun(last) || last[2] === undefined) runs.push([turn, 1, 0] satisfies Run)
  else if (last[1] === 1) {
    last[1] = 2
    last[2] = turn - last[0]
  } else if (turn === last[0] + last[1] * last[2]) last[1]++
  else runs.push([turn, 1, 0] satisfies Run)
}

const isRun = (entry: unknown): entry is Run => Array.isArray(entry)

/** Counts one more that is like the ones before. */
function tick(list: unknown[]): void {
  if (typeof list.at(-1) === 'number') (list[list.length - 1] as number)++
  else list.push(1)
}

/** Whether a new job can be made again from its insert: nothing but the store's own clock and count had a say. */
function isOwn(group: Group, job: JobRecord, fence: number): boolean {
  return job.fence === fence && group.every((change) => change.kind === 'insert' && change.edges.length === 0)
}

/** Writes a receipt down. `numbers` are those of the jobs claimed; `fence` is where new jobs began. */
export function write(batch: Batch, receipt: Receipt, numbers: readonly (readonly number[])[], fence: number): string {
  const groups: WrittenGroups[] = []
  for (const [at, verdict] of receipt.groups.entries()) {
    const group = batch.groups[at]!
    if (!verdict.ok) groups.push(shortly(verdict))
    else if (verdict.inserted.length === 0) tick(groups)
    else if (group.length === 1 && isOwn(group, verdict.inserted[0]!, fence)) extend(groups, verdict.inserted[0]!)
    else {
      const inserts = group.filter((change) => change.kind === 'insert')
      const inserted: (Run | Differing)[] = []
      for (const [n, job] of verdict.inserted.entries()) {
        if (isOwn(group, job, fence)) extend(inserted, job)
        else inserted.push(differing(inserts[n]!, job, fence, receipt.now))
      }
      groups.push({ inserted })
    }
  }
  const renewals: (number | Short)[] = []
  for (const verdict of receipt.renewals) {
    if (verdict.ok) tick(renewals)
    else renewals.push(shortly(verdict))
  }
  const asks = receipt.asks.map((jobs, at) => claims(jobs, numbers[at]!))
  const { now, again } = receipt
  return JSON.stringify({ now, fence, groups, renewals, asks, ...(again !== undefined && { again }) } satisfies Written)
}

/** How a job differs from what its insert alone makes of it. */
function differing(insert: Insert, job: JobRecord, fence: number, now: Time): Differing {
  const plain = bornAgain(insert, job.ord, fence, now)
  const set: Record<string, unknown> = {}
  const read: string[] = []
  for (const [field, value] of Object.entries(job) as [keyof JobRecord, unknown][]) {
    if (isEqual(plain[field], value)) continue
    if (written.has(field)) read.push(field)
    else set[field] = value ?? null
  }
  return { ord: job.ord, set, ...(read.length > 0 && { read }) }
}

function isEqual(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === 'object' && typeof b === 'object' && JSON.stringify(a) === JSON.stringify(b))
}

/** The job that differs so from what its insert makes of it. */
function sameAgain(
  ground: Cache,
  insert: Insert,
  { ord, set, read = [] }: Differing,
  fence: number,
  now: Time,
): JobRecord {
  const job: Record<string, unknown> = { ...bornAgain(insert, ord, fence, now) }
  for (const [field, value] of Object.entries(set)) job[field] = value ?? undefined
  const standing = read.length > 0 ? ground.byId(insert.job.id)?.job : undefined
  if (standing !== undefined) for (const field of read) job[field] = standing[field as keyof JobRecord]
  return copyOf(job as unknown as JobRecord)
}

function bornAgain({ job }: Insert, ord: number, fence: number, now: Time): JobRecord {
  return createRecord(job, undefined, givenOrder(ord), fence, now)
}

/** A refusal without the job that stands there, which is read again: many may be refused over one heavy job. */
type Short = (Omit<RefusedAsMoved, 'job'> | Omit<RefusedOtherwise, 'job'>) & { readonly stands?: true | string }

function shortly({ job, ...rest }: Refused): Short {
  return job === undefined ? rest : { ...rest, stands: job.id === rest.id || job.id }
}

function atLength(ground: Cache, { stands, ...rest }: Short): Refused {
  if (!stands) return rest
  const id = stands === true ? rest.id : stands
  if (rest.why === 'fence') {
    const moved = ground.lightById(id)?.job
    return moved === undefined ? rest : fenced(moved)
  }
  const job = ground.byId(id)?.job
  return job === undefined ? rest : { ...rest, job }
}

function claims(jobs: readonly JobRecord[], numbers: readonly number[]): readonly WrittenClaims[] {
  const runs: WrittenClaims[] = []
  for (const [at, { fence, attempt, ahead }] of jobs.entries()) {
    const seq = numbers[at]!
    const last = runs.at(-1)
    const follows = last !== undefined && seq === last[0] + last[1]
    if (follows && last[2] === fence && last[3] === attempt && last[4] === Number(ahead)) last[1]++
    else runs.push([seq, 1, fence, attempt, ahead ? 1 : 0])
  }
  return runs
}

/** Makes a receipt again. */
export function read(ground: Cache, batch: Batch, text: string): Receipt {
  const { now, fence, groups, renewals, asks, again } = JSON.parse(text, revive) as Written
  return {
    writer: batch.writer,
    seq: batch.seq,
    now,
    // One that is sent again for its claims alone has none of the groups and renewals that it had.
    groups: batch.groups.length === 0 ? [] : verdicts(ground, batch, groups, fence, now),
    renewals: (batch.renewals.length === 0 ? [] : renewals).flatMap((entry) =>
      typeof entry === 'number' ? Array<Verdict>(entry).fill(LANDED) : [atLength(ground, entry)],
    ),
    asks: asks.map((runs, at) => runs.flatMap((run) => claimedAgain(ground, run, batch.asks[at]!, now))),
    ...(again !== undefined && { again }),
  }
}

/** A record without a bound on its attempts has none in JSON either. */
function revive(key: string, value: unknown): unknown {
  return key === 'attempts' && value === null ? Infinity : value
}

function verdicts(
  ground: Cache,
  batch: Batch,
  groups: readonly WrittenGroups[],
  fence: number,
  now: Time,
): readonly Verdict[] {
  const found: Verdict[] = []
  const again = (insert: Insert, ord: number): JobRecord => bornAgain(insert, ord, fence, now)
  for (const entry of groups) {
    if (typeof entry === 'number') for (let left = entry; left > 0; left--) found.push(LANDED)
    else if (isRun(entry)) {
      for (const ord of places(entry)) {
        found.push({ ok: true, inserted: [again(batch.groups[found.length]![0] as Insert, ord)] })
      }
    } else if ('inserted' in entry) {
      const inserts = batch.groups[found.length]!.filter((change) => change.kind === 'insert')
      const inserted: JobRecord[] = []
      for (const each of entry.inserted) {
        if (isRun(each)) for (const ord of places(each)) inserted.push(again(inserts[inserted.length]!, ord))
        else if ('set' in each) inserted.push(sameAgain(ground, inserts[inserted.length]!, each, fence, now))
        else inserted.push(copyOf(each)) // so that absent fields are there, as undefined
      }
      found.push({ ok: true, inserted })
    } else found.push(atLength(ground, entry))
  }
  return found
}

function places([first, count, step = first < 0 ? -1 : 1]: Run): readonly number[] {
  return Array.from({ length: count }, (_, at) => first + at * step)
}

/** The jobs of a run as they were claimed; those that were removed since are left out: nobody could settle them. */
function claimedAgain(ground: Cache, run: WrittenClaims, ask: Ask, now: Time): readonly JobRecord[] {
  const [first, count, fence, attempt, ahead] = run
  const jobs: JobRecord[] = []
  for (let seq = first; seq < first + count; seq++) {
    const row = ground.sql.jobBySeq.get(seq)
    if (row === undefined) continue
    const before = copyOf(ground.found(row).job)
    if (before.fence !== fence) {
      // It has moved on: what that brought is taken off again.
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
