// queue/operations/edits.ts: what `update` changes of a job, in the terms of the lifecycle.
import { MillraceError } from '../../job/errors/errors.js'
import type { JobRecord } from '../../job/job.js'
import type { Edit } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/values/names.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { parseOptions, parseWhen } from '../add-options.js'
import type { UpdateOptions } from '../job.js'
import type { Payloads } from '../payloads.js'

/** Parses `UpdateOptions` into the terms of the lifecycle. */
export function* parseUpdate(changes: UpdateOptions, name: string, payloads: Payloads): Steps<Edit> {
  refuseUnknown(changes, ['data', 'priority', 'delay', 'runAt'], 'update')
  const run = parseWhen(changes, 'update') ?? (changes.delay === undefined ? undefined : { in: 0 })
  const { priority } = parseOptions({ priority: changes.priority }, 'update', '', '', undefined)
  const text = changes.data === undefined ? undefined : payloads.encode(name, changes.data)
  const data = text instanceof Promise ? yield* step(text) : text
  return {
    ...(data !== undefined && { data }),
    ...(changes.priority !== undefined && { priority }),
    ...(run !== undefined && { run }),
  }
}

/** The error for new data of a job that was added under another version. */
export function otherVersion({ id, name, version }: JobRecord): MillraceError {
  return new MillraceError(
    'OTHER_VERSION',
    `Job ${id} was added under version ${version} of '${name}', and data made here is of another: its data stays as it is.`,
    { details: { id, version } },
  )
}
