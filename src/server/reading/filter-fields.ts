// server/reading/filter-fields.ts: the filter of jobs as query parameters, with the meaning of `queue.list`.
import type { ErrorCode } from '../../job/errors/errors.js'
import { jobStates } from '../../job/job.js'
import type { JobFilter } from '../../queue/operations/filter.js'
import { described, list, name, oneOf, optional, text } from '../shape.js'
import type { Read } from '../shape.js'

const moment = text({ max: 40, example: '2h' })

/** The parameters. Lists are separated by commas. */
export const filterFields = {
  state: optional(list(oneOf(...jobStates), { min: 1, max: jobStates.length })),
  name: optional(list(name('send'), { min: 1, max: 100 })),
  group: optional(name('tenant-7')),
  tags: optional(described(list(name('user:7'), { min: 1, max: 20 }), 'jobs with all of these tags')),
  anyTag: optional(described(list(name('user:7'), { min: 1, max: 20 }), 'jobs with at least one of these tags')),
  schedule: optional(name('nightly')),
  chain: optional(name('job-1')),
  parent: optional(name('job-1')),
  worker: optional(name('web-3')),
  idPrefix: optional(name('0198')),
  errorCode: optional(name('ETIMEDOUT')),
  fingerprint: optional(name('a1b2c3d4e5f60718')),
  createdFrom: optional(described(moment, 'ISO date, or so long ago')),
  createdTo: optional(described(moment, 'ISO date, or so long ago')),
  startedFrom: optional(described(moment, 'ISO date, or so long ago')),
  startedTo: optional(described(moment, 'ISO date, or so long ago')),
  finishedFrom: optional(described(moment, 'ISO date, or so long ago')),
  finishedTo: optional(described(moment, 'ISO date, or so long ago')),
} as const

/** The errors of a filter that is wrong. */
export const FILTER_ERRORS = [
  'INVALID_OPTION',
  'INVALID_NAME',
  'INVALID_ID',
  'INVALID_RANGE',
  'INVALID_DATE',
  'INVALID_DURATION',
  'INVALID_TAGS',
] as const satisfies readonly ErrorCode[]

/** The parameters, read. */
type FilterQuery = Read<typeof filterFields>

/** Milliseconds as a number; everything else is read by the filter. */
function momentOf(given: string): string | number {
  return /^\d{11,16}$/.test(given) ? Number(given) : given
}

function range(field: 'created' | 'started' | 'finished', from: string | undefined, to: string | undefined): object {
  if (from === undefined && to === undefined) return {}
  return {
    [field]: { ...(from !== undefined && { from: momentOf(from) }), ...(to !== undefined && { to: momentOf(to) }) },
  }
}

/** The filter that the parameters stand for. */
export function filterOf(query: FilterQuery): JobFilter {
  const { state, name: names, group, tags, anyTag, schedule, chain, parent, worker, idPrefix } = query
  const { errorCode: code, fingerprint } = query
  return {
    ...(state !== undefined && { state }),
    ...(names !== undefined && { name: names }),
    ...(group !== undefined && { group }),
    ...((tags !== undefined || anyTag !== undefined) && {
      tags: { ...(tags !== undefined && { all: tags }), ...(anyTag !== undefined && { any: anyTag }) },
    }),
    ...(schedule !== undefined && { schedule }),
    ...(chain !== undefined && { chain }),
    ...(parent !== undefined && { parent }),
    ...(worker !== undefined && { worker }),
    ...(idPrefix !== undefined && { idPrefix }),
    ...((code !== undefined || fingerprint !== undefined) && {
      error: { ...(code !== undefined && { code }), ...(fingerprint !== undefined && { fingerprint }) },
    }),
    ...range('created', query.createdFrom, query.createdTo),
    ...range('started', query.startedFrom, query.startedTo),
    ...range('finished', query.finishedFrom, query.finishedTo),
  }
}
