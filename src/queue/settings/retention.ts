// queue/settings/retention.ts: what a queue says about its finished jobs: how long they are kept, and who is told when they go.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import { describeError } from '../../job/failure.js'
import type { FinishedState, JobRecord, Keep, KeepByState } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { DEFAULT_KEEP } from '../../job/retention.js'
import { quote } from '../../job/quote.js'
import { outside } from '../../store/transaction-context.js'
import { cellKey, readCell } from '../../store/settings.js'
import type { RetentionCell } from '../../store/settings.js'
import type { Connection } from '../../store/connection.js'
import type { JobOperations } from '../operations/job-operations.js'
import type { Emitter } from '../events/events.js'
import { Job } from '../job.js'

/** How long finished jobs are kept. */
export interface RetentionRule {
  /** Marked stale this long after they finished; `false`: never. Default: never. */
  readonly staleAfter?: Duration | false
  /** Removed this long after they finished; `false`: never. Default: 7 days, of failed jobs 30 days. */
  readonly deleteAfter?: Duration | false
}

/** How long finished jobs of a queue are kept: all of them alike, or by the state they ended in, which goes before. */
export interface RetentionOptions<AJob extends Job = Job> extends RetentionRule {
  /** Of completed jobs; `false`: for ever. Default: as the rest says. */
  readonly completed?: RetentionRule | false
  /** Of jobs that failed for good; `false`: for ever. Default: as the rest says. */
  readonly failed?: RetentionRule | false
  /** Of cancelled jobs; `false`: for ever. Default: as the rest says. */
  readonly cancelled?: RetentionRule | false
  /**
   * Called when a job has been marked stale, after that is durable. Where a queue has callbacks, only processes that gave
   * them carry out its retention; `false`: it has none any more. Default: none.
   */
  readonly onStale?: ((job: AJob) => unknown) | false
  /** Called when a job has been removed by retention, after that is durable, with the job as it was. As `onStale` otherwise. Default: none. */
  readonly onDelete?: ((job: AJob) => unknown) | false
}

/** Whoever is to be called. Neither throws nor rejects. */
export interface Callbacks {
  readonly onStale: ((record: JobRecord) => Promise<void>) | undefined
  readonly onDelete: ((record: JobRecord) => Promise<void>) | undefined
}

/** What a queue says, in the rules' terms. */
export interface QueueRetention {
  /** Stamped on jobs that do not say for themselves. */
  readonly keep: KeepByState
  /** Whether somebody is to be called; undefined: nothing was said about that. */
  readonly calls: boolean | undefined
  readonly callbacks: Callbacks | undefined
}

const states = ['completed', 'failed', 'cancelled'] as const satisfies readonly FinishedState[]

/** Reads `retention` of a queue. Nothing said is nothing stamped: the default costs no job anything. */
export function readRetention(
  options: RetentionOptions<never> | false | undefined,
  desk: JobOperations,
  emitter: Emitter,
): QueueRetention | undefined {
  if (options === undefined) return undefined
  if (options === false) return { keep: keepBy(() => ({ byQueue: true })), calls: undefined, callbacks: undefined }
  if (typeof options !== 'object' || options === null) {
    throw new MillraceError('INVALID_OPTION', `retention must be an object or false, not ${quote(options)}.`)
  }
  refuseUnknown(options, ['staleAfter', 'deleteAfter', ...states, 'onStale', 'onDelete'], 'retention')
  const { onStale, onDelete } = options
  for (const [name, call] of Object.entries({ onStale, onDelete })) {
    if (call === undefined || call === false || typeof call === 'function') continue
    throw new MillraceError('INVALID_OPTION', `retention.${name} must be a function or false, not ${quote(call)}.`)
  }
  const calls = typeof onStale === 'function' || typeof onDelete === 'function'
  const wrap = (name: string, call: RetentionOptions['onStale']): Callbacks['onStale'] =>
    typeof call === 'function'
      ? async (record) => {
          try {
            await outside(() => call(new Job(desk, record)))
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
      throw new MillraceError('INVALID_OPTION', `retention.${state} must be an object or false, not ${quote(own)}.`)
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
    const given = own?.deleteAfter !== undefined || options.deleteAfter !== undefined
    throw new MillraceError(
      'INVALID_OPTION',
      `retention: ${state} jobs would be removed${given ? '' : ' by default'} before they become stale; give a deleteAfter that is longer than staleAfter, or false.`,
    )
  }
  return keep
}

function failedCallback(name: string, { id }: JobRecord, cause: unknown): MillraceError {
  const said = describeError(cause).message
  return new MillraceError('CALLBACK_FAILED', `retention.${name} threw for job ${id}: ${said}`, {
    details: { id },
    cause,
  })
}

/**
 * Says to all processes how long finished jobs of a queue are kept that were added by somebody who did not know, and
 * whether somebody is to be called. The last one to say so holds.
 */
export async function declareRetention(
  { store, main }: Connection,
  queue: string,
  { keep, calls }: QueueRetention,
): Promise<void> {
  const key = cellKey.retention(queue)
  let [cell] = (await store.details({ cells: [key] })).cells
  for (;;) {
    const standing = readCell<RetentionCell>(cell?.value)
    const value = JSON.stringify({ callbacks: calls ?? standing.callbacks === true, keep } satisfies RetentionCell)
    if (value === cell?.value) return
    const verdict = await main.commit([{ kind: 'put', key, value, version: cell?.version ?? 0, events: [] }])
    if (verdict.ok || verdict.why !== 'version') return
    cell = verdict.cell
  }
}
