// queue/add-options.ts: the options of `add`, checked and parsed into the terms of the lifecycle.
import type { NewEdge, When } from '../job/change.js'
import { parseDuration } from '../job/values/duration.js'
import type { Duration } from '../job/values/duration.js'
import { MillraceError, quote } from '../job/errors/errors.js'
import { DEFAULT_ATTEMPTS, failurePolicies } from '../job/job.js'
import type { Dedup, FailurePolicy, FinishedState, Keep, KeepByState, Millis, Time } from '../job/job.js'
import { checkName, checkOwnId, refuseUnknown } from '../job/values/names.js'
import { flag, invalid, isObject, mustBe, oneOf, positive, whole } from '../job/values/options.js'
import { checkTags } from '../job/values/tags.js'
import type { ScheduleTimes } from '../job/schedules/schedule-times.js'
import { parseBackoff } from '../job/retry.js'
import type { Backoff, BackoffOptions } from '../job/retry.js'

/** How many finished jobs of a name are kept, and for how long. */
export interface KeepLastOptions {
  /** Remove the job this long after its end: a duration with its unit, as `'7d'`. Default: however old it is. */
  readonly age?: string
  /**
   * Keep the newest so many jobs of the same queue and name that ended in this way, in the order in which they were
   * added, and remove the job when there are more. Default: however many there are.
   */
  readonly count?: number
}

/** Defaults for all jobs of a queue, or, in `job()`, for all jobs of one name. */
export interface JobDefaults {
  /** Maximum number of attempts, the first included; `Infinity` for no limit. Default 3. */
  readonly attempts?: number
  /** The wait before the next attempt. Default: exponential from 1 s, full jitter, at most 5 minutes. */
  readonly backoff?: BackoffOptions | Duration
  /** How long a handler may run before its signal aborts. Default: no limit. */
  readonly timeout?: Duration
  /**
   * Cancel the job with the error `JOB_EXPIRED` if it was not started this long after the add. Default: wait as long as
   * it takes.
   */
  readonly expires?: Duration
  /** Jobs of a lower priority number run first. Default 0. */
  readonly priority?: number
  /** Run the newest job first within its priority, before all jobs that are not `lifo`. Default false. */
  readonly lifo?: boolean
  /**
   * Remove the job when it completes: at once (`true`), after this time, or by `{ age, count }`. Default: the queue's
   * `retention`.
   */
  readonly removeOnComplete?: boolean | string | KeepLastOptions
  /**
   * Remove the job when it fails for good: at once (`true`), after this time, or by `{ age, count }`. Default: the
   * queue's `retention`.
   */
  readonly removeOnFail?: boolean | string | KeepLastOptions
}

/** The names of the options in `JobDefaults`. */
export const defaultOptionNames = [
  'attempts',
  'backoff',
  'timeout',
  'expires',
  'priority',
  'lifo',
  'removeOnComplete',
  'removeOnFail',
] as const satisfies readonly (keyof JobDefaults)[]

/** Deduplication: at most one job per key. */
export interface DedupOptions {
  /** The key that must be unique. */
  readonly key: string
  /**
   * Where the key is unique: in the `queue` (default), for one job `name` in the queue, or in the whole store
   * (`global`).
   */
  readonly scope?: 'queue' | 'name' | 'global'
  /**
   * Hold the key for this time after the add, even if the job ends or is removed earlier. Default: until the job
   * finishes.
   */
  readonly window?: Duration
  /**
   * What a second add does: `keep` (default) returns the existing job, `replace` gives the existing job the new data,
   * priority and delay if it has not started, `reject` throws `DUPLICATE_JOB`.
   */
  readonly mode?: 'keep' | 'replace' | 'reject'
}

/** A job to wait for, by handle or id, and what its failure means for the dependent job. */
export type Dependency =
  | string
  | {
      /** The job whose chain must complete. */
      readonly id: string
    }
  | {
      /** The job whose chain must complete: a handle or an id. */
      readonly job: string | { readonly id: string }
      /** What its failure means. Default: `onChildFailure`, or else `fail`. */
      readonly onFailure?: FailurePolicy
    }

/** When a job repeats, and the key of its schedule. */
export type RepeatOptions = ScheduleTimes & {
  /** The key for `schedules` and `unschedule`. Default: the given `id`, or else the name. */
  readonly key?: string
}

