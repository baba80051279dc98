// queue/operations/logs.ts: pages of a job's log.
import { LOGS_KEPT } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { mustBe, whole } from '../../job/options.js'

/**
 * Selects a page of a job's log. A page is also cut at 8 MiB of lines, with one line at least; a page without lines is behind
 * the last one. Without either option, all lines are read.
 */
export interface LogOptions {
  /** Lines after this one: the `index` of the last line of the page before. Default: from the first line kept. */
  readonly after?: number | undefined
  /** Maximum number of lines, up to 1000, which is how many a job keeps. Default 1000. */
  readonly limit?: number
}

/** Checks the options; returns the page for the store. */
export function logPage(options: LogOptions = {}): { readonly after: number; readonly limit: number } {
  refuseUnknown(options, ['after', 'limit'], 'job.logs')
  const { after = 0, limit = LOGS_KEPT } = options
  if (!Number.isSafeInteger(after) || after < 0) {
    throw mustBe('job.logs: after', 'the index of a line', after)
  }
  return { after, limit: whole(limit, 'job.logs: limit', 1, LOGS_KEPT) }
}
