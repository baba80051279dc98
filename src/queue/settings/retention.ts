// queue/settings/retention.ts: how long a queue keeps finished jobs, and the callbacks for stale and removed ones.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import { finishedStates } from '../../job/job.js'
import type { FinishedState, JobRecord, Keep, KeepByState } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { invalid, mustBe } from '../../job/values/options.js'
import { DEFAULT_KEEP } from '../../job/retention.js'
import { outside } from '../../store/transaction-context.js'
import { cellKey, updateCell } from '../../store/settings.js'
import { readCell } from '../../job/limits.js'
import type { CellSession, RetentionCell } from '../../store/settings.js'
import type { Connection } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { JobOperations } from '../operations/job-operations.js'
import type { Emitter } from '../events/events.js'
import { Job } from '../job.js'

/** How long finished jobs are kept. */
export interface RetentionRule {
  /** Mark jobs stale this long after they finished; `false`: never. Default: never. */
  readonly staleAfter?: Duration | false
  /** Remove jobs this long after they finished; `false`: never. Default: 7 days, failed jobs 30 days. */
  readonly deleteAfter?: Duration | false
}

/** How long a queue keeps finished jobs: one rule for all, or rules by end state, which override it. */
export interface RetentionOptions<AJob extends Job = Job> extends RetentionRule {
  /** For completed jobs; `false`: keep for ever. Default: the rule for all. */
  readonly completed?: RetentionRule | false
  /** For jobs that failed for good; `false`: keep for ever. Default: the rule for all. */
  readonly failed?: RetentionRule | false
  /** For cancelled jobs; `false`: keep for ever. Default: the rule for all. */
  readonly cancelled?: RetentionRule | false
  /**
   * Called when a job has become stale, after that is durable. If a queue has callbacks, only processes that have them
   * apply its retention; `false`: the queue has none any more. Default: none.
   */
  readonly onStale?: ((job: AJob) => unknown) | false
  /**
   * Called with the last record of a job that retention removed, after that is durable. Otherwise as `onStale`.
   * Default: none.
   */
  readonly onDelete?: ((job: AJob) => unknown) | false
}

/** The callbacks of a queue. They neither throw nor reject. */
export interface Callbacks {
  readonly onStale: ((record: JobRecord) => Promise<void>) | undefined
  readonly onDelete: ((record: JobRecord) => Promise<void>) | undefined
}

/** The retention of a queue in the terms of the lifecycle. */
export interface QueueRetention {
  /** Stamped on jobs that have no retention of their own. */
  readonly keep: KeepByState
  /** Whether the queue has callbacks; undefined: not specified. */
  readonly calls: boolean | undefined
  readonly callbacks: Callbacks | undefined
}

/**
 * Parses `retention` of a queue. Undefined if it is not specified: the default is not stamped on jobs and costs
 * nothing.
 */
export function readRetention(
  options: RetentionOptions<never> | false | undefined,
  operations: JobOperations,
  emitter: Emitter,
): QueueRetention | undefined {
  if (options === undefined) return undefined
  if (options === false) return { keep: keepBy(() => ({ byQueue: true })), calls: undefined, callbacks: undefined }
  if (typeof options !== 'object' || options === null) {
    throw mustBe('retention', 'an object or false', options)
  }
  refuseUnknown(options, ['staleAfter', 'deleteAfter', ...finishedStates, 'onStale', 'onDelete'], 'retention')
  const { onStale, onDelete } = options
  for (const [name, call] of Object.entries({ onStale, onDelete })) {
    if (call === undefined || call === false || typeof call === 'function') continue
    throw mustBe(`retention.${name}`, 'a function or false', call)
  }
  const calls = typeof onStale === 'function' || typeof onDelete === 'function'
  const wrap = (name: string, call: RetentionOptions['onStale']): Callbacks['onStale'] =>
    typeof call === 'function'
      ? async (record) => {
          try {
            await outside(() => call(new Job(operations, record)))
          } catch (cause) {
            emitter.error(failedCallback(name, record, cause), record)
          }
        }
      : undefined
  return {
    keep: keepBy((state) => parseRule(options, state)),
    calls: calls ? true : onStale === false || onDelete === false ? false : undefined,
    callbacks: calls
      ? {
          onStale: wrap('onStale', onStale as RetentionOptions['onStale']),
          onDelete: wrap('onDelete', onDelete as RetentionOptions['onDelete']),
        }
      : undefined,
  }
}

function keepBy(rule: (state: FinishedState) => Keep): KeepByState {
  return { completed: rule('completed'), failed: rule('failed'), cancelled: rule('cancelled') }
}

function parseRule(options: RetentionOptions<never>, state: FinishedState): Keep {
  const own = options[state]
  if (own === false) return { byQueue: true }
  if (own !== undefined) {
    if (typeof own !== 'object' || own === null) {
      throw mustBe(`retention.${state}`, 'an object or false', own)
    }
    refuseUnknown(own, ['staleAfter', 'deleteAfter'], `retention.${state}`)
  }
  const staleAfter = own?.staleAfter ?? options.staleAfter ?? false
  const deleteAfter = own?.deleteAfter ?? options.deleteAfter ?? DEFAULT_KEEP[state].deleteAfter ?? false
  const where = (name: keyof RetentionRule): string =>
    own?.[name] === undefined ? `retention.${name}` : `retention.${state}.${name}`
  const keep: Keep = {
    ...(staleAfter !== false && { staleAfter: parseDuration(staleAfter, where('staleAfter')) }),
    ...(deleteAfter !== false && { deleteAfter: parseDuration(deleteAfter, where('deleteAfter')) }),
    byQueue: true,
  }
  if (keep.staleAfter !== undefined && keep.deleteAfter !== undefined && keep.staleAfter >= keep.deleteAfter) {
    const specified = own?.deleteAfter !== undefined || options.deleteAfter !== undefined
    throw invalid(
      `retention: ${state} jobs would be removed${specified ? '' : ' by default'} before they become stale; give a deleteAfter that is longer than staleAfter, or false.`,
    )
  }
  return keep
}

function failedCallback(name: string, { id }: JobRecord, cause: unknown): MillraceError {
  const message = describeError(cause).message
  return new MillraceError('CALLBACK_FAILED', `retention.${name} threw for job ${id}: ${message}`, {
    details: { id },
    cause,
  })
}

/**
 * Publishes to all processes how long finished jobs are kept if their producer did not specify it, and whether there
 * are callbacks. The last writer wins.
 */
export async function declareRetention(
  { store, main }: Connection,
  queue: string,
  { keep, calls }: QueueRetention,
): Promise<void> {
  const session: CellSession = { details: (query) => store.details(query), commit: (group) => main.commit(group) }
  await runSteps(
    updateCell(session, cellKey.retention(queue), (before) => {
      const current = readCell<RetentionCell>(before)
      const value = JSON.stringify({ callbacks: calls ?? current.callbacks === true, keep } satisfies RetentionCell)
      return value === before ? undefined : { value }
    }),
  )
}
