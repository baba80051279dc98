// worker/attempt/hold.ts: the options of `ctx.hold`: what a handler holds, and for how long.
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import { LONGEST_HOLD } from '../../job/holds.js'
import type { NewHold } from '../../job/holds.js'
import type { JobRecord } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { invalid, oneOf, positive } from '../../job/values/options.js'

/** Which jobs `ctx.hold`, and `hold` of a claimed job, hold. */
export interface HoldOptions {
  /** The jobs of this job's name, of its group, or of its whole queue. Default `name`. */
  readonly of?: 'name' | 'group' | 'queue'
}

/** Checks the arguments of `ctx.hold`, or of another call. */
export function parseHold(
  duration: Duration,
  options: HoldOptions = {},
  { id, name, group }: Pick<JobRecord, 'id' | 'name' | 'group'>,
  call = 'ctx.hold',
): NewHold {
  const length = positive(duration, call)
  if (length > LONGEST_HOLD) {
    throw new MillraceError('INVALID_DURATION', `${call}: a hold lasts a year at most. Use queue.pause for longer.`)
  }
  refuseUnknown(options, ['of'], call)
  const of = oneOf(options.of ?? 'name', ['name', 'group', 'queue'], `${call}: of`)
  if (of === 'queue') return { for: length }
  if (of === 'name') return { name, for: length }
  if (group === undefined) {
    throw invalid(`${call}: job ${id} has no group to hold. Hold its name or its queue.`, { id })
  }
  return { group, for: length }
}