/** Webhook options of one job. */
export interface JobWebhookOptions {
  /** The URL to call. Default: the queue's. */
  readonly url?: string
  /** The end states that are delivered. Default: those of the queue, or all three. */
  readonly on?: readonly FinishedState[]
}

/** Options of `add`. */
export interface AddOptions extends Omit<JobDefaults, 'expires'> {
  /**
   * The job's id, 1 to 255 printable characters; a second add with the same id returns the existing job. Default: a new
   * UUIDv7.
   */
  readonly id?: string
  /** Run after this delay. Default: none. */
  readonly delay?: Duration
  /** Run at this time: a date or milliseconds since 1970. Default: none. */
  readonly runAt?: Date | number
  /**
   * Cancel the job with the error `JOB_EXPIRED` if it was not started this long after the add, or by this date. Default:
   * wait as long as it takes.
   */
  readonly expires?: Duration | Date
  /** Deduplication: at most one job per key. Default: none. */
  readonly dedup?: DedupOptions
  /**
   * The job's group, such as a tenant, 1 to 255 printable characters. Groups take turns, so that no group waits for all
   * jobs of another, and `queue.limit` can limit each group. Not with `lifo`. Default: none, jobs run in the order
   * added.
   */
  readonly group?: string
  /**
   * Texts to find the job by, such as `['user:7', 'import']`: at most 10 different ones of at most 64 characters. Default:
   * none.
   */
  readonly tags?: readonly string[]
  /** Jobs whose chains must complete first. Default: none. */
  readonly after?: Dependency | readonly Dependency[]
  /** What the failure of a dependency means, where `after` does not specify it. Default `fail`. */
  readonly onChildFailure?: FailurePolicy
  /**
   * The webhook for the end of this job: a URL, an object that also selects end states, or `false` for none. Workers of
   * a queue with `webhooks()` deliver it. Default: the queue's.
   */
  readonly webhook?: string | JobWebhookOptions | false
  /** Repeat the job on a schedule, as `queue.schedule` does, from its next time on. Default: run once. */
  readonly repeat?: RepeatOptions
}

const addOptionNames = [
  ...defaultOptionNames,
  'id',
  'delay',
  'runAt',
  'dedup',
  'group',
  'tags',
  'after',
  'onChildFailure',
  'webhook',
  'repeat',
] as const satisfies readonly (keyof AddOptions)[]

/** `AddOptions` in the terms of the lifecycle. */
export interface ParsedOptions {
  readonly id: string | undefined
  readonly priority: number
  readonly lifo: boolean
  readonly attempts: number
  readonly backoff: Backoff | undefined
  readonly timeout: Millis | undefined
  readonly run: When | undefined
  readonly expires: When | undefined
  readonly group: string | undefined
  readonly tags: readonly string[] | undefined
  readonly dedup: Dedup | undefined
  readonly mode: 'keep' | 'replace' | 'reject'
  readonly keep: KeepByState | undefined
  readonly edges: readonly NewEdge[]
}

const NO_EDGES: readonly NewEdge[] = []

/** Throws if a default is invalid for every job. */
export function checkDefaults(defaults: JobDefaults, where: string): void {
  parseOptions({ ...pick(defaults) }, where, '', '', undefined)
  if ((defaults.expires as unknown) instanceof Date) {
    throw invalid(`${where}: expires must be a duration, which counts from each add; only a single add takes a date.`)
  }
}

function pick(defaults: JobDefaults): JobDefaults {
  return Object.fromEntries(defaultOptionNames.map((name) => [name, defaults[name]]))
}

