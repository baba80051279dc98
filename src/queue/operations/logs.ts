// queue/operations/logs.ts: which lines of a job's log.
import { MillraceError } from '../../job/errors.js'
import { LOGS_KEPT } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'

/**
 * Which page of a job's log. A page is cut at 8 MiB of lines as well, one line at least: one without lines is behind the last. Without
 * either option, all lines are read.
 */
export interface LogOptions {
  /** Lines behind this one: the `index` of the last line of the page before. Default: from the first that is kept. */
  readonly after?: number | undefined
  /** At most this many, up to 1000, which is how many a job keeps. Default 1000. */
  readonly limit?: number
}

/** A page of a log, as stores are asked for it. */
export function logsIn(options: LogOptions = {}): { readonly after: number; readonly limit: number } {
  refuseUnknown(options, ['after', 'limit'], 'job.logs')
  const { after = 0, limit = LOGS_KEPT } = options
  if (!Number.isSafeInteger(after) || after < 0) {
    throw new MillraceError('INVALID_OPTION', `job.logs: after must be the index of a line, not ${quote(after)}.`)
  }
  if (!Number.isInteger(limit) || limit < 1 || limit > LOGS_KEPT) {
    throw new MillraceError(
      'INVALID_OPTION',
      `job.logs: limit must be a whole number from 1 to ${LOGS_KEPT}, not ${quote(limit)}.`,
    )
  }
  return { after, limit }
}
