// conformance/changes.ts: builds the changes that cases send, by the rules of the lifecycle.
import type { Change, CellEvent, Insert, NewEdge, Put, When } from '../job/change.js'
import type { Dedup, ErrorInfo, Extras, FailurePolicy, JobKind, JobRecord, KeepByState, Millis } from '../job/job.js'
import type { NewHold } from '../job/holds.js'
import { encodeJson } from '../job/values/json.js'
import type { JsonText } from '../job/values/json.js'
import * as lifecycle from '../job/lifecycle.js'
import { holding } from '../job/moves.js'
import type { Decision, Edit, NoteFields } from '../job/lifecycle.js'
import { must } from './check.js'

/** The default queue of cases. */
export const QUEUE = 'mill'

/** Options of a job in a case; every omitted option has the simplest value. */
export interface JobOptions {
  readonly id?: string
  readonly kind?: JobKind
  readonly queue?: string
  readonly version?: number
  readonly data?: unknown
  readonly priority?: number
  readonly lifo?: boolean
  readonly attempts?: number
  readonly run?: When
  readonly expires?: When
  /** Jobs it waits for: ids or records, with the policy below, or complete edges. */
  readonly after?: readonly (string | JobRecord | NewEdge)[]
  /** The policy of `after`. Default `fail`. */
  readonly policy?: FailurePolicy
  readonly parent?: string
  readonly group?: string
  readonly dedup?: Dedup
  readonly keep?: KeepByState
  readonly extras?: Extras
  readonly chain?: { readonly id: string; readonly index: number }
}

/** The insert of a job with this id and name. `options.id` takes precedence over `id`. */
export function insert(id: string, name: string, options: JobOptions = {}): Insert {
  const policy = options.policy ?? 'fail'
  return lifecycle.create(
    {
      id: options.id ?? id,
      kind: options.kind ?? 'job',
      queue: options.queue ?? QUEUE,
      name,
      version: options.version ?? 1,
      data: json(options.data),
      priority: options.priority ?? 0,
      lifo: options.lifo ?? false,
      attempts: options.attempts ?? 3,
      backoff: undefined,
      timeout: undefined,
      run: options.run,
      expires: options.expires,
      parentId: options.parent,
      group: options.group,
      dedup: options.dedup,
      keep: options.keep,
      extras: options.extras,
      edges: (options.after ?? []).map((on) => {
        if (typeof on === 'string') return { on, policy }
        return 'on' in on ? on : { on: on.id, policy }
      }),
    },
    options.chain,
  )
}

/** A value as JSON text. */
export function json(value: unknown): JsonText | undefined {
  return encodeJson(value, 'value')
}

/** The default error of failing handlers. */
export const BOOM: ErrorInfo = { name: 'Error', message: 'boom', code: 'E_BOOM' }

/** The handler returned. */
export function complete(
  job: JobRecord,
  end: { result?: unknown; also?: readonly Insert[]; continuation?: Insert } = {},
): Change[] {
  const { also = [], continuation } = end
  return lifecycle.settle(job, {
    kind: 'returned',
    result: json(end.result),
    also,
    ...(continuation && { continuation }),
  })
}

/** The handler threw an error that is not retried. */
export function fail(job: JobRecord, error: ErrorInfo = BOOM): Change[] {
  return lifecycle.settle(job, { kind: 'threw', error, retryable: false, retryIn: 0 })
}

/** The handler waits for jobs: ids with the policy `fail`, or complete edges. */
export function waits(job: JobRecord, on: readonly (string | NewEdge)[], also: readonly Insert[] = []): Change[] {
  const edges = on.map((each): NewEdge => (typeof each === 'string' ? { on: each, policy: 'fail' } : each))
  return lifecycle.settle(job, { kind: 'waits', for: edges, also })
}

/** The handler threw, and the job runs again later if it has attempts left. */
export function failAndRetry(job: JobRecord, retryIn: Millis, error: ErrorInfo = BOOM): Change[] {
  return lifecycle.settle(job, { kind: 'threw', error, retryable: true, retryIn })
}

/** The handler snoozed its job. */
export function snooze(job: JobRecord, time: Millis): Change[] {
  return lifecycle.settle(job, { kind: 'snoozed', for: time })
}

/** The worker gives the job back without a result. */
export function handBack(job: JobRecord): Change[] {
  return lifecycle.settle(job, { kind: 'interrupted' })
}

/** A caller completes the job, without its lease. */
export function completeByHand(job: JobRecord, result?: unknown): readonly Change[] {
  return allowed(lifecycle.complete(job, { kind: 'returned', result: json(result), also: [] }))
}

/** A caller cancels the job. */
export function cancel(job: JobRecord, reason?: string): readonly Change[] {
  return allowed(lifecycle.cancel(job, reason))
}

/** A caller retries the job. */
export function retry(job: JobRecord): readonly Change[] {
  return allowed(lifecycle.retry(job))
}

/** A caller promotes a delayed job, so that it runs now. */
export function promote(job: JobRecord): readonly Change[] {
  return allowed(lifecycle.promote(job))
}

/** A caller updates the job. */
export function update(job: JobRecord, edit: Edit): readonly Change[] {
  return allowed(lifecycle.update(job, edit))
}

/** A caller removes the job. */
export function remove(job: JobRecord): readonly Change[] {
  return allowed(lifecycle.remove(job))
}

/** A schedule makes a run and is due again later: the changes of its row, without the rules for its dates. */
export function runSchedule(row: JobRecord, run: Insert, again: Millis): readonly Change[] {
  const set = { run: { in: again }, result: `{"runs":${row.fence}}` }
  const { id, fence } = row
  return [
    { kind: 'move', id, fence, to: 'delayed', held: false, place: 'old', why: undefined, closesBroken: false, set },
    run,
  ]
}

/** The handler writes a note on its job. */
export function note(
  job: JobRecord,
  fields: Pick<NoteFields, 'logs' | 'memo' | 'steps'> & { readonly progress?: unknown },
): Change[] {
  const { progress: value, ...rest } = fields
  const progress = json(value)
  return [lifecycle.note(job, { ...(progress !== undefined && { progress }), ...rest })]
}

/** Writes a cell; without a value the cell is removed. */
export function put(key: string, value: unknown, version: number, events: readonly CellEvent[] = []): Put {
  return { kind: 'put', key, value: json(value), version, events }
}

/** Holds jobs of a queue. */
export function hold(added: NewHold, queue: string = QUEUE): Put {
  return holding(queue, added)
}

/** A change that every store refuses, to make its group fail. */
export function refusedChange(id = 'nobody'): Change {
  return { kind: 'note', id, fence: 1, held: false, progress: '1' }
}

/** The changes of a decision, which must not deny them. */
export function allowed(decision: Decision): readonly Change[] {
  must(!lifecycle.isDenied(decision), 'the suite wished for what the lifecycle denies: a mistake of the suite')
  return decision
}