/** Checks and parses the options of a job. */
export function parseOptions(
  options: AddOptions,
  where: string,
  queue: string,
  name: string,
  retention: KeepByState | undefined,
): ParsedOptions {
  if (!isObject(options)) throw invalid(`${where}: options must be an object.`)
  refuseUnknown(options, addOptionNames, where)
  const { attempts = DEFAULT_ATTEMPTS, priority = 0, timeout, backoff } = options
  if (attempts !== Infinity && !(Number.isSafeInteger(attempts) && attempts >= 1)) {
    throw new MillraceError(
      'INVALID_ATTEMPTS',
      `${where}: attempts must be a whole number from 1 up, or Infinity, not ${quote(attempts)}.`,
    )
  }
  if (!Number.isInteger(priority) || Math.abs(priority) > 2 ** 31 - 1) {
    throw new MillraceError(
      'INVALID_PRIORITY',
      `${where}: priority must be a whole number between -2147483647 and 2147483647, not ${quote(priority)}.`,
    )
  }
  if (options.onChildFailure !== undefined) oneOf(options.onChildFailure, failurePolicies, `${where}: onChildFailure`)
  const edges = options.after === undefined ? NO_EDGES : parseAfter(options, where)
  return {
    id: options.id === undefined ? undefined : checkOwnId(options.id, 'job id'),
    priority: priority === 0 ? 0 : priority, // never -0
    lifo: flag(options.lifo, `${where}: lifo`),
    attempts,
    backoff: backoff === undefined ? undefined : parseBackoff(backoff, `${where}: backoff`),
    timeout: timeout === undefined ? undefined : positive(timeout, `${where}: timeout`),
    run: parseWhen(options, where),
    expires: options.expires === undefined ? undefined : parseExpires(options.expires, `${where}: expires`),
    group: parseGroup(options, where),
    tags: options.tags === undefined ? undefined : checkTags(options.tags, `${where}: tags`),
    dedup: options.dedup === undefined ? undefined : parseDedup(options.dedup, where, queue, name),
    mode: options.dedup?.mode ?? 'keep',
    keep: parseKeep(options, where, retention),
    edges,
  }
}

/** When a job runs, from `delay` or `runAt`. */
export function parseWhen(options: { delay?: Duration; runAt?: Date | number }, where: string): When | undefined {
  const { delay, runAt } = options
  if (delay !== undefined && runAt !== undefined) throw invalid(`${where}: give either delay or runAt, not both.`)
  if (delay !== undefined) {
    const wait = parseDuration(delay, `${where}: delay`)
    return wait === 0 ? undefined : { in: wait }
  }
  if (runAt === undefined) return undefined
  const at = runAt instanceof Date ? runAt.getTime() : runAt
  if (typeof at !== 'number' || !(Math.abs(at) <= 8.64e15)) {
    throw new MillraceError(
      'INVALID_DATE',
      `${where}: runAt must be a valid Date or milliseconds since 1970, not ${quote(runAt)}.`,
    )
  }
  return { at: Math.ceil(at) }
}

/** Numbers from here on are dates and no durations: milliseconds since 1970, from 1973 on. */
const FIRST_DATE = 1e11

/** When a job expires. Whether a date is still ahead is checked with each add: see `checkExpires`. */
export function parseExpires(expires: Duration | Date, field: string): When {
  if (!(expires instanceof Date)) {
    if (typeof expires === 'number' && expires >= FIRST_DATE) {
      throw invalid(`${field}: a number is a duration in milliseconds, and ${expires} looks like a date; give a Date.`)
    }
    return { in: positive(expires, field) }
  }
  if (Number.isNaN(expires.getTime())) throw new MillraceError('INVALID_DATE', `${field} must be a valid Date.`)
  return { at: expires.getTime() }
}

/** Throws for a job that expires in the past, or before it may start. */
export function checkExpires(
  { expires, run }: { readonly expires?: When | undefined; readonly run: When | undefined },
  now: Time,
  where: string,
): void {
  if (expires === undefined) return
  const at = 'at' in expires ? expires.at : now + expires.in
  if (at <= now) {
    const message = `${where}: expires is in the past (${new Date(at).toISOString()}), so the job would never run. Give a later date, or a duration.`
    throw new MillraceError('INVALID_DATE', message)
  }
  if (run === undefined) return
  const starts = 'at' in run ? run.at : now + run.in
  if (at > starts) return
  throw invalid(
    `${where}: the job would expire (${new Date(at).toISOString()}) before it may start (${new Date(starts).toISOString()}). Give a later expires, or an earlier delay or runAt.`,
  )
}

function parseGroup({ group, lifo }: AddOptions, where: string): string | undefined {
  if (group === undefined) return undefined
  if (lifo === true) throw invalid(`${where}: give either group or lifo, not both: groups go by turns.`)
  return checkName(group, 'group')
}

function parseDedup(dedup: DedupOptions, where: string, queue: string, name: string): Dedup {
  if (typeof dedup !== 'object' || dedup === null) {
    throw invalid(`${where}: dedup must be an object like { key: 'order-7' }.`)
  }
  refuseUnknown(dedup, ['key', 'scope', 'window', 'mode'], `${where}: dedup`)
  oneOf(dedup.mode ?? 'keep', ['keep', 'replace', 'reject'], `${where}: dedup.mode`)
  const key = dedupKey(queue, name, checkName(dedup.key, 'dedup key'), dedup.scope ?? 'queue', where)
  return dedup.window === undefined ? { key } : { key, window: positive(dedup.window, `${where}: dedup.window`) }
}

