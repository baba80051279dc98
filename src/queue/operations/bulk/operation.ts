// queue/operations/bulk/operation.ts: a bulk operation as its callers see it: what it was asked to do, and how far it is.
import { bulkQueue, cancelBulk, isBulk, pauseBulk, readBulkProgress, resumeBulk } from '../../../job/bulk.js'
import type { BulkAction, BulkRefusal } from '../../../job/bulk.js'
import { MillraceError, isMillraceError } from '../../../job/errors/errors.js'
import { isFinished } from '../../../job/job.js'
import type { JobRecord, Time } from '../../../job/job.js'
import { isDenied } from '../../../job/lifecycle.js'
import type { Decision } from '../../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../../job/values/names.js'
import { step, runSteps } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Session } from '../../../store/session.js'
import type { ResultOptions } from '../../job.js'
import { decideAndCommit } from '../decide.js'
import { pageQuery } from '../filter.js'
import type { JobFilter, PageOptions } from '../filter.js'
import type { JobOperations } from '../job-operations.js'
import { readSpec } from './spec.js'

/** Whether an operation works, is paused, or how it has ended. */
export type OperationState = 'running' | 'paused' | 'completed' | 'cancelled'

/** A page of operations; no `cursor` on the last. */
export interface OperationPage {
  /** The newest first. */
  readonly operations: readonly Operation[]
  /** Pass it for the next page. */
  readonly cursor?: string
}

/** A bulk operation as last read. `refresh()` reads it again. Operations that have ended are kept for 30 days. */
export class Operation {
  /** Its id. */
  readonly id: string
  /** The queue whose jobs it changes. */
  readonly queue: string
  readonly #actions: JobOperations
  #row: JobRecord

  /** @internal */
  constructor(actions: JobOperations, queue: string, row: JobRecord) {
    this.id = row.id
    this.queue = queue
    this.#actions = actions
    this.#row = row
  }

  /** What it does with the jobs that match. */
  get do(): BulkAction {
    return readSpec(this.#row).do
  }

  /** The filter as it was given; `{}` for all jobs. */
  get where(): JobFilter {
    return readSpec(this.#row).where
  }

  /** Why it was asked for, if that was given. */
  get reason(): string | undefined {
    return readSpec(this.#row).reason
  }

  /** Who asked for it, if that was given. */
  get by(): string | undefined {
    return readSpec(this.#row).by
  }

  /** Whether it works, is paused, or how it has ended. */
  get state(): OperationState {
    const { state } = this.#row
    if (isFinished(state)) return state === 'completed' ? 'completed' : 'cancelled'
    return readBulkProgress(this.#row).paused === true ? 'paused' : 'running'
  }

  /** How many jobs matched when it began; undefined where the filter has more than states and names. */
  get matched(): number | undefined {
    return readSpec(this.#row).matched
  }

  /** How many jobs it has changed. */
  get done(): number {
    return readBulkProgress(this.#row).done
  }

  /** How many jobs it found to be as asked for already. */
  get unchanged(): number {
    return readBulkProgress(this.#row).unchanged
  }

  /** How many jobs it could not change, by the code of the error that the call for one such job throws. */
  get refused(): Readonly<Record<string, number>> {
    return readBulkProgress(this.#row).refused
  }

  /** The first ten of those jobs, and why. */
  get refusals(): readonly BulkRefusal[] {
    return readBulkProgress(this.#row).samples
  }

  /** When it was asked for, by the store's clock. */
  get createdAt(): Time {
    return this.#row.createdAt
  }

  /** When it ended. */
  get finishedAt(): Time | undefined {
    return this.#row.finishedAt
  }

  /** Reads it again. */
  async refresh(): Promise<this> {
    this.#row = (await this.#read()) ?? this.#gone()
    return this
  }

  /** Stops it until `resume()`; false if it is paused. What it has done stays done. */
  pause(): Promise<boolean> {
    return this.#change(pauseBulk)
  }

  /** Lets it go on after `pause()`; false if it is not paused. */
  resume(): Promise<boolean> {
    return this.#change(resumeBulk)
  }

  /** Ends it for good; false if it has ended. What it has done stays done. */
  cancel(): Promise<boolean> {
    return this.#change(cancelBulk)
  }

  /**
   * Resolves when it has ended, completed or cancelled. It works as long as the queue has a worker. With a `timeout`,
   * rejects with `RESULT_TIMEOUT` after that.
   */
  async result(options: ResultOptions = {}): Promise<this> {
    try {
      await this.#actions.result(this.id, options)
    } catch (error) {
      if (isMillraceError(error, 'RESULT_TIMEOUT')) throw late(this.id)
      if (!isMillraceError(error, 'JOB_CANCELLED')) throw error
    }
    return this.refresh()
  }

  /** What it was asked to do, and how far it is, as plain data. */
  toJSON(): Record<string, unknown> {
    const { id, queue, state, where, reason, by, matched, done, unchanged, refused, refusals, createdAt } = this
    const { finishedAt } = this
    return {
      id,
      queue,
      do: this.do,
      state,
      where,
      reason,
      by,
      matched,
      done,
      unchanged,
      refused,
      refusals,
      createdAt,
      finishedAt,
    }
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): object {
    return this.toJSON()
  }

  async #read(): Promise<JobRecord | undefined> {
    return this.#actions.session().get(this.id)
  }

  async #change(decide: (row: JobRecord) => Decision): Promise<boolean> {
    const session = this.#actions.session()
    const row = (await this.#read()) ?? this.#gone()
    const decided = await runSteps(
      decideAndCommit(session, row, (each) => {
        const decision = decide(each)
        if (!isDenied(decision)) return decision
        throw new MillraceError('INVALID_STATE', `Operation ${this.id} ${decision.denied}.`, {
          details: { id: this.id, state: each.state },
        })
      }),
    )
    if (decided === undefined) this.#gone()
    await this.refresh()
    return decided.done
  }

  #gone(): never {
    throw new MillraceError(
      'OPERATION_NOT_FOUND',
      `There is no operation ${this.id}: it was removed 30 days after its end.`,
      {
        details: { id: this.id },
      },
    )
  }
}

function late(id: string): MillraceError {
  return new MillraceError(
    'RESULT_TIMEOUT',
    `Operation ${id} did not end within the timeout; it goes on as long as its queue has a worker.`,
    { details: { id } },
  )
}

/** Where operations are read. */
interface ReadScope {
  readonly queue: string
  readonly session: Session
}

/** The operation of a queue with this id. */
export function* operationOf(
  { queue, session }: ReadScope,
  actions: JobOperations,
  id: string,
): Steps<Operation | undefined> {
  const row = yield* step(session.get(checkName(id, 'operation id')))
  return row !== undefined && isBulk(row) && row.queue === bulkQueue(queue)
    ? new Operation(actions, queue, row)
    : undefined
}

/** A page of the operations of a queue, the newest first. */
export function* operationsOf(
  { queue, session }: ReadScope,
  actions: JobOperations,
  options: PageOptions,
): Steps<OperationPage> {
  refuseUnknown(options, ['limit', 'cursor'], 'queue.operations')
  const page = pageQuery(options, 'queue.operations')
  const found = yield* step(session.find({ queue: bulkQueue(queue), kind: 'job', ...page, order: 'newest' }))
  const operations = found.items.map((row) => new Operation(actions, queue, row))
  return found.cursor === undefined ? { operations } : { operations, cursor: found.cursor }
}
