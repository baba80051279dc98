// stores/postgres/rows.ts: decodes job records from the arrays that the SQL functions return.
import type { AttemptError, Dedup, ErrorInfo, JobKind, JobState } from '../../job/job.js'
import type { Draft } from '../../job/record.js'
import type { SettingsCache } from '../job-settings.js'

/** The queue, name and version that jobs share. The id of a lane never changes. */
export interface Lane {
  readonly id: number
  readonly queue: string
  readonly name: string
  readonly version: number
}

/** Separates values in a text; no id and no JSON contains it. */
export const UNIT = '\u001F'
/** Separates rows in a text. */
export const ROW = '\u001E'
/** Separates an answer from its rows. */
export const GROUP = '\u001D'
/** Separates the events of different commits. */
export const FILE = '\u001C'

type Column = string | number | boolean | null | readonly string[]

/** The columns of a record, in the order of `record`. */
export type RecordRow = readonly Column[]

const NO_ERRORS: readonly AttemptError[] = Object.freeze([])

const time = (value: Column | undefined): number | undefined => (value === null ? undefined : (value as number))
const text = (value: Column | undefined): string | undefined => (value === null ? undefined : (value as string))
const parsed = (value: Column | undefined): unknown => (value === null ? undefined : JSON.parse(value as string))

/** Decodes a row of `record`. */
export function recordOf(row: RecordRow, settings: SettingsCache): Draft {
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

/** The sequence number of a record, in the order of insertion. */
export function seqOf(row: RecordRow): number {
  return row[36] as number
}

/** The head of the answer of `claim`, before the rows of its jobs. */
interface Claims {
  /** How many of the jobs are for free slots; the rest are prefetched. */
  readonly first: number
  /** The lanes that were claimed from, and when leases expire in each. */
  readonly lanes: readonly number[]
  readonly until: readonly number[]
  /** The full records of jobs that had changed before they were claimed. */
  readonly whole: readonly RecordRow[]
}

/** Splits an answer into its JSON and the rows of jobs that follow it, if any. */
export function splitAnswer(text: string): readonly [json: string, rows?: string] {
  const end = text.lastIndexOf(GROUP)
  return end < 0 ? [text] : [text.slice(0, end), text.slice(end + 1)]
}

/**
 * The jobs that `claim` returns: rows as `claimed_record` writes them for jobs that had not changed before the claim, full
 * records for the others. Each row of the text has lane, id, priority, order, fence, attempt, attempts, creation time, data,
 * settings, dedup; the group, if the job has one or a parent; and the parent, if it has one.
 */
export function claimsOf({ first, lanes, until, whole }: Claims, rows: string): readonly RecordRow[] {
  if (rows === '') return []
  const records = whole.length === 0 ? undefined : new Map(whole.map((row) => [row[0] as string, row]))
  return rows.split(ROW).map((text, at) => {
    const [lane, id, priority, ord, fence, attempt, attempts, created, data, settings, dedup, ...rest] =
      text.split(UNIT)
    const [group, parent] = rest
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

/** Decodes a row of `claimed_record`, of a job that had not changed before it was claimed. */
export function claimedOf(row: RecordRow, lane: Lane, worker: string, now: number, settings: SettingsCache): Draft {
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
    parentId: text(row[14]),
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
