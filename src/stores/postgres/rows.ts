// stores/postgres/rows.ts: job records as the functions of the schema write them, in arrays.
import type { AttemptError, Dedup, ErrorInfo, JobKind, JobState } from '../../job/job.js'
import type { Draft } from '../../job/record.js'
import type { Settings } from '../job-settings.js'

/** The queue, name and version that jobs share. Its number never changes. */
export interface Lane {
  readonly id: number
  readonly queue: string
  readonly name: string
  readonly version: number
}

/** Between values in a text; no id and no JSON holds it. */
export const UNIT = '\u001F'
/** Between rows in a text. */
export const ROW = '\u001E'
/** Between an answer and its rows. */
export const GROUP = '\u001D'

/** Between what commits told. */
export const FILE = '\u001C'

type Cell = string | number | boolean | null | readonly string[]

/** A whole record, in the order of `v1_record`. */
export type RecordRow = readonly Cell[]

const NO_ERRORS: readonly AttemptError[] = Object.freeze([])

const time = (value: Cell | undefined): number | undefined => (value === null ? undefined : (value as number))
const text = (value: Cell | undefined): string | undefined => (value === null ? undefined : (value as string))
const parsed = (value: Cell | undefined): unknown => (value === null ? undefined : JSON.parse(value as string))

/** The record in a row of `v1_record`. */
export function recordOf(row: RecordRow, settings: Settings): Draft {
  const id = row[0] as string
  const { backoff, timeout, keep, extras } = settings.parse(row[27] as string | null)
  const errors = row[32] as readonly string[] | null
  return {
    id,
    kind: row[5] as JobKind,
    queue: row[2] as string,
    name: row[3] as string,
    version: row[4] as number,
    data: text(row[26]),
    state: row[6] as JobState,
    priority: row[7] as number,
    ord: row[8] as number,
    fence: row[9] as number,
    attempt: row[10] as number,
    attempts: row[11] === null ? Infinity : (row[11] as number),
    backoff,
    timeout,
    worker: text(row[12]),
    runAt: time(row[13]),
    leaseUntil: time(row[14]),
    brokenAt: time(row[15]),
    staleAt: time(row[16]),
    stale: row[17] as boolean,
    deleteAt: time(row[18]),
    dueAt: time(row[19]),
    chainId: row[20] === null ? id : (row[20] as string),
    chainIndex: row[21] as number,
    parentId: text(row[22]),
    group: text(row[37]),
    pending: row[23] as number,
    stalls: row[24] as number,
    ahead: row[25] as boolean,
    dedup: parsed(row[28]) as Dedup | undefined,
    keep,
    extras,
    memo: text(row[38]),
    progress: text(row[29]),
    result: text(row[30]),
    error: parsed(row[31]) as ErrorInfo | undefined,
    errors: errors === null ? NO_ERRORS : errors.map((each) => JSON.parse(each) as AttemptError),
    createdAt: row[33] as number,
    startedAt: time(row[34]),
    finishedAt: time(row[35]),
  }
}

/** The place of a record in the order of insertion. */
export function seqOf(row: RecordRow): number {
  return row[36] as number
}

/** What `claim_v2` answers to an ask, before the rows of its jobs. */
interface Claims {
  /** How many of them were to start at once. */
  readonly first: number
  /** The lanes that were asked for, and when leases end in each. */
  readonly lanes: readonly number[]
  readonly until: readonly number[]
  /** Whole records of those that something had happened to before. */
  readonly whole: readonly RecordRow[]
}

/** An answer that is followed by the rows of jobs, in JSON and as rows; or else the JSON alone. */
export function parted(text: string): readonly [json: string, rows?: string] {
  const end = text.lastIndexOf(GROUP)
  return end < 0 ? [text] : [text.slice(0, end), text.slice(end + 1)]
}

/**
 * The jobs that `claim_v2` answers with: rows as `v1_claimed` writes them, of those that nothing had happened to before they
 * were claimed, and whole ones. Each has lane, id, priority, place, fence, attempt, attempts, time of creation, data, settings, dedup;
 * its group, if it has one or a parent; and its parent, if it has one.
 */
export function claimsOf({ first, lanes, until, whole }: Claims, rows: string): readonly RecordRow[] {
  if (rows === '') return []
  const records = whole.length === 0 ? undefined : new Map(whole.map((row) => [row[0] as string, row]))
  return rows.split(ROW).map((text, at) => {
    const [lane, id, priority, ord, fence, attempt, attempts, created, data, settings, dedup, ...of] = text.split(UNIT)
    const [group, parent] = of
    const record = records?.get(id!)
    if (record !== undefined) return record
    return [
      +lane!,
      id!,
      +priority!,
      +ord!,
      +fence!,
      +attempt!,
      attempts === '' ? null : +attempts!,
      until[lanes.indexOf(+lane!)]!,
      at >= first,
      +created!,
      data === '' ? null : data!,
      settings === '' ? null : settings!,
      dedup === '' ? null : dedup!,
      group === undefined || group === '' ? null : group,
      parent ?? null,
    ]
  })
}

/** The record in a row of `v1_claimed`, of a job that nothing had happened to before it was claimed. */
export function claimedOf(row: RecordRow, lane: Lane, worker: string, now: number, settings: Settings): Draft {
  const id = row[1] as string
  const { backoff, timeout, keep, extras } = settings.parse(row[11] as string | null)
  const leaseUntil = row[7] as number
  return {
    id,
    kind: 'job',
    queue: lane.queue,
    name: lane.name,
    version: lane.version,
    data: text(row[10]),
    state: 'active',
    priority: row[2] as number,
    ord: row[3] as number,
    fence: row[4] as number,
    attempt: row[5] as number,
    attempts: row[6] === null ? Infinity : (row[6] as number),
    backoff,
    timeout,
    worker,
    runAt: undefined,
    leaseUntil,
    brokenAt: undefined,
    staleAt: undefined,
    stale: false,
    deleteAt: undefined,
    dueAt: leaseUntil,
    chainId: id,
    chainIndex: 0,
    parentId: text(row[14]), // `v1_claimed` has none
    group: text(row[13]),
    pending: 0,
    stalls: 0,
    ahead: row[8] as boolean,
    dedup: parsed(row[12]) as Dedup | undefined,
    keep,
    extras,
    memo: undefined,
    progress: undefined,
    result: undefined,
    error: undefined,
    errors: NO_ERRORS,
    createdAt: row[9] as number,
    startedAt: now,
    finishedAt: undefined,
  }
}
