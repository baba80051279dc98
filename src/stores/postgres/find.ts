// stores/postgres/find.ts: encodes queries for `find`, and decodes its pages.
import type { ErrorInfo, JobRecord } from '../../job/job.js'
import { addedWithin, isFiltered, READ_BYTES } from '../../store/read-pages.js'
import type { FailureCount, Page, Query } from '../../store/store.js'
import type { SettingsCache } from '../job-settings.js'
import { recordOf } from './rows.js'
import type { RecordRow } from './rows.js'

/** The default number of jobs in a page. */
const PAGE_JOBS = 100

/** A text followed by this comes after every id that begins with the text: an id has at most 127 such characters. */
const AFTER_PREFIX = '\u{10FFFF}'.repeat(128)

/** Encodes a query for `find`. */
export function findText({ cursor, ...query }: Query): string {
  const { limit = PAGE_JOBS, bytes = READ_BYTES, idPrefix } = query
  return JSON.stringify({
    ...query,
    limit,
    bytes,
    filtered: isFiltered(query),
    added: addedWithin(query),
    ...(idPrefix !== undefined && { idEnd: idPrefix + AFTER_PREFIX }),
    ...(cursor !== undefined && { after: cursor.includes('.') ? cursor.split('.').map(Number) : [0, Number(cursor)] }),
  })
}

/** The answer of `find`: the position to go on after, if there may be more. */
export interface PageAnswer {
  readonly rows: readonly RecordRow[]
  readonly after: readonly [at: number, seq: number] | null
  readonly count: number | null
  readonly indexed?: boolean
}

/** Decodes a page. Its cursor is the number of the last row looked at; by the time of the end, after that time. */
export function pageOf(
  { rows, after, count, indexed }: PageAnswer,
  { order }: Query,
  settings: SettingsCache,
): Page<JobRecord> {
  return {
    items: rows.map((row) => recordOf(row, settings)),
    ...(after !== null && { cursor: order === 'finished' ? after.join('.') : String(after[1]) }),
    ...(count !== null && { count }),
    ...(indexed === true && { indexed }),
  }
}

/** An entry of the answer of `failures`. */
export type FailureAnswer = Omit<FailureCount, 'error'> & { readonly error: string }

/** Decodes the failing jobs by fingerprint. */
export function failuresOf(answers: readonly FailureAnswer[]): readonly FailureCount[] {
  return answers.map((answer) => ({ ...answer, error: JSON.parse(answer.error) as ErrorInfo }))
}