/** A dedup key with its scope, as text that is unambiguous between scopes. */
function dedupKey(queue: string, name: string, key: string, scope: string, where: string): string {
  switch (scope) {
    case 'queue':
      return JSON.stringify([queue, key])
    case 'name':
      return JSON.stringify([queue, name, key])
    case 'global':
      return JSON.stringify([key])
    default:
      return oneOf(scope, ['queue', 'name', 'global'], `${where}: dedup.scope`)
  }
}

/** The edges for `after` or `ctx.waitFor`. */
export function parseAfter(options: Pick<AddOptions, 'after' | 'onChildFailure'>, where: string): readonly NewEdge[] {
  const fallback = oneOf(options.onChildFailure ?? failurePolicies[0], failurePolicies, `${where}: onChildFailure`)
  const after = Array.isArray(options.after) ? (options.after as readonly Dependency[]) : [options.after as Dependency]
  return after.map((dependency) => {
    if (typeof dependency === 'string') return { on: checkName(dependency, 'job id'), policy: fallback }
    if (typeof dependency !== 'object' || dependency === null) {
      throw invalid(`${where}: after takes jobs, ids or { job, onFailure }.`)
    }
    if (typeof (dependency as { then?: unknown }).then === 'function') {
      throw invalid(`${where}: after was given a promise; await queue.add(…) first.`)
    }
    if ('onFailure' in dependency && !('job' in dependency)) {
      throw invalid(`${where}: after with onFailure is written { job, onFailure }.`)
    }
    if (!('job' in dependency)) return { on: checkName(dependency.id, 'job id'), policy: fallback }
    refuseUnknown(dependency, ['job', 'onFailure'], `${where}: after`)
    const { job, onFailure = fallback } = dependency
    oneOf(onFailure, failurePolicies, `${where}: after.onFailure`)
    return { on: checkName(typeof job === 'string' ? job : job?.id, 'job id'), policy: onFailure }
  })
}

function parseKeep(options: AddOptions, where: string, retention: KeepByState | undefined): KeepByState | undefined {
  const completed = parseRemoval(options.removeOnComplete, `${where}: removeOnComplete`)
  const failed = parseRemoval(options.removeOnFail, `${where}: removeOnFail`)
  if (completed === undefined && failed === undefined && retention === undefined) return undefined
  return {
    completed: overrideRetention(retention?.completed, completed),
    failed: overrideRetention(retention?.failed, failed),
    cancelled: retention?.cancelled,
  }
}

/** How long a job is kept by its own options. */
type Removal = Pick<Keep, 'deleteAfter' | 'count'>

function parseRemoval(value: boolean | string | KeepLastOptions | undefined, field: string): Removal | undefined {
  if (value === undefined || value === false) return undefined
  if (value === true) return { deleteAfter: 0 }
  if (typeof value === 'string') return { deleteAfter: parseDuration(value, field) }
  if (isObject(value)) return parseKeepLast(value, field)
  // Other queues take a number of jobs to keep: as milliseconds, 1000 would remove all after a second.
  throw invalid(
    `${field} must be true, a duration with its unit, as '7d', or { age: '7d', count: 1000 }, and not ${quote(value)}.`,
  )
}

function parseKeepLast(options: KeepLastOptions, field: string): Removal {
  refuseUnknown(options, ['age', 'count'], field)
  const { age, count } = options
  if (age === undefined && count === undefined) throw invalid(`${field} must have an age, a count, or both.`)
  // Other queues take an age in seconds.
  if (age !== undefined && typeof age !== 'string')
    throw mustBe(`${field}.age`, `a duration with its unit, as '7d'`, age)
  return {
    ...(age !== undefined && { deleteAfter: positive(age, `${field}.age`) }),
    ...(count !== undefined && { count: whole(count, `${field}.count`, 1) }),
  }
}

/** The job's own setting overrides the queue's retention. */
function overrideRetention(retention: Keep | undefined, own: Removal | undefined): Keep | undefined {
  if (own === undefined) return retention
  return retention?.staleAfter === undefined ? own : { staleAfter: retention.staleAfter, ...own }
}
