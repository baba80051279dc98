// stores/postgres/rows.ts: decodes job records from the arrays that the SQL functions return.
import type { AttemptError, Dedup, ErrorInfo, JobKind, JobState } from '../../job/job.js'
import type { Draft } from '../../job/record.js'
import type { SettingsCache } from '../job-settings.js'
import { recordColumns } from './functions/job-columns.js'
import type { RecordColumn } from './functions/job-columns.js'

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

/** The place of each column in a record. */
const at = Object.fromEntries(Object.keys(recordColumns).map((name, n) => [name, n])) as Record<RecordColumn, number>

/** The place of the number of broken edges in a row of `working_row`, after all columns. */
export const BROKEN_EDGES = Object.keys(recordColumns).length

/** Decodes a row of `record`; or one of `working_row`, which names its lane by its id alone. */
export function recordOf(row: RecordRow, settings: SettingsCache, lane?: Lane): Draft {
  const id = row[at.id] as string
  const { backoff, timeout, keep, extras } = settings.parse(row[at.settings] as string | null)
  const errors = row[at.errors] as readonly string[] | null
  return {
    id,
    kind: row[at.kind] as JobKind,
    queue: lane?.queue ?? (row[at.queue] as string),
    name: lane?.name ?? (row[at.name] as string),
    version: lane?.version ?? (row[at.version] as number),
    data: text(row[at.data]),
    state: row[at.state] as JobState,
    priority: row[at.priority] as number,
    ord: row[at.ord] as number,
    fence: row[at.fence] as number,
    attempt: row[at.attempt] as number,
    attempts: row[at.attempts] === null ? Infinity : (row[at.attempts] as number),
    backoff,
    timeout,
    worker: text(row[at.worker]),
    runAt: time(row[at.run_at]),
    expiresAt: time(row[at.expires_at]),
    leaseUntil: time(row[at.lease_until]),
    brokenAt: time(row[at.broken_at]),
    staleAt: time(row[at.stale_at]),
    stale: row[at.stale] as boolean,
    deleteAt: time(row[at.delete_at]),
    dueAt: time(row[at.due_at]),
    chainId: row[at.chain] === null ? id : (row[at.chain] as string),
    chainIndex: row[at.chain_index] as number,
    parentId: text(row[at.parent]),
    group: text(row[at.grp]),
    pending: row[at.pending] as number,
    stalls: row[at.stalls] as number,
    ahead: row[at.ahead] as boolean,
    dedup: parsed(row[at.dedup]) as Dedup | undefined,
    keep,
    extras,
    memo: text(row[at.memo]),
    progress: text(row[at.progress]),
    result: text(row[at.result]),
    error: parsed(row[at.error]) as ErrorInfo | undefined,
    errors: errors === null ? NO_ERRORS : errors.map((each) => JSON.parse(each) as AttemptError),
    history: text(row[at.history]),
    createdAt: row[at.created_at] as number,
    startedAt: time(row[at.started_at]),
    finishedAt: time(row[at.finished_at]),
  }
}

/** The sequence number of a record, in the order of insertion. */
export function seqOf(row: RecordRow): number {
  return row[at.seq] as number
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
    expiresAt: undefined,
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
    history: undefined,
    createdAt: row[9] as number,
    startedAt: now,
    finishedAt: undefined,
  }
}
