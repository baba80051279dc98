// testing/queue/matchers.ts: matchers of test queues, for `expect.extend` of vitest and jest.
import { MillraceError } from '../../job/errors/errors.js'
import { invalid, whole } from '../../job/values/options.js'
import type { InputOf, JobDefinitions, NameOf } from '../../queue/define.js'
import type { AddedJob, AddedOptions } from './added.js'
import type { Match } from './match.js'
import { TestQueue } from './test-queue.js'

/** The jobs of a test queue; of anything else, any jobs. */
type JobsOf<Received> = Received extends TestQueue<infer Jobs, infer _Extra> ? Jobs : never

/** The names of the jobs of a test queue. */
type NamesOf<Received> = [JobsOf<Received>] extends [never] ? string : NameOf<JobsOf<Received>>

/** What the data of a job must match. */
type DataMatch<Received, Name> = [JobsOf<Received>] extends [never]
  ? unknown
  : Name extends NameOf<JobsOf<Received>>
    ? Match<InputOf<JobsOf<Received>[Name] & JobDefinitions[string]>>
    : unknown

/**
 * The matchers, as types: `Received` is what `expect` was given, `Return` what a matcher returns. Declare them once:
 *
 * ```ts
 * declare module 'vitest' {
 *   interface Matchers<T = any> extends MillraceMatchers<T> {}
 * }
 * ```
 */
export interface MillraceMatchers<Received = unknown, Return = void> {
  /** Passes if a job of this name was added that matches; see `added` of a test queue. */
  toHaveAdded<Name extends NamesOf<Received>>(
    name: Name,
    data?: DataMatch<Received, Name>,
    options?: AddedOptions,
  ): Return
  /** Passes if so many jobs of this name were added that match. */
  toHaveAddedTimes<Name extends NamesOf<Received>>(
    count: number,
    name: Name,
    data?: DataMatch<Received, Name>,
    options?: AddedOptions,
  ): Return
}

/** The result of a matcher, as vitest and jest expect it. */
export interface MatcherResult {
  /** Whether it matches. */
  readonly pass: boolean
  /** Why the assertion failed; with `.not`, why that failed. */
  readonly message: () => string
}

/**
 * Matchers for test queues: `expect.extend(millraceMatchers)`, then `expect(queue).toHaveAdded('send-email', { to })`.
 * The same in vitest and in jest.
 */
export const millraceMatchers = {
  /** Whether a job was added that matches. */
  toHaveAdded(received: unknown, name: string, data?: unknown, options?: AddedOptions): MatcherResult {
    const found = added(received, name, data, options)
    return result(received, found.length > 0, 'a job', name, data, options)
  },
  /** Whether so many jobs were added that match. */
  toHaveAddedTimes(
    received: unknown,
    count: number,
    name: string,
    data?: unknown,
    options?: AddedOptions,
  ): MatcherResult {
    whole(count, 'toHaveAddedTimes: count', 0)
    const found = added(received, name, data, options)
    return result(received, found.length === count, `${count} jobs, and not ${found.length},`, name, data, options)
  },
}

function added(received: unknown, name: string, data: unknown, options?: AddedOptions): readonly AddedJob[] {
  return queueIn(received).added(name, data, options)
}

function queueIn(received: unknown): TestQueue {
  if (received instanceof TestQueue) return received
  throw received instanceof MillraceError ? received : invalid('expect(…): give it a queue made by testQueue.')
}

function result(
  received: unknown,
  pass: boolean,
  what: string,
  name: string,
  data: unknown,
  options: AddedOptions | undefined,
): MatcherResult {
  return {
    pass,
    message: () => {
      const { name: queue } = queueIn(received)
      const wish = [`'${name}'`, data, options].filter((each) => each !== undefined).map(show)
      const all = queueIn(received).added(name)
      const list = all.map((job) => `\n  ${show(job.data)} ${show(optionsOf(job))}`).join('')
      return `Expected queue '${queue}' ${pass ? 'not ' : ''}to have added ${what} like (${wish.join(', ')}). ${
        all.length === 0 ? `No '${name}' was added.` : `Added were:${list}`
      }`
    },
  }
}

/** The options of a job that are not the default. */
function optionsOf({ id, priority, delay, group, dedup }: AddedJob): object {
  return { id, ...(priority !== 0 && { priority }), delay, group, dedup }
}

function show(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'function') return value.toString()
  return (
    JSON.stringify(value, (_key, each: unknown) =>
      typeof each === 'function' ? each.toString() : typeof each === 'bigint' ? String(each) : each,
    ) ?? 'undefined'
  )
}
