// queue/operations/bulk/spec.ts: what a bulk operation is asked to do, as its row stores it.
import type { BulkAction } from '../../../job/bulk.js'
import { MillraceError } from '../../../job/errors/errors.js'
import type { JobRecord, Millis } from '../../../job/job.js'
import type { Edit } from '../../../job/lifecycle.js'
import type { Query } from '../../../store/store.js'

/** New data, priority or time for jobs of one name. */
export interface NamedEdit {
  /** Of this name; absent: of any. */
  readonly name?: string
  /** The version that its data is for; absent: any. */
  readonly version?: number
  /** What changes. */
  readonly edit: Edit
}

/** The data of the row. */
export interface BulkSpec {
  readonly do: BulkAction
  /** The filter, as the caller gave it. */
  readonly where: object
  /** The jobs to visit, in the states in which the action can change them. */
  readonly query: Query
  /** How many jobs were counted when it began; absent where only a look at each would tell. */
  readonly matched?: number
  /** At most so many jobs in each stretch of time. */
  readonly rate?: { readonly max: number; readonly per: Millis }
  /** For `retry`: how many of the jobs become due in a second, the others delayed. */
  readonly spread?: number
  /** For `cancel` and `remove`: related jobs as well. */
  readonly cascade?: true
  /** For `update`. */
  readonly edits?: readonly NamedEdit[]
  /** Why. */
  readonly reason?: string
  /** Who asked. */
  readonly by?: string
}

/** The data of an operation's row. */
export function readSpec({ id, data }: Pick<JobRecord, 'id' | 'data'>): BulkSpec {
  try {
    const spec = JSON.parse(data ?? '') as BulkSpec
    if (typeof spec.query !== 'object') throw new TypeError('It has no query.')
    return spec
  } catch (cause) {
    throw new MillraceError(
      'INVALID_OPERATION',
      `The row ${id} holds no operation that this version can read. Cancel it: (await queue.operation('${id}')).cancel().`,
      { cause, details: { id } },
    )
  }
}
