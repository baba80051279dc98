// queue/operations/filter-terms.ts: the terms of a filter that have a form of their own: tags, ranges of time, and errors.
import { parseDuration } from '../../job/values/duration.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { Time } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { invalid, isObject, mustBe } from '../../job/values/options.js'
import { checkTag, MAX_TAGS } from '../../job/values/tags.js'
import type { Query, TimeRange } from '../../store/store.js'

/** Selects jobs by tags: one tag, a list of which a job must have all, or `all` and `any` by name. */
export type TagFilter =
  | string
  | readonly string[]
  | {
      /** Jobs that have every one of these tags. Default: no condition. */
      readonly all?: readonly string[]
      /** Jobs that have at least one of these tags. Default: no condition. */
      readonly any?: readonly string[]
    }

/** A moment: a date, milliseconds since 1970, an ISO date as text, or how long ago: `'2h'`. */
export type Moment = Date | number | string

/** A range of time, open at the end that is left out. */
export interface MomentRange {
  /** At this time or later. Default: no bound. */
  readonly from?: Moment
  /** Before this time. Default: no bound. */
  readonly to?: Moment
}

/** Selects jobs by their last error. */
export interface ErrorFilter {
  /** The error's code. Default: any. */
  readonly code?: string
  /** The fingerprint of the error, as `queue.errors()` lists it. Default: any. */
  readonly fingerprint?: string
}

/** The tags of a query. */
export function tagTerms(tags: TagFilter, field: string): Pick<Query, 'tags' | 'anyTag'> {
  if (typeof tags === 'string') return { tags: [checkTag(tags, field)] }
  if (Array.isArray(tags)) return { tags: tagList(tags, field) }
  if (!isObject(tags)) throw mustBe(field, "a tag, a list of tags, or { all: ['a'], any: ['b'] }", tags)
  refuseUnknown(tags, ['all', 'any'], field)
  const { all, any } = tags as { readonly all?: readonly string[]; readonly any?: readonly string[] }
  if (all === undefined && any === undefined) throw invalid(`${field} must have \`all\`, \`any\`, or both.`)
  return {
    ...(all !== undefined && { tags: tagList(all, `${field}.all`) }),
    ...(any !== undefined && { anyTag: tagList(any, `${field}.any`) }),
  }
}

function tagList(tags: unknown, field: string): readonly string[] {
  if (!Array.isArray(tags)) throw mustBe(field, 'a list of tags', tags)
  if (tags.length === 0) throw emptyList(field)
  const distinct = [...new Set(tags.map((tag) => checkTag(tag, field)))]
  if (distinct.length > MAX_TAGS) throw invalid(`${field} has ${distinct.length} tags, and ${MAX_TAGS} is the most.`)
  return distinct
}

/** The error for a list that no job can match. */
export function emptyList(field: string): MillraceError {
  return invalid(`${field} is an empty list, which no job matches. Leave it out to match any.`)
}

/** A range of a query. */
export function rangeTerm(range: MomentRange, field: string, now: Time): TimeRange {
  if (!isObject(range)) throw mustBe(field, "a range such as { from: '2h' }", range)
  refuseUnknown(range, ['from', 'to'], field)
  const { from, to } = range
  if (from === undefined && to === undefined) throw invalid(`${field} must have \`from\`, \`to\`, or both.`)
  const term = {
    ...(from !== undefined && { from: timeOf(from, `${field}.from`, now) }),
    ...(to !== undefined && { to: timeOf(to, `${field}.to`, now) }),
  }
  if (term.from !== undefined && term.to !== undefined && term.from >= term.to) {
    throw new MillraceError(
      'INVALID_RANGE',
      `${field} must begin before it ends, but is from ${quote(from)} to ${quote(to)}. A duration is so long ago: { from: '2h', to: '1h' }.`,
    )
  }
  return term
}

/** Text that begins as an ISO date does. */
const isoDate = /^[+-]?\d{4,6}-\d\d/

function timeOf(moment: Moment, field: string, now: Time): Time {
  if (typeof moment === 'string' && !isoDate.test(moment)) return now - parseDuration(moment, field)
  const at = typeof moment === 'string' ? Date.parse(moment) : moment instanceof Date ? moment.getTime() : moment
  if (typeof at === 'number' && Math.abs(at) <= 8.64e15) return Math.ceil(at)
  throw new MillraceError(
    'INVALID_DATE',
    `${field} must be a valid Date, milliseconds since 1970, an ISO date, or how long ago as '2h', not ${quote(moment)}.`,
  )
}

/** The error of a query. */
export function errorTerms(error: ErrorFilter, field: string): Pick<Query, 'errorCode' | 'fingerprint'> {
  if (!isObject(error)) throw mustBe(field, "{ code: 'ETIMEDOUT' } or { fingerprint: '…' }", error)
  refuseUnknown(error, ['code', 'fingerprint'], field)
  const { code, fingerprint } = error
  if (code === undefined && fingerprint === undefined) {
    throw invalid(`${field} must have a code, a fingerprint, or both.`)
  }
  return {
    ...(code !== undefined && { errorCode: checkName(code, 'error code') }),
    ...(fingerprint !== undefined && { fingerprint: checkName(fingerprint, 'fingerprint') }),
  }
}
