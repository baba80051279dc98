// testing/queue/added.ts: jobs as they were added, and how a test asks for them.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import { refuseUnknown } from '../../job/values/names.js'
import { checkTags } from '../../job/values/tags.js'
import { parseExpires } from '../../queue/add-options.js'
import type { InputOf, JobDefinitions, NameOf } from '../../queue/define.js'
import { matches } from './match.js'

/** A job as it was added, whatever became of it since. */
export interface AddedJob<Name extends string = string, Data = unknown> {
  /** Its id. */
  readonly id: string
  /** Its name. */
  readonly name: Name
  /** Its data, as it is stored. */
  readonly data: Data
  /** Jobs of a lower priority number run first. */
  readonly priority: number
  /** The most attempts, the first included. */
  readonly attempts: number
  /** How long an attempt may run, in milliseconds; undefined: as its handler declares. */
  readonly timeout: Millis | undefined
  /** How long it was delayed, in milliseconds; undefined: not at all. */
  readonly delay: Millis | undefined
  /** When it was to run; undefined: at once. */
  readonly runAt: Time | undefined
  /** When it expires unless it is started before; undefined: never. */
  readonly expiresAt: Time | undefined
  /** Its group. */
  readonly group: string | undefined
  /** Its tags; empty if it has none. */
  readonly tags: readonly string[]
  /** Its dedup key, as it was given. */
  readonly dedup: string | undefined
  /** The job whose handler added it, or the schedule whose run it is. */
  readonly parentId: string | undefined
  /** When it was added. */
  readonly addedAt: Time
}

/** A job of one declared name, or of any, discriminated by `name`, as it was added. */
export type AddedOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = Name extends unknown
  ? AddedJob<Name, InputOf<Jobs[Name]>>
  : never

/** Options that a job must have been added with, written as for `add`. What is omitted may be anything. */
export interface AddedOptions {
  /** Its id. Default: any. */
  readonly id?: string
  /** Its priority. Default: any. */
  readonly priority?: number
  /** Its attempts. Default: any. */
  readonly attempts?: number
  /** Its timeout. Default: any. */
  readonly timeout?: Duration
  /** Its delay; 0: none. A job with `runAt` has the delay until then. Default: any. */
  readonly delay?: Duration
  /** When it is to run. Default: any. */
  readonly runAt?: Date | number
  /** When it expires: a date, or a duration from the add on. Default: any, or never. */
  readonly expires?: Duration | Date
  /** Its group. Default: any. */
  readonly group?: string
  /** Tags that it has, in any order; it may have others. Default: any. */
  readonly tags?: readonly string[]
  /** Its dedup key. Default: any. */
  readonly dedup?: { readonly key: string }
  /** The job whose handler added it. Default: any. */
  readonly parentId?: string
}

const optionNames = [
  'id',
  'priority',
  'attempts',
  'timeout',
  'delay',
  'runAt',
  'expires',
  'group',
  'tags',
  'dedup',
  'parentId',
] as const satisfies readonly (keyof AddedOptions)[]

/** A new record as it was added. */
export function addedJob(record: JobRecord): AddedJob {
  const { id, name, data, priority, attempts, timeout, runAt, expiresAt, group, extras, dedup, parentId, createdAt } =
    record
  return {
    id,
    name,
    data: data === undefined ? undefined : decodeJson(data),
    priority,
    attempts,
    timeout,
    delay: runAt === undefined ? undefined : runAt - createdAt,
    runAt,
    expiresAt,
    group,
    tags: extras?.tags ?? [],
    dedup: dedup && (JSON.parse(dedup.key) as string[]).at(-1)!, // the scope comes before it
    parentId,
    addedAt: createdAt,
  }
}

/** A test of jobs by data and options. Throws if an option is unknown or invalid. */
export function wanted(data: unknown, options: AddedOptions = {}, where: string): (job: AddedJob) => boolean {
  refuseUnknown(options, optionNames, where)
  const { timeout, delay, runAt, expires, tags, dedup, ...same } = options
  const hasTags = tags === undefined ? [] : (checkTags(tags, `${where}: tags`) ?? [])
  const expiry = expires === undefined ? undefined : parseExpires(expires, `${where}: expires`)
  const expected = {
    ...same,
    ...(timeout !== undefined && { timeout: parseDuration(timeout, `${where}: timeout`) }),
    ...(delay !== undefined && { delay: parseDuration(delay, `${where}: delay`) || undefined }),
    ...(runAt !== undefined && { runAt: Number(runAt) }),
    ...(dedup !== undefined && { dedup: dedup.key }),
    ...(data !== undefined && { data }),
  }
  return (job) =>
    matches(job, expected) &&
    hasTags.every((tag) => job.tags.includes(tag)) &&
    (expiry === undefined || job.expiresAt === ('at' in expiry ? expiry.at : job.addedAt + expiry.in))
}
